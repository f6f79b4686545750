"""Jobs over c10d while ranks join: the store dies, ranks die, strangers connect."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

STARLING = os.path.join(os.environ["STARLING_BIN"], "starling")
PLUGIN = Path(os.environ["STARLING_BIN"]).parent / "lib" / "starling" / "libstarling_c10d.so"
pytestmark = pytest.mark.skipif(not PLUGIN.exists(), reason="this build has no c10d")

BEGIN = """
    import os, signal, sys, time
    import numpy
    import starling

    def join():
        flock = starling.join()
        flock.on_peer_failure = "reweight"
        flock.set_topology("ring")
        print("joined", flush=True)
        return flock
"""


class Job:
    """A running job whose output is collected."""

    def __init__(self, tmp_path, body, ranks, *options):
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(BEGIN) + textwrap.dedent(body))
        command = [STARLING, "run", "-n", str(ranks), "--timeout", "100", "--on-failure", "continue", *options]
        self.process = subprocess.Popen([*command, "--", sys.executable, str(program)], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def text(self):
        return "\n".join(self.lines)

    def wait_for(self, word, count):
        limit = time.monotonic() + 60
        while self.text().count(word) < count:
            assert time.monotonic() < limit and self.process.poll() is None, self.text()
            time.sleep(0.01)

    def end(self):
        self.process.wait()
        self.thread.join()
        return self.text()


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def rank_processes(job):
    """The ranks in the order in which they were started, without the launcher's other children."""
    return [child for child in children(job.process.pid)
            if Path(f"/proc/{child}/cmdline").read_text().startswith(sys.executable + "\0")]


@pytest.fixture
def start(tmp_path):
    jobs = []

    def start_job(*arguments):
        jobs.append(Job(tmp_path, *arguments))
        return jobs[-1]

    yield start_job
    for job in jobs:
        job.process.terminate()
        job.end()


def store_server(job):
    """The process that serves the store, a child of its supervisor."""
    for child in children(job.process.pid):
        if "host-store" in Path(f"/proc/{child}/cmdline").read_text():
            return children(child)[0]
    raise AssertionError("no store")


def test_the_store_and_ranks_after_it_may_die(start, tmp_path):
    body = """
        flock = join()
        x = numpy.array([1.0])
        while flock.allreduce(numpy.array([float(os.path.exists(sys.argv[0] + ".end"))]))[0] == 0:
            x = flock.neighbor_allreduce(x)
        print("survived", flush=True)
    """
    job = start(body, 4, "--fabric", "c10d")
    job.wait_for("joined", 4)
    for round in range(2):
        dead = store_server(job)
        os.kill(dead, signal.SIGKILL)
        job.wait_for("restarted with the same entries", round + 1)
        ranks = rank_processes(job)
        assert len(ranks) == 4 - round
        os.kill(ranks[-1], signal.SIGKILL)
        job.wait_for("was killed (", round + 1)
    (tmp_path / "program.py.end").write_text("")
    output = job.end()
    assert output.count("survived") == 2, output


def test_a_store_that_is_gone_for_good_is_reported_at_once(start, tmp_path):
    body = """
        flock = join()
        while flock.allreduce(numpy.array([float(os.path.exists(sys.argv[0] + ".end"))]))[0] == 0:
            flock.neighbor_allreduce(numpy.array([1.0]))
        print("survived", flush=True)
    """
    job = start(body, 2, "--fabric", "c10d")
    job.wait_for("joined", 2)
    server = store_server(job)
    for process in (int(Path(f"/proc/{server}/stat").read_text().split(")")[-1].split()[1]), server):
        os.kill(process, signal.SIGKILL)
    job.wait_for("it cannot recover from the failure of a rank", 2)
    (tmp_path / "program.py.end").write_text("")
    output = job.end()
    assert output.count("survived") == 2 and job.process.returncode == 0, output


@pytest.mark.parametrize("fabric", ["local", "c10d", "hybrid"])
@pytest.mark.parametrize("dies", [0, 2])
def test_a_death_before_the_meeting_leaves_the_others(start, tmp_path, fabric, dies):
    body = f"""
        if os.environ["STARLING_RANK"] == "{dies}":
            time.sleep(0.5)
            sys.exit(7)
        flock = join()
        x = numpy.array([float(flock.rank)])
        for _ in range(60):
            x = flock.neighbor_allreduce(x)
        print(flock.size, flock.allreduce(numpy.array([1.0]), "sum")[0], flush=True)
    """
    job = start(body, 3, "--fabric", fabric)
    output = job.end()
    assert output.count("] 3 2.0") == 2, output
    assert fabric == "local" or f"rank {dies} exited before" in output


def test_without_reweight_the_death_is_an_error_at_once(start, tmp_path):
    body = """
        if os.environ["STARLING_RANK"] == "1":
            sys.exit(7)
        flock = starling.join()
        try:
            flock.allreduce(numpy.array([1.0]))
        except starling.PeerLost as error:
            print("lost", error.peer, flush=True)
    """
    job = start(body, 3, "--fabric", "c10d")
    assert job.end().count("lost 1") == 2, job.text()


class Scan:
    """Connects once to each port on which ranks of the job start to listen, up to `most` ports."""

    def __init__(self, job, most):
        self.job, self.left, self.known, self.connected = job, most, set(), 0

    def owned(self, inode):
        for child in rank_processes(self.job):
            try:
                for link in os.scandir(f"/proc/{child}/fd"):
                    if os.readlink(link.path) == f"socket:[{inode}]":
                        return True
            except OSError:
                pass
        return False

    def look(self):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            row = line.split()
            if row[3] != "0A" or row[9] in self.known or self.left == 0:
                continue
            self.known.add(row[9])
            if not self.owned(row[9]):
                continue
            try:
                with socket.create_connection(("127.0.0.1", int(row[1].split(":")[1], 16)), 1):
                    self.connected += 1
                    self.left -= 1
            except OSError:
                pass


def test_a_port_scan_does_not_break_the_start(start, tmp_path):
    """Gloo takes the first connection to a rank for the peer that it waits for."""
    body = """
        flock = join()
        print(flock.allreduce(numpy.array([1.0]), "sum")[0], flush=True)
    """
    connected = 0
    for _ in range(8):  # the ports are open for some milliseconds
        job = start(body, 3, "--fabric", "c10d", "--env", "STARLING_LOG=info")
        scan = Scan(job, 3)
        while job.process.poll() is None and "joined" not in job.text():
            scan.look()
        output = job.end()
        assert job.process.returncode == 0 and output.count("] 3.0") == 3, output
        connected += scan.connected
        if connected > 0:
            break
    print(output)
    assert connected > 0
