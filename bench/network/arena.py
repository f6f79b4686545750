"""The jobs that a section lets compete. With --by-hand nothing of ours takes part: programs written by hand on gloo stand in,
which shows what the network itself allows."""
import sys
from pathlib import Path

from job import StarlingJob, TorchJob

HERE = Path(__file__).resolve().parent
TOOL = HERE.parents[1] / "build" / "release" / "bin" / "starling-torch"
BATCH = {"lenet": 32, "resnet20": 32, "mlp": 128}


def gloo_job(hosts, ranks=None, name="gloo"):
    return TorchJob(name, hosts, [sys.executable, str(HERE / "gloo_operations.py")], ranks)


def operations_jobs(hosts, by_hand, ranks=None):
    own = gloo_job(hosts, ranks, "by hand") if by_hand else StarlingJob("starling", hosts, [str(TOOL), "operations-worker"], ranks)
    return {"ours": own, "gloo": gloo_job(hosts, ranks)}


def ddp_job(hosts, network):
    return TorchJob("DDP", hosts, [sys.executable, str(HERE.parent / "peer_ddp.py"), network, str(BATCH[network]), "25", "1"])


def our_job(hosts, network, by_hand=False):
    if by_hand:
        return TorchJob("by hand", hosts, [sys.executable, str(HERE / "gloo_training.py"), network, str(BATCH[network])])
    return StarlingJob("starling", hosts, [str(TOOL), "worker", network, "1"])
