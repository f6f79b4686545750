"""Equal starts: parameters and optimizer states of one rank, or their averages, on all ranks."""

from __future__ import annotations

import pickle
from typing import Any, Iterable, List, Mapping, Tuple, Union

import torch

from . import operations
from .process import rank
from .tensors import FLOATING

__all__ = [
    "allreduce_parameters", "broadcast_optimizer_state", "broadcast_parameters",
]


Parameters = Union[Mapping[str, torch.Tensor], Iterable[Union[torch.Tensor, Tuple[str, torch.Tensor]]]]


def broadcast_parameters(params: Parameters, root_rank: int) -> None:
    """All ranks' parameters become those of ``root_rank``: ``model.state_dict()``, ``model.named_parameters()``, a list
    of them or of tensors. All travel as one message.

        bf.broadcast_parameters(model.state_dict(), root_rank=0)
    """
    tensors = [_as_bytes(tensor) for tensor in _tensors("broadcast_parameters", params)]
    if tensors:
        operations.broadcast_group_(tensors, root_rank, name="broadcast_parameters")


def allreduce_parameters(params: Parameters) -> None:
    """All ranks' parameters become their average. Whole numbers, such as a batch norm's counter, stay as they are."""
    tensors = [tensor for tensor in _tensors("allreduce_parameters", params) if tensor.dtype in FLOATING]
    for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
        operations.allreduce_group_([tensor for tensor in tensors if tensor.dtype == dtype],
                                    name=f"allreduce_parameters.{dtype}")


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    """All ranks' optimizers get the state of ``root_rank``'s: options, step counters, momenta.

        bf.broadcast_optimizer_state(optimizer, root_rank=0)
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("broadcast_optimizer_state: LBFGS keeps a history that cannot be broadcast")
    tensors: List[torch.Tensor] = []
    mine = rank() == root_rank
    packed = pickle.dumps(_without_tensors(optimizer.state_dict(), tensors)) if mine else b""
    form = pickle.loads(_broadcast_bytes(packed, root_rank))
    if not mine:
        tensors = []
        state = _with_empty_tensors(form, tensors)
    if tensors:
        received = operations.broadcast_group([_as_bytes(tensor) for tensor in tensors], root_rank,
                                              name="broadcast_optimizer_state")
    if mine:
        return
    for tensor, value in zip(tensors, received if tensors else []):
        _as_bytes(tensor).copy_(value)
    optimizer.load_state_dict(state)


def _tensors(operation: str, params: Parameters) -> List[torch.Tensor]:
    listed = list(params.values()) if isinstance(params, Mapping) else list(params)
    tensors = [item[1] if isinstance(item, tuple) else item for item in listed]
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{operation} takes named parameters or tensors, not {type(tensor).__name__}")
    return [tensor.detach() for tensor in tensors]


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Sends booleans as bytes."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


class _Hole:
    """Marks the place of a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype


def _without_tensors(value: Any, tensors: List[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return _Hole(value)
    if isinstance(value, dict):
        return {key: _without_tensors(one, tensors) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without_tensors(one, tensors) for one in value)
    return value


def _with_empty_tensors(value: Any, tensors: List[torch.Tensor]) -> Any:
    if isinstance(value, _Hole):
        tensors.append(torch.empty(value.shape, dtype=value.dtype))
        return tensors[-1]
    if isinstance(value, dict):
        return {key: _with_empty_tensors(one, tensors) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_with_empty_tensors(one, tensors) for one in value)
    return value


def _broadcast_bytes(packed: bytes, root: int) -> bytes:
    length = operations.broadcast(torch.tensor(len(packed)), root, name="broadcast_optimizer_state.length")
    memory = torch.zeros(int(length), dtype=torch.uint8)
    if packed:
        memory = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
    return operations.broadcast(memory, root, name="broadcast_optimizer_state.form").numpy().tobytes()
