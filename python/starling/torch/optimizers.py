"""BlueFog's optimizer wrappers: the user's optimizer, with neighbors that may be chosen in every step."""

from __future__ import annotations

import warnings
from enum import Enum
from typing import Callable, Optional, Union

import torch

from .. import _core
from . import operations, process, timeline
from .decentralize import Decentralized, Model, face_of, models_of
from .weights import check_matches, destination_weights, own_weight, read_weights, source_weights


class CommunicationType(Enum):
    """How a step communicates."""

    neighbor_allreduce = "neighbor.allreduce"
    hierarchical_neighbor_allreduce = "hierarchical.neighbor.allreduce"
    allreduce = "allreduce"
    empty = "empty"


class _Timed(Decentralized):
    """Shows the phases of a step in the timeline, on request."""

    _timed = None

    def turn_on_timeline(self) -> bool:
        """Records FORWARD and GRADIENT COMPT. of every step (with ``BLUEFOG_TIMELINE``); False when no timeline is written."""
        if timeline.writer is None:
            return False
        self._timed = self._timed or "model"
        return True

    def turn_off_timeline(self) -> bool:
        """Ends turn_on_timeline()."""
        self._timed = None
        return timeline.writer is not None

    def _before_forward(self) -> None:
        if self._timed is not None:
            timeline.timeline_start_activity(self._timed, "FORWARD")

    def _after_forward(self) -> None:
        if self._timed is not None:
            timeline.timeline_end_activity(self._timed)
            timeline.timeline_start_activity(self._timed, "GRADIENT COMPT.")

    def _before_step(self) -> None:
        if self._timed is not None:
            timeline.timeline_end_activity(self._timed)


class _Weighted(_Timed):
    """Reads the neighbors in every step from attributes, which may be set at any time between two steps."""

    self_weight: Optional[float] = None
    src_weights = None
    dst_weights = None
    src_machine_weights = None
    dst_machine_weights = None
    enable_topo_check = False
    communication_type = CommunicationType.neighbor_allreduce
    _ready = False  # whether the attributes of the next step have been read
    _every = 1
    _during_forward = False

    def _before_forward(self) -> None:
        super()._before_forward()
        if self._during_forward:
            self._read_settings()
            self._trainer.begin()

    def _before_step(self) -> None:
        super()._before_step()
        self._read_settings()
        self._ready = False

    def synchronize(self) -> None:
        self._read_settings()
        super().synchronize()

    def _read_settings(self) -> None:
        if self._ready:
            return
        kind = CommunicationType(self.communication_type)
        average, rest = divmod(self._trainer.steps + 1, self._every)
        if rest != 0 or kind is CommunicationType.empty:
            self._settable.set(1.0, {}, {})
        else:
            getattr(self, _SETTERS[kind])(self._settable, average - 1)
        self._ready = True

    def _set_neighbors(self, settable: _core.SettableSchedule, step: int) -> None:
        given = read_weights("step", self.self_weight, self.src_weights, self.dst_weights)
        flock = process.flock()
        if given is None:
            settable.set_from(flock.schedule, step, flock.rank)
            return
        if given.dynamic and self.enable_topo_check:
            lists, read = operations.start_allgather_lists([list(given.sources), list(given.destinations)], "step/check")
            lists.wait()
            check_matches("step", read())
        settable.set(given.own, given.sources, given.destinations)

    def _set_machines(self, settable: _core.SettableSchedule, step: int) -> None:
        flock = process.flock()
        outer = process.state.machine_schedule
        if flock.local_size == 1:
            raise RuntimeError("hierarchical averages need more than one rank per machine")
        weights = (self.self_weight, self.src_machine_weights, self.dst_machine_weights)
        if all(one is None for one in weights):
            if outer is None:
                raise RuntimeError("hierarchical averages need bf.set_machine_topology(...) first")
            settable.set_from(_core.hierarchical_schedule(outer, flock.local_size), step, flock.rank)
            return
        if any(one is None for one in weights):
            raise ValueError("self_weight, src_machine_weights and dst_machine_weights are set together or not at all")

        def ranks(machines):
            return {machine * flock.local_size + flock.local_rank: weight for machine, weight in machines.items()}

        first = flock.machine_rank * flock.local_size
        settable.set(own_weight("step", self.self_weight),
                     ranks(source_weights("step", "src_machine_weights", self.src_machine_weights)),
                     ranks(destination_weights("step", "dst_machine_weights", self.dst_machine_weights)),
                     list(range(first, first + flock.local_size)))

    def _set_all_ranks(self, settable: _core.SettableSchedule, step: int) -> None:
        settable.set(1.0, {}, {}, list(range(process.flock().size)))

    # Older spellings.
    neighbor_weights = property(lambda self: self.src_weights, lambda self, value: setattr(self, "src_weights", value))
    send_neighbors = property(lambda self: self.dst_weights, lambda self, value: setattr(self, "dst_weights", value))


_SETTERS = {
    CommunicationType.neighbor_allreduce: "_set_neighbors",
    CommunicationType.hierarchical_neighbor_allreduce: "_set_machines",
    CommunicationType.allreduce: "_set_all_ranks",
}


class _AdaptThenCombine(_Weighted):
    _step_function: Optional[Callable] = None

    def register_step_function(self, function: Callable) -> None:
        """``function(optimizer, parameter, gradient, group)`` updates one parameter, in place of the optimizer's own step.
        Every rank registers one before its first step."""
        if self._trainer.steps > 0:
            raise RuntimeError("register_step_function: steps have been made already")
        self._step_function = function
        self._renew(native="")

    def _step_alone(self) -> None:
        if self._step_function is None:
            super()._step_alone()
            return
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._step_function(self, parameter, parameter.grad, group)


