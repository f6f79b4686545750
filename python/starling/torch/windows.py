"""Windows: memory that neighbors write to, add to and read from, without this rank's help."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set

import torch

from .. import _core
from . import timeline
from .process import at_shutdown, flock, may_forbid_topologies, state
from .tensors import SUMMABLE, Operand, operand
from .weights import Destinations, Weights, destination_weights, own_weight, source_weights

__all__ = [
    "get_current_created_window_names", "get_win_version", "neighbor_win_accumulate",
    "neighbor_win_accumulate_nonblocking", "neighbor_win_get", "neighbor_win_get_nonblocking",
    "neighbor_win_put",
    "neighbor_win_put_nonblocking", "turn_off_win_ops_with_associated_p", "turn_on_win_ops_with_associated_p",
    "win_accumulate", "win_accumulate_nonblocking", "win_associated_p", "win_create", "win_free", "win_get",
    "win_get_nonblocking", "win_lock", "win_mutex", "win_poll", "win_publish", "win_put",
    "win_put_nonblocking", "win_update", "win_update_then_collect", "win_wait",
]



class _Entry:
    """A window and the tensor it was made with."""

    def __init__(self, tensor: Any, name: str, zero_init: bool) -> None:
        one = operand(tensor, SUMMABLE)
        self.one = one  # the core uses its memory until the window is freed
        self.core_name = name if _generation == 0 else f"{name}#{_generation}"
        # As in BlueFog, a slot that its neighbor has not written yet adds no p.
        with one.scope():
            self.window = _core.Window(flock(), one.block(), self.core_name, zero_init, copies_p=0.0)
        self.fetched: Dict[int, int] = {}  # by win_get, since the last win_update

    def is_mine(self, tensor: Any) -> bool:
        """Whether this is the tensor that the window was made with, or a view of its memory."""
        if tensor is self.one.given or tensor is self.one.tensor:
            return True
        return (isinstance(tensor, torch.Tensor) and tensor.device == self.one.tensor.device
                and tensor.data_ptr() == self.one.tensor.data_ptr() and tensor.shape == self.one.tensor.shape
                and tensor.stride() == self.one.tensor.stride() and tensor.numel() > 0)


_windows: Dict[str, _Entry] = {}
_handles: Set[int] = set()
_numbers = itertools.count()
_generation = 0  # the number of flocks that were left; the core keeps their windows
_moves_p = False


def _find(name: str) -> _Entry:
    flock()
    try:
        return _windows[name]
    except KeyError:
        names = ", ".join(sorted(_windows)) or "none"
        raise KeyError(f"there is no window {name!r}; existing ones: {names}") from None


@contextlib.contextmanager
def _operation(word: str, entry: _Entry, name: str, mutexes: Optional[Sequence[int]]) -> Iterator[None]:
    """An operation on a window: in the timeline, under the mutexes, and without changing p where that is off."""
    traced = timeline.Span(word, name, word == "win_update") if timeline.writer is not None else None
    before = entry.window.p
    try:
        with contextlib.ExitStack() as held:
            held.enter_context(entry.one.scope())
            if mutexes is not None:
                held.enter_context(entry.window.mutex(list(mutexes)))
            yield
    finally:
        if not _moves_p:
            entry.window.p = before
        if traced is not None:
            traced.end()


def win_create(tensor, name: str, zero_init: bool = False) -> bool:
    """Makes a window of this tensor: one slot for each in-neighbor, with a copy of it or zeros. A collective. False if
    the name is taken; the tensor must live until win_free.

        bf.win_create(x, "x")
        bf.win_put(x, "x")
        bf.win_update("x")
    """
    if name in _windows:
        flock()
        return False
    _windows[name] = _Entry(tensor, name, zero_init)
    return True


def win_free(name: Optional[str] = None) -> bool:
    """Frees a window, or all; a collective. KeyError if there is none of this name."""
    for one in sorted(_windows) if name is None else [name]:
        entry = _find(one)
        del _windows[one]
        with entry.one.scope():
            _core.free_window(flock(), entry.core_name)
    return True


def _deposit(add: bool, tensor, name: str, self_weight, dst_weights, require_mutex: bool) -> None:
    word = "win_accumulate" if add else "win_put"
    entry = _find(name)
    weights = None if dst_weights is None else destination_weights(word, "dst_weights", dst_weights)
    keep = 1.0 if self_weight is None else float(self_weight)
    mine = entry.is_mine(tensor)
    one = entry.one if mine else operand(tensor, SUMMABLE, entry.one.memory.device)
    there, here = entry.one.memory, one.memory
    if here.shape != there.shape or here.dtype != there.dtype:
        raise ValueError(f"{word}: the window {name!r} has the shape {tuple(there.shape)} of {there.dtype}, "
                         f"the tensor {tuple(here.shape)} of {here.dtype}")
    with _operation(word, entry, name, (weights or state.destinations) if require_mutex else None):
        if mine:
            entry.one.read_again()
            (entry.window.accumulate if add else entry.window.put)(weights, keep)
        else:
            deposit = entry.window.accumulate_value if add else entry.window.put_value
            deposit(one.block(), weights)
            if keep != 1.0:
                with torch.no_grad():
                    one.memory.mul_(keep)
                entry.window.p *= keep
    if keep != 1.0:
        one.write_back()


def win_put(tensor, name: str, self_weight: Optional[float] = None,
            dst_weights: Optional[Destinations] = None, require_mutex: bool = False) -> bool:
    """Writes tensor times weight (1 unless given) into the slots that the destinations, by default all out-neighbors,
    keep for this rank; then the tensor is multiplied by ``self_weight``. The destinations take no part."""
    _deposit(False, tensor, name, self_weight, dst_weights, require_mutex)
    return True


def win_put_nonblocking(tensor, name: str, self_weight: Optional[float] = None,
                        dst_weights: Optional[Destinations] = None, require_mutex: bool = False) -> int:
    """win_put with a handle for win_wait. Writing never waits, so it is complete when this returns."""
    _deposit(False, tensor, name, self_weight, dst_weights, require_mutex)
    return _done()


def win_accumulate(tensor, name: str, self_weight: Optional[float] = None,
                   dst_weights: Optional[Destinations] = None, require_mutex: bool = False) -> bool:
    """win_put that adds to the content of the slots."""
    _deposit(True, tensor, name, self_weight, dst_weights, require_mutex)
    return True


def win_accumulate_nonblocking(tensor, name: str, self_weight: Optional[float] = None,
                               dst_weights: Optional[Destinations] = None,
                               require_mutex: bool = False) -> int:
    """win_accumulate with a handle for win_wait."""
    _deposit(True, tensor, name, self_weight, dst_weights, require_mutex)
    return _done()


def _get(name: str, src_weights, require_mutex: bool) -> None:
    entry = _find(name)
    weights = None if src_weights is None else destination_weights("win_get", "src_weights", src_weights)
    with _operation("win_get", entry, name, (weights or state.sources) if require_mutex else None):
        entry.window.get(weights)
        for source in entry.window.sources if weights is None else weights:
            entry.fetched[source] = entry.fetched.get(source, 0) + 1


def win_get(name: str, src_weights: Optional[Destinations] = None, require_mutex: bool = False) -> bool:
    """Fetches the tensors of the sources, by default all in-neighbors, times weight, into this rank's slots: as they
    were at their owner's last win_update, put with a self_weight other than 1, win_publish or barrier."""
    _get(name, src_weights, require_mutex)
    return True


