"""The hosts that ./run network-bench makes: they have the requested speed, are invisible from outside, and are always removed."""
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "bench" / "network"
sys.path.insert(0, str(FOLDER))

import hosts as network  # noqa: E402
from transfer import throughput  # noqa: E402


def why_not():
    try:
        with network.Hosts(2, 100):
            return ""
    except network.Unavailable as error:
        return str(error)


if reason := why_not():
    pytest.skip(reason, allow_module_level=True)


def links():
    """The names of this machine's network links."""
    return sorted(os.listdir("/sys/class/net"))


def namespaces(pid):
    return [name for name in os.listdir(network.NAMESPACES) if name.startswith(f"starling-{pid}-")]


def another(text):
    """Starts a process that makes hosts and waits; returns it and the pid of a program on one of the hosts."""
    begin = f"import sys, time\nsys.path.insert(0, {str(FOLDER)!r})\nfrom hosts import Hosts\n"
    program = begin + textwrap.dedent(text)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


SPEAKS = """
    import socket, sys
    def says(one):
        print(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode(), flush=True)
    if sys.argv[1] == "listen":
        with socket.create_server(("", 5000)) as server:
            print("listens", flush=True)
            says(server.accept()[0])
    else:
        says(socket.create_connection((sys.argv[1], 5000)))
"""


def test_hosts_speak_the_usual_tcp():
    program = [sys.executable, "-c", textwrap.dedent(SPEAKS)]
    with network.Hosts(2) as hosts:
        offered = hosts.run(1, ["cat", "/proc/sys/net/ipv4/tcp_available_congestion_control"])
        if "cubic" not in offered:
            pytest.skip(f"this kernel offers only {offered.strip()}")
        server = hosts.start(0, [*program, "listen"], stdout=subprocess.PIPE, text=True)
        assert server.stdout.readline() == "listens\n"
        assert hosts.run(1, [*program, hosts.address(0)]).strip() == "cubic"
        assert server.stdout.readline().strip() == "cubic"


WAITS = """
    with Hosts(2, 100) as hosts:
        print(hosts.start(1, ["sleep", "1000"]).pid, flush=True)
        time.sleep(1000)
"""


def ended(pid, seconds=10):
    """Whether a process is gone or ends within `seconds` (if it was killed with its parent, another process reaps it)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def assert_rates(hosts, pairs, least, most):
    """The rate never exceeds the limit, except for the burst that full buckets allow; it is not lower unless the machine is busy."""
    for _ in range(4):
        rates = throughput(hosts, pairs)
        assert max(rates) <= most
        if min(rates) >= least:
            return
    pytest.fail(f"{rates} Mbit/s instead of {least} to {most}")


def test_links_are_as_fast_as_asked_and_nothing_is_left():
    before = links()
    with network.Hosts(2, 100) as hosts:
        assert links() == before
        assert len(namespaces(os.getpid())) == 3
        assert_rates(hosts, [(0, 1)], 85, 115)
        assert hosts.bytes_sent(0) > 85e6 / 8
        assert_rates(hosts, [(0, 1), (1, 0)], 85, 115)
    assert namespaces(os.getpid()) == []
    assert links() == before


def test_both_ends_of_a_link_are_slow():
    with network.Hosts(3, 50) as hosts:
        assert sum(throughput(hosts, [(0, 2), (1, 2)])) <= 65
        assert sum(throughput(hosts, [(0, 1), (0, 2)])) <= 65


def test_rates_change_under_way():
    with network.Hosts(2) as hosts:
        assert throughput(hosts, [(0, 1)], 0.5)[0] > 60
        hosts.set_rate(20)
        assert_rates(hosts, [(0, 1)], 15, 30)
        hosts.set_rate(None)
        assert throughput(hosts, [(0, 1)], 0.5)[0] > 60


def test_hosts_have_names_of_their_own_when_asked():
    with network.Hosts(2) as hosts:
        assert hosts.run(1, ["cat", "/proc/sys/kernel/hostname"], own_name=True).strip() == "h1"
        own = Path("/proc/sys/kernel/hostname").read_text()
        assert hosts.run(1, ["cat", "/proc/sys/kernel/hostname"]) == own


def test_programs_that_fail_are_errors():
    with network.Hosts(2) as hosts:
        with pytest.raises(subprocess.CalledProcessError):
            hosts.run(0, ["false"])


def test_hosts_are_removed_after_an_exception():
    with pytest.raises(RuntimeError):
        with network.Hosts(2) as hosts:
            sleeper = hosts.start(0, ["sleep", "1000"])
            raise RuntimeError("oh")
    assert sleeper.returncode == -signal.SIGKILL
    assert namespaces(os.getpid()) == []


def test_two_networks_at_once():
    with network.Hosts(1) as one, network.Hosts(1) as other:
        assert one.address(0) == other.address(0)
        assert len(namespaces(os.getpid())) == 4
    assert namespaces(os.getpid()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_hosts_are_removed_after_a_signal(number):
    process, sleeper = another(WAITS)
    assert len(namespaces(process.pid)) == 3
    process.send_signal(number)
    assert process.wait(20) != 0
    assert namespaces(process.pid) == []
    assert ended(sleeper)


def test_the_next_start_removes_what_a_killed_run_left():
    process, sleeper = another(WAITS)
    process.kill()
    process.wait()
    assert ended(sleeper)  # programs on a host end with the process that made it
    assert len(namespaces(process.pid)) == 3
    with network.Hosts(1):
        assert namespaces(process.pid) == []


def test_the_next_start_leaves_running_hosts_alone():
    process, sleeper = another(WAITS)
    with network.Hosts(1):
        assert len(namespaces(process.pid)) == 3
    process.terminate()
    process.wait(20)
    assert ended(sleeper)


def test_counts_are_checked():
    with pytest.raises(ValueError, match="1 to 8"):
        network.Hosts(9)
