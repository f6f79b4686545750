"""The backend of ``pip install .`` (PEP 517): CMake builds, this packs, using only the standard library."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

from cmake_build import build_folder, install
from metadata import ROOT, entry_points, metadata, version
from wheel_file import WheelFile, wheel_tag


def bluefog_alias() -> bool:
    """Whether the wheel also contains the package ``bluefog`` with bfrun and ibfrun: only on request."""
    return os.environ.get("STARLING_BLUEFOG_ALIAS", "") not in ("", "0")


def write_metadata(add) -> None:
    add("METADATA", metadata())
    add("entry_points.txt", entry_points(bluefog_alias()))
    add("LICENSE", (ROOT / "LICENSE").read_text(encoding="utf-8"))
    add("WHEEL", f"Wheel-Version: 1.0\nGenerator: starling\nRoot-Is-Purelib: false\nTag: {wheel_tag()}\n")


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings=None) -> str:
    """Tells pip the name and the requirements before anything is compiled."""
    name = f"starling-{version()}.dist-info"
    folder = Path(metadata_directory) / name
    folder.mkdir()
    write_metadata(lambda file, text: (folder / file).write_text(text, encoding="utf-8"))
    return name


def build_wheel(wheel_directory: str, config_settings=None, metadata_directory=None) -> str:
    """Packs the files that CMake installs as the package, with their metadata."""
    folder = build_folder()
    name = f"starling-{version()}-{wheel_tag()}.whl"
    with tempfile.TemporaryDirectory() as stage:
        install(folder, "python", Path(stage))
        if bluefog_alias():
            install(folder, "bluefog", Path(stage))
        with WheelFile(Path(wheel_directory) / name, f"starling-{version()}.dist-info") as wheel:
            wheel.add_tree(Path(stage))
            write_metadata(wheel.add_metadata)
    return name


def build_sdist(sdist_directory: str, config_settings=None) -> str:
    """All files that git tracks or, without git, all but build folders."""
    base = f"starling-{version()}"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        files = [name for name in listed.stdout.split("\0") if name]
    else:
        skipped = {"build", "install", "__pycache__"}
        files = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")
                 if path.is_file() and not skipped.intersection(path.relative_to(ROOT).parts)]
    with tarfile.open(Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            archive.add(ROOT / name, f"{base}/{name}")
        text = metadata().encode()
        member = tarfile.TarInfo(f"{base}/PKG-INFO")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return f"{base}.tar.gz"
