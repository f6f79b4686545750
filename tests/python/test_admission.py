"""Ranks that were killed return: the others admit them."""

import os
import subprocess
import sys
import textwrap

import pytest

STARLING = os.path.join(os.environ["STARLING_BIN"], "starling")
RETURN = '"$0" "$1" || STARLING_ENTER=1 "$0" "$1"'  # the launcher sees one rank

BEGIN = """
import os, signal, sys, time
import starling
"""

TRAINING = BEGIN + """
import torch
import starling.torch as bf
from dense_training import loss_of, network

bf.init()
entered = bf.process.flock().entered
rank = bf.rank()
model = network(7 if entered else rank)
sgd = torch.optim.SGD(model.parameters(), lr=1.0 if entered else 0.05, momentum=0.9)
optimizer = bf.decentralize(model, sgd, method="allreduce", topology="ring", on_peer_failure="reweight")

def step():
    optimizer.zero_grad()
    loss_of(model, 0, optimizer.trainer.steps).backward()
    optimizer.step()

if not entered:
    for t in range(6):
        if t == 3 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        step()
    began = time.monotonic()
    while not optimizer.admit():
        assert time.monotonic() - began < 50, "no rank returns"
        time.sleep(0.05)
        step()
assert (bf.size(), bf.rank()) == (3, 2 if entered else rank // 2), (bf.size(), bf.rank())
assert len(bf.in_neighbor_ranks()) == 2, "the topology of three"
assert sgd.param_groups[0]["lr"] == 0.05
for _ in range(3):
    step()
bf.set_topology("complete")
flat = torch.cat([one.detach().flatten() for one in model.parameters()])
assert torch.equal(bf.allgather(flat.reshape(1, -1)), flat.expand(3, -1)), "the models differ"
steps = bf.allgather(torch.tensor([optimizer.trainer.steps])).tolist()
assert len(set(steps)) == 1 and steps[0] >= 9, steps
print(f"rank {bf.rank()} entered {entered}", flush=True)
"""

OPERATIONS = BEGIN + """
import numpy

flock = starling.join()
flock.on_peer_failure = "reweight"
flock.set_topology("ring")
x = numpy.array([100.0 if flock.entered else 1.0])
if not flock.entered:
    if flock.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    x = flock.neighbor_allreduce(x)
    while not flock.admit():
        time.sleep(0.05)
assert flock.size == 3 and flock.newcomers == 1 and starling.join().size == 3
for _ in range(60):
    x = flock.neighbor_allreduce(x)
assert abs(x[0] - 34) < 1e-9, x
print(f"rank {flock.rank} entered {flock.entered}", flush=True)
"""

OWN_GRAPH = BEGIN + """
import warnings

import starling.torch as bf

bf.init()
bf.set_topology(bf.RingGraph(2))
try:
    bf.admit()
except ValueError as error:
    assert "the topology is a graph of 2 ranks" in str(error), error
bf.set_topology("ring")
assert not bf.admit()
bf.init(bf.RingGraph)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert not bf.welcome()
assert [str(one.message) for one in caught] == ["welcome is now called admit; the old name will be removed"], caught
print(f"rank {bf.rank()} entered {bf.process.flock().entered}", flush=True)
"""


def run(tmp_path, body, ranks=3, shell=RETURN):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(body))
    command = [STARLING, "run", "-n", str(ranks), "--fabric", "c10d", "--timeout", "100", "--", "sh", "-c", shell,
               sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("body", [TRAINING, OPERATIONS], ids=["training", "operations"])
def test_a_killed_rank_returns(tmp_path, body):
    output = run(tmp_path, body)
    for line in ("rank 0 entered False", "rank 1 entered False", "rank 2 entered True"):
        assert line in output, output


def test_a_graph_for_a_fixed_number_of_ranks_is_an_error(tmp_path):
    output = run(tmp_path, OWN_GRAPH, 2, 'exec "$0" "$1"')
    for rank in range(2):
        assert f"rank {rank} entered False" in output, output
