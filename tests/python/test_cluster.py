"""starling.Cluster: pickled functions, errors with their rank, deaths, and clusters in the background."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import starling
from starling import _by_value


@pytest.fixture(scope="module")
def cluster():
    with starling.Cluster(3, timeout=30, grace=1.0) as made:
        yield made


@pytest.fixture
def fresh():
    with starling.Cluster(2, timeout=30, grace=1.0) as made:
        yield made


def wait_until(condition, seconds=20.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def gone(pid):
    """Whether the process has ended, reaped or not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def run_script(text, **options):
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, **options)


def test_every_rank_does_it(cluster):
    assert cluster.n == len(cluster) == 3
    assert cluster.run(os.getpid) == cluster.pids and len({*cluster.pids, os.getpid()}) == 4
    assert cluster.run(lambda: float(rank)) == [0, 1, 2]  # noqa: F821: the worker's
    assert cluster.run(lambda a, b=1: (a, b, size), 5, b=6) == [(5, 6, 3)] * 3  # noqa: F821
    assert cluster.run(lambda: rank, ranks=[2, 0]) == [2, 0]  # noqa: F821


def test_they_are_a_flock(cluster):
    cluster.execute("import starling; flock = starling.join()")
    assert cluster.run(lambda: float(flock.allreduce(np.float64(flock.rank), "sum"))) == [3.0] * 3  # noqa: F821


def test_map_keeps_the_order_and_uses_all_workers(cluster):
    def slow_square(x):
        time.sleep(0.02)
        return x * x, os.getpid()

    got = cluster.map(slow_square, range(20))
    assert [square for square, _ in got] == [x * x for x in range(20)]
    assert {pid for _, pid in got} == set(cluster.pids)
    assert cluster.map(slow_square, []) == []


def test_names_are_pushed_and_pulled(cluster):
    cluster.push(weights=np.arange(4.0), lr=0.5)
    cluster.execute("weights = weights * lr + rank")
    np.testing.assert_array_equal(cluster.pull("weights")[2], np.arange(4.0) * 0.5 + 2)
    with pytest.raises(starling.WorkerError, match="NameError: no nothing here"):
        cluster.pull("nothing")


def test_large_arrays_travel(cluster):
    big = np.random.default_rng(0).normal(size=1_000_000)
    assert cluster.run(lambda x: float(x.sum()), big) == [float(big.sum())] * 3
    assert all(np.array_equal(one, big) for one in cluster.run(lambda: big))


def test_output_has_the_rank_in_front(cluster, capfd):
    cluster.run(lambda: (print("one\ntwo"), print("no newline", end=""), os.write(2, b"to error\n")))
    out, error = capfd.readouterr()
    assert sorted(out.splitlines()) == sorted(f"[{r}] {line}" for r in range(3) for line in ("one", "two", "no newline"))
    assert sorted(error.splitlines()) == [f"[{r}] to error" for r in range(3)]


def test_much_output_does_not_block(cluster, capfd):
    cluster.run(lambda: print("x" * 5_000_000), ranks=[1])
    assert len(capfd.readouterr().out) == 5_000_005


def test_an_exception_comes_with_rank_and_traceback(cluster):
    def fail():
        if rank == 1:  # noqa: F821
            raise ValueError("a bad day")
        return rank  # noqa: F821

    with pytest.raises(starling.WorkerError, match=r"rank 1: ValueError: a bad day\n.*in fail\n.*raise ValueError") as caught:
        cluster.run(fail)
    assert caught.value.rank == 1 and isinstance(caught.value.__cause__, ValueError)
    assert cluster.run(lambda: rank) == [0, 1, 2]  # noqa: F821


def test_exceptions_that_cannot_be_pickled_and_exits(cluster):
    def fail():
        class Locked(Exception):
            def __init__(self):
                super().__init__("has a lock")
                self.lock = threading.Lock()

        raise Locked

    with pytest.raises(starling.WorkerError, match="has a lock") as caught:
        cluster.run(fail)
    assert caught.value.__cause__ is None
    with pytest.raises(starling.WorkerError, match="SystemExit: 3"):
        cluster.run(sys.exit, 3)
    with pytest.raises(starling.WorkerError, match="the result, of type lock, cannot travel"):
        cluster.run(threading.Lock)
    assert cluster.run(lambda: 1) == [1, 1, 1]


def test_workers_that_continue_alone_are_interrupted(cluster):
    def fail_or_wait():
        if rank == 0:  # noqa: F821
            raise RuntimeError("first")
        time.sleep(10_000)

    with pytest.raises(starling.WorkerError, match="rank 0: RuntimeError: first") as caught:
        cluster.run(fail_or_wait)
    assert set(caught.value.errors) == {0, 1, 2}
    assert cluster.run(lambda: rank) == [0, 1, 2]  # noqa: F821: all of them are still there


