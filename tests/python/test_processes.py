"""Processes of starling.torch: start, end, fork, interruption, and waits that release the interpreter lock."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import starling

PREFIX = """
import os, signal, sys, threading, time
import torch
import starling, starling.torch as bf
"""
LAUNCHERS = ("STARLING_", "OMPI_", "PMIX_", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_RANK")


def environment(**variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return {**clean, "STARLING_TIMEOUT": "30", "OMP_NUM_THREADS": "1", **variables}


def command(n, text, *options):
    program = PREFIX + textwrap.dedent(text)
    return [starling.tool_path(), "run", "-n", str(n), *options, "--", sys.executable, "-c", program]


def run(n, text, *options, timeout=60, **variables):
    return subprocess.run(command(n, text, *options), env=environment(**variables), capture_output=True,
                          text=True, timeout=timeout)


def together(variables, text, timeout=60):
    """Starts processes without a launcher of ours, each with its own variables."""
    program = PREFIX + textwrap.dedent(text)
    ranks = [subprocess.Popen([sys.executable, "-c", program], env=environment(**one), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) for one in variables]
    outputs = [one.communicate(timeout=timeout)[0] for one in ranks]
    assert [one.returncode for one in ranks] == [0] * len(ranks), outputs
    return outputs


def test_an_exception_on_one_rank_ends_the_others_with_its_name():
    done = run(3, """
        bf.init()
        bf.barrier()
        if bf.rank() == 1:
            raise ValueError("something is wrong here")
        bf.allreduce(torch.ones(3))
        """)
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert "something is wrong here" in text
    assert "rank 1" in text and "longer than the timeout" not in text


def test_survivors_can_catch_the_error_and_know_the_lost_rank():
    done = run(2, """
        bf.init()
        bf.barrier()
        if bf.rank() == 1:
            os._exit(0)
        try:
            bf.allreduce(torch.ones(3))
        except starling.PeerLost as error:
            assert isinstance(error, RuntimeError) and error.peer == 1 and "rank 1" in str(error)
            print("lost one")
        """)
    assert "lost one" in done.stdout, done.stdout + done.stderr


def test_a_forked_child_gets_a_clear_error():
    done = run(2, """
        bf.init()
        x = torch.ones(1000)
        bf.win_create(x, "w")
        child = os.fork()
        if child == 0:
            told = 0
            for call in (lambda: bf.allreduce(x), lambda: bf.neighbor_allreduce(x), bf.barrier,
                         lambda: bf.allgather(x), lambda: bf.broadcast(x, 0), lambda: bf.win_create(x, "v"),
                         lambda: bf.win_put(x, "w"), lambda: bf.win_get("w"), lambda: bf.win_update("w"),
                         lambda: bf.win_mutex("w").__enter__(), lambda: bf.win_free("w"),
                         starling._core.join):
                try:
                    call()
                except RuntimeError as error:
                    told += "fork" in str(error) and "parent" in str(error)
            sys.exit(0 if told == 12 else 100 + told)  # atexit must not affect the parent
        status = os.waitpid(child, 0)[1]
        assert status == 0, status >> 8
        assert bf.allreduce(x).sum() == 1000  # the parent goes on
        bf.win_free()
        print("fine")
        """)
    assert done.returncode == 0 and done.stdout.count("fine") == 2, done.stdout + done.stderr


def test_two_topologies_are_both_named():
    done = run(2, """
        bf.init()
        bf.set_topology("ring" if bf.rank() == 0 else "exponential")
        try:
            bf.neighbor_allreduce(torch.ones(1))
        except starling.Mismatch as error:
            text = str(error)
            assert "schedule ring" in text and "schedule exponential" in text and "shape" not in text, text
            print("fine")
        """)
    assert done.returncode == 0 and done.stdout.count("fine") == 2, done.stdout + done.stderr


def test_relays_follow_a_matrix():
    done = run(3, """
        import starling.torch
        chain = starling.topology("chain", 3).weights()
        bf.init()
        bf.set_topology(chain)
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 1)
        optimizer = bf.decentralize(model, torch.optim.SGD(model.parameters(), 0.1), method="relay-sgd")
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 2) * (bf.rank() + 1)).pow(2).mean().backward()
            optimizer.step()
        print("fine")
        """)
    assert done.returncode == 0 and done.stdout.count("fine") == 3, done.stdout + done.stderr


def test_a_child_of_a_process_without_a_flock_may_join():
    done = run(1, """
        child = os.fork()
        if child == 0:
            bf.init()
            sys.exit(0 if bf.allreduce(torch.ones(3)).sum() == 3 else 7)
        assert os.waitpid(child, 0)[1] == 0
        bf.init()
        assert bf.allreduce(torch.ones(3)).sum() == 3
        print("fine")
        """)
    assert done.returncode == 0 and done.stdout.count("fine") == 1, done.stdout + done.stderr


def test_the_interpreter_ends_with_pending_operations():
    done = run(2, """
        bf.init()
        x, y, z = torch.ones(1000), torch.ones(500_000), torch.ones(10)
        bf.win_create(z, "w")
        handles = [bf.neighbor_allreduce_nonblocking(x, name="n"),
                   bf.allreduce_nonblocking_(y, average=False)]
        if bf.rank() == 0:
            bf.allreduce_nonblocking(z, name="nobody else")
            bf.neighbor_allreduce_nonblocking(z, self_weight=0.5, src_weights={1: 0.5}, dst_weights=[1])
            sys.exit(0)
        time.sleep(0.3)
        assert bf.synchronize(handles[0]).sum() == 1000  # rank 0 had taken part in it before it left
        assert bf.synchronize(handles[1]).sum() == 1_000_000
        print("undisturbed")
        """, STARLING_TIMEOUT="600")
    assert done.returncode == 0 and "undisturbed" in done.stdout, done.stdout + done.stderr


def test_an_exception_with_pending_operations_is_the_users():
    done = run(1, """
        bf.init()
        handle = bf.allreduce_nonblocking(torch.ones(3))
        raise KeyError("mine")
        """)
    assert done.returncode == 1 and "KeyError: 'mine'" in done.stdout + done.stderr


WAITS = {
    "barrier": "bf.barrier()",
    "allreduce": "bf.allreduce(x)",
    "allreduce_": "bf.allreduce_(x)",
    "broadcast": "bf.broadcast(x, 1)",
    "allgather": "bf.allgather(x)",
    "neighbor_allreduce": "bf.neighbor_allreduce(x)",
    "named": "bf.neighbor_allreduce(x, name='n')",
    "dynamic": "bf.neighbor_allreduce(x, self_weight=0.5, src_weights={other: 0.5}, dst_weights=[other])",
    "neighbor_allgather": "bf.neighbor_allgather(x)",
    "pair_gossip": "bf.pair_gossip(x, other)",
    "synchronize": "bf.synchronize(bf.allreduce_nonblocking(x))",
    "group": "bf.allreduce_group([x, x])",
    "lists": "bf.allgather_lists([1])",
    "win_create": "bf.win_create(x, 'w')",
    "win_free": "bf.win_free('w')",
    "parameters": "bf.broadcast_parameters({'x': x}, 1)",
    "numpy": "starling.join().allreduce(x.numpy())",
}


COUNTER = """
class Counting(threading.Thread):
    def run(self):
        self.counted, self.ended = 0, False
        while not self.ended:
            self.counted += 1
            time.sleep(0.001)
    def __enter__(self):
        self.start()
        return self
    def __exit__(self, *_):
        self.ended = True
        self.join()
