"""A cluster in the background that notebooks of the same user connect to, over a Unix socket that only they can open."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from . import _core
from ._pool import Cancel, Outcome, Show, Task


def folder() -> Path:
    """The folder of the sockets. Throws if other users can enter it."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(runtime) / "starling" if runtime else Path(tempfile.gettempdir()) / f"starling-{os.getuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise _core.Error(f"{path} must be a directory of this user that no other user can enter (chmod 700)")
    return path


def socket_path(name: str) -> Path:
    """The socket of the cluster ``name``."""
    if not name or not all(letter.isalnum() or letter in "-_" for letter in name):
        raise _core.InvalidArgument(f"a cluster's name has letters, digits, - and _, not {name!r}")
    return folder() / f"cluster-{name}.sock"


def open_link(name: str) -> Optional[Connection]:
    """A connection to the cluster with this name; None if none is running."""
    try:
        return Client(str(socket_path(name)), family="AF_UNIX")
    except (FileNotFoundError, ConnectionRefusedError):
        return None


class Remote:
    """The workers of a cluster in the background, with the methods of a Pool."""

    def __init__(self, link: Connection):
        self._link = link
        hello = self._receive()
        self.n, self.server, version = hello["n"], hello["server"], hello["python"]
        if version != sys.version_info[:2]:
            link.close()
            raise _core.Error(f"the cluster runs Python {version[0]}.{version[1]}, this is "
                              f"{sys.version_info[0]}.{sys.version_info[1]}: functions cannot travel between them")

    def _receive(self) -> Any:
        try:
            return self._link.recv()
        except (EOFError, OSError):
            raise _core.Error("the cluster in the background has ended, or its connection was closed; `ibfrun start -np N` "
                              "starts one") from None

    def _send(self, *request: Any) -> None:
        try:
            self._link.send(request)
        except OSError:
            pass  # the error of receiving is clearer

    def _ask(self, *request: Any) -> Any:
        self._send(*request)
        try:
            return self._receive()
        except KeyboardInterrupt:
            self._link.close()  # otherwise the next request would take the pending answer as its own
            raise

    def perform(self, function: bytes, tasks: Sequence[Task], ranks: Sequence[int], show: Show,
                cancel: Optional[Cancel] = None) -> List[Outcome]:
        self._send("perform", function, list(tasks), list(ranks))
        watched = [self._link] if cancel is None else [self._link, cancel]
        while True:
            ready = wait(watched)
            if cancel in ready:
                self._send("cancel")
                if cancel.times() > 2:
                    self._link.close()  # another client keeps the workers busy
                    return []
            if self._link in ready:
                kind, *rest = self._receive()
                if kind == "done":
                    return [Outcome(*one) for one in rest[0]]
                show(*rest)

    def lost(self) -> Dict[int, str]:
        return self._ask("lost")

    def pids(self) -> List[int]:
        return self._ask("pids")

    def restart(self) -> None:
        self._ask("restart")

    def stop(self) -> None:
        """Ends the cluster itself."""
        self._send("stop")
        try:
            self._link.recv()
        except (EOFError, OSError):
            pass

    def close(self) -> None:
        self._link.close()
