"""A flock for numpy arrays."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, List, Optional

from . import _core
from ._checks import no_attribute, number_above_0, warn_renamed, whole_number
from .topologies import schedule_from

if TYPE_CHECKING:
    import numpy


def _address(array: "numpy.ndarray") -> int:
    return array.__array_interface__["data"][0]


def _code(array: "numpy.ndarray") -> int:
    code = _core.dtypes.get(array.dtype.name)
    if code is None:
        raise _core.InvalidArgument(f"arrays of {array.dtype} are not supported; valid are {', '.join(_core.dtypes)}")
    return code


def _tensor(given: "numpy.ndarray", out: "numpy.ndarray") -> tuple:
    """What the core needs to know of an operation's arrays."""
    return _address(given), _address(out), given.size, _code(given), None


class Flock:
    """The flock this process has joined, for numpy arrays.

        flock = starling.join()
        x = flock.neighbor_allreduce(numpy.full(10, float(flock.rank)))

    Operations return a new array; arrays that are not contiguous are copied first. C++ does the work, without the
    interpreter lock.
    """

    def __init__(self, core: _core.Flock):
        self._core = core
        _handles.add(self)

    def __getattr__(self, name):
        return getattr(self._core, name)

    def __setattr__(self, name, value):
        if name != "_core" and not hasattr(type(self), name):
            raise no_attribute("the flock", name, ("on_peer_failure", "timeout"))
        object.__setattr__(self, name, value)

    def __repr__(self):
        return f"<starling.Flock: rank {self.rank} of {self.size}, {self.schedule.name}>"

    @property
    def rank(self) -> int:
        """This process's rank, from 0."""
        return self._core.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._core.size

    @property
    def timeout(self) -> float:
        """Bounds every wait, in seconds."""
        return self._core.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._core.timeout = number_above_0("timeout", seconds)

    @property
    def on_peer_failure(self) -> str:
        """What happens when a rank dies: ``raise`` PeerLost, or ``reweight`` and continue with the survivors."""
        return self._core.on_peer_failure

    @on_peer_failure.setter
    def on_peer_failure(self, action: str) -> None:
        if action not in ("raise", "reweight"):
            raise _core.InvalidArgument(f"on_peer_failure is raise or reweight, not {action}")
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
        """Sets which ranks exchange: ``"one-peer-exponential"``, ``"base(k=2)"`` ..., a ``starling.Topology``, a networkx
        graph over the ranks, or a matrix of weights, row = receiver. Every rank must set the same."""
        self._core.set_schedule(schedule_from(topology, self.size))

    def living_ranks(self) -> List[int]:
        """The live ranks that all agree on, ascending; with ``on_peer_failure = "reweight"`` some may be missing."""
        return sorted(self._core.members)

    def admit(self) -> bool:
        """Admits newcomers (processes started with ``STARLING_ENTER=1``): a collective between two operations. Returns
        whether any joined; this is then the larger flock, with the same topology over the new number of ranks, from its
        step 0."""
        core = self._core.admit()
        joined = core != self._core
        if joined and self._core is _joined:
            replace_joined(core)
        self._core = core
        return joined

    def welcome(self) -> bool:
        """The old name of ``admit()``."""
        warn_renamed("welcome", "admit")
        return self.admit()

    @property
    def newcomers(self) -> int:
        """The number of newcomers; they are the last ranks."""
        return self._core.newcomers

    @property
    def entered(self) -> bool:
        """Whether this process is a newcomer."""
        return self._core.entered

    def _in_and_out(self, array):
        import numpy

        array = numpy.asarray(array)
        given = numpy.ascontiguousarray(array).reshape(array.shape)
        out = numpy.empty_like(given)
        return given, out, [_tensor(given, out)]

    def neighbor_allreduce(self, array, name: str = "neighbor_allreduce") -> "numpy.ndarray":
        """The weighted average with this step's neighbors."""
        given, out, tensors = self._in_and_out(array)
        self._core.start_neighbor_allreduce(tensors, name).wait()
        return out

    def allreduce(self, array, reduction: str = "average", name: str = "allreduce") -> "numpy.ndarray":
        """The ``sum``, ``average``, ``min`` or ``max`` over all ranks."""
        given, out, tensors = self._in_and_out(array)
        self._core.start_allreduce(tensors, reduction, name).wait()
        return out

    def broadcast(self, array, root: int = 0, name: str = "broadcast") -> "numpy.ndarray":
        """The array of rank ``root``."""
        root = whole_number("root", root, 0, self.size - 1)
        given, out, _ = self._in_and_out(array)
        out[...] = given
        self._core.start_broadcast([_tensor(out, out)], root, name).wait()
        return out

    def allgather(self, array, name: str = "allgather") -> "numpy.ndarray":
        """All ranks' arrays joined along the first dimension, which may differ in length."""
        import numpy

        given = numpy.ascontiguousarray(array)
        out = numpy.empty(0, dtype=given.dtype)

        def allocate(count: int) -> int:
            nonlocal out
            out = numpy.empty(count, dtype=given.dtype)
            return _address(out)

        self._core.start_allgather(_tensor(given, given), allocate, name).wait()
        return out.reshape((-1, *given.shape[1:]))

    def send(self, array, to: int, name: str = "send") -> None:
        """Sends an array to rank ``to``, which calls ``recv``. Returns when the array may be changed."""
        import numpy

        to = whole_number("to", to, 0, self.size - 1)
        given = numpy.ascontiguousarray(array)
        self._core.send(_tensor(given, given), to, name)

    def recv(self, like, source: int, name: str = "send") -> "numpy.ndarray":
        """The array that rank ``source`` sends, which has the shape and dtype of ``like``."""
        import numpy

        source = whole_number("source", source, 0, self.size - 1)
        out = numpy.empty_like(numpy.asarray(like), order="C")
        self._core.start_recv(_tensor(out, out), source, name).wait()
        return out

    def barrier(self, name: str = "barrier") -> None:
        """Returns when all ranks have called it."""
        self._core.start_barrier(name).wait()


