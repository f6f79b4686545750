"""The process of a cluster in the background: owns the workers, serves the notebooks that connect."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection, Listener
from typing import Any, List, Optional

from . import _core
from ._cluster_client import Remote, open_link, socket_path
from ._pool import Pool

_START_SECONDS = 90.0


class _ClientCancel:
    """A client that cancels, or has disconnected."""

    def __init__(self, link: Connection):
        self.over = False
        self._link, self._times = link, 0

    def fileno(self) -> int:
        return self._link.fileno()

    def times(self) -> int:
        try:
            self._link.recv()  # a client that waits for an answer sends nothing else
            self._times += 1
        except (EOFError, OSError):
            self.over = True
            self._times = max(self._times, 1)
        return self._times


class _Server:
    """Serves every client in a thread of its own; the workers serve one at a time."""

    def __init__(self, pool: Pool):
        self._pool = pool
        self._lock = threading.Lock()

    def serve(self, link: Connection) -> None:
        try:
            link.send({"n": self._pool.n, "server": os.getpid(), "python": tuple(sys.version_info[:2])})
            while True:
                word, *rest = link.recv()
                if word == "cancel":
                    continue  # too late: the request has been answered
                link.send(getattr(self, "_on_" + word)(link, *rest))
        except (EOFError, OSError):
            pass  # the client has disconnected
        finally:
            link.close()

    def _on_perform(self, link: Connection, function: bytes, tasks: list, ranks: List[int]) -> Any:
        def show(*line: Any) -> None:
            try:
                link.send(("output", *line))
            except OSError:
                pass  # the cancellation reports it

        with self._lock:
            return "done", self._pool.perform(function, tasks, ranks, show, _ClientCancel(link))

    def _on_lost(self, link: Connection) -> Any:
        return self._pool.lost()

    def _on_pids(self, link: Connection) -> Any:
        return self._pool.pids()

    def _on_restart(self, link: Connection) -> Any:
        with self._lock:
            self._pool.restart()

    def _on_stop(self, link: Connection) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)


def serve(n: int, name: str, timeout: Optional[float], grace: float) -> None:
    """Starts n workers and serves clients, until SIGTERM or a client's stop."""
    path = socket_path(name)
    with open(path.with_suffix(".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _core.Error(f"a cluster named {name} is running already; `ibfrun stop` ends it") from None
        pool = Pool(n, timeout=timeout, grace=grace)
        try:
            path.unlink(missing_ok=True)  # left by a cluster that was killed, since we hold the lock
            with Listener(str(path), family="AF_UNIX", backlog=16) as listener:
                server = _Server(pool)
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
                while True:
                    threading.Thread(target=server.serve, args=(listener.accept(),), daemon=True).start()
        except KeyboardInterrupt:
            pass
        finally:
            path.unlink(missing_ok=True)
            pool.close()


def launch(n: int, name: str, timeout: Optional[float], grace: float) -> Remote:
    """Starts ``serve`` as a process that outlives this one, and connects to it."""
    log = socket_path(name).with_suffix(".log")
    running = open_link(name)
    if running is not None:
        running.close()
        raise _core.Error(f"a cluster named {name} is running already; `ibfrun stop` ends it")
    start = (f"import sys; sys.path[:] = {sys.path!r}; from starling._cluster_server import serve; "
             f"serve({n}, {name!r}, {timeout!r}, {grace!r})")
    with open(log, "wb") as out:
        process = subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   start_new_session=True)
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        link = open_link(name)
        if link is not None:
            return Remote(link)
        if process.poll() is not None:
            break
        time.sleep(0.02)
    process.kill()
    process.wait()
    raise _core.Error(f"the cluster did not start:\n{log.read_text(errors='replace').strip()}")
