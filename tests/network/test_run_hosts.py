"""`starling run --hosts` over hosts that are network namespaces; a short script replaces ssh."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "network"))

import hosts as network  # noqa: E402

BIN = os.environ["STARLING_BIN"]
EXAMPLE = f"{BIN}/example_hello_flock"


@pytest.fixture
def hosts():
    try:
        with network.Hosts(2) as made:
            yield made
    except network.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def job(hosts, tmp_path):
    """Starts a program on all hosts, with two ranks each, from a launcher next to the bridge. Hosts are named by their addresses."""
    way = tmp_path / "way"
    prefix = hosts.names[0].removesuffix("0")
    way.write_text(f'#!/bin/sh\nexec ip netns exec {prefix}$((${{1##*.}} - 1)) env -i PATH="$PATH" sh -c "$2"\n')
    way.chmod(0o755)
    names = ",".join(f"{hosts.address(host)}:2" for host in range(hosts.count))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_")}

    def start(*words, **variables):
        return hosts.start(None, [f"{BIN}/starling", "run", "--hosts", names, "--launcher", str(way), *words],
                           env={**clean, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def test_ranks_of_two_hosts_average(hosts, job):
    process = job("--timeout", "100", EXAMPLE, STARLING_LOG="info")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert sorted(out.splitlines()) == [f"[{rank}] rank {rank} of 4: the average rank is 1.5" for rank in range(4)]
    assert err.count("joins over hybrid(c10d)") == 4
    assert min(hosts.bytes_sent(host) for host in (0, 1)) > 1000


def test_hosts_use_the_interface_that_leads_here_and_end_when_the_launcher_is_killed(hosts, job):
    process = job("sh", "-c", "echo $STARLING_STORE $STARLING_INTERFACE $MASTER_ADDR; exec sleep 1000")
    for _ in range(4):
        store, interface, first = process.stdout.readline().split()[1:]
        assert store.rpartition(":")[0] == hosts.bridge_address
        assert (interface, first) == (network.INTERFACE, hosts.address(0))
    process.send_signal(signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 20
    while any(subprocess.run(["ip", "netns", "pids", name], capture_output=True).stdout for name in hosts.names):
        assert time.monotonic() < end
        time.sleep(0.05)
