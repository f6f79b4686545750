"""Convolutions in memory that is channels-last: parameters, gradients and the optimizer's state stay in that order."""

import os

import pytest
import torch

import starling.torch as bf

bf.init()
rank, n = bf.rank(), bf.size()
LAST = torch.channels_last


def network(order):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.ReLU(), torch.nn.Conv2d(6, 4, 3), torch.nn.Flatten(),
                               torch.nn.Linear(64, 2)).double().to(memory_format=order)


def step(model, optimizer, number):
    generator = torch.Generator().manual_seed(100 * number + rank)
    x = torch.randn(4, 3, 8, 8, generator=generator, dtype=torch.float64)
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


OPTIMIZERS = {"momentum": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9), "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
              "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", ["dsgd-awc", "gradient-tracking", "allreduce"])
def test_training_is_that_of_the_usual_order(method, optimizer):
    models = [network(order) for order in (torch.contiguous_format, LAST)]
    made = [bf.decentralize(one, OPTIMIZERS[optimizer](one.parameters()), method=method, topology="exponential") for one in models]
    for number in range(5):
        for one, its in zip(models, made):
            step(one, its, number)
    for usual, last in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(usual, last)
        if last.dim() == 4:
            assert last.is_contiguous(memory_format=LAST) and not last.is_contiguous()
            assert last.grad.is_contiguous(memory_format=LAST)
    kept = made[1].state_dict()["state"][0]
    for name, other in made[0].state_dict()["state"][0].items():
        if torch.is_tensor(other):
            torch.testing.assert_close(kept[name], other)


def test_checkpoints_of_one_order_continue_in_it_and_refuse_the_other(tmp_path):
    model = network(LAST)
    optimizer = bf.decentralize(model, torch.optim.Adam(model.parameters(), lr=1e-3), method="gradient-tracking",
                                topology="exponential")
    for number in range(3):
        step(model, optimizer, number)
    path = os.path.join(tmp_path, f"{rank}.ckpt")
    optimizer.save_checkpoint(path)
    step(model, optimizer, 3)

    again = network(LAST)
    resumed = bf.decentralize(again, torch.optim.Adam(again.parameters(), lr=1e-3), method="gradient-tracking",
                              topology="exponential")
    resumed.load_checkpoint(path)
    step(again, resumed, 3)
    for one, other in zip(model.parameters(), again.parameters()):
        assert torch.equal(one, other)

    usual = network(torch.contiguous_format)
    other = bf.decentralize(usual, torch.optim.Adam(usual.parameters(), lr=1e-3), method="gradient-tracking", topology="exponential")
    with pytest.raises(Exception, match="permuted strides of parameter 0.weight"):
        other.load_checkpoint(path)
