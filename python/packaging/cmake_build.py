"""Builds the package with CMake, or uses an existing build folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zlib
from pathlib import Path

from metadata import ROOT


def run(*words: object) -> None:
    command = [str(word) for word in words]
    print("+", *command, flush=True)
    finished = subprocess.run(command)
    if finished.returncode != 0:
        raise SystemExit(f"starling: {' '.join(command[:2])} failed ({finished.returncode}); see above")


def packages_with_cmake_files() -> list[str]:
    """Where torch and pybind11 of this Python keep what find_package() wants, if they come from wheels
    (Debian's have it in the usual places). pip hides them from a backend, not from a Python with -E."""
    script = """
from importlib.util import find_spec
from pathlib import Path
for name in ("torch", "pybind11"):
    spec = find_spec(name)
    folder = Path(spec.origin).parent / "share/cmake" if spec and spec.origin else None
    if folder and folder.is_dir():
        print(folder)
"""
    return subprocess.check_output([sys.executable, "-E", "-c", script], text=True).splitlines()


def build_folder() -> Path:
    """STARLING_BUILD_DIR unchanged, or else a folder of our own, brought up to date."""
    given = os.environ.get("STARLING_BUILD_DIR")
    if given:
        if not (Path(given) / "CMakeCache.txt").is_file():
            raise SystemExit(f"starling: STARLING_BUILD_DIR is {given}, which CMake has not configured; "
                             "./run build makes build/release")
        return Path(given).absolute()
    for program, package in (("cmake", "cmake"), ("ninja", "ninja-build")):
        if shutil.which(program) is None:
            raise SystemExit(f"starling: {program} is needed to build the package (Debian: {package})")
    prefixes = packages_with_cmake_files()
    # CMake caches the location of torch, so another torch gets another folder.
    prefix_path = ";".join(prefixes)
    folder = ROOT / "build" / f"pip-{sys.implementation.cache_tag}-{zlib.crc32(prefix_path.encode()):08x}"
    run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        "-DSTARLING_TESTS=OFF", "-DSTARLING_BENCHMARKS=OFF", "-DSTARLING_PYTHON=ON",
        "-DCMAKE_REQUIRE_FIND_PACKAGE_pybind11=ON", f"-DPython_EXECUTABLE={sys.executable}",
        f"-DCMAKE_PREFIX_PATH={prefix_path}")
    run("cmake", "--build", folder, "--target", "starling_python")
    return folder


def install(folder: Path, component: str, stage: Path) -> None:
    run("cmake", "--install", folder, "--component", component, "--prefix", stage)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    if not (stage / "starling" / f"_core{suffix}").is_file():
        found = ", ".join(path.name for path in stage.glob("starling/_core*")) or "no module _core"
        raise SystemExit(f"starling: {folder} was built for another Python: this one wants _core{suffix}, "
                         f"there is {found}")
