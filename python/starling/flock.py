"""A flock for numpy arrays."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, List, Optional

from . import _core
from ._checks import warn_renamed
from .topologies import schedule_from

if TYPE_CHECKING:
    import numpy


def _address(array: "numpy.ndarray") -> int:
    return array.__array_interface__["data"][0]


def _code(array: "numpy.ndarray") -> int:
    code = _core.dtypes.get(array.dtype.name)
    if code is None:
        raise _core.InvalidArgument(f"arrays of {array.dtype} do not travel; {', '.join(_core.dtypes)} do")
    return code


class Flock:
    """The group this process has joined, for numpy arrays.

        flock = starling.join()
        x = flock.neighbor_allreduce(numpy.full(10, float(flock.rank)))

    Operations return a new array; they need contiguous memory and copy what is not. The C++ side does the work without
    the interpreter lock.
    """

    def __init__(self, core: _core.Flock):
        self._core = core
        _handles.add(self)

    def __getattr__(self, name):
        return getattr(self._core, name)

    def __repr__(self):
        return f"<starling.Flock: rank {self.rank} of {self.size}, {self.schedule.name}>"

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        return self._core.rank

    @property
    def size(self) -> int:
        """How many processes there are."""
        return self._core.size

    @property
    def timeout(self) -> float:
        """Bounds every wait, in seconds."""
        return self._core.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._core.timeout = seconds

    @property
    def on_peer_failure(self) -> str:
        """What happens when a rank dies: ``raise`` PeerLost, or ``reweight`` and go on among the survivors."""
        return self._core.on_peer_failure

    @on_peer_failure.setter
    def on_peer_failure(self, action: str) -> None:
        self._core.on_peer_failure = action

    @property
    def on_loss(self) -> str:
        """The old name of ``on_peer_failure``."""
        warn_renamed("on_loss", "on_peer_failure")
        return self.on_peer_failure

    @on_loss.setter
    def on_loss(self, action: str) -> None:
        warn_renamed("on_loss", "on_peer_failure")
        self.on_peer_failure = action

    def set_topology(self, topology) -> None:
        """Who talks to whom from now on: ``"one-peer-exponential"``, ``"base(k=2)"`` ..., a ``starling.Topology``, a networkx
        graph over the ranks, or a matrix of weights, row = receiver. Every rank must set the same."""
        self._core.set_schedule(schedule_from(topology, self.size))

    def living_ranks(self) -> List[int]:
        """The ranks that are alive, as far as everybody agrees on it, ascending; with ``on_peer_failure = "reweight"`` some may
        be missing."""
        return sorted(self._core.members)

    def welcome(self) -> bool:
        """Lets those in who wait outside, started with ``STARLING_ENTER=1``: a collective between two operations. Whether
        somebody came; this is then the larger flock, with the same topology over the new number of ranks, from its step 0."""
        core = self._core.welcome()
        came = core != self._core
        if came and self._core is _joined:
            replace_joined(core)
        self._core = core
        return came

    @property
    def newcomers(self) -> int:
        """How many of the last ranks have come in later than the others."""
        return self._core.newcomers

    @property
    def entered(self) -> bool:
        """Whether this process is one of them."""
        return self._core.entered

    def _in_and_out(self, array):
        import numpy

        array = numpy.asarray(array)
        given = numpy.ascontiguousarray(array).reshape(array.shape)
        out = numpy.empty_like(given)
        return given, out, [(_address(given), _address(out), given.size, _code(given))]

    def neighbor_allreduce(self, array, name: str = "neighbor_allreduce") -> "numpy.ndarray":
        """The weighted average with this step's neighbours."""
        given, out, tensors = self._in_and_out(array)
        self._core.start_neighbor_allreduce(tensors, name).wait()
        return out

    def allreduce(self, array, reduction: str = "average", name: str = "allreduce") -> "numpy.ndarray":
        """Everybody's ``sum``, ``average``, ``min`` or ``max``."""
        given, out, tensors = self._in_and_out(array)
        self._core.start_allreduce(tensors, reduction, name).wait()
        return out

    def broadcast(self, array, root: int = 0, name: str = "broadcast") -> "numpy.ndarray":
        """What ``root`` holds."""
        given, out, _ = self._in_and_out(array)
        out[...] = given
        self._core.start_broadcast([(_address(out), _address(out), out.size, _code(out))], root, name).wait()
        return out

    def allgather(self, array, name: str = "allgather") -> "numpy.ndarray":
        """Everybody's arrays one after another, along the first dimension, whose length may differ."""
        import numpy

        given = numpy.ascontiguousarray(array)
        gathering = self._core.start_allgather(_address(given), given.size, _code(given), name)
        gathering.wait()
        return numpy.frombuffer(gathering, dtype=given.dtype).reshape((-1, *given.shape[1:]))

    def barrier(self, name: str = "barrier") -> None:
        """Returns when everybody has called it."""
        self._core.start_barrier(name).wait()


class _Broken:
    """In the place of a flock that must not be used any more: whatever is asked of it raises."""

    def __init__(self, text: str):
        self.__dict__["_text"] = text

    def __getattr__(self, name):
        raise _core.Error(self._text)

    def __setattr__(self, name, value):
        raise _core.Error(self._text)


_joined: Optional[_core.Flock] = None
_handles: "weakref.WeakSet[Flock]" = weakref.WeakSet()


def joined() -> _core.Flock:
    """The one flock of this process, joined when first asked for."""
    global _joined
    if _joined is None:
        _joined = _core.join()
    if isinstance(_joined, _Broken):
        _joined.rank  # raises
    return _joined


def usable() -> Optional[_core.Flock]:
    """The flock of this process, where one was joined and not broken."""
    return None if isinstance(_joined, _Broken) else _joined


def break_joined(text: str) -> Optional[_Broken]:
    """Everything that uses the flock of this process raises ``text`` from now on; None where none was joined."""
    global _joined
    if _joined is None or isinstance(_joined, _Broken):
        return _joined
    _joined.timeout = 1.0  # of trainers and windows, which have handles of their own
    _joined = _Broken(text)
    for handle in _handles:
        handle._core = _joined
    return _joined


def replace_joined(core: _core.Flock) -> None:
    """Newcomers have come in: the flock of this process is another one now."""
    global _joined
    _joined = core


def join(timeout: Optional[float] = None) -> Flock:
    """Joins the flock this process was started in (by ``starling run``, mpirun, torchrun or srun), or makes a flock of one.
    ``timeout`` (seconds) bounds every wait."""
    flock = Flock(joined())
    if timeout is not None:
        flock.timeout = timeout
    return flock
