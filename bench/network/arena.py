"""The jobs that a section lets compete. With --by-hand nothing of ours takes part: programs written by hand on gloo or MPI
stand in, which shows what the network itself allows."""
import sys
from dataclasses import dataclass
from pathlib import Path

import mpi_job
from job import StarlingJob, TorchJob
from mpi_job import MpiJob

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "release"
TOOL = BUILD / "bin" / "starling-torch"
OPERATIONS = [sys.executable, str(HERE / "gloo_operations.py")]
MPI_OPERATIONS = BUILD / "bin" / "starling_mpi_operations"
BATCH = {"lenet": 32, "resnet20": 32, "mlp": 128}


def gloo_job(hosts, ranks=None, name="gloo"):
    return TorchJob(name, hosts, OPERATIONS, ranks)


def mpi_peer_job(hosts, ranks=None, name="MPI"):
    return MpiJob(name, hosts, [str(MPI_OPERATIONS)], ranks)


def starling_job(hosts, words, ranks=None):
    return StarlingJob("starling", hosts, [str(TOOL), *words], ranks)


def starling_mpi_job(hosts, words, ranks=None):
    return MpiJob("starling over MPI", hosts, [str(TOOL), *words], ranks, fabric="mpi")


def mpi_missing():
    """The reason why MPI cannot run here; None if it can."""
    if not (BUILD / "lib" / "starling" / "libstarling_mpi.so").exists() or not MPI_OPERATIONS.exists():
        return "the fabric mpi is not built here (Debian: libopenmpi-dev)"
    return mpi_job.missing()


@dataclass
class Engine:
    """The engine of our jobs, and the peer written directly on it."""
    over: str  # for the names of figures
    peer: str  # for the names of figures
    all_reduce: str
    start: object  # (hosts, words, ranks) -> our job
    start_peer: object  # (hosts, ranks, name) -> the peer's job
    native: bool = False  # whether our ranks can use the engine's all-reduce
    missing: object = lambda: None


ENGINES = {
    "c10d": Engine("", "gloo", "gloo's all-reduce", starling_job, gloo_job),
    "mpi": Engine(" over MPI", "MPI", "MPI_Allreduce", starling_mpi_job, mpi_peer_job, True, mpi_missing),
}


def engines(options):
    """The engines in --engines that are available, and why others are not."""
    reasons = {name: ENGINES[name].missing() for name in options.engines}
    return ([ENGINES[name] for name, reason in reasons.items() if reason is None],
            [f"the engine {name}: {reason}" for name, reason in reasons.items() if reason is not None])


def operations_jobs(engine, hosts, by_hand, ranks=None):
    ours = engine.start_peer(hosts, ranks, "by hand" + engine.over) if by_hand else \
        engine.start(hosts, ["operations-worker"], ranks)
    return {"ours": ours, "peer": engine.start_peer(hosts, ranks)}


def ddp_job(hosts, network):
    script = str(HERE.parent / "peer_ddp.py")
    return TorchJob("DDP", hosts, [sys.executable, script, network, str(BATCH[network]), "25", "1"])


def our_job(hosts, network, by_hand=False, engine=ENGINES["c10d"]):
    if by_hand:
        script = str(HERE / "gloo_training.py")
        return TorchJob("by hand", hosts, [sys.executable, script, network, str(BATCH[network])])
    return engine.start(hosts, ["worker", network, "1"])
