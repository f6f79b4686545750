"""The page about migration: its programs run, and the functions in its tables exist."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import starling
import starling.torch as bf

TEXT = (Path(__file__).parents[2] / "docs" / "migration.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.S)
OURS = [block for block in BLOCKS if "import starling" in block]
THEIRS = [block for block in BLOCKS if "import starling" not in block]
TORCH_DDP = [block for block in THEIRS if "DistributedDataParallel(model)" in block]
ROWS = [line.split("|") for line in TEXT.splitlines() if line.startswith("| ") and line.count("|") == 3]
RIGHT = " ".join(row[2] for row in ROWS)  # Starling's column of the tables
LAUNCHERS = ("STARLING_", "OMPI_", "PMIX_", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_RANK")


def environment(**variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return {**clean, "STARLING_TIMEOUT": "30", "OMP_NUM_THREADS": "1", **variables}


def losses(output):
    return [float(value) for value in re.findall(r"loss (\S+)", output)]


def run(program, folder):
    path = folder / "train.py"
    path.write_text(program)
    command = [starling.tool_path(), "run", "-n", "2", "--", sys.executable, str(path)]
    ended = subprocess.run(command, env=environment(), cwd=folder, capture_output=True, text=True,
                           timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return losses(ended.stdout)


def test_every_contender_has_a_program():
    assert len(OURS) == 5 and len(THEIRS) == 3 and len(TORCH_DDP) == 1
    for block in THEIRS:
        compile(block, "<migration.md>", "exec")


@pytest.mark.parametrize("number", range(5))
def test_program_learns(number, tmp_path):
    found = run(OURS[number], tmp_path)
    assert len(found) == 2 and max(found) < 0.05


def test_ddp_and_allreduce_have_the_same_losses(tmp_path):
    dist = pytest.importorskip("torch.distributed")
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    after = next(block for block in OURS if 'method="allreduce")' in block)
    path = tmp_path / "before.py"
    path.write_text(TORCH_DDP[0])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    ranks = [subprocess.Popen([sys.executable, str(path)], env=environment(RANK=str(rank), **place),
                              cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for rank in range(2)]
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    expected = sorted(loss for output in outputs for loss in losses(output))
    assert sorted(run(after, tmp_path)) == pytest.approx(expected, rel=1e-3)


def test_functions_of_the_tables_exist():
    names = set(re.findall(r"\bbf\.(\w+)", RIGHT))
    assert len(names) >= 20
    assert {name for name in names if not hasattr(bf, name)} == set()


def test_names_of_the_tables_exist():
    methods = {family["name"] for family in starling.methods()}
    topologies = {family["name"] for family in starling.topologies()}
    for quoted in re.findall(r'"([a-z][a-z0-9-]+)(?:\([^"]*\))?"', RIGHT):
        assert quoted in methods | topologies | {"float16", "default"}, quoted
