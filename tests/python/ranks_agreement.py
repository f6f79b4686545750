"""Errors when ranks do not train alike, on all ranks; the topology in use; each rank's own data."""

import os

import pytest
import torch

import starling.torch as bf
from starling import _core

bf.init()
rank, n = bf.rank(), bf.size()
alone = pytest.mark.skipif(n == 1, reason="nobody to differ from")
odd = rank == n - 1


def linear(inputs=8, **options):
    torch.manual_seed(7)
    return torch.nn.Linear(inputs, 3, **options)


def step(model, optimizer, seed=None):
    torch.manual_seed(rank if seed is None else seed)
    optimizer.zero_grad()
    model(torch.randn(4, model.in_features)).square().sum().backward()
    optimizer.step()


@alone
@pytest.mark.parametrize("make, text", [
    (lambda: (linear(10 if odd else 8), {}), r"parameter weight: \[3, 8\] on rank 0, \[3, 10\] on rank %d"),
    (lambda: (linear(), {"lr": 0.05 if odd else 0.1}), "the optimizer's lr: 0.1 on rank 0, 0.05 on rank %d"),
    (lambda: (linear(), {"clip_norm": 1.0 if odd else 0.0}), "clip_norm: 0 on rank 0, 1 on rank %d"),
    (lambda: (linear(), {"class": torch.optim.Adam if odd else torch.optim.SGD}), "optimizer: SGD on rank 0, Adam on rank %d"),
    (lambda: (linear(), {"class": torch.optim.Adagrad, "lr_decay": 0.5 if odd else 0.0}),
     "the optimizer's lr_decay: 0 on rank 0, 0.5 on rank %d"),
], ids=["model", "lr", "clip_norm", "optimizer", "setting"])
def test_differences_are_named(make, text):
    model, options = make()
    settings = {key: options.pop(key) for key in ("lr", "lr_decay") if key in options}
    optimizer = options.pop("class", torch.optim.SGD)(model.parameters(), **{"lr": 0.1, **settings})
    with pytest.raises(_core.InvalidArgument, match="the ranks do not train alike: " + text % (n - 1)):
        bf.decentralize(model, optimizer, **options)


@alone
def test_a_setting_that_one_rank_changes_is_named():
    model = linear()
    optimizer = bf.decentralize(model, torch.optim.RMSprop(model.parameters(), lr=0.1, alpha=0.9))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    with pytest.raises(_core.InvalidArgument, match=f"the optimizer's alpha: 0.9 on rank 0, 0.5 on rank {n - 1}"):
        for t in range(40):
            if t == 3 and odd:
                optimizer.param_groups[0]["alpha"] = 0.5
            step(model, optimizer)
            scheduler.step()


@alone
def test_wrappers_compare_in_the_first_step_and_settings_per_rank_may_be_allowed():
    for allowed in (True, False):
        model = linear()
        optimizer = bf.DistributedAdaptThenCombineOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.05 if odd else 0.1), model)
        optimizer.per_rank_settings = allowed
        if allowed:
            for _ in range(5):
                step(model, optimizer)
        else:
            with pytest.raises(_core.InvalidArgument, match="the optimizer's lr: 0.1 on rank 0, 0.05 on rank"):
                for _ in range(5):
                    step(model, optimizer)


def trained(**options):
    model = linear()
    optimizer = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.01), **options)
    for _ in range(3):
        step(model, optimizer)
    return model.weight.detach().clone()


def test_without_a_topology_the_one_set_before_is_used():
    try:
        assert torch.equal(trained(), trained(topology="one-peer-exponential"))
        bf.set_topology(bf.FullyConnectedGraph(n))
        torch.testing.assert_close(trained(method="dsgd-atc"), trained(method="dsgd-atc", topology="complete"))
    finally:
        bf.set_topology()
    assert torch.equal(trained(), trained(topology="one-peer-exponential"))


@pytest.mark.parametrize("method", ["quasi-global-momentum", "proxskip"])
def test_methods_that_need_plain_sgd_say_so(method):
    model = linear()
    with pytest.raises(_core.InvalidArgument, match="needs SGD without momentum, not AdamW"):
        bf.decentralize(model, torch.optim.AdamW(model.parameters()), method=method, topology="ring")
    with pytest.raises(_core.InvalidArgument, match="needs SGD without momentum, not SGD with momentum 0.9"):
        bf.decentralize(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), method=method, topology="ring")


def test_an_optimizer_of_another_model_is_refused():
    model, old = linear(), linear()
    with pytest.raises(_core.InvalidArgument, match="no parameter of the optimizer belongs to the model"):
        bf.decentralize(model, torch.optim.SGD(old.parameters(), lr=0.1))
    step(model, bf.decentralize(model, torch.optim.SGD([model.bias], lr=0.1)))


def test_skipped_steps_are_counted():
    model = linear()
    optimizer = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.01), on_nonfinite="skip")
    for t in range(3):
        optimizer.zero_grad()
        (model(torch.ones(4, 8)).sum() * (float("nan") if odd and t else 1)).backward()
        optimizer.step()
    assert optimizer.skipped_steps == (2 if odd else 0)


