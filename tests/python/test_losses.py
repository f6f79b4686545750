"""Ranks that die while a decentralized optimizer trains, in flocks of their own."""

import os
import subprocess
import sys
import textwrap

import pytest

STARLING = os.path.join(os.environ["STARLING_BIN"], "starling")

PROGRAM = """
    import os, signal, sys, torch
    import starling, starling.torch as bf
    from dense_training import loss_of, network
    bf.init()
    rank, method, on_loss = bf.rank(), sys.argv[1], sys.argv[2]
    model = network(rank)
    optimizer = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.05), method=method, topology="ring",
                                on_loss=on_loss)
    try:
        for step in range(12):
            if rank == 1 and step == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()
    except starling.PeerLost as error:
        print(f"rank {rank} lost {error.peer}", flush=True)
    else:
        print(f"rank {rank} made {optimizer.trainer.steps} steps, {optimizer.consensus_distance() < 1.0}", flush=True)
"""


def run(tmp_path, *arguments):
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(PROGRAM))
    command = [STARLING, "run", "-n", "3", "--timeout", "60", "--on-failure", "continue", "--", sys.executable]
    done = subprocess.run([*command, str(program), *arguments], capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


@pytest.mark.parametrize("method", ["dsgd-awc", "dsgd-atc", "allreduce"])
def test_survivors_go_on(tmp_path, method):
    output = run(tmp_path, method, "reweight")
    for rank in (0, 2):
        assert f"rank {rank} made 12 steps, True" in output, output


def test_survivors_are_told(tmp_path):
    output = run(tmp_path, "dsgd-atc", "raise")
    for rank in (0, 2):
        assert f"rank {rank} lost 1" in output, output