class _Broken:
    """Replaces a flock that must not be used any more: every use raises."""

    def __init__(self, text: str):
        self.__dict__["_text"] = text

    def __getattr__(self, name):
        raise _core.Error(self._text)

    def __setattr__(self, name, value):
        raise _core.Error(self._text)


_joined: Optional[_core.Flock] = None
_handles: "weakref.WeakSet[Flock]" = weakref.WeakSet()


def joined() -> _core.Flock:
    """The one flock of this process, joined on first use."""
    global _joined
    if _joined is None:
        _joined = _core.join()
    if isinstance(_joined, _Broken):
        _joined.rank  # raises
    return _joined


def usable() -> Optional[_core.Flock]:
    """The flock of this process if one was joined and is usable, else None."""
    return None if isinstance(_joined, _Broken) else _joined


def break_joined(text: str) -> Optional[_Broken]:
    """Makes every use of this process's flock raise ``text`` from now on; None if none was joined."""
    global _joined
    if _joined is None or isinstance(_joined, _Broken):
        return _joined
    _joined._interrupt(1.0)  # interrupts operations of trainers and windows, which have handles of their own
    _joined = _Broken(text)
    for handle in _handles:
        handle._core = _joined
    return _joined


def replace_joined(core: _core.Flock) -> None:
    """Sets the flock of this process after newcomers were admitted."""
    global _joined
    _joined = core


def join(timeout: Optional[float] = None) -> Flock:
    """Joins the flock this process was started in (by ``starling run``, mpirun, torchrun or srun), or makes a flock of one.
    ``timeout`` (seconds) bounds every wait."""
    flock = Flock(joined())
    if timeout is not None:
        flock.timeout = timeout
    return flock
