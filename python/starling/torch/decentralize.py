"""Any torch optimizer, decentralized: a thin interface to the C++ Trainer."""

from __future__ import annotations

import difflib
import functools
import inspect
import io
import itertools
import types
import weakref
from contextlib import contextmanager
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from .. import _core, _torch
from .._checks import warn_renamed, whole_number
from ..topologies import schedule_from
from . import operations, process

_KNOWN = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}
# Settings of a group that native updates do not support.
_UNKNOWN_SETTINGS = ("amsgrad", "maximize", "differentiable", "decoupled_weight_decay")

_numbers = itertools.count()


class UsedAlready(_core.InvalidArgument, AssertionError):
    """An InvalidArgument; BlueFog's and Horovod's users catch AssertionError."""


class Resumed(NamedTuple):
    """The result of ``resume()``."""

    step: int
    # the argument of save(), on this rank or, if the number of ranks has changed, on the first rank
    extra: Any
    reset: str  # what was reset because the number of ranks has changed; "": the run continues bit for bit


Model = Union[torch.nn.Module, Sequence[torch.nn.Module]]
Topology = Union[str, Any]  # a name, a starling.Topology, a networkx graph or a matrix of weights


def native_kind(optimizer: torch.optim.Optimizer) -> str:
    """``sgd``, ``adam`` or ``adamw`` where one C++ pass does what the optimizer would; "" for any other optimizer, which
    then steps itself, once, in ``step()``."""
    kind = _KNOWN.get(type(optimizer), "")
    odd = kind != "adamw" and any(group.get("decoupled_weight_decay") for group in optimizer.param_groups)
    if odd or any(group.get(key) for group in optimizer.param_groups for key in _UNKNOWN_SETTINGS[:-1]):
        return ""
    return kind


