"""`import starling` loads nothing heavy."""

import subprocess
import sys


def fresh(text):
    return subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout


def test_nothing_heavy_is_imported():
    loaded = fresh("import sys, starling; print(*sys.modules)").split()
    heavy = {"torch", "numpy", "networkx", "scipy", "matplotlib", "multiprocessing", "asyncio"}
    assert not heavy & set(loaded)
