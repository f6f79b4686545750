"""Ranks that die while a decentralized optimizer trains, in separate flocks."""

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
    rank, method, on_peer_failure = bf.rank(), sys.argv[1], sys.argv[2]
    model = network(rank)
    optimizer = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.05), method=method, topology="ring",
                                on_peer_failure=on_peer_failure)
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


def run(tmp_path, *arguments, options=()):
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(PROGRAM))
    command = [STARLING, "run", "-n", "3", "--timeout", "60", *options, "--", sys.executable]
    return subprocess.run([*command, str(program), *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("method", ["dsgd-awc", "dsgd-atc", "allreduce"])
def test_survivors_continue(tmp_path, method):
    done = run(tmp_path, method, "reweight")
    assert done.returncode == 0, done.stderr
    assert "starling: rank 1 was killed (SIGKILL); continuing with 2 ranks" in done.stderr, done.stderr
    for rank in (0, 2):
        assert f"rank {rank} made 12 steps, True" in done.stdout, done


def test_survivors_get_an_error(tmp_path):
    done = run(tmp_path, "dsgd-atc", "raise", options=("--on-failure", "continue"))
    for rank in (0, 2):
        assert f"rank {rank} lost 1" in done.stdout, done


def test_the_old_name_warns():
    import torch

    import starling
    import starling.torch as bf

    bf.init()
    model = torch.nn.Linear(2, 1)
    with pytest.warns(FutureWarning, match="on_loss is now called on_peer_failure"):
        bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1), on_loss="reweight")
    flock = starling.join()
    assert flock.on_peer_failure == "reweight"
    with pytest.warns(FutureWarning, match="on_loss is now called on_peer_failure"):
        flock.on_loss = "raise"
    assert flock.on_peer_failure == "raise"


def test_an_average_that_was_not_settled_is_dropped_in_silence(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent("""
        import torch
        import starling.torch as bf
        from dense_training import loss_of, network
        bf.init()
        model = network(bf.rank())
        optimizer = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.05), method="async-average")
        for step in range(20):
            optimizer.zero_grad()
            loss_of(model, bf.rank(), step).backward()
            optimizer.step()
        bf.barrier()
    """))
    done = subprocess.run([STARLING, "run", "-n", "3", "--timeout", "60", "--", sys.executable, str(program)],
                          capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
