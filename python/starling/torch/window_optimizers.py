"""BlueFog's optimizers over windows: no rank waits for another."""

from __future__ import annotations

import itertools
from typing import Dict, Optional, Tuple

import torch

from .. import _core
from . import process
from .decentralize import Decentralized, Model
from .optimizers import _make, _Weighted
from .tensors import FLOATING, operand
from .weights import destination_weights, own_weight, read_weights

_numbers = itertools.count()


class _OverWindows(Decentralized):
    """Owns windows, under names of its own, until unregister_window()."""

    force_barrier = False
    """Whether every step has barriers before and after the ranks write to each other's windows, so that results do not
    depend on their speed."""
    _window_names: tuple = ()

    def _before_forward(self) -> None:
        super()._before_forward()
        self._collect()

    def _before_step(self) -> None:
        self._collect()
        super()._before_step()
        self._meet()

    def step(self, closure=None, **scaling):
        loss = super().step(closure, **scaling)
        self._meet()
        return loss

    def _collect(self) -> None:
        """Averages what the others have written since the last step, with the weights of that step."""
        if self._trainer is None:
            raise RuntimeError(self._gone)
        self._trainer.begin()

    def _meet(self) -> None:
        if self.force_barrier:
            process.flock().start_barrier("step/barrier").wait()

    def unregister_window(self) -> None:
        """Frees the windows; no step can be made afterwards. A collective."""
        if self._trainer is not None:
            self._trainer.export_optimizer_state()
        self._remove_hooks()
        names, self._window_names, self._trainer = self._window_names, (), None
        self._gone = "the windows of this optimizer are gone: unregister_window() was its end"
        for name in names:
            if process.flock().has_window(name):
                _core.free_window(process.flock(), name)


def _told(operation: str, chosen) -> Dict[int, float]:
    told = destination_weights(operation, "dst_weights", chosen)
    strangers = sorted(set(told) - set(process.out_neighbor_ranks()))
    if strangers:
        raise ValueError(f"{operation}: dst_weights has {strangers}, but this rank has windows only at its out-neighbors "
                         f"{process.out_neighbor_ranks()}")
    return told


class _WinPut(_OverWindows, _Weighted):
    def _set_neighbors(self, settable: _core.SettableSchedule, step: int) -> None:
        flock = process.flock()
        own, sources, destinations, group = flock.schedule.exchange(step, flock.rank)
        given = read_weights("step", self.self_weight, self.src_weights, None)
        if given is not None:
            own, sources, group = given.own, given.sources, []
        if self.dst_weights is None:
            told = dict.fromkeys(destinations, 1.0)
        else:
            told = _told("step", self.dst_weights)
        settable.set(own, sources, told, group)


class _PushSum(_OverWindows, _Weighted):
    def _set_neighbors(self, settable: _core.SettableSchedule, step: int) -> None:
        """Shares: what this rank keeps and what the others get sum to one."""
        if self.self_weight is None and self.dst_weights is None:
            others = process.out_neighbor_ranks()
            own = 1.0 / (len(others) + 1)
            told = dict.fromkeys(others, own)
        elif self.self_weight is None or self.dst_weights is None:
            raise ValueError("step: push-sum takes self_weight and dst_weights together or not at all")
        else:
            own = own_weight("step", self.self_weight)
            told = _told("step", self.dst_weights)
        if abs(own + sum(told.values()) - 1.0) > 1e-9:
            raise ValueError(f"step: self_weight {own} and dst_weights {told} are shares, which sum to one")
        settable.set(own, {}, told)


class _PullGet(_OverWindows, _Weighted):
    """Local steps; after each, fetches the neighbors' latest models and averages them."""

    def _open_windows(self, prefix: str) -> None:
        self._flat = [operand(flat, FLOATING) for flat in self._trainer.flat_parameters()]  # live as long as the windows
        self._windows = []
        for index, flat in enumerate(self._flat):
            with flat.scope():
                self._windows.append(_core.Window(process.flock(), flat.block(), f"{prefix}/{index}"))

    def _read_settings(self) -> None:
        """Nothing to do before the models are fetched."""

    def step(self, closure=None, **scaling):
        loss = Decentralized.step(self, closure, **scaling)
        average, rest = divmod(self._trainer.steps, self._every)
        if rest != 0:
            return loss
        own, sources = self._weights(average - 1)
        with self._flat[0].scope():
            for window in self._windows:
                window.publish()
            self._meet()
            for window in self._windows:
                window.get(dict.fromkeys(sources, 1.0))
            self._meet()  # so that peers can fetch the averaged model, too
            for window in self._windows:
                window.update_weighted(own, sources, False)
        self._trainer.flat_parameters_changed()
        return loss

    def _weights(self, step: int) -> Tuple[float, Dict[int, float]]:
        given = read_weights("step", self.self_weight, self.src_weights, None)
        if given is not None:
            return given.own, given.sources
        rank = process.flock().rank
        row = {sender: weight for receiver, sender, weight in zip(*process.flock().schedule.entries(step))
               if receiver == rank}
        return row.pop(rank, 0.0), row

    def unregister_window(self) -> None:
        self._windows = []
        super().unregister_window()


def _check_known_neighbors() -> None:
    schedule = process.flock().schedule
    if schedule.random:
        raise ValueError(f"windows are made for neighbors that are known in advance, and {schedule.name} draws new ones in "
                         "every step")


def _prefix(kind: str, given: Optional[str]) -> str:
    return given if given is not None else f"{kind}.{next(_numbers)}"


def DistributedWinPutOptimizer(optimizer: torch.optim.Optimizer, model: Model, num_steps_per_communication: int = 1,
                               window_prefix: Optional[str] = None) -> Decentralized:
    """Each step puts the updated model into the out-neighbors' windows, and averages what has arrived in this rank's
    own. ``dst_weights`` (a dict or list of out-neighbors) may be set before every step; ``force_barrier = True`` adds a
    barrier after every step; ``unregister_window()`` frees the windows at the end.
    """
    _check_known_neighbors()
    prefix = _prefix("win_put", window_prefix)
    made = _make(_WinPut, optimizer, model, num_steps_per_communication, "win-put", name=prefix)
    made._window_names = tuple(f"{prefix}/{index}/window" for index in range(made._trainer.buckets))
    return made


def DistributedPushSumOptimizer(optimizer: torch.optim.Optimizer, model: Model, num_steps_per_communication: int = 1,
                                window_prefix: Optional[str] = None) -> Decentralized:
    """Each step gives shares of the model to the out-neighbors, 1 / (their number + 1) each, with a scalar that
    corrects the bias of directed graphs (push-sum). ``self_weight`` and ``dst_weights`` may be set to other shares
    before every step."""
    _check_known_neighbors()
    prefix = _prefix("push_sum", window_prefix)
    made = _make(_PushSum, optimizer, model, num_steps_per_communication, "async-push-sum", name=prefix)
    made._window_names = tuple(f"{prefix}/{index}/window" for index in range(made._trainer.buckets))
    return made


def DistributedPullGetOptimizer(optimizer: torch.optim.Optimizer, model: Model, num_steps_per_communication: int = 1,
                                window_prefix: Optional[str] = None) -> Decentralized:
    """Each step updates the model, fetches the in-neighbors' current models, and averages."""
    _check_known_neighbors()
    prefix = _prefix("pull_get", window_prefix)
    made = _make(_PullGet, optimizer, model, num_steps_per_communication, "dsgd-atc", name=prefix)
    made._open_windows(prefix)
    made._window_names = tuple(window.name for window in made._windows)
    return made
