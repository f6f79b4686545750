"""The same program gives the same bits on every fabric."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STARLING = os.path.join(os.environ["STARLING_BIN"], "starling")
MPI_PLUGIN = Path(os.environ["STARLING_BIN"]).parent / "lib" / "starling" / "libstarling_mpi.so"

PROGRAM = """
import hashlib
import torch
import starling.torch as bf
from dense_training import loss_of, network, parameters_of

bf.init()
rank, digest = bf.rank(), hashlib.sha256()
torch.manual_seed(rank)
x = torch.randn(300_000) * 10.0 ** torch.randint(-3, 4, (300_000,))  # sums depend on their order
for topology in ("ring", "one-peer-exponential", "base(k=1)"):
    bf.set_topology(topology)
    for _ in range(4):
        x = bf.neighbor_allreduce(x)
for values in (x, bf.allreduce(x), bf.broadcast(x, 1), bf.neighbor_allgather(x[:7])):
    digest.update(values.numpy().tobytes())
for method, message in (("dsgd-awc", "float32"), ("gradient-tracking", "bfloat16"), ("allreduce", "float32"), ("dsgd-atc", "int8")):
    model = network(rank, torch.float32)
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = bf.decentralize(model, sgd, method=method, topology="ring", message=message)
    for step in range(8):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    digest.update(parameters_of(model).numpy().tobytes())
print(f"rank {rank} of {bf.size()} has {digest.hexdigest()}", flush=True)
"""

MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-n", "3"]


def results(fabric, program):
    """The output of three ranks, which also print the fabric that they have joined."""
    by_mpi = "mpi" in fabric
    environment = {**os.environ, "STARLING_LOG": "info", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if by_mpi:
        environment["STARLING_FABRIC"] = fabric
    launcher = MPIRUN if by_mpi else [STARLING, "run", "-n", "3", "--fabric", fabric, "--"]
    done = subprocess.run([*launcher, sys.executable, str(program)], capture_output=True, text=True, timeout=120,
                          env=environment)
    lines = sorted(re.findall(r"rank \d of 3 has [0-9a-f]{64}", done.stdout))  # mpirun may put two on one line
    assert done.returncode == 0 and len(lines) == 3, done.stdout + done.stderr
    assert f"rank 2 of 3 joins over {fabric}" in done.stderr, done.stderr
    return lines


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    program = tmp_path_factory.mktemp("program") / "moved.py"
    program.write_text(PROGRAM)
    return program, results("local", program)


@pytest.mark.parametrize("fabric", ["c10d", "hybrid", "mpi", "hybrid(mpi)"])
def test_the_same_bits_as_in_shared_memory(moved, fabric):
    if "mpi" in fabric and not (shutil.which("mpirun") and MPI_PLUGIN.exists()):
        pytest.skip("the fabric mpi is not built here")
    program, expected = moved
    assert results(fabric, program) == expected