class Decentralized(torch.optim.Optimizer):
    """The part of a decentralized optimizer that is added to the user's class, which it also derives from."""

    _step_supports_amp_scaling = True  # GradScaler: a rank that skips an update still takes part in the step

    _averaged = False
    _skipped_steps = 0
    _gone = "step() of an optimizer that was decentralized again: use what decentralize() returned last"

    def _attach(self, optimizer: torch.optim.Optimizer, models: List[torch.nn.Module], **options) -> None:
        """Wraps `optimizer`, whose groups and state it shares."""
        _check_trains(optimizer, models)
        _check_not_graphed(models)
        self.__dict__.update({key: value for key, value in optimizer.__dict__.items()
                              if key not in ("step", "_starling_face")})
        self._original = weakref.ref(optimizer)  # learning rate schedulers may watch it
        _retire_previous(optimizer)
        self._base = type(optimizer)
        self._models = [weakref.ref(model) for model in models]
        options.setdefault("name", f"optimizer.{next(_numbers)}")
        options.setdefault("accumulation", 0)
        self._options = options
        self._renew(native_kind(optimizer))
        optimizer._starling_face = weakref.ref(self)
        optimizer.step = types.MethodType(_step_of_original, optimizer)
        reference = weakref.ref(self)
        # Scripted modules do not support hooks: the exchanges that hooks would start begin in step() instead.
        hooked = [model for model in models if not isinstance(model, torch.jit.ScriptModule)]
        self._hooks = [model.register_forward_pre_hook(_Forward(reference, "_before_forward")) for model in hooked]
        self._hooks += [model.register_forward_hook(_Forward(reference, "_after_forward")) for model in hooked]

    def _renew(self, native: str) -> None:
        """Makes the trainer, again if there was one."""
        self._trainer = None
        reference = weakref.ref(self)  # the trainer must not keep its owner alive
        models = self._models
        options = dict(self._options)
        if "schedule" in options:
            options["schedule"] = _core.schedule_address(options["schedule"])
        self._trainer = _torch.Trainer(
            process.flock()._address(), lambda: _named(models, "named_parameters"), lambda: _named(models, "named_buffers"),
            reference, self._base.__name__, native, lambda: reference()._step_alone(), options)

    def __setstate__(self, state) -> None:
        """Loading replaces the groups: the original optimizer must refer to the new ones, too."""
        super().__setstate__(state)
        original = self._original()
        if original is not None:
            original.state, original.param_groups = self.state, self.param_groups

    def __setattr__(self, name: str, value) -> None:
        """Refuses an option of ``decentralize()``, which is read once, and a misspelt attribute, which would do nothing.
        Others are the business of the user's class."""
        if not (name.startswith("_") or name in self.__dict__ or hasattr(type(self), name)):
            _check_attribute(type(self), name)
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol):
        """For torch.save, pickle and deepcopy: it is tied to the flock of its process."""
        raise TypeError("a decentralized optimizer cannot be copied or pickled: save optimizer.state_dict(), or everything "
                        "by optimizer.save(folder)")

    def __del__(self):
        self._remove_hooks()

    def _remove_hooks(self) -> None:
        for hook in getattr(self, "_hooks", ()):
            hook.remove()
        self._hooks = []

    def _retire(self) -> None:
        """Ends this wrapper when the same optimizer is decentralized again."""
        if self._trainer is not None:
            self._trainer.export_optimizer_state()
        self._trainer = None
        self._remove_hooks()

    def add_param_group(self, param_group: dict) -> None:
        raise ValueError("add_param_group() after decentralize(), which has read the groups: add it to the original "
                         "optimizer, then decentralize that again on every rank")

    def _step_alone(self) -> None:
        """The user's own step, along the gradients that the method provides."""
        self._base.step(self)

    def _before_forward(self) -> None:
        """Starts everything that needs no gradient, such as the average of the neighbors' models."""
        self._trainer.begin()

    def _after_forward(self) -> None:
        pass

    def _before_step(self) -> None:
        pass

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Zeroes the gradients in place: they are views of flat memory. On a GPU, removes them."""
        if self._trainer is None:
            self._base.zero_grad(self)
            return
        try:
            self._trainer.zero_gradients()
        except _core.InvalidArgument as error:
            raise UsedAlready(str(error)) from None

    def step(self, closure=None, **scaling):
        """Updates, and averages with the neighbors. Every rank must call it equally often."""
        scaler = scaling.pop("grad_scaler", None)
        if scaling:
            raise TypeError(f"step() takes a closure and, from GradScaler, grad_scaler; not {', '.join(scaling)}")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._trainer is None:
            raise RuntimeError(self._gone)
        self._before_step()
        if self._overflowed(scaler):
            if self._trainer.sends_gradients:
                self._trainer.finish_gradients()  # they were sent: all ranks see the same mean, so all skip
            self._trainer.skip()
            self._skipped_steps += 1
        else:
            self._skipped_steps += not self._trainer.step()
        original = self._original()
        if original is not None and hasattr(original, "_step_count"):
            original._step_count += 1
        if original is not None:
            original._opt_called = True  # schedulers of torch 2 check this
        return loss

    def _overflowed(self, scaler) -> bool:
        """Unscales the gradients for torch's GradScaler; returns whether some were not finite."""
        if scaler is not None or hasattr(self, "found_inf"):
            self._trainer.leave_overflows_to_scaler()
        if scaler is not None:  # torch 1
            state = scaler._per_optimizer_states[id(self)]
            if not state["found_inf_per_device"]:
                self._average_scaled(scaler.get_scale())
                scaler.unscale_(self)
            return any(found.item() for found in state["found_inf_per_device"].values())
        found, scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        overflow = bool(found is not None and found.item())
        if scale is None:
            return overflow
        averaged = self._average_scaled(scale.item())
        for parameter in (one for group in self.param_groups for one in group["params"] if one.grad is not None):
            parameter.grad.div_(scale.to(parameter.grad.device))
            overflow = overflow or averaged and not bool(torch.isfinite(parameter.grad).all())
        return overflow

    def _average_scaled(self, scale: float) -> bool:
        """Averages gradients that backward has sent scaled; others wait until they are unscaled."""
        if self._options.get("eager"):
            raise ValueError("eager updates inside backward, before a GradScaler can unscale the gradients")
        if not self._trainer.sends_gradients:
            return False
        self._trainer.finish_gradients()
        scales = operations.allgather(torch.tensor([scale], dtype=torch.float64), f"{self._options['name']}/scale").tolist()
        if min(scales) != max(scales):
            raise ValueError(f"gradients were averaged that the ranks' GradScalers had scaled by {scales}; call "
                             "optimizer.synchronize() before scaler.step(optimizer), so that all see the same overflows")
        return True

    def skip(self) -> None:
        """Takes part in a step without an update of its own: this rank had no batch, or dropped its gradients. In place
        of ``step()``."""
        self._before_step()
        self._trainer.skip()

    def begin_epoch(self, batches: int) -> int:
        """Call it before an epoch, on every rank, with the number of this rank's batches. Returns the number of steps
        that all ranks take: the largest number of batches. A collective.

            optimizer.begin_epoch(len(loader))
            for x, y in loader:
                ...
                optimizer.step()
            optimizer.finish_epoch()
        """
        return self._trainer.begin_epoch(whole_number("batches", batches, 0))

    def finish_epoch(self) -> None:
        """After this rank's last batch of an epoch that ``begin_epoch`` began: keeps answering the others until they have
        finished theirs, too."""
        self._trainer.finish_epoch()

    def settle(self) -> None:
        """Receives the messages that asynchronous methods have in flight. Call it on every rank after the same step,
        before models are compared or saved and at the end. Other methods have nothing to do."""
        self._trainer.settle()

    def synchronize(self) -> None:
        """If the method averages gradients, ``.grad`` is the mean when this returns. ``backward()`` has done it
        already, unless it computed no gradient for some parameter or gradients wait for ``step()`` (with
        ``loss_scale``, with ``on_nonfinite="skip"``)."""
        self._trainer.finish_gradients()

    @contextmanager
    def skip_synchronize(self):
        """``step()`` inside uses the gradients as they are since ``synchronize()``, which it always does."""
        yield

    def state_dict(self):
        if self._trainer is not None:
            self._trainer.export_optimizer_state()
        return self._base.state_dict(self)

    def load_state_dict(self, state_dict) -> None:
        self._base.load_state_dict(self, state_dict)
        self._trainer.import_optimizer_state()

    def admit(self) -> bool:
        """Admits newcomers, processes started with ``STARLING_ENTER=1``; a collective between two steps. True if any
        joined: ``bf.rank()`` and ``bf.size()`` are then different. A newcomer, which makes the same optimizer meanwhile,
        starts with a neighbor's model, optimizer state and step.

            for step in range(optimizer.trainer.steps, 1000):
                ...
                optimizer.step()
                if step % 10 == 0:
                    optimizer.admit()
        """
        process.check_admission()
        if not self._trainer.admit(lambda size: _core.schedule_address(process.next_schedule(size))):
            return False
        process.switch_flock(_core.flock_at(self._trainer._flock()))
        return True

    def welcome(self) -> bool:
        """The old name of ``admit()``."""
        warn_renamed("welcome", "admit")
        return self.admit()

    def save(self, folder, *, keep: int = 3, extra: Any = None, background: bool = False) -> None:
        """Writes a checkpoint of all ranks into a folder that all of them see: model, optimizer, method state, torch's
        random generator and the step; a collective between the same two steps. A checkpoint is complete or does not exist,
        whenever a rank is killed; the newest ``keep`` stay. ``extra``: this rank's own values (numbers, texts, tensors,
        lists, dicts). ``background``: returns when the state is copied; a failure is then logged, not raised.

            resumed = optimizer.resume("checkpoints")
            for epoch in range(resumed.extra["epoch"] if resumed else 0, 10):
                ...
                optimizer.save("checkpoints", extra={"epoch": epoch + 1})
        """
        values = None
        if extra is not None:
            out = io.BytesIO()
            torch.save(extra, out)
            values = torch.frombuffer(bytearray(out.getvalue()), dtype=torch.uint8)
        self._trainer.save(str(folder), whole_number("keep", keep, 1), values, bool(background))

    def resume(self, folder, step: Optional[int] = None) -> Optional[Resumed]:
        """Continues from the newest checkpoint in the folder, or from the one of ``step``, bit for bit; a collective. None if
        there is none yet. With another number of ranks all start from the mean model (see ``reset``). Raises ``Error`` on
        all ranks, before anything is changed, if a file is damaged or was written with another model, method, topology or
        optimizer, and says what differs."""
        found = self._trainer.resume(str(folder), step)
        if found is None:
            return None
        at, values, reset = found
        return Resumed(at, None if values is None else torch.load(io.BytesIO(values.numpy().tobytes())), reset)

    def save_checkpoint(self, path: str) -> None:
        """Writes what ``save()`` writes of this rank into a file of this rank's own, between the same steps on every rank:
        ``optimizer.save_checkpoint(f"saved-{bf.rank()}.ckpt")``. Raises InvalidArgument where ``path`` is another rank's
        checkpoint."""
        self._trainer.save_file(str(path))

    def load_checkpoint(self, path: str) -> None:
        """Continues from this rank's own file."""
        self._trainer.restore_file(str(path))

    @contextmanager
    def global_average(self):
        """Within the block the models are the mean model, to evaluate; afterwards each rank has its own again.

            with optimizer.global_average():
                accuracy = evaluate(model)
        """
        averaging = self._trainer.averaging()
        averaging.enter()
        self._averaged = True  # so that forward passes inside the block do not begin a step
        try:
            yield
        finally:
            self._averaged = False
            averaging.exit()

    def adopt_average(self) -> None:
        """All ranks continue with the mean model."""
        averaging = self._trainer.averaging()
        averaging.enter()
        averaging.keep()

    def consensus_distance(self) -> float:
        """The root mean square distance of the ranks' models from the mean model. A collective."""
        return self._trainer.consensus_distance()

    @property
    def gradient_norm(self) -> float:
        """The norm of the last step's gradients, before clipping. Without ``clip_norm`` it is computed here, from
        ``.grad``: read it before ``zero_grad()``."""
        return self._trainer.gradient_norm

    @property
    def skipped_steps(self) -> int:
        """How many updates this rank has skipped because its gradients were not finite: with ``on_nonfinite="skip"``,
        ``loss_scale`` or a GradScaler."""
        return self._skipped_steps

    @property
    def per_rank_settings(self) -> bool:
        """Whether ranks may have learning rates and other optimizer settings of their own; set it on every rank."""
        return self._options.get("per_rank_settings", False)

    @per_rank_settings.setter
    def per_rank_settings(self, allowed: bool) -> None:
        self._options["per_rank_settings"] = bool(allowed)
        self._trainer.set_per_rank_settings(bool(allowed))

    @property
    def trainer(self) -> "_torch.Trainer":
        """The C++ Trainer behind it."""
        return self._trainer

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the loss scale (with ``loss_scale=``); call ``backward()`` on it."""
        return self._trainer.scale(loss)


def _check_attribute(face: type, name: str) -> None:
    options = _option_names()
    if name in options:
        raise AttributeError(f"{name} is an option of decentralize(), which has read it: pass {name}= there, and decentralize "
                             "the original optimizer again on every rank")
    settable = {one for part in face.__mro__ if issubclass(part, Decentralized) for one, value in vars(part).items()
                if not one.startswith("_") and not callable(value) and getattr(value, "fset", True)}
    close = difflib.get_close_matches(name, sorted(settable | options), 1, 0.85)
    if close:
        raise AttributeError(f"a decentralized optimizer has no {name}; did you mean {close[0]}?")


@functools.lru_cache(maxsize=None)
def _option_names() -> frozenset:
    return frozenset(name for name in inspect.signature(decentralize).parameters
                     if name not in ("model", "optimizer") and not name.startswith("_"))


def _check_trains(optimizer: torch.optim.Optimizer, models: List[torch.nn.Module]) -> None:
    updated = {id(one) for group in optimizer.param_groups for one in group["params"]}
    if updated and not any(id(one) in updated for model in models for one in model.parameters()):
        raise _core.InvalidArgument("no parameter of the optimizer belongs to the model, so the model would never "
                                    "change; make the optimizer from this model's parameters()")


def _check_not_graphed(models: List[torch.nn.Module]) -> None:
    """CUDA graphs read the memory that parameters had when they were captured, and decentralize() moves them."""
    for name, one in (named for model in models for named in model.named_modules()):
        if getattr(vars(one).get("forward"), "__module__", "") == "torch.cuda.graphs":
            raise _core.InvalidArgument(f"the module {name!r} has CUDA graphs, which would still read the memory that its "
                                        "parameters have now: call torch.cuda.make_graphed_callables after decentralize()")


def _retire_previous(optimizer: torch.optim.Optimizer) -> None:
    previous = getattr(optimizer, "_starling_face", None)
    if previous is not None and previous() is not None:
        previous()._retire()


def _step_of_original(self, *arguments, **named):
    """Makes step() of the original optimizer raise while a decentralized one exists: it would train this rank alone."""
    if self._starling_face() is None:
        return type(self).step(self, *arguments, **named)
    raise RuntimeError(f"step() of the original {type(self).__name__}, which was decentralized: it would train this rank "
                       "alone. Call step() of what decentralize() returned")


_step_of_original._with_counter = True  # learning rate schedulers check whether step() is still theirs
_step_of_original._wrapped_by_lr_sched = True


class _Forward:
    """A hook that does not keep the optimizer alive."""

    def __init__(self, optimizer, action: str):
        self._optimizer = optimizer
        self._action = action

    def __call__(self, module, *_):
        optimizer = self._optimizer()
        if optimizer is not None and not optimizer._averaged and module.training and torch.is_grad_enabled():
            getattr(optimizer, self._action)()

    def __reduce__(self):
        """A copy of the module, or a saved one, has no trainer."""
        return _Forward, (_no_owner, self._action)


def _no_owner() -> None:
    return None


def _named(models: Iterable["weakref.ref[torch.nn.Module]"], what: str) -> List[Tuple[str, torch.Tensor]]:
    found = [model() for model in models]
    prefixes = [""] if len(found) == 1 else [f"{i}." for i in range(len(found))]
    return [(prefix + name, tensor) for prefix, model in zip(prefixes, found) if model is not None
            for name, tensor in getattr(model, what)() if tensor is not None]


def models_of(model: Model) -> List[torch.nn.Module]:
    """One model or several as a list."""
    models = [model] if isinstance(model, torch.nn.Module) else list(model)
    if not models or not all(isinstance(one, torch.nn.Module) for one in models):
        raise TypeError("model must be a torch.nn.Module or a list of them")
    return models


def face_of(face: type, optimizer: torch.optim.Optimizer, **more) -> Decentralized:
    """An object whose class derives from `face` and from the user's class."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, not a {type(optimizer).__name__}")
    if isinstance(optimizer, Decentralized):
        raise ValueError("the optimizer is decentralized already")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("LBFGS computes the loss several times per step, between which nothing could be averaged; SGD, "
                         "Adam, AdamW and others with one gradient per step work")
    base = type(optimizer)
    made = object.__new__(type(base.__name__, (face, base), {"__module__": base.__module__}))
    for key, value in more.items():
        setattr(made, key, value)
    return made


