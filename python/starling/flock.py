"""A flock for numpy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from . import _core

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

    def set_topology(self, topology) -> None:
        """Who talks to whom from now on: ``"one-peer-exponential"``, ``"base(k=2)"`` ..., or a ``starling.Topology``.
        Every rank must set the same."""
        self._core.set_schedule(getattr(topology, "_schedule", topology))

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


_joined: Optional[_core.Flock] = None


def joined() -> _core.Flock:
    """The one flock of this process, joined when first asked for."""
    global _joined
    if _joined is None:
        _joined = _core.join()
    return _joined


def join(timeout: Optional[float] = None) -> Flock:
    """Joins the flock this process was started in (by ``starling run``, mpirun, torchrun or srun), or makes a flock of one.
    ``timeout`` (seconds) bounds every wait."""
    flock = Flock(joined())
    if timeout is not None:
        flock._core.timeout = timeout
    return flock
