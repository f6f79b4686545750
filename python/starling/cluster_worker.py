"""A worker of starling.Cluster: runs what the notebook sends, until the notebook ends."""

from __future__ import annotations

import builtins
import fcntl
import os
import pickle
import select
import signal
import struct
import sys
import traceback
import types
from multiprocessing.connection import Connection
from typing import Any

from . import _by_value

VALUE, ERROR = b"v", b"e"
FLOCK_USE = struct.Struct("<?q")  # appended to every reply


def main(link_fd: int, lifeline: int) -> None:
    """Serves the requests that come through ``link_fd``; ends at once when the other end of ``lifeline`` is closed."""
    _die_with(lifeline)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for fd in (link_fd, lifeline):
        os.set_inheritable(fd, False)
    # The module in which the notebook's functions run; it does not contain the worker's own names.
    space = types.ModuleType("__main__")
    space.rank, space.size = int(os.environ["STARLING_RANK"]), int(os.environ["STARLING_SIZE"])
    space.__builtins__ = builtins
    sys.modules["__main__"] = space
    link = Connection(link_fd)
    link.send_bytes(b"ready")
    while True:
        try:
            function, arguments = link.recv_bytes(), link.recv_bytes()
        except (EOFError, ConnectionError):
            return
        with _FlockUse() as use:
            reply = _perform(function, arguments, use)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        link.send_bytes(reply[:1] + use.report() + reply[1:])


def _die_with(lifeline: int) -> None:
    # The kernel sends the signal when the pipe's last writer is gone, however it ended and whatever this
    # worker is running. The pipe is reopened, because all workers share the inherited descriptor, which can
    # signal only one process.
    own = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:
        os._exit(1)


class _FlockUse:
    """Tracks what a task does to the flock of this worker, if it has joined one."""

    _HURRY = 0.2  # seconds

    def __enter__(self) -> "_FlockUse":
        self._before = self._state()
        self._timeout = None
        return self

    def __exit__(self, *_: Any) -> None:
        flock = self._flock()
        if flock is not None and self._timeout is not None:
            flock.timeout = self._timeout

    def hurry(self) -> None:
        """Operations that are dropped now must not wait for ranks that never answer."""
        flock = self._flock()
        if flock is not None and self._timeout is None:
            self._timeout = flock.timeout
            flock._interrupt(self._HURRY)

    def interrupt(self, *_: Any) -> None:
        self.hurry()
        raise KeyboardInterrupt

    def report(self) -> bytes:
        """Whether the flock was used, and its next step."""
        now = self._state()
        return FLOCK_USE.pack(now != self._before, now[0])

    @staticmethod
    def _flock() -> Any:
        module = sys.modules.get("starling.flock")
        return None if module is None else module.usable()

    def _state(self) -> Any:
        flock = self._flock()
        return (-1, 0) if flock is None else (flock.step, flock.bytes_sent)


def _perform(function: bytes, arguments: bytes, use: _FlockUse) -> bytes:
    try:
        try:
            signal.signal(signal.SIGINT, use.interrupt)
            args, kwargs = _by_value.loads(arguments)
            value = _by_value.loads(function)(*args, **kwargs)
            return VALUE + _dump_result(value)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except BaseException as error:  # including SystemExit: only the notebook ends a worker
        use.hurry()
        return ERROR + _describe(error)


def _dump_result(value: Any) -> bytes:
    try:
        return _by_value.dumps(value, carry_globals=False)
    except Exception as error:
        raise TypeError(f"the result, of type {type(value).__name__}, cannot travel: {error}") from error


def _describe(error: BaseException) -> bytes:
    """(type and message, [(file, line, function), ...], the exception itself if it can be pickled)."""
    frames = [(frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    own = os.path.dirname(__file__)
    while frames and frames[0][0].startswith(own):
        frames.pop(0)
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    try:
        itself = _by_value.dumps(error, carry_globals=False)
        _by_value.loads(itself)
    except Exception:
        itself = None
    return pickle.dumps((text, frames, itself))


def break_flock(text: str) -> None:
    """Makes the flock of this worker, if it has joined one, raise ``text`` from now on."""
    flock = sys.modules.get("starling.flock")
    broken = flock.break_joined(text) if flock is not None else None
    process = sys.modules.get("starling.torch.process")
    if broken is not None and process is not None and process.state.flock is not None:
        process.state.flock, process.state.local = broken, None


def execute(code: str) -> None:
    """Runs ``code`` among the worker's global names."""
    exec(compile(code, "<cluster>", "exec"), vars(sys.modules["__main__"]))


def push(values: "dict[str, Any]") -> None:
    """Gives the worker global names."""
    vars(sys.modules["__main__"]).update(values)


def pull(name: str) -> Any:
    """The value of one of the worker's global names."""
    try:
        return vars(sys.modules["__main__"])[name]
    except KeyError:
        raise NameError(f"no {name} here; define it with push or execute first") from None