@alone
def test_a_checkpoint_of_another_rank_names_that_rank(tmp_path):
    model = linear()
    optimizer = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1))
    path = bf.broadcast(torch.tensor(list(str(tmp_path / "one.ckpt").encode()), dtype=torch.uint8), root_rank=0)
    path = bytes(path.tolist()).decode()
    if rank == 0:
        optimizer.save_checkpoint(path)
    bf.barrier()
    if rank == 0:
        optimizer.load_checkpoint(path)
    else:
        with pytest.raises(_core.Error, match=f"written by rank 0 of {n}, this is rank {rank} of {n}: each rank saves to"):
            optimizer.load_checkpoint(path)
    bf.barrier()


@pytest.mark.skipif(n != 2, reason="two ranks that wait for each other")
def test_errors_name_the_call_in_python():
    model = linear()
    optimizer = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(_core.Deadlock, match=r"rank 0 waits for rank 1 in optimizer\.consensus_distance\(\), step 0"):
        if odd:
            bf.allreduce(torch.ones(1), name="instead")
        else:
            optimizer.consensus_distance()


@alone
def test_ranks_that_save_to_one_path_are_an_error(tmp_path):
    model = linear()
    optimizer = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1))
    path = bf.broadcast(torch.tensor(list(str(tmp_path / "one.ckpt").encode()), dtype=torch.uint8), root_rank=0)
    path = bytes(path.tolist()).decode()
    told = ""
    try:
        optimizer.save_checkpoint(path)  # all ranks save at once
    except _core.InvalidArgument as error:
        told = str(error)
    saved = bf.allgather(torch.tensor([0 if told else 1])).tolist()
    assert sum(saved) == 1
    owner = saved.index(1)
    if rank == owner:
        optimizer.save_checkpoint(path)  # a rank may replace its own checkpoint
        optimizer.load_checkpoint(path)
    else:
        assert f"is the checkpoint of rank {owner}, and this is rank {rank}: each rank saves to a file of its own" in told
    bf.barrier()
    assert not [name for name in os.listdir(os.path.dirname(path)) if ".part-" in name]
    bf.barrier()


def test_a_sampler_gives_every_rank_its_own_data():
    data = torch.utils.data.TensorDataset(torch.arange(12 * n))
    loader = torch.utils.data.DataLoader(data, batch_size=5, sampler=bf.FlockSampler(data, seed=3))
    passes = [[int(x) for (batch,) in loader for x in batch] for _ in range(2)]
    assert len(loader) == 3 and len(passes[0]) == 12
    assert sorted(passes[0]) == sorted(passes[1]) and passes[0] != passes[1]
    everybody = bf.allgather(torch.tensor(passes[0]))
    assert sorted(everybody.tolist()) == list(range(12 * n))
    loader.sampler.set_epoch(0)
    assert [int(x) for (batch,) in loader for x in batch] == passes[0]


def test_samplers_of_different_splits_are_an_error():
    if n == 1:
        pytest.skip("one rank agrees with itself")
    with pytest.raises(_core.InvalidArgument, match=rf"FlockSampler: .*seed: 3 on rank 0, 4 on rank {n - 1}"):
        bf.FlockSampler(10 * n, seed=4 if rank == n - 1 else 3)
    with pytest.raises(_core.InvalidArgument, match=rf"samples: {10 * n} on rank 0, {10 * n + 1} on rank {n - 1}"):
        bf.FlockSampler(10 * n + (rank == n - 1))
    bf.FlockSampler(10 * n, seed=5)


def test_a_sampler_splits_by_class():
    labels = [chr(ord("a") + i % 5) for i in range(100 * n)]
    sampler = bf.FlockSampler(len(labels), partition="dirichlet(alpha=0.5)", labels=labels)
    lengths = bf.allgather(torch.tensor([len(sampler), len(list(sampler))])).tolist()
    assert len(set(lengths)) == 1
    with pytest.raises(ValueError, match="there are 3 labels for 4 samples"):
        bf.FlockSampler(4, partition="dirichlet(alpha=0.5)", labels=[0, 1, 0])


@alone
@pytest.mark.parametrize("odd_policy", ["raise", "reweight"])
def test_a_different_on_peer_failure_is_named_at_once(odd_policy):
    model = linear()
    other = "reweight" if odd_policy == "raise" else "raise"
    with pytest.raises(_core.InvalidArgument,
                       match=f"on_peer_failure: {other} on rank 0, {odd_policy} on rank {n - 1}"):
        bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1),
                        on_peer_failure=odd_policy if odd else other)


@alone
def test_a_different_eager_is_named():
    model = linear()
    with pytest.raises(_core.InvalidArgument, match=f"alike: eager: false on rank 0, true on rank {n - 1}"):
        bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1), eager=odd)


def test_a_topology_that_comes_too_late_is_noticed(capfd):
    bf.set_topology("ring")
    model = linear()
    optimizer = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.01))
    bf.set_topology("complete")
    for _ in range(2):
        step(model, optimizer)
    bf.barrier()
    bf.set_topology()
    if rank == 0:
        text = capfd.readouterr().err
        assert text.count("the flock's topology was set after this trainer was made; the trainer continues with ring") == 1, text