def _topology_options(topology: Topology) -> dict:
    """The topology for the trainer: by name if it has one, so that newcomers can make it."""
    if isinstance(topology, str):
        return {"topology": topology}
    schedule = schedule_from(topology, process.flock().size)
    try:
        named = _core.make_schedule(schedule.name, schedule.size).name == schedule.name
    except _core.InvalidArgument:
        named = False  # the caller's own weights have no name
    return {"topology": schedule.name} if named else {"schedule": schedule}


def decentralize(model: Model, optimizer: torch.optim.Optimizer, method: str = _core.DEFAULT_METHOD,
                 topology: Optional[Topology] = None, *, seed: int = 0, bucket_mb: Optional[float] = None, message: str = "float32",
                 accumulation: int = 0, clip_norm: float = 0.0, eager: bool = False, loss_scale: float = 0.0,
                 on_nonfinite: str = "raise", buffers: str = "average", on_peer_failure: str = "raise",
                 broadcast_at_start: bool = True, per_rank_settings: bool = False, master_weights: bool = False, through_host: bool = False,
                 on_loss: Optional[str] = None,
                 _after_backward: Optional[Callable[[], None]] = None) -> Decentralized:
    """Makes an optimizer decentralized: ``step()`` updates as before and averages with the neighbors, by any method, on
    any topology.

        bf.init()
        optimizer = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1), method="gradient-tracking",
                                    topology="base(k=1)")
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()

    The result is a subclass of the optimizer's class, for learning rate schedulers, ``state_dict`` and GradScaler.
    ``method``: ``starling.methods()`` lists them. ``topology``: who averages with whom: a name, a
    ``starling.Topology``, a networkx graph over the ranks or a matrix of weights (row = receiver); by default that of
    ``bf.init`` or ``bf.set_topology``, else one-peer-exponential. ``message``: the wire format: float32, float16,
    bfloat16 or int8. ``accumulation``: backward passes per step, 0 for any number. ``clip_norm``: the largest global
    norm of the gradients. ``per_rank_settings``: ranks may have learning rates and other optimizer settings of their
    own, which are compared otherwise. ``eager``: updates inside backward. ``on_nonfinite``: a gradient is infinite or
    NaN: "raise" ``starling.NonFinite`` before it is sent (on a GPU one step later), "skip" this rank's update, or "ignore" it.
    ``on_peer_failure``: "raise", or "reweight" to continue without ranks that die. ``master_weights``: trains parameters
    of float16 or bfloat16 in float32, of which they show the rounded values. ``through_host``: exchanges models on a GPU
    through the host's memory.
    """
    if on_loss is not None:
        warn_renamed("on_loss", "on_peer_failure", stacklevel=3)
        on_peer_failure = on_loss
    made = face_of(Decentralized, optimizer)
    if topology is None:
        topology = "flock" if process.state.chosen else _core.DEFAULT_TOPOLOGY
    made._attach(optimizer, models_of(model), method=method, **_topology_options(topology), seed=seed, bucket_mb=bucket_mb,
                 message=message, accumulation=accumulation, clip_norm=clip_norm, eager=eager, loss_scale=loss_scale,
                 on_nonfinite=on_nonfinite, buffers=buffers, on_peer_failure=on_peer_failure, broadcast_at_start=broadcast_at_start,
                 per_rank_settings=per_rank_settings, master_weights=master_weights, through_host=through_host, after_backward=_after_backward)
    return made
