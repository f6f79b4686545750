"""Parameters and optimizer states of starling.torch, in every rank."""

import pytest
import torch

import starling.torch as bf

bf.init()
rank, n = bf.rank(), bf.size()


def model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values()))


@pytest.mark.parametrize("form", [lambda m: m.state_dict(), lambda m: list(m.state_dict().items()),
                                  lambda m: (item for item in m.state_dict().items()),
                                  lambda m: m.state_dict().values()])
def test_broadcast_parameters(form):
    net = model(rank)
    bf.broadcast_parameters(form(net), root_rank=n - 1)
    assert same(net, model(n - 1))


def test_broadcast_of_named_parameters_and_truth_values():
    net = model(rank)
    bf.broadcast_parameters(net.named_parameters(), 0)
    assert torch.equal(net[0].weight, model(0)[0].weight)
    mask = torch.tensor([rank == 0, True])
    bf.broadcast_parameters({"mask": mask}, 0)
    assert mask.tolist() == [True, True]
    bf.broadcast_parameters({}, 0)


@pytest.mark.parametrize("call", [lambda params: bf.broadcast_parameters(params, 0), bf.allreduce_parameters])
def test_invalid_parameters_are_errors(call):
    with pytest.raises(ValueError, match="int"):
        call({"a": 1})


def test_allreduce_parameters():
    net = model(rank)
    net[1].num_batches_tracked += rank
    bf.allreduce_parameters(net.state_dict())
    mean = sum(model(r)[0].weight for r in range(n)) / n
    torch.testing.assert_close(net[0].weight, mean)
    assert net[1].num_batches_tracked == rank
    bf.allreduce_parameters(iter(net.named_parameters()))
    torch.testing.assert_close(net[0].weight, mean)


def stepped(make, steps):
    net = model(0)
    optimizer = make(net.parameters(), rank)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(2, 4) * (rank + 1)).sum().backward()
        optimizer.step()
    return net, optimizer


makers = {
    "sgd": lambda p, r: torch.optim.SGD(p, lr=0.1 * (r + 1)),
    "momentum": lambda p, r: torch.optim.SGD(p, lr=0.1 * (r + 1), momentum=0.9, nesterov=r == 0),
    "adam": lambda p, r: torch.optim.Adam(p, lr=0.01 * (r + 1), betas=(0.8, 0.9 + 0.01 * r), amsgrad=r == 0),
    "adamw": lambda p, r: torch.optim.AdamW(p, lr=0.01 * (r + 1), weight_decay=0.1 * r),
    "rmsprop": lambda p, r: torch.optim.RMSprop(p, lr=0.01 * (r + 1), centered=r == 0),
    "adagrad": lambda p, r: torch.optim.Adagrad(p, lr=0.01 * (r + 1)),
    "adadelta": lambda p, r: torch.optim.Adadelta(p, lr=0.5 * (r + 1)),
    "adamax": lambda p, r: torch.optim.Adamax(p, lr=0.01 * (r + 1)),
}


@pytest.mark.parametrize("name", makers)
@pytest.mark.parametrize("fresh", [False, True], ids=["stepped", "fresh elsewhere"])
def test_broadcast_optimizer_state(name, fresh):
    net, optimizer = stepped(makers[name], 0 if fresh and rank != 0 else 3)
    bf.broadcast_optimizer_state(optimizer, root_rank=0)
    bf.broadcast_parameters(net.state_dict(), 0)
    optimizer.zero_grad()
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    weights = bf.allgather(net[0].weight.detach().reshape(1, -1))
    assert all(torch.equal(weights[0], row) for row in weights)
    assert optimizer.param_groups[0]["lr"] == makers[name](net.parameters(), 0).param_groups[0]["lr"]


def test_empty_states_and_options_that_are_none():
    net, optimizer = stepped(makers["adam"], 0)
    optimizer.param_groups[0]["extra"] = None
    bf.broadcast_optimizer_state(optimizer, 0)
    assert optimizer.param_groups[0]["extra"] is None and not optimizer.state_dict()["state"]
    assert optimizer.param_groups[0]["lr"] == 0.01


def test_lbfgs_is_refused():
    with pytest.raises(ValueError, match="LBFGS"):
        bf.broadcast_optimizer_state(torch.optim.LBFGS(model(0).parameters()), 0)
