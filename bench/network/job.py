"""The ranks of one program, one on every host, which read commands and answer them, one line each."""
import os
import secrets
import select
import statistics
import subprocess
import time
from pathlib import Path

from hosts import INTERFACE

# As in `starling bench training`: torch's threads do not limit OpenBLAS, and memory returned to the kernel
# must be zeroed again.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
               "MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}
LAUNCHERS = ("STARLING_", "OMPI_", "PMIX_", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_RANK", "GLOO_")
TOOL = Path(__file__).resolve().parents[2] / "build" / "release" / "bin" / "starling"
LIMIT = 600.0  # seconds that an answer may take


class Failed(Exception):
    """A rank ended, timed out, or could not carry out a command."""


class Refused(Failed):
    """All ranks work, but do not support the command."""


class Job:
    """Base of the kinds of jobs: what a kind adds are the variables by which its ranks find each other. With one host all
    ranks are there and talk over its loopback device."""
    _ports = iter(range(29500, 40000))

    def __init__(self, name, hosts, words, ranks=None):
        self.name, self.hosts = name, hosts
        self.ranks = ranks or hosts.count
        self._unread = [b""] * self.ranks
        self.processes = []
        self._inputs, self._outputs = [], []  # of the ranks: a file and a descriptor each
        interface = INTERFACE if hosts.count > 1 else "lo"
        clean = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)}
        shared = {**clean, **ENVIRONMENT, "GLOO_SOCKET_IFNAME": interface, **self.meeting(interface)}
        self.start(words, shared)

    def start(self, words, shared):
        for rank in range(self.ranks):
            process = self.hosts.start(rank % self.hosts.count, words, own_name=self.hosts.count > 1,
                                       env={**shared, **self.place(rank)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.processes.append(process)
            self._inputs.append(process.stdin)
            self._outputs.append(process.stdout.fileno())

    def meeting(self, interface):
        raise NotImplementedError

    def place(self, rank):
        raise NotImplementedError

    def tell(self, rank, line):
        try:
            self._inputs[rank].write((line + "\n").encode())
            self._inputs[rank].flush()
        except BrokenPipeError:
            raise Failed(f"{self.name}: rank {rank} has ended before '{line}'") from None

    def answer(self, rank, limit=LIMIT):
        """The words of a rank's next line."""
        end = time.monotonic() + limit
        output = self._outputs[rank]
        while b"\n" not in self._unread[rank]:
            if not select.select([output], [], [], max(0.0, end - time.monotonic()))[0]:
                raise Failed(f"{self.name}: rank {rank} did not answer for {limit:.0f} s")
            got = os.read(output, 1 << 16)
            if not got:
                raise Failed(f"{self.name}: rank {rank} has ended")
            self._unread[rank] += got
        line, _, self._unread[rank] = self._unread[rank].partition(b"\n")
        return line.decode().split()

    def ask(self, lines, limit=LIMIT):
        """All ranks' answers; `lines` is one line for all, or a list with one line each."""
        lines = [lines] * self.ranks if isinstance(lines, str) else lines
        for rank, line in enumerate(lines):
            self.tell(rank, line)
        answers = [self.answer(rank, limit) for rank in range(self.ranks)]
        for rank, words in enumerate(answers):
            if not words or words[0] == "cannot":
                raise Refused(f"{self.name}: {' '.join(words[1:]) or 'an empty answer'}")
        return answers

    def seconds(self, lines):
        """The mean over the ranks of their first answer."""
        return statistics.mean(float(words[0]) for words in self.ask(lines))

    def end(self):
        for one in self._inputs:
            try:
                one.close()
            except BrokenPipeError:
                pass
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class TorchJob(Job):
    """Ranks that read torchrun's variables; rank 0's host has the store."""

    def meeting(self, interface):
        first = self.hosts.address(0) if self.hosts.count > 1 else "127.0.0.1"
        return {"MASTER_ADDR": first, "MASTER_PORT": str(next(self._ports)), "WORLD_SIZE": str(self.ranks)}

    def place(self, rank):
        return {"RANK": str(rank), "LOCAL_RANK": "0"}


class StarlingJob(Job):
    """Our ranks, over c10d; the launcher hosts the store beside the bridge, or on the only host."""

    def meeting(self, interface):
        where, address = (None, self.hosts.bridge_address) if self.hosts.count > 1 else (0, "127.0.0.1")
        token = secrets.token_hex(16)
        self._store = self.hosts.start(where, [str(TOOL), "host-store", address], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        self._store.stdin.write(token + "\n")
        self._store.stdin.flush()
        said = self._store.stdout.readline().split()
        if said[:1] != ["port"]:
            raise Failed(f"{self.name}: no store for the rendezvous of its ranks: {' '.join(said)}")
        return {"STARLING_FABRIC": "c10d", "STARLING_SIZE": str(self.ranks), "STARLING_JOB": token,
                "STARLING_STORE": f"{address}:{said[1]}", "STARLING_INTERFACE": interface}

    def place(self, rank):
        return {"STARLING_RANK": str(rank)}

    def end(self):
        super().end()
        self._store.kill()
