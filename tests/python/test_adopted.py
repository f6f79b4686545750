"""Flocks over process groups of torch.distributed, which the program continues to use."""

import os
import subprocess
import sys
import textwrap

import pytest

BEGIN = """
import sys
import torch
import torch.distributed as dist
import starling.torch as bf
rank, n, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=n)
"""


def run(n, body, folder):
    program = BEGIN + textwrap.dedent(body)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [subprocess.Popen([sys.executable, "-c", program, str(r), str(n), str(folder / "meeting")], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for r in range(n)]
    said = [process.communicate(timeout=100)[0] for process in ranks]
    for process, text in zip(ranks, said):
        assert process.returncode == 0, text
    return said


@pytest.mark.parametrize("n", [1, 3])
def test_operations_beside_the_programs_own(n, tmp_path):
    run(n, """
        bf.init(process_group=True)
        assert (bf.rank(), bf.size()) == (rank, n)
        mean = (n - 1) / 2
        x = bf.allreduce(torch.full((5,), float(rank)))
        assert x.tolist() == [mean] * 5
        theirs = torch.tensor([float(rank)])
        dist.all_reduce(theirs)
        assert theirs.item() == n * mean
        big = bf.allreduce(torch.full((1_000_000,), float(rank)))
        assert (big == mean).all()
        bf.barrier()
        bf.shutdown()
        dist.destroy_process_group()
    """, tmp_path)


def test_training_gives_the_models_of_other_fabrics(tmp_path):
    body = """
        bf.init(process_group=True)
        torch.manual_seed(rank)
        model = torch.nn.Linear(4, 2)
        optimizer = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1), topology="ring")
        for step in range(5):
            optimizer.zero_grad()
            model(torch.full((3, 4), float(rank + step))).sum().backward()
            optimizer.step()
        print([p.tolist() for p in model.parameters()])
        bf.shutdown()
    """
    over_gloo = run(2, body, tmp_path)
    local = textwrap.dedent(body).replace("process_group=True", "")
    program = tmp_path / "train.py"
    program.write_text("import torch\nimport starling.torch as bf\nimport os\nrank = int(os.environ['RANK'])\n" + local)
    tool = os.path.join(os.environ["STARLING_BIN"], "starling")
    said = subprocess.run([tool, "run", "-n", "2", "--", sys.executable, str(program)], capture_output=True, text=True,
                          timeout=100, check=True).stdout.splitlines()
    assert sorted(line[4:] for line in said) == sorted(line for text in over_gloo for line in text.splitlines())


def test_a_part_of_the_ranks(tmp_path):
    run(3, """
        group = dist.new_group([0, 2])
        if rank == 1:
            for _ in range(3):
                dist.new_group([0, 2], backend="gloo")  # the flock's own: torch wants everybody to make them
        else:
            bf.init(process_group=group)
            assert bf.size() == 2 and bf.rank() == rank // 2
            assert bf.allreduce(torch.tensor([float(rank)])).item() == 1
            bf.shutdown()
    """, tmp_path)


def test_without_torch_distributed_it_says_what_is_missing():
    import starling
    import starling.torch as bf
    with pytest.raises(starling.InvalidArgument, match="init_process_group"):
        bf.init(process_group=True)


def test_a_rank_that_dies_between_joining_and_the_first_message(tmp_path):
    run(2, """
        import os, time
        import starling
        from starling import _torch
        adopt = _torch.adopt
        def adopt_after_the_death(groups, store):
            if rank == 1:
                print("dies", flush=True)
                os._exit(0)
            time.sleep(1)
            return adopt(groups, store)
        _torch.adopt = adopt_after_the_death
        bf.init(process_group=True)
        try:
            bf.allreduce(torch.ones(3))
        except starling.PeerLost as error:
            assert error.peer == 1, error
        else:
            raise AssertionError("the death was not noticed")
        os._exit(0)
    """, tmp_path)
