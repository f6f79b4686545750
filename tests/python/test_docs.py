"""The programs of docs/python.md and docs/python-training.md run with two ranks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import starling

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS = [pytest.param(block, id=f"{page}-{number}") for page in ("python", "python-training")
            for number, block in enumerate(re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.S))
            if "import starling" in block]


def test_there_are_programs():
    assert len(PROGRAMS) >= 4


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_runs(program, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(program)
    command = [starling.tool_path(), "run", "-n", "2", "--timeout", "90", "--", sys.executable, str(path)]
    ended = subprocess.run(command, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
                           timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