def test_a_worker_that_does_not_stop_is_killed(fresh):
    def stubborn():
        if rank == 0:  # noqa: F821
            raise RuntimeError("first")
        while True:
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                pass

    with pytest.raises(starling.WorkerError, match="(?s)rank 0: RuntimeError: first.*rank 1 .*SIGKILL, because it did not stop"):
        fresh.run(stubborn)
    with pytest.raises(starling.WorkerLost, match="restart"):
        fresh.run(os.getpid)


def test_a_killed_worker_is_named_and_the_others_continue(fresh):
    def die():
        if rank == 1:  # noqa: F821
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(starling.WorkerLost, match=r"rank 1 \(process \d+\) was ended by SIGKILL") as caught:
        fresh.run(die)
    assert caught.value.rank == 1
    with pytest.raises(starling.WorkerLost, match=r"rank 1 .*restart\(\).*ranks=\[0\]"):
        fresh.map(abs, [1])
    assert fresh.run(lambda: rank, ranks=[0]) == [0]  # noqa: F821
    fresh.restart()
    assert fresh.run(lambda: rank) == [0, 1]  # noqa: F821


def test_a_worker_killed_between_calls(fresh):
    victim = fresh.pids[0]
    os.kill(victim, signal.SIGKILL)
    assert wait_until(lambda: gone(victim))
    with pytest.raises(starling.WorkerLost, match="rank 0"):
        fresh.run(os.getpid)


def test_a_death_in_the_flock_names_the_dead(fresh):
    fresh.execute("import starling; flock = starling.join()")

    def die_or_average():
        if rank == 0:  # noqa: F821
            os._exit(7)
        return flock.allreduce(np.ones(3))  # noqa: F821

    with pytest.raises(starling.WorkerLost, match="rank 0 .* ended with exit status 7") as caught:
        fresh.run(die_or_average)
    assert "PeerLost" in caught.value.errors[1]


def test_a_flock_that_lost_its_step_says_so(fresh):
    fresh.execute("import starling; flock = starling.join()")

    def fail_or_average():
        if rank == 0:  # noqa: F821
            raise ValueError("a bad day")
        return flock.allreduce(np.ones(3))  # noqa: F821

    with pytest.raises(starling.WorkerError, match="rank 0: ValueError: a bad day") as caught:
        fresh.run(fail_or_average)
    assert caught.value.rank == 0 and "KeyboardInterrupt" in caught.value.errors[1]
    assert fresh.run(lambda: rank) == [0, 1]  # noqa: F821: what needs no flock goes on
    for use in (lambda: flock.allreduce(np.ones(3)), lambda: starling.join()):  # noqa: F821
        with pytest.raises(starling.WorkerError, match=r"out of step, since an earlier call ended on rank 0.*restart\(\)"):
            fresh.run(use)
    fresh.restart()
    fresh.execute("import starling; flock = starling.join()")

    def begin_and_fail():
        if rank == 0:  # noqa: F821
            begun = flock._core.start_barrier("never")  # noqa: F821, F841: dropping it waits for the others
            raise ValueError("another one")

    with pytest.raises(starling.WorkerError, match="rank 0: ValueError: another one"):
        fresh.run(begin_and_fail)
    fresh.restart()
    fresh.execute("import starling; flock = starling.join()")
    assert fresh.run(lambda: float(flock.allreduce(np.ones(1), "sum")[0])) == [2.0, 2.0]  # noqa: F821


def test_control_c_reaches_the_workers(cluster):
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        cluster.run(time.sleep, 10_000)
    assert cluster.run(lambda: rank) == [0, 1, 2]  # noqa: F821


def test_invalid_requests_are_errors(cluster):
    for ranks in ([], [3], [0, 0], [-1]):
        with pytest.raises(ValueError, match="from 0 to 2"):
            cluster.run(os.getpid, ranks=ranks)
    with pytest.raises(ValueError, match="at least 1"):
        starling.Cluster(-1)
    closed = starling.Cluster(1)
    closed.close()
    closed.close()
    with pytest.raises(starling.Error, match="closed"):
        closed.run(os.getpid)
    with pytest.raises(TypeError, match="belongs to the process"):
        cluster.run(lambda: cluster)


# Pickling of functions and values.

offset = 10


def add_offset(x):
    return x + offset


def test_closures_globals_and_recursion_travel(cluster):
    factor = 3

    def factorial(k):
        return 1 if k == 0 else k * factorial(k - 1)

    def use(x, *, plus=1):
        """Its text."""
        return factor * add_offset(x) + plus + factorial(4)

    assert cluster.run(use, 1) == [3 * 11 + 1 + 24] * 3
    twin = _by_value.loads(_by_value.dumps(use))
    assert twin is not use and twin.__doc__ == "Its text." and twin(1, plus=0) == 57


def test_submodules_that_are_named_are_loaded(cluster):
    import xml.etree.ElementTree

    assert cluster.run(lambda: xml.etree.ElementTree.Element("a").tag) == ["a"] * 3


