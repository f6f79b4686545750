"""Jobs of mpirun across hosts that are network namespaces."""
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "bench" / "network"
sys.path.insert(0, str(FOLDER))

import hosts as network  # noqa: E402
import mpi_job  # noqa: E402
from job import Failed  # noqa: E402

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or mpi_job.missing() is not None,
                                reason="needs root and Open MPI's mpirun")
# Answers every line with its rank, its host's name and the line.
ECHO = ["sh", "-c", 'while read -r line; do echo "$OMPI_COMM_WORLD_RANK $(cat /proc/sys/kernel/hostname) $line"; done']


@pytest.fixture
def two_hosts():
    try:
        with network.Hosts(2) as hosts:
            yield hosts
    except network.Unavailable as reason:
        pytest.skip(str(reason))
    assert not os.path.exists(hosts.folder)


def test_every_rank_on_its_own_host_gets_the_error(two_hosts):
    job = mpi_job.MpiJob("echo", two_hosts, ECHO)
    assert job.ask("hello") == [["0", "h0", "hello"], ["1", "h1", "hello"]]
    assert job.ask(["a", "b"]) == [["0", "h0", "a"], ["1", "h1", "b"]]
    before = two_hosts.bytes_sent(0)
    job.end()
    assert job.processes[0].returncode == 0
    assert two_hosts.bytes_sent(0) > before  # mpirun learns of its end over the network


def test_programs_that_cannot_start_are_errors(two_hosts):
    with pytest.raises(Failed, match="mpirun has ended|has ended"):
        mpi_job.MpiJob("nothing", two_hosts, ["/no/such/program"]).ask("hello")


SLEEPERS = f"""
import sys, time
sys.path.insert(0, {str(FOLDER)!r})
from hosts import Hosts
from mpi_job import MpiJob
with Hosts(2) as hosts:
    job = MpiJob("sleepers", hosts, ["sh", "-c", "read line; echo $$; exec sleep 1000"])
    print(hosts.folder, *(words[0] for words in job.ask("begin")), flush=True)
    time.sleep(1000)
"""


def test_ranks_end_with_their_parent():
    process = subprocess.Popen([sys.executable, "-c", SLEEPERS], stdout=subprocess.PIPE, text=True)
    words = process.stdout.readline().split()
    if not words:
        pytest.skip("no network namespaces here")
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{rank}") for rank in words[1:]) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [rank for rank in words[1:] if os.path.exists(f"/proc/{rank}")]
    network.remove_leftovers()
    assert not os.path.exists(words[0])
