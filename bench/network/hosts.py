"""Hosts on one machine: network namespaces, joined by a bridge, every link as slow as asked.

    with Hosts(4, rate=100) as hosts:               # Mbit/s; None: as fast as the machine is
        hosts.start(2, ["ping", "-c1", hosts.address(0)]).wait()

Every host has `eth0` and an address in 10.83.0.0/24. The bridge has a namespace of its own, so nothing of all this is
seen outside. Everything goes at the end of the block: after errors, SIGINT, SIGTERM and SIGHUP too; what a killed process
left behind goes when the next one starts.
"""
import ctypes
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

NETWORK = "10.83.0."
BRIDGE = 254  # the bridge's address, where a launcher may listen
INTERFACE = "eth0"
LARGEST = 8
NAMESPACES = "/run/netns"
FOLDERS = "/run"  # the parent folder of a network's files
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Unavailable(Exception):
    """This machine cannot make such hosts; the message says why."""


def _tell(words, lines=None):
    """Runs a command of iproute2 with `lines` as its standard input."""
    try:
        done = subprocess.run(words, input=lines, capture_output=True, text=True)
    except FileNotFoundError:
        raise Unavailable(f"there is no '{words[0]}' here (Debian: iproute2)") from None
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _began(pid):
    """When a process began, in ticks since boot; None if it does not exist. Pids are reused, these pairs are not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except OSError:
        return None


def _remove(names):
    """Ends the processes in these namespaces, then removes the namespaces and with them their links."""
    for name in names:
        found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
        for pid in map(int, found.stdout.split()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def leftovers(place=NAMESPACES, ending="-(?:h\\d+|switch)"):
    """Namespaces with our kind of name whose creator has died."""
    try:
        names = os.listdir(place)
    except FileNotFoundError:
        return []
    parts = [(name, re.fullmatch(rf"starling-(\d+)-(\d+)-\d+{ending}", name)) for name in names]
    return [name for name, part in parts if part and _began(int(part[1])) != int(part[2])]


def remove_leftovers():
    """Removes leftover namespaces and returns them."""
    names = leftovers()
    _remove(names)
    for folder in leftovers(FOLDERS, ending=""):
        shutil.rmtree(os.path.join(FOLDERS, folder), ignore_errors=True)
    return names


def _die_with_parent():
    # PR_SET_PDEATHSIG; `ip netns exec` executes its command, so it is kept
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class _Undisturbed:
    """Delays signals until the end of the block, so that no half-made network is left behind."""

    def __enter__(self):
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)

    def __exit__(self, *_):
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


class Hosts:
    _numbers = itertools.count()  # distinguishes the networks of one process

    def __init__(self, count, rate=None):
        if not 1 <= count <= LARGEST:
            raise ValueError(f"{count} hosts: there can be 1 to {LARGEST}")
        self.count, self.rate = count, None
        self._wanted = rate
        prefix = f"starling-{os.getpid()}-{_began(os.getpid())}-{next(self._numbers)}"
        self.names = [f"{prefix}-h{host}" for host in range(count)]
        self.switch = f"{prefix}-switch"
        self.folder = os.path.join(FOLDERS, prefix)  # for files that belong to the hosts
        self._processes = []
        self._handlers = {}

    def __enter__(self):
        if os.geteuid() != 0:
            raise Unavailable("network namespaces need root: run this as root, or with sudo")
        for tool in ("ip", "tc"):
            if not shutil.which(tool):
                raise Unavailable(f"there is no '{tool}' here (Debian: iproute2)")
        with _Undisturbed():
            try:
                remove_leftovers()
                self._make()
                self.set_rate(self._wanted)
                os.mkdir(self.folder, 0o700)
            except BaseException:
                _remove([*self.names, self.switch])
                raise
            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGTERM, signal.SIGHUP):  # SIGINT raises an exception anyway
                    self._handlers[number] = signal.signal(number, self._end)
        return self

    @staticmethod
    def _end(number, _frame):
        raise SystemExit(128 + number)

    def __exit__(self, *_):
        with _Undisturbed():
            for process in self._processes:
                if process.poll() is None:
                    process.kill()
            _remove([*self.names, self.switch])
            for process in self._processes:
                process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def _make(self):
        _tell(["ip", "-batch", "-"], "".join(f"netns add {name}\n" for name in [*self.names, self.switch]))
        _tell(["ip", "-n", self.switch, "-batch", "-"],
              "link add bridge0 type bridge forward_delay 0\n"
              f"address add {NETWORK}{BRIDGE}/24 dev bridge0\n"
              "link set lo up\nlink set bridge0 addrgenmode none up\n")
        for host, name in enumerate(self.names):
            # Created inside their namespaces, so that nothing appears outside, even briefly.
            _tell(["ip", "link", "add", INTERFACE, "netns", name, "type", "veth",
                   "peer", "name", f"port{host}", "netns", self.switch])
            _tell(["ip", "-n", name, "-batch", "-"],
                  f"link set lo up\nlink set {INTERFACE} addrgenmode none up\n"
                  f"address add {self.address(host)}/24 dev {INTERFACE}\n")
            self._speak_usual_tcp(name, self.address(host))
            _tell(["ip", "-n", self.switch, "link", "set", f"port{host}", "master", "bridge0", "addrgenmode", "none", "up"])

    @staticmethod
    def _speak_usual_tcp(name, address):
        """Linux's own congestion control, wherever this is measured: bbr, say, rests for 200 ms now and then. By the
        route, since a machine may forbid its namespaces to change the default; kernels without cubic keep theirs."""
        subprocess.run(["ip", "-n", name, "route", "change", f"{NETWORK}0/24", "dev", INTERFACE, "proto", "kernel",
                        "scope", "link", "src", address, "congctl", "cubic"], capture_output=True)

    def set_rate(self, rate):
        """Sets the rate of every link in both directions, in Mbit/s; None removes the limit."""
        with _Undisturbed():
            ends = [(name, [INTERFACE]) for name in self.names]
            ends.append((self.switch, [f"port{host}" for host in range(self.count)]))
            for name, ports in ends:
                try:
                    _tell(["tc", "-n", name, "-batch", "-"], "".join(self._shape(port, rate) for port in ports))
                except Unavailable as error:
                    raise Unavailable(f"links cannot be slowed down here, is there tbf in this kernel? {error}") from None
            self.rate = rate

    def _shape(self, port, rate):
        if rate is None:
            return f"qdisc delete dev {port} root\n" if self.rate is not None else ""
        # A burst of about the largest segment (64 kB) halves the rate; above 1 Gbit/s a millisecond's worth.
        burst = max(128 * 1024, int(rate * 125))
        return f"qdisc replace dev {port} root tbf rate {rate}mbit burst {burst} latency 20ms\n"

    def address(self, host):
        return f"{NETWORK}{host + 1}"

    @property
    def bridge_address(self):
        return f"{NETWORK}{BRIDGE}"

    def start(self, host, words, own_name=False, **options):
        """A program on a host (None: beside the bridge), as subprocess.Popen; it ends with us. `own_name`: there the host
        is called h0, h1, ..., as two real hosts have two names."""
        name = self.switch if host is None else self.names[host]
        if own_name:
            script = 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"'
            words = ["unshare", "--uts", "sh", "-c", script, f"h{host}", *words]
        with _Undisturbed():
            process = subprocess.Popen(["ip", "netns", "exec", name, *words], preexec_fn=_in_child, **options)
            self._processes.append(process)
        return process

    def run(self, host, words, **options):
        """Like `start`, but waits; returns the output. Raises if the program fails."""
        process = self.start(host, words, stdout=subprocess.PIPE, text=True, **options)
        out, _ = process.communicate()
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, words, out)
        return out

    def bytes_sent(self, host):
        """The bytes that the host has sent over its link so far, headers included."""
        found = json.loads(_tell(["ip", "-n", self.names[host], "-json", "-statistics", "link", "show", INTERFACE]))
        return found[0]["stats64"]["tx"]["bytes"]


def _in_child():
    _die_with_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)  # the parent blocks them while it starts this process


class Idle:
    """The idle fraction of processor time in a block: `with Idle() as idle: ...`, then `idle.share`."""

    @staticmethod
    def _read():
        with open("/proc/stat") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        return ticks[3] + ticks[4], sum(ticks)

    def __enter__(self):
        self._idle, self._all = self._read()
        self.began = time.monotonic()
        self.share = 0.0
        return self

    def __exit__(self, *_):
        idle, everything = self._read()
        self.share = (idle - self._idle) / max(1, everything - self._all)
