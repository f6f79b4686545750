"""PyTorch's usual loop: step() uses the contents of .grad, and a step that cannot be made is an error."""

import gc

import pytest
import torch

import starling
import starling.torch as bf
from dense_training import OPTIMIZERS, DenseFlock, assert_same, loss_of, network, parameters_of, train_step

bf.init()
rank, n = bf.rank(), bf.size()
METHODS = ["dsgd-awc", "dsgd-atc", "gradient-tracking", "allreduce", "parameter-server"]


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_assigned_by_hand_count(method):
    model = network(0)
    own = bf.decentralize(model, sgd(model), method=method, topology="complete")
    before = parameters_of(model)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, rank + 1.0)
    own.step()
    mean = rank + 1.0 if method == "dsgd-awc" else (n + 1) / 2
    assert_same(model, before - 0.1 * mean)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bucket_mb", [4.0, 1e-5])
def test_gradients_clipped_after_backward_count(method, bucket_mb):
    model = network(0)
    own = bf.decentralize(model, sgd(model), method=method, topology="complete", bucket_mb=bucket_mb)
    for step in range(3):
        own.zero_grad()
        loss_of(model, rank, step).backward()
        before = parameters_of(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        own.step()
        assert 0 < float((parameters_of(model) - before).norm()) < 4e-4


@pytest.mark.parametrize("kind", ["sgd", "adam", "rmsprop"])
def test_allreduce_clips_the_mean_as_ddp_does(kind):
    model = network(0)
    own = bf.decentralize(model, OPTIMIZERS[kind](model), method="allreduce", bucket_mb=1e-5)
    dense = DenseFlock(n, OPTIMIZERS[kind], lambda _: network(0))
    for step in range(3):
        own.zero_grad()
        loss_of(model, rank, step).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        own.step()
        dense.average_gradients()
        for one in dense.models:
            torch.nn.utils.clip_grad_norm_(one.parameters(), 0.05)
        dense.update()
        assert_same(model, dense[rank], f"step {step}")


@pytest.mark.parametrize("method", ["dsgd-atc", "allreduce"])
def test_any_number_of_backward_passes(method):
    model = network(0)
    own = bf.decentralize(model, sgd(model), method=method, topology="complete", accumulation=0)
    dense = DenseFlock(n, sgd, lambda _: network(0))
    for step in range(3):
        own.zero_grad()
        for part in range(3):
            loss_of(model, rank, 3 * step + part).backward()
        own.step()
        dense.average_gradients(3)
        dense.update()
        assert_same(model, dense[rank], f"step {step}")


def test_torchs_own_zero_grad_and_none():
    def trained(zero):
        model = network(0)
        inner = OPTIMIZERS["sgd"](model)
        own = bf.decentralize(model, inner, method="allreduce")
        for step in range(3):
            zero(own, inner, model)
            loss_of(model, rank, step).backward()
            own.step()
        return parameters_of(model)

    expected = trained(lambda own, inner, model: own.zero_grad())
    assert torch.equal(expected, trained(lambda own, inner, model: inner.zero_grad()))
    assert torch.equal(expected, trained(lambda own, inner, model: inner.zero_grad(set_to_none=True)))
    assert torch.equal(expected, trained(lambda own, inner, model: model.zero_grad(set_to_none=True)))


def test_a_step_of_the_original_optimizer_is_an_error():
    model = network(0)
    inner = sgd(model)
    before_scheduler = torch.optim.lr_scheduler.StepLR(inner, 1)
    own = bf.decentralize(model, inner)
    after_scheduler = torch.optim.lr_scheduler.StepLR(inner, 1)
    with pytest.raises(RuntimeError, match="train this rank alone.*decentralize"):
        inner.step()
    train_step(own, model, rank, 0)
    before_scheduler.step()
    after_scheduler.step()
    assert own.param_groups[0]["lr"] == pytest.approx(0.001)


def test_layers_unfrozen_and_groups_added_later():
    model = network(0)
    model[0].requires_grad_(False)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    own = bf.decentralize(model, inner, method="dsgd-atc", topology="complete")
    for step in range(2):
        train_step(own, model, rank, step)
    model[0].requires_grad_(True)
    with pytest.raises((ValueError, AssertionError), match="0.weight was frozen when the trainer was made"):
        train_step(own, model, rank, 2)
    with pytest.raises(ValueError, match="decentralize that again"):
        own.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})
    momentum = own.state_dict()["state"]
    again = bf.decentralize(model, inner, method="dsgd-atc", topology="complete")
    with pytest.raises(RuntimeError, match="decentralized again"):
        own.step()
    assert again.state_dict()["state"].keys() == momentum.keys()  # it continues with the same momentum
    before = model[0].weight.detach().clone()
    train_step(again, model, rank, 2)
    assert not torch.equal(before, model[0].weight)
    inner.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})
    with pytest.raises((ValueError, AssertionError), match="2 parameter groups and had 1"):
        train_step(again, model, rank, 3)


@pytest.mark.parametrize("method", ["dsgd-atc", "allreduce"])
def test_a_gradient_that_is_not_finite(method):
    """On one rank only, since a rank that raises leaves the others waiting."""
    if n > 1:
        pytest.skip("one rank is enough")
    model = network(0)
    own = bf.decentralize(model, sgd(model), method=method)
    train_step(own, model, rank, 0)
    before = parameters_of(model)
    own.zero_grad()
    (loss_of(model, rank, 1) + model[2].bias[1] * float("nan")).backward()
    with pytest.raises(starling.NonFinite, match=r"rank 0, training step 1: the gradient of 2.bias is not finite \(nan at"):
        own.step()
    if method == "allreduce":
        assert torch.equal(before, parameters_of(model))


@pytest.mark.parametrize("method", ["dsgd-atc", "allreduce"])
def test_a_gradient_that_is_not_finite_is_skipped(method):
    model = network(0)
    own = bf.decentralize(model, sgd(model), method=method, topology="complete", on_nonfinite="skip")
    for step in range(3):
        own.zero_grad()
        bad = step == 1 and rank == n - 1
        (loss_of(model, rank, step) * (float("nan") if bad else 1.0)).backward()
        own.step()
        assert torch.isfinite(parameters_of(model)).all()
    if method == "allreduce":
        assert own.consensus_distance() < 1e-14


def test_gradient_norm_without_clipping():
    model = network(0)
    own = bf.decentralize(model, sgd(model), method="allreduce")
    train_step(own, model, rank, 0)
    norm = torch.cat([one.grad.flatten() for one in model.parameters()]).norm()
    assert float(norm) > 0 and own.gradient_norm == pytest.approx(float(norm), rel=1e-9)
    own.zero_grad()
    with pytest.raises(ValueError, match="before zero_grad"):
        own.gradient_norm
    del own
    gc.collect()
