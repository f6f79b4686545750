"""The jobs that a section lets compete. With --by-hand nothing of ours takes part: programs written by hand on gloo
stand in, which shows what the network itself allows."""
import sys
from pathlib import Path

from job import StarlingJob, TorchJob

HERE = Path(__file__).resolve().parent
TOOL = HERE.parents[1] / "build" / "release" / "bin" / "starling-torch"
OPERATIONS = [sys.executable, str(HERE / "gloo_operations.py")]
BATCH = {"lenet": 32, "resnet20": 32, "mlp": 128}


def gloo_job(hosts, ranks=None, name="gloo"):
    return TorchJob(name, hosts, OPERATIONS, ranks)


def operations_jobs(hosts, by_hand, ranks=None):
    if by_hand:
        ours = gloo_job(hosts, ranks, "by hand")
    else:
        ours = StarlingJob("starling", hosts, [str(TOOL), "operations-worker"], ranks)
    return {"ours": ours, "gloo": gloo_job(hosts, ranks)}


def ddp_job(hosts, network):
    script = str(HERE.parent / "peer_ddp.py")
    return TorchJob("DDP", hosts, [sys.executable, script, network, str(BATCH[network]), "25", "1"])


def our_job(hosts, network, by_hand=False):
    if by_hand:
        script = str(HERE / "gloo_training.py")
        return TorchJob("by hand", hosts, [sys.executable, script, network, str(BATCH[network])])
    return StarlingJob("starling", hosts, [str(TOOL), "worker", network, "1"])
