"""A wheel of this build, installed into a separate virtual environment and used from there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ["STARLING_BIN"]).parent
VERSION = re.search(r"project\(Starling VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
# The tests must not find their own package, and pip must not ask an index.
ENVIRONMENT = os.environ | {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
for name in ("PYTHONPATH", "STARLING_BLUEFOG_ALIAS"):
    ENVIRONMENT.pop(name, None)


def run(*words, folder, ok=True, **variables):
    words = [str(word) for word in words]
    environment = ENVIRONMENT | variables
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout if ok else done.stdout + done.stderr


def install(bin_folder, folder, **variables):
    """Runs `pip install .` with build isolation."""
    words = [bin_folder / "python", "-m", "pip", "install", "--no-deps", "--no-compile", ROOT]
    run(*words, folder=folder, STARLING_BUILD_DIR=str(BUILD), **variables)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("packaging")


@pytest.fixture(scope="module")
def installed(folder):
    """The folder of the environment's programs."""
    run(sys.executable, "-m", "venv", "--system-site-packages", folder / "venv", folder=folder)
    bin_folder = folder / "venv" / "bin"
    install(bin_folder, folder)
    return bin_folder


def test_the_package_is_complete(installed, folder):
    script = """
import importlib.metadata, json, starling
distribution = importlib.metadata.distribution("starling")
print(json.dumps({
    "place": starling.__file__, "tool": starling.tool_path(),
    "version": starling.__version__, "metadata": distribution.version,
    "files": [str(file) for file in distribution.files], "about": distribution.read_text("METADATA")}))
"""
    found = json.loads(run(installed / "python", "-c", script, folder=folder))
    package = installed.parent / "lib"
    assert found["place"].startswith(str(package)) and found["tool"].startswith(str(package))
    assert found["version"] == found["metadata"] == VERSION
    assert "\n\n# Starling\n" in found["about"]
    files = set(found["files"])
    assert {"starling/py.typed", "starling/libstarling.so", "starling/bin/starling"} <= files
    assert f"starling-{VERSION}.dist-info/LICENSE" in files
    # Everything that this build has: the modules, the tool's part with torch, every Python file.
    for built in BUILD.glob("python/starling/*.so"):
        assert f"starling/{built.name}" in files
    for built in BUILD.glob("lib/starling/libstarling_*.so"):
        assert f"starling/{built.name}" in files
    for built in BUILD.glob("bin/starling-torch"):
        assert f"starling/bin/{built.name}" in files
    for source in ROOT.glob("python/starling/**/*.py"):
        assert source.relative_to(ROOT / "python").as_posix() in files


def test_the_command(installed, folder):
    assert f"starling {VERSION}" in run(installed / "starling", "info", folder=folder)
    assert "no-such-command" in run(installed / "starling", "no-such-command", folder=folder, ok=False)


LAUNCHERS = [["starling", "run"], ["python", "-m", "starling.run"]]


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=" ".join)
def test_launching_finds_this_python(installed, folder, launcher):
    """Also if the environment is not activated."""
    program = "import starling, sys; flock = starling.join(); print(flock.size, flock.rank, sys.prefix)"
    out = run(installed / launcher[0], *launcher[1:], "-n", "2", "python", "-c", program, folder=folder)
    assert sorted(out.splitlines()) == [f"[{rank}] 2 {rank} {installed.parent}" for rank in range(2)]


@pytest.mark.parametrize("fabric", ["c10d", "hosts", "mpi"])
def test_fabrics_with_an_engine_are_found(installed, folder, fabric):
    engine = "mpi" if fabric == "mpi" else "c10d"
    if not (BUILD / "lib" / "starling" / f"libstarling_{engine}.so").exists():
        pytest.skip(f"this build has no {engine}")
    if fabric == "mpi":  # needs no launcher to be alone
        program = "import starling; print(starling.join().size)"
        assert run(installed / "python", "-c", program, folder=folder, STARLING_FABRIC="mpi", STARLING_RANK="0",
                   STARLING_SIZE="1", STARLING_JOB="packaging") == "1\n"
        return
    way = folder / "way"
    way.write_text('#!/bin/sh\nexec env STARLING_HOST="$1" sh -c "$2"\n')
    way.chmod(0o755)
    where = ["-n", "2", "--fabric", "c10d"]
    if fabric == "hosts":
        where = ["--hosts", "a,b", "--address", "127.0.0.1", "--launcher", way]
    program = "import starling; flock = starling.join(); print(flock.size, flock.rank)"
    out = run(installed / "starling", "run", *where, "python", "-c", program, folder=folder)
    assert sorted(out.splitlines()) == [f"[{rank}] 2 {rank}" for rank in range(2)]


def test_torch_commands_find_their_program(installed, folder):
    if not (BUILD / "bin" / "starling-torch").exists():
        pytest.skip("this build has no torch")
    assert "Usage: starling train" in run(installed / "starling", "train", "--help", folder=folder)


def test_bluefog_only_on_request(installed, folder):
    def has_bluefog():
        return (installed / "bfrun").exists() or any(installed.parent.glob("lib/*/site-packages/bluefog"))

    assert not has_bluefog()
    install(installed, folder, STARLING_BLUEFOG_ALIAS="1")
    assert has_bluefog()
    program = "import bluefog, bluefog.common.util, starling; print(starling.join().size)"
    out = run(installed / "bfrun", "-np", "2", "python", "-c", program, folder=folder)
    assert sorted(out.splitlines()) == ["[0] 2", "[1] 2"]
    script = "import importlib.metadata as m; [p.load() for p in m.distribution('starling').entry_points]"
    run(installed / "python", "-c", script, folder=folder)
    install(installed, folder)
    assert not has_bluefog()


def test_a_folder_that_is_no_build_is_refused(installed, folder):
    words = [installed / "python", "-m", "pip", "wheel", "--no-deps", ROOT]
    said = run(*words, folder=folder, ok=False, STARLING_BUILD_DIR=str(folder))
    assert f"STARLING_BUILD_DIR is {folder}, which CMake has not configured" in said
