"""A module that trains itself: DecentDP's form of a training loop."""

from __future__ import annotations

import weakref
from typing import Callable, Iterable, List, Optional, Tuple

import torch

from .. import _core
from . import process
from .decentralize import Topology, decentralize

Named = List[Tuple[str, torch.nn.Parameter]]


class DecentralizedDataParallel(torch.nn.Module):
    """Wraps a model with its optimizer: every ``backward()`` ends with the update and the exchange with the neighbors.

        model = DecentralizedDataParallel(net, optim_fn=lambda named: torch.optim.SGD([p for _, p in named], lr=0.1),
                                          topology="one-peer-exponential")
        for x, y in loader:
            loss(model(x), y).backward()      # and the step is made; gradients are zero again

    ``optim_fn(named_parameters)`` makes the optimizer, ``lr_scheduler_fn(optimizer)`` a scheduler that steps after every
    update. ``grad_clip_norm`` bounds the global norm of the gradients. ``set_accumulate_grad(True)`` lets the following
    backward passes only add up their gradients. DecentDP's names of topologies mean what they do there: ``ring`` is
    our ``one-peer-ring`` (our ``ring`` where the number of ranks is odd), ``one-peer-exp`` our ``one-peer-exponential``,
    ``alternating-exp-ring`` (or ``aer``) our ``aer`` with the ranks of a machine as its inner groups; Starling's ring is
    ``ring()``. Methods, messages and the rest as in ``starling.torch.decentralize``.
    """

    def __init__(self, model: torch.nn.Module, optim_fn: Callable[[Named], torch.optim.Optimizer],
                 lr_scheduler_fn: Optional[Callable[[torch.optim.Optimizer], object]] = None,
                 topology: Optional[Topology] = None, *, method: str = _core.DEFAULT_METHOD, scaler=None,
                 grad_clip_norm: float = 0.0, sync_buffer_in_global_avg: bool = False, bucket_size_in_mb: float = 4.0,
                 **options) -> None:
        super().__init__()
        self.module = model
        self._scaler = scaler
        self._accumulating = False
        reference = weakref.ref(self)
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        self._optimizer = decentralize(
            model, optim_fn(named), method=method, topology=_our_name(topology), clip_norm=grad_clip_norm,
            bucket_mb=bucket_size_in_mb, buffers="average" if sync_buffer_in_global_avg else "local",
            _after_backward=lambda: _end_backward(reference()), **options)
        self._scheduler = None if lr_scheduler_fn is None else lr_scheduler_fn(self._optimizer)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def _after_backward(self) -> None:
        if self._accumulating:
            return
        if self._scaler is not None:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        else:
            self._optimizer.step()
        self._optimizer.zero_grad()
        if self._scheduler is not None:
            self._scheduler.step()

    def set_accumulate_grad(self, enable: bool = True) -> None:
        """Whether the following backward passes only add up gradients; the first one after ``False`` makes the step."""
        self._accumulating = bool(enable)

    def global_avg(self) -> None:
        """All ranks continue with the mean model (buffers with ``sync_buffer_in_global_avg``). A collective."""
        self._optimizer.adopt_average()

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The decentralized optimizer inside."""
        return self._optimizer

    @property
    def lr_scheduler(self):
        """The scheduler that ``lr_scheduler_fn`` returned."""
        return self._scheduler

    def parameters(self, recurse: bool = True) -> Iterable[torch.nn.Parameter]:
        return self.module.parameters(recurse)

    def named_parameters(self, prefix: str = "", recurse: bool = True, *args, **kwargs):
        return self.module.named_parameters(prefix, recurse, *args, **kwargs)

    def state_dict(self, *args, **kwargs):
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        return self.module.load_state_dict(*args, **kwargs)


def _our_name(topology: Topology) -> Topology:
    """The topology that DecentDP calls by this name."""
    if not isinstance(topology, str):
        return topology
    if topology in ("alternating-exp-ring", "aer"):
        return f"aer(local={process.local_size()})"
    if topology == "ring":
        return "one-peer-ring" if process.size() % 2 == 0 else "ring"
    return "one-peer-exponential" if topology == "one-peer-exp" else topology


def _end_backward(module: Optional[DecentralizedDataParallel]) -> None:
    if module is not None:
        module._after_backward()
