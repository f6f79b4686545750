"""The programs of the documentation run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python-research.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


@pytest.mark.parametrize("number", range(3))
def test_program_of_the_page(number):
    ended = subprocess.run([sys.executable, "-c", PROGRAMS[number]], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
