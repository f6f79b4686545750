"""`import starling` is light."""

import subprocess
import sys


def fresh(text):
    return subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout


def test_nothing_heavy_is_imported():
    loaded = fresh("import sys, starling; print(*sys.modules)").split()
    heavy = {"torch", "numpy", "networkx", "scipy", "matplotlib", "multiprocessing", "asyncio"}
    assert not heavy & set(loaded)


def test_it_takes_less_than_a_fifth_of_a_second():
    timed = "import time; t = time.perf_counter(); import starling; print(time.perf_counter() - t)"
    assert min(float(fresh(timed)) for _ in range(5)) < 0.2