"""


def test_waits_leave_the_interpreter_lock():
    done = run(2, COUNTER + f"""
bf.init()
x, other = torch.ones(100), 1 - bf.rank()
for call, text in {WAITS!r}.items():
    bf.barrier()
    if bf.rank() == 1:
        time.sleep(0.3)
        eval(text)
        continue
    with Counting() as thread:
        eval(text)
        seen = thread.counted
    assert seen > 30, (call, seen)
""")
    assert done.returncode == 0, done.stdout + done.stderr


def test_waiting_for_a_mutex_leaves_the_interpreter_lock():
    done = run(2, COUNTER + """
bf.init()
x = torch.ones(3)
bf.win_create(x, "w")
if bf.rank() == 1:
    with bf.win_mutex("w", for_self=True):
        bf.barrier()
        time.sleep(0.3)
else:
    bf.barrier()
    with Counting() as thread:
        bf.win_put(x, "w", require_mutex=True)
        assert thread.counted > 30, thread.counted
bf.barrier()
""")
    assert done.returncode == 0, done.stdout + done.stderr


INTERRUPTED = {
    "neighbor_allreduce": "bf.neighbor_allreduce(x)",
    "allreduce": "bf.allreduce(x)",
    "barrier": "bf.barrier()",
    "synchronize": "bf.synchronize(bf.allgather_nonblocking(x))",
    "dynamic": "bf.neighbor_allreduce(x, self_weight=0.5, src_weights={1: 0.5}, dst_weights=[1])",
    "win_mutex": "bf.win_mutex('w', ranks=[1]).__enter__()",
}


def test_ctrl_c_ends_a_wait():
    done = run(2, f"""
        released = []
        signal.signal(signal.SIGUSR1, lambda *_: released.append(True))
        bf.init()
        x = torch.ones(100)
        bf.win_create(torch.ones(3), "w")
        pids = bf.allgather(torch.tensor([os.getpid()])).tolist()
        if bf.rank() == 1:
            with bf.win_mutex("w", for_self=True):
                bf.barrier()
                while not released:
                    time.sleep(0.01)
            sys.exit(0)
        bf.barrier()
        for call, text in {INTERRUPTED!r}.items():
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                eval(compile(text, call, "eval"))  # eval of a text makes the interpreter end by the signal
            except KeyboardInterrupt:
                print("interrupted")
        os.kill(pids[1], signal.SIGUSR1)
        """)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("interrupted") == len(INTERRUPTED), done.stdout + done.stderr


def test_ctrl_c_ends_a_program():
    process = subprocess.Popen(command(2, """
        bf.init()
        bf.barrier()
        if bf.rank() == 0:
            print("waits", flush=True)
            bf.allreduce(torch.ones(3))
        else:
            time.sleep(60)
        """), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    assert "waits" in process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode != 0


def test_deadlocks_are_found():
    done = run(2, """
        bf.init()
        names = ["a", "b"] if bf.rank() == 0 else ["b", "a"]
        try:
            for name in names:
                bf.allreduce(torch.ones(3), name=name)
        except starling.Deadlock as error:
            print("deadlock", "allreduce.a" in str(error) and "allreduce.b" in str(error))
        """, timeout=40)
    assert done.stdout.count("deadlock True") == 2, done.stdout + done.stderr


@pytest.mark.parametrize("rank, size, job", [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"), ("RANK", "WORLD_SIZE", "MASTER_PORT"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID")], ids=["mpirun", "torchrun", "srun"])
def test_other_launchers(rank, size, job):
    outputs = together([{rank: str(r), size: "2", job: f"test{os.getpid()}"} for r in range(2)], """
        bf.init()
        print(bf.rank(), bf.size(), bf.allreduce(torch.tensor([float(bf.rank())])).item())
        """)
    assert [output.split() for output in outputs] == [["0", "2", "0.5"], ["1", "2", "0.5"]]


def test_without_a_launcher_a_flock_of_one():
    outputs = together([{}], """
        bf.init()
        x = torch.arange(3.0)
        assert torch.equal(bf.neighbor_allreduce(x), x) and torch.equal(bf.allgather(x), x)
        bf.win_create(x, "w"); bf.win_put(x, "w"); bf.win_update("w")
        print(bf.rank(), bf.size(), bf.in_neighbor_ranks())
        """)
    assert outputs[0].split() == ["0", "1", "[]"]


def test_the_call_overhead_of_a_small_average():
    """Python adds at most 10 microseconds to the core."""
    outputs = together([{}], """
        bf.init()
        x = torch.ones(256)
        def seconds(call):
            best = 1.0
            for _ in range(20):
                began = time.perf_counter()
                for _ in range(500):
                    call()
                best = min(best, (time.perf_counter() - began) / 500)
            return best
        print(seconds(lambda: bf.neighbor_allreduce(x)) * 1e6)
        """)
    assert float(outputs[0]) < 10


def test_the_timeline(tmp_path):
    import json

    prefix = str(tmp_path / "trace")
    done = run(2, """
        bf.init()
        x = torch.ones(10)
        bf.allreduce(x, name="a")
        bf.neighbor_allreduce(x)
        bf.synchronize(bf.allgather_nonblocking(x))
        bf.broadcast(x, 0)
        bf.win_create(x, "w"); bf.win_put(x, "w"); bf.win_update("w")
        assert bf.timeline_start_activity("layer", "FORWARD") and bf.timeline_end_activity("layer")
        assert not bf.timeline_end_activity("layer")
        with bf.timeline_context("layer", "GRADIENT COMPT."):
            file = os.environ["BLUEFOG_TIMELINE"] + f"{bf.rank()}.json"
            lines = open(file).read().splitlines()  # while it runs
            assert "GRADIENT COMPT." in lines[-1], lines
        """, BLUEFOG_TIMELINE=prefix)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        events = json.load(open(f"{prefix}{rank}.json"))
        assert {event["ph"] for event in events} == {"B", "E", "M"}
        begun = [event["name"] for event in events if event["ph"] == "B"]
        assert sorted(begun) == sorted(event["name"] for event in events if event["ph"] == "E")
        for word in ("ALLREDUCE", "NEIGHBOR_ALLREDUCE", "ALLGATHER", "BROADCAST"):
            for name in (f"ENQUEUE_{word}", f"PROC_{word}", f"MPI_{word}"):
                assert begun.count(name) == 1, name
        for name in ("COMMUNICATE", "COMPUTE_AVERAGE", "ENQUEUE_WIN_PUT", "WIN_PUT", "MPI_WIN_PUT", "WIN_UPDATE", "FORWARD"):
            assert name in begun
        named = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
        assert {"allreduce.a", "w", "layer"} <= set(named.values())
        for event in events:
            assert event["pid"] in named and (event["ph"] == "M" or event["tid"] >= 1 and event["ts"] >= 0)


def test_a_timeline_that_cannot_be_written_stops_nobody(tmp_path):
    done = run(2, """
        bf.init()
        assert not bf.timeline_start_activity("x", "y")
        assert float(bf.allreduce(torch.ones(1))) == 1
        """, BLUEFOG_TIMELINE=str(tmp_path / "none" / "trace"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("continues without one") == 2 and "Traceback" not in done.stderr, done.stderr


def test_without_a_timeline_nothing_is_recorded():
    together([{}], """
        bf.init()
        assert not bf.timeline_start_activity("x", "y") and not bf.timeline_end_activity("x")
        with bf.timeline_context("x", "y") as started:
            assert not started
        assert bf.timeline.writer is None
        """)
