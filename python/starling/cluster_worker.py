"""A worker of starling.Cluster: does what the notebook sends, until the notebook ends."""

from __future__ import annotations

import builtins
import fcntl
import os
import pickle
import select
import signal
import sys
import traceback
import types
from multiprocessing.connection import Connection
from typing import Any

from . import _by_value

VALUE, ERROR = b"v", b"e"


def main(link_fd: int, lifeline: int) -> None:
    """Serves the requests that come through ``link_fd``; ends at once when the other end of ``lifeline`` is closed."""
    _die_with(lifeline)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for fd in (link_fd, lifeline):
        os.set_inheritable(fd, False)
    # What the notebook's functions see as their module; the worker's own names stay out of it.
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
        reply = _perform(function, arguments)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        link.send_bytes(reply)


def _die_with(lifeline: int) -> None:
    # The kernel sends the signal when the pipe's last writer is gone, however that ended and whatever is running here.
    # Opened anew, because all workers share what they were given, and it has one receiver of signals.
    own = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:
        os._exit(1)


def _perform(function: bytes, arguments: bytes) -> bytes:
    try:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            args, kwargs = _by_value.loads(arguments)
            value = _by_value.loads(function)(*args, **kwargs)
            return VALUE + _dump_result(value)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except BaseException as error:  # SystemExit, too: only the notebook ends a worker
        return ERROR + _describe(error)


def _dump_result(value: Any) -> bytes:
    try:
        return _by_value.dumps(value, carry_globals=False)
    except Exception as error:
        raise TypeError(f"the result, of type {type(value).__name__}, cannot travel: {error}") from error


def _describe(error: BaseException) -> bytes:
    """(type and message, [(file, line, function), ...], the exception itself where it can travel)."""
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
        raise NameError(f"no {name} here; push or execute it first") from None
