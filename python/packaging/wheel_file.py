"""Writes wheels: a zip with a RECORD of every file's digest."""

from __future__ import annotations

import base64
import hashlib
import sys
import sysconfig
import zipfile
from pathlib import Path


def wheel_tag() -> str:
    """This interpreter on this platform, such as cp311-cp311-linux_x86_64."""
    if sys.implementation.name != "cpython":
        raise RuntimeError(f"Starling's modules are built for CPython, not for {sys.implementation.name}")
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"{python}-{python}-{platform}"


class WheelFile:
    def __init__(self, path: Path, dist_info: str):
        # Uses the fastest compression level: the wheel is mostly libraries, and it is unpacked at once.
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self._dist_info = dist_info
        self._record: list[str] = []

    def __enter__(self) -> "WheelFile":
        return self

    def __exit__(self, kind, error, trace) -> None:
        if kind is None:
            name = f"{self._dist_info}/RECORD"
            self._zip.writestr(self._info(name, 0o644), "".join(self._record) + f"{name},,\n")
        self._zip.close()

    @staticmethod
    def _info(name: str, mode: int) -> zipfile.ZipInfo:
        info = zipfile.ZipInfo(name)  # dated 1980, so that equal files give equal wheels
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = (0o100000 | mode) << 16
        return info

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        self._zip.writestr(self._info(name, mode), data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(data)}\n")

    def add_metadata(self, name: str, text: str) -> None:
        self.add(f"{self._dist_info}/{name}", text.encode())

    def add_tree(self, folder: Path) -> None:
        """Adds all files below a folder; executable files stay executable."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
                self.add(path.relative_to(folder).as_posix(), path.read_bytes(), mode)