class _AdaptWithCombine(_Weighted):
    _during_forward = True


def _make(face: type, optimizer: torch.optim.Optimizer, model: Model, every: int, method: str, **options) -> Decentralized:
    models = _checked_models(optimizer, model)
    every = _checked_number(every)
    made = face_of(face, optimizer)
    if issubclass(face, _Weighted):
        flock = process.flock()
        made._every = every
        made._settable = _core.SettableSchedule(flock.size, flock.rank)
        if method in ("win-put", "async-push-sum"):  # its windows have a slot for every source
            made._settable.set(1.0, dict.fromkeys(process.in_neighbor_ranks(), 0.0),
                               dict.fromkeys(process.out_neighbor_ranks(), 1.0))
        options["schedule"] = made._settable
    made._attach(optimizer, models, method=method, broadcast_at_start=False, **options)
    return made


def _checked_models(optimizer: torch.optim.Optimizer, model: Model):
    """Checks that the optimizer's parameters are the models', each once."""
    models = models_of(model)
    process.flock()
    names = {}
    for one in models:
        for name, parameter in one.named_parameters():
            if id(parameter) in names:
                raise ValueError(f"parameter {name} is listed twice: in {names[id(parameter)]} and {type(one).__name__}")
            names[id(parameter)] = type(one).__name__
    seen = set()
    for index, group in enumerate(getattr(optimizer, "param_groups", ())):
        for place, parameter in enumerate(group["params"]):
            if id(parameter) not in names:
                raise ValueError(f"parameter {place} of the optimizer's group {index} is in none of the models")
            if id(parameter) in seen:
                raise ValueError(f"parameter {place} of the optimizer's group {index} is listed twice")
            seen.add(id(parameter))
    return models


def _checked_number(steps: int) -> int:
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"num_steps_per_communication must be a whole number of at least 1, not {steps!r}")
    return steps


def DistributedGradientAllreduceOptimizer(optimizer: torch.optim.Optimizer, model: Model,
                                          num_steps_per_communication: int = 1) -> Decentralized:
    """All ranks step along the mean gradient, as Horovod and DDP do; gradients travel during backward.
    ``num_steps_per_communication``: backward passes per ``step()``, whose gradients add up."""
    return _make(_Timed, optimizer, model, 1, "allreduce", accumulation=_checked_number(num_steps_per_communication))


def DistributedAdaptThenCombineOptimizer(
        optimizer: torch.optim.Optimizer, model: Model,
        communication_type: Union[CommunicationType, str] = CommunicationType.neighbor_allreduce,
        num_steps_per_communication: int = 1) -> Decentralized:
    """Each step updates, then averages the updated models with the neighbors.

    ``self_weight``, ``src_weights``, ``dst_weights`` (and their machine forms), ``communication_type`` and
    ``enable_topo_check`` may be set on the result before every step; without them the topology's weights count.

        optimizer = bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), 0.1), model)
    """
    made = _make(_AdaptThenCombine, optimizer, model, num_steps_per_communication, "dsgd-atc")
    made.communication_type = CommunicationType(communication_type)
    return made


def DistributedAdaptWithCombineOptimizer(
        optimizer: torch.optim.Optimizer, model: Model,
        communication_type: Union[CommunicationType, str] = CommunicationType.neighbor_allreduce,
        num_steps_per_communication: int = 1) -> Decentralized:
    """Each step averages the neighbors' models while forward and backward compute, and adds the update to that. The
    attributes are read when forward begins."""
    made = _make(_AdaptWithCombine, optimizer, model, num_steps_per_communication, "dsgd-awc")
    made.communication_type = CommunicationType(communication_type)
    return made


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"{old} is BlueFog's older name of {new}", DeprecationWarning, stacklevel=3)


def DistributedAllreduceOptimizer(optimizer, model, num_steps_per_communication: int = 1) -> Decentralized:
    """Older name: adapt-with-combine by all-reduce of the models."""
    _deprecated("DistributedAllreduceOptimizer", "DistributedAdaptWithCombineOptimizer(communication_type=allreduce)")
    return DistributedAdaptWithCombineOptimizer(optimizer, model, CommunicationType.allreduce, num_steps_per_communication)


def DistributedNeighborAllreduceOptimizer(optimizer, model, num_steps_per_communication: int = 1) -> Decentralized:
    """Older name of DistributedAdaptWithCombineOptimizer."""
    _deprecated("DistributedNeighborAllreduceOptimizer", "DistributedAdaptWithCombineOptimizer")
    return DistributedAdaptWithCombineOptimizer(optimizer, model, CommunicationType.neighbor_allreduce,
                                                num_steps_per_communication)


def DistributedHierarchicalNeighborAllreduceOptimizer(optimizer, model,
                                                      num_steps_per_communication: int = 1) -> Decentralized:
    """Older name: adapt-with-combine by hierarchical neighbor averages."""
    _deprecated("DistributedHierarchicalNeighborAllreduceOptimizer",
                "DistributedAdaptWithCombineOptimizer(communication_type=hierarchical_neighbor_allreduce)")
    return DistributedAdaptWithCombineOptimizer(optimizer, model, CommunicationType.hierarchical_neighbor_allreduce,
                                                num_steps_per_communication)
