"""Jobs that mpirun starts across the hosts. It passes its input to rank 0 only, so ranks read from named pipes."""
import itertools
import os
import shutil
import subprocess
import time
from pathlib import Path

from hosts import NETWORK
from job import Failed, Job

HERE = Path(__file__).resolve().parent
LIMIT = 60.0  # seconds within which all ranks must be running
# Ranks share cores, so waiting ranks yield. 4 is the ring algorithm: on such links twice as fast as Open
# MPI's default.
COMMON = ["--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
          "--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "4"]


def missing():
    """The reason why such jobs cannot run here; None if they can."""
    if not shutil.which("mpirun"):
        return "there is no 'mpirun' here (Debian: openmpi-bin)"
    said = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    return None if "Open MPI" in said else "mpirun is not Open MPI's"


class MpiJob(Job):
    """Rank k runs on host k; mpirun runs beside the bridge and uses agent.sh instead of ssh."""
    _numbers = itertools.count()

    def __init__(self, name, hosts, words, ranks=None, fabric=None):
        self._fabric = fabric
        super().__init__(name, hosts, words, ranks)

    def meeting(self, interface):
        return {"STARLING_FABRIC": self._fabric} if self._fabric else {}

    def place(self, rank):
        return {}  # mpirun sets them

    def start(self, words, shared):
        folder = os.path.join(self.hosts.folder, f"mpi-{next(self._numbers)}")
        os.mkdir(folder)
        pipes = [[os.path.join(folder, f"{kind}-{rank}") for kind in ("in", "out")] for rank in range(self.ranks)]
        for pipe in itertools.chain(*pipes):
            os.mkfifo(pipe)
        # Opened for reading from the start, so that a rank that opens its output need not wait.
        self._outputs = [os.open(out, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) for _, out in pipes]
        where, across = None, ["--mca", "plm", "rsh", "--mca", "plm_rsh_no_tree_spawn", "1",
                               "--mca", "plm_rsh_agent", str(HERE / "mpi_agent.sh"),
                               "--host", ",".join(f"h{host}" for host in range(self.hosts.count))]
        for part in ("oob_tcp", "btl_tcp"):
            across += ["--mca", f"{part}_if_include", f"{NETWORK}0/24"]
        if self.hosts.count == 1:
            where, across = 0, ["--oversubscribe", "-n", str(self.ranks)]
        env = {**shared, "TMPDIR": folder, "STARLING_BENCH_HOSTS": self.hosts.names[0].removesuffix("0")}
        self.processes = [self.hosts.start(where, ["mpirun", *COMMON, *across, str(HERE / "mpi_rank.sh"), folder, *words],
                                           env=env, stdin=subprocess.DEVNULL)]
        end = time.monotonic() + LIMIT
        self._inputs = [self._open_input(pipe, end) for pipe, _ in pipes]
        for output in self._outputs:
            os.set_blocking(output, True)

    def _open_input(self, pipe, end):
        """Opens the input once the rank reads it: by then it has opened its output, too."""
        while True:
            try:
                descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                os.set_blocking(descriptor, True)
                return os.fdopen(descriptor, "wb")
            except OSError:  # the rank has not opened it yet
                if self.processes[0].poll() is not None:
                    raise Failed(f"{self.name}: mpirun has ended with {self.processes[0].returncode}") from None
                if time.monotonic() > end:
                    raise Failed(f"{self.name}: mpirun has started no ranks within {LIMIT:.0f} s") from None
            time.sleep(0.02)

    def end(self):
        super().end()
        for output in self._outputs:
            os.close(output)
        self._outputs = []