def win_get_nonblocking(name: str, src_weights: Optional[Destinations] = None,
                        require_mutex: bool = False) -> int:
    """win_get with a handle for win_wait."""
    _get(name, src_weights, require_mutex)
    return _done()


def win_publish(name: str) -> None:
    """Publishes a tensor that was changed by hand, so that others' win_get fetches it."""
    entry = _find(name)
    entry.one.read_again()
    with entry.one.scope():
        entry.window.publish()


def publish_all() -> None:
    """win_publish of every window."""
    for name in _windows:
        win_publish(name)


def win_update(name: str, self_weight: Optional[float] = None, neighbor_weights: Optional[Weights] = None,
               reset: bool = False, clone: bool = False, require_mutex: bool = False):
    """The weighted average of the tensor and the current content of its slots; in place, or with ``clone`` as a new
    tensor. By default with the topology's weights. ``reset`` empties the slots. Returns the tensor."""
    entry = _find(name)
    if (self_weight is None) != (neighbor_weights is None):
        raise ValueError("win_update: self_weight and neighbor_weights are given together or not at all")
    if self_weight is None:
        own, weights = entry.window.usual_weights()
    else:
        own = own_weight("win_update", self_weight)
        weights = source_weights("win_update", "neighbor_weights", neighbor_weights)
    return _update(entry, name, own, weights, reset, clone, require_mutex)