def test_classes_travel_and_come_back_as_themselves(cluster):
    class Base:
        scale = 2

        def __init__(self, x):
            self.x = x

        def twice(self):
            return self.scale * self.x

    class Point(Base):
        __slots__ = ("y",)

        def __init__(self, x, y):
            super().__init__(x)
            self.y = y

        @property
        def total(self):
            return self.twice() + self.y

        @classmethod
        def of(cls, both):
            return cls(both, both)

        @staticmethod
        def name():
            return "point"

    @dataclasses.dataclass
    class Setting:
        lr: float
        names: list = dataclasses.field(default_factory=list)

    def work(point, setting):
        return type(point).of(point.total), dataclasses.replace(setting, names=[Point.name()])

    for point, setting in cluster.run(work, Point(1, 2), Setting(0.5)):
        assert type(point) is Point and (point.x, point.y, point.total) == (4, 4, 12)
        assert type(setting) is Setting and setting == Setting(0.5, ["point"])
        assert dataclasses.asdict(setting)["lr"] == 0.5


def test_unpicklable_values_are_named(cluster):
    lock = threading.Lock()
    with pytest.raises(TypeError, match="uses lock, which cannot be sent"):
        cluster.run(lambda: lock)


# Workers end with the notebook.

PARENT = """
import os, sys, starling
cluster = starling.Cluster(2)
print(*cluster.pids, flush=True)
{then}
"""


@pytest.mark.parametrize("busy", [False, True])
def test_workers_end_with_a_killed_parent(busy):
    then = "import time; cluster.run(time.sleep, 100)" if busy else "sys.stdin.read()"
    parent = subprocess.Popen([sys.executable, "-c", PARENT.format(then=then)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2 and not any(gone(pid) for pid in pids)
    time.sleep(0.3)
    parent.kill()
    parent.wait()
    assert wait_until(lambda: all(gone(pid) for pid in pids))


def test_workers_end_with_a_parent_that_forgets_to_close():
    ended = run_script(PARENT.format(then=""))
    assert ended.returncode == 0, ended.stderr
    assert wait_until(lambda: all(gone(pid) for pid in map(int, ended.stdout.split())))


def test_functions_of_a_script():
    ended = run_script("""
import starling
base = 40
def g(x): return x + base + rank
with starling.Cluster(2) as cluster:
    print(cluster.run(g, 1))
    base = 50
    print(cluster.run(g, 1))
""")
    assert ended.stdout == "[41, 42]\n[51, 52]\n", ended.stderr


# Clusters in the background.

@pytest.fixture
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield tmp_path
    starling.Cluster.stop()


def test_a_cluster_in_the_background(runtime, capfd):
    with pytest.raises(starling.Error, match="no cluster named default is running"):
        starling.Cluster.connect()
    with starling.Cluster.launch(2, grace=1.0) as first:
        first.push(kept=5)
        pids = first.pids
    assert (runtime / "starling").stat().st_mode & 0o777 == 0o700
    with pytest.raises(starling.Error, match="running already"):
        starling.Cluster.launch(2)
    with starling.Cluster() as found:
        assert found.n == 2 and found.pids == pids
        assert found.run(lambda: (print("hello"), kept + rank)[1]) == [5, 6]  # noqa: F821
        assert sorted(capfd.readouterr().out.splitlines()) == ["[0] hello", "[1] hello"]
        with pytest.raises(starling.WorkerError, match="ZeroDivisionError"):
            found.run(lambda: 1 / 0)
        other = run_script("import starling; print(starling.Cluster.connect().pull('kept'))")
        assert other.stdout == "[5, 5]\n", other.stderr
    assert starling.Cluster.stop() and wait_until(lambda: all(gone(pid) for pid in pids))
    assert not starling.Cluster.stop()


def test_control_c_and_deaths_in_the_background(runtime):
    with starling.Cluster.launch(2, grace=1.0) as cluster:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            cluster.run(time.sleep, 60)
        assert cluster.run(lambda: rank) == [0, 1]  # noqa: F821
        # If a client dies, the workers stay available to others.
        script = "import starling, time; c = starling.Cluster.connect(); print(flush=True); c.run(time.sleep, 60)"
        client = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        client.stdout.readline()
        time.sleep(0.3)
        client.kill()
        client.wait()
        assert cluster.run(lambda: rank) == [0, 1]  # noqa: F821
        with pytest.raises(starling.WorkerLost, match="rank 1"):
            cluster.run(os._exit, 1, ranks=[1])
        cluster.restart()
        pids = cluster.pids
        os.kill(cluster._workers.server, signal.SIGKILL)
        assert wait_until(lambda: all(gone(pid) for pid in pids))
        with pytest.raises(starling.Error, match="in the background has ended"):
            cluster.run(os.getpid)
    with starling.Cluster.launch(1) as again:  # over the socket that the dead cluster left behind
        assert again.n == 1


def test_a_folder_that_others_can_enter_is_refused(runtime):
    (runtime / "starling").mkdir(mode=0o755)
    with pytest.raises(starling.Error, match="chmod 700"):
        starling.Cluster.connect()
    (runtime / "starling").chmod(0o700)
    with pytest.raises(starling.Error, match="no cluster"):
        starling.Cluster.connect()
