"""Operations in flight: handles, names in use, and waiting."""

from __future__ import annotations

import itertools
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set

import torch

from .. import _core
from . import timeline
from .process import at_shutdown, may_forbid_topologies
from .tensors import Operand

__all__ = [
    "poll", "synchronize", "wait",
]


_LONGEST_EXIT = 1.0  # seconds that operations in flight get when the interpreter exits


class Started:
    """A started operation, and the function that turns its memory into the caller's result."""

    __slots__ = ("name", "pending", "finish", "operands", "traced")

    def __init__(self, name: Optional[str], pending: Any, finish: Callable[[], Any],
                 operands: Sequence[Operand]) -> None:
        self.name = name  # in use until this operation ends
        self.pending = pending
        self.finish = finish  # keeps the memory that the core writes to alive
        self.operands = operands
        self.traced: Optional[timeline.Span] = None

    def result(self) -> Any:
        """Waits for it."""
        try:
            wait_for(self.pending)
        except _core.Mismatch as error:
            raise with_shapes(error, [one.memory.shape for one in self.operands]) from None
        finally:
            if self.traced is not None:
                self.traced.end()
        for one in self.operands:
            one.follow()
        return self.finish()


_handles: Dict[int, Started] = {}
_numbers = itertools.count()
_taken: Set[str] = set()
_abandoned: List[Any] = []
unchecked: List["Checked"] = []  # see Checked


def take_name(operation: str, name: Optional[str]) -> str:
    """The core's name for an operation. Unnamed operations are matched in the order in which they start."""
    if name is None:
        return operation
    full = f"{operation}.{name}"
    if full in _taken:
        raise ValueError(f"{operation}: an operation named {name!r} is under way; wait for it, or choose another name")
    return full


def abandon(memory: Any) -> None:
    """The wait was interrupted: the core may still read and write this memory, so it is kept alive."""
    _abandoned.append(memory)


def register(started: Started) -> int:
    """A handle for a started operation."""
    if started.name is not None:
        _taken.add(started.name)
    handle = next(_numbers)
    _handles[handle] = started
    return handle


def complete(started: Started) -> Any:
    """Waits for a started operation and returns its result."""
    try:
        return started.result()
    except KeyboardInterrupt:
        abandon(started)
        raise


def with_shapes(error: _core.Mismatch, shapes: Iterable[torch.Size]) -> _core.Mismatch:
    """Adds shapes to an error of the core, which knows only counts."""
    if "set the same topology" in str(error):  # the shapes agree, so the topology differs
        return error
    listed = [str(tuple(shape)) for shape in shapes]
    noun = "shape is" if len(listed) == 1 else "shapes are"
    return _core.Mismatch(f"{error}; this rank's {noun} {', '.join(listed)}" if listed else str(error))


def wait_for(pending: Any) -> None:
    """pending.wait(), while checks of other operations proceed."""
    while unchecked and not pending.wait_for(0.001):
        _begin_checked()
    pending.wait()


def _find(handle: int) -> Started:
    try:
        return _handles[handle]
    except (KeyError, TypeError):
        raise ValueError(f"{handle!r} is not the handle of an operation under way") from None


def poll(handle: int) -> bool:
    """Whether synchronize() would return at once. Never blocks."""
    return _find(handle).pending.ready()


def synchronize(handle: int) -> Any:
    """Waits for an operation; returns its result or raises its error. Call it once for each handle."""
    started = _find(handle)
    try:
        result = started.result()
    except KeyboardInterrupt:
        raise  # the operation is still in flight and can be waited for again
    except BaseException:
        _forget(handle, started)
        raise
    _forget(handle, started)
    return result


def wait(handle: int) -> Any:
    """The same as synchronize()."""
    return synchronize(handle)


def _forget(handle: int, started: Started) -> None:
    _handles.pop(handle, None)
    _taken.discard(started.name)


class Checked:
    """An operation that begins when a collective check of its arguments is done, whichever thread waits. Operations of
    one name begin in the order of their calls, in which they also match."""

    def __init__(self, name: str, gathering: Any, begin: Callable[[], Any]) -> None:
        self.name = name
        self._gathering = gathering
        self._begin = begin  # starts the operation, or raises
        self._pending: Any = None
        self._error: Optional[BaseException] = None
        unchecked.append(self)

    def advance(self) -> bool:
        """Whether the operation has begun, or failed."""
        _begin_checked()
        return self._pending is not None or self._error is not None

    def begin(self) -> None:
        """Begins the operation; called when the check is done."""
        try:
            self._gathering.wait()
            self._pending = self._begin()
        except BaseException as error:
            self._error = error

    def is_checked(self) -> bool:
        return self._gathering.ready()

    def _awaited(self) -> Any:
        """The next check to wait for."""
        return next(one._gathering for one in unchecked if one.name == self.name)

    def ready(self) -> bool:
        return self.advance() and (self._error is not None or self._pending.ready())

    def wait_for(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self.advance():
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._awaited().wait_for(left)
        return self._error is not None or self._pending.wait_for(max(0.0, until - time.monotonic()))

    def wait(self) -> None:
        while not self.advance():
            wait_for(self._awaited())
        if self._error is not None:
            raise self._error
        wait_for(self._pending)


def _begin_checked() -> None:
    """Begins checked operations that have no earlier one of the same name."""
    held_up: Set[str] = set()
    for one in list(unchecked):
        if one.name in held_up or not one.is_checked():
            held_up.add(one.name)
        else:
            unchecked.remove(one)
            one.begin()


@at_shutdown
def _let_go() -> None:
    """At exit: finishes operations that other ranks take part in, and abandons the rest."""
    until = time.monotonic() + _LONGEST_EXIT
    for started in _handles.values():
        try:
            started.pending.wait_for(max(0.0, until - time.monotonic()))
        except Exception:  # the result is not needed
            pass
    _abandoned.extend(_handles.values())
    _handles.clear()
    _taken.clear()
    unchecked.clear()


@may_forbid_topologies
def _busy() -> Optional[str]:
    names = [started.name or "one without a name" for started in _handles.values()]
    return f"operations are under way: {', '.join(names)}" if names else None