def win_update_then_collect(name: str, require_mutex: bool = True):
    """Adds all slots to the tensor and empties them: nothing is lost and nothing counted twice."""
    entry = _find(name)
    return _update(entry, name, 1.0, dict.fromkeys(entry.window.sources, 1.0), True, False, require_mutex)


def _update(entry: _Entry, name: str, own: float, weights: Dict[int, float], reset: bool, clone: bool,
            require_mutex: bool):
    one = entry.one
    with _operation("win_update", entry, name, [flock().rank] if require_mutex else None):
        entry.one.read_again()
        for source in weights:
            entry.fetched.pop(source, None)
        if clone:
            out = one.empty()
            entry.window.update_into(one.block(out), own, weights, reset)
            return one.like_given(out)
        entry.window.update_weighted(own, weights, reset)
    return one.write_back()


def _done() -> int:
    handle = next(_numbers)
    _handles.add(handle)
    return handle


def win_poll(handle: int) -> bool:
    """Whether the operation is done; False for an unknown handle."""
    return handle in _handles


def win_wait(handle: int) -> bool:
    """Waits for the operation. False for an unknown handle, or one that was waited for already."""
    known = handle in _handles
    _handles.discard(handle)
    return known


def get_win_version(name: str) -> Dict[int, int]:
    """How often the slot of each in-neighbor was written, by it or by win_get, since the last win_update."""
    entry = _find(name)
    return {source: entry.window.version(source) + entry.fetched.get(source, 0)
            for source in sorted(entry.window.sources)}


def get_current_created_window_names() -> List[str]:
    """The names of all windows, sorted."""
    return sorted(_windows)


@contextlib.contextmanager
def win_mutex(name: str, for_self: bool = False, ranks: Optional[Sequence[int]] = None) -> Iterator[None]:
    """Holds the mutexes of these ranks' windows, by default of all out-neighbors, or with ``for_self`` this rank's own.
    It excludes only others that take them too: win_mutex and ``require_mutex``.

        with bf.win_mutex("x"):
            bf.win_put(x, "x")
    """
    chosen = ranks if ranks is not None else [flock().rank] if for_self else state.destinations
    with _find(name).window.mutex(list(chosen)):
        yield


def win_lock(name: str) -> contextlib.AbstractContextManager:
    """Holds this rank's own mutex of the window."""
    return win_mutex(name, for_self=True)


def win_associated_p(name: str) -> float:
    """The push-sum scalar, which moves with the window's weights while that is turned on; 1 at first."""
    return _find(name).window.p


def turn_on_win_ops_with_associated_p() -> None:
    """From now on p moves with win_put, win_accumulate, win_get and win_update."""
    global _moves_p
    _moves_p = True


def turn_off_win_ops_with_associated_p() -> None:
    """From now on p stays as it is."""
    global _moves_p
    _moves_p = False


neighbor_win_put = win_put
neighbor_win_put_nonblocking = win_put_nonblocking
neighbor_win_accumulate = win_accumulate
neighbor_win_accumulate_nonblocking = win_accumulate_nonblocking
neighbor_win_get = win_get
neighbor_win_get_nonblocking = win_get_nonblocking


@may_forbid_topologies
def _busy() -> Optional[str]:
    return f"windows exist: {', '.join(sorted(_windows))}" if _windows else None


@at_shutdown
def _leave() -> None:
    global _generation, _moves_p
    _generation += 1
    _moves_p = False
    _windows.clear()
    _handles.clear()
