"""BlueFog's optimizers over windows: no rank waits for another."""

from __future__ import annotations

import itertools
from typing import Optional

import torch

from .. import _core
from . import process
from .decentralize import Decentralized, Model
from .optimizers import _checked_number, _make, _Timed, _Weighted

_numbers = itertools.count()


class _OverWindows(Decentralized):
    """Has windows under names of its own, until unregister_window()."""

    force_barrier = False
    """Whether every step ends with a barrier."""
    _window_names: tuple = ()

    def step(self, closure=None, **scaling):
        loss = super().step(closure, **scaling)
        if self.force_barrier:
            process.flock().start_barrier("step/barrier").wait()
        return loss

    def unregister_window(self) -> None:
        """Frees the windows; no step can be made afterwards. A collective."""
        names, self._window_names, self._trainer = self._window_names, (), None
        for name in names:
            if process.flock().has_window(name):
                _core.free_window(process.flock(), name)


class _WinPut(_OverWindows, _Weighted):
    def _set_neighbors(self, settable: _core.SettableSchedule, step: int) -> None:
        flock = process.flock()
        own, sources, destinations, group = flock.schedule.exchange(step, flock.rank)
        if self.dst_weights is not None:
            chosen = self.dst_weights
            destinations = dict(chosen) if isinstance(chosen, dict) else dict.fromkeys(chosen, 1.0)
            strangers = sorted(set(destinations) - set(process.out_neighbor_ranks()))
            if strangers:
                raise ValueError(f"dst_weights has {strangers}, but this rank has windows only at its out-neighbours "
                                 f"{process.out_neighbor_ranks()}")
        else:
            destinations = dict.fromkeys(destinations, 1.0)
        settable.set(own, sources, destinations, group)

    def _read_settings(self) -> None:
        if not self._ready:
            self._ready = True
            self._calls += 1
            if self._calls % self._every != 0:
                self._settable.set(1.0, {}, {})
            else:
                self._set_neighbors(self._settable, self._averages)
                self._averages += 1


class _PushSum(_OverWindows, _Timed):
    pass


class _PullGet(_OverWindows, _Weighted):
    """Local steps, after each of which the neighbours' latest models are fetched and averaged."""

    def _open_windows(self, prefix: str) -> None:
        self._windows = []
        for index, flat in enumerate(self._trainer.flat_parameters()):
            code = _core.dtypes[str(flat.dtype).replace("torch.", "")]
            self._windows.append(_core.Window(process.flock(), flat.data_ptr(), flat.numel(), code, f"{prefix}/{index}"))
        self._flat = self._trainer.flat_parameters()  # kept as long as the windows

    def _read_settings(self) -> None:
        self._ready = True
        self._settable.set(1.0, {}, {})

    def step(self, closure=None, **scaling):
        loss = super().step(closure, **scaling)
        self._calls += 1
        if self._calls % self._every == 0:
            for window in self._windows:
                window.publish()
                window.get()
                window.update()
            self._trainer.flat_parameters_changed()
        return loss

    def unregister_window(self) -> None:
        self._windows = []
        super().unregister_window()


def _prefix(kind: str, given: Optional[str]) -> str:
    return given if given is not None else f"{kind}.{next(_numbers)}"


def DistributedWinPutOptimizer(optimizer: torch.optim.Optimizer, model: Model, num_steps_per_communication: int = 1,
                               window_prefix: Optional[str] = None) -> Decentralized:
    """Each step puts the updated model into the out-neighbours' windows, and averages what is in one's own by then.

    ``dst_weights`` (a dict or list of out-neighbours) may be set before every step; ``force_barrier = True`` lets all ranks
    meet after every step; ``unregister_window()`` frees the windows at the end.
    """
    prefix = _prefix("win_put", window_prefix)
    made = _make(_WinPut, optimizer, model, num_steps_per_communication, "win-put", name=prefix)
    made._window_names = tuple(f"{prefix}/{index}/window" for index in range(made._trainer.buckets))
    return made


def DistributedPushSumOptimizer(optimizer: torch.optim.Optimizer, model: Model, num_steps_per_communication: int = 1,
                                window_prefix: Optional[str] = None) -> Decentralized:
    """Each step gives shares of the model to the out-neighbours, 1 / (their number + 1) each, with a scalar that corrects
    for what directed graphs do to averages (push-sum)."""
    prefix = _prefix("push_sum", window_prefix)
    schedule = _core.every_schedule(_push_schedule(), _checked_number(num_steps_per_communication))
    made = _make(_PushSum, optimizer, model, 1, "async-push-sum", name=prefix, schedule=schedule)
    made._window_names = tuple(f"{prefix}/{index}/window" for index in range(made._trainer.buckets))
    return made


def _push_schedule() -> _core.Schedule:
    """The topology's edges with weights that sum to one over what a rank sends."""
    flock = process.flock()
    graph = process.load_topology()
    receivers, senders, weights = [], [], []
    for sender in range(flock.size):
        told = sorted(set(graph.successors(sender)) | {sender})
        for receiver in told:
            receivers.append(receiver)
            senders.append(sender)
            weights.append(1.0 / len(told))
    return _core.schedule_from_weights(flock.size, (receivers, senders, weights), f"push of {flock.schedule.name}", push=True)


def DistributedPullGetOptimizer(optimizer: torch.optim.Optimizer, model: Model, num_steps_per_communication: int = 1,
                                window_prefix: Optional[str] = None) -> Decentralized:
    """Each step updates the model, fetches the in-neighbours' models as they are, and averages."""
    prefix = _prefix("pull_get", window_prefix)
    made = _make(_PullGet, optimizer, model, num_steps_per_communication, "dsgd-atc", name=prefix)
    made._open_windows(prefix)
    made._window_names = tuple(window.name for window in made._windows)
    return made
