"""Loops with a GradScaler: scaled gradients, and overflows on one rank."""

import pytest
import torch

import starling.torch as bf
from dense_training import OPTIMIZERS, DenseFlock, assert_same, loss_of, network, parameters_of
from scalers import NewScaler, OldScaler

bf.init()
rank, n = bf.rank(), bf.size()


@pytest.mark.parametrize("scaler", [OldScaler, NewScaler])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("method", ["dsgd-atc", "allreduce"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop"])
def test_scaled_loops_are_plain_ones(optimizer, method, clip, scaler):
    model = network(0)
    own = bf.decentralize(model, OPTIMIZERS[optimizer](model), method=method, topology="complete", bucket_mb=1e-5)
    dense = DenseFlock(n, OPTIMIZERS[optimizer], lambda _: network(0))
    amp = scaler()
    for step in range(3):
        own.zero_grad()
        amp.scale(loss_of(model, rank, step)).backward()
        if clip:
            amp.unscale_(own)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        amp.step(own)
        amp.update()
        dense.average_gradients() if method == "allreduce" else dense.compute_gradients()
        if clip:
            for one in dense.models:
                torch.nn.utils.clip_grad_norm_(one.parameters(), 0.1)
        dense.update()
        if method != "allreduce":
            dense.mix([[1 / n] * n] * n)
        assert_same(model, dense[rank], f"step {step}")
    assert amp.factor == 1024.0


@pytest.mark.parametrize("scaler", [OldScaler, NewScaler])
@pytest.mark.parametrize("make", [OPTIMIZERS["sgd"], OPTIMIZERS["rmsprop"]], ids=["native", "other"])
def test_an_overflow_on_one_rank_is_its_own(make, scaler):
    """That rank takes part in the step without an update, and the others continue."""
    model = network(0)
    own = bf.decentralize(model, make(model), method="dsgd-atc", topology="complete")
    dense = DenseFlock(n, make, lambda _: network(0))
    amp = scaler()
    for step in range(3):
        own.zero_grad()
        broken = step == 1 and rank == 0
        amp.scale(loss_of(model, rank, step) * (float("inf") if broken else 1.0)).backward()
        amp.step(own)
        amp.update()
        dense.compute_gradients()
        if step == 1:
            dense.models[0].zero_grad(set_to_none=True)
        dense.update()
        dense.mix([[1 / n] * n] * n)
        assert_same(model, dense[rank], f"step {step}")
    assert amp.factor == (512.0 if rank == 0 else 1024.0)


@pytest.mark.parametrize("scaler", [OldScaler, NewScaler])
def test_an_overflow_before_gradients_are_sent_is_left_out_of_the_mean(scaler):
    """With on_nonfinite="skip", step() sends gradients: all models take the step of the ranks that have no overflow."""
    model = network(0)
    own = bf.decentralize(model, OPTIMIZERS["sgd"](model), method="allreduce", on_nonfinite="skip")
    amp = scaler()
    for step in range(3):
        before = parameters_of(model)
        own.zero_grad()
        broken = step == 1 and rank == 0
        amp.scale(loss_of(model, rank, step) * (float("inf") if broken else 1.0)).backward()
        amp.step(own)
        amp.update()
        assert torch.isfinite(parameters_of(model)).all()
        assert torch.equal(before, parameters_of(model)) == (step == 1 and n == 1)
    assert amp.factor == (512.0 if rank == 0 else 1024.0)
    assert own.consensus_distance() < 1e-14


@pytest.mark.parametrize("scaler, synchronize", [(OldScaler, False), (NewScaler, False), (NewScaler, True)])
def test_an_overflow_in_the_mean_gradient_is_on_every_rank(scaler, synchronize):
    model = network(0)
    own = bf.decentralize(model, OPTIMIZERS["sgd"](model), method="allreduce", bucket_mb=1e-5)
    amp = scaler()
    for step in range(3):
        before = parameters_of(model)
        own.zero_grad()
        broken = step == 1 and rank == n - 1
        amp.scale(loss_of(model, rank, step) * (float("nan") if broken else 1.0)).backward()
        if synchronize:
            own.synchronize()
        amp.step(own)
        amp.update()
        assert torch.isfinite(parameters_of(model)).all()
        assert torch.equal(before, parameters_of(model)) == (step == 1)
    assert amp.factor == 512.0
    assert own.consensus_distance() < 1e-14


def test_eager_updates_come_too_early_for_a_scaler():
    model = network(0)
    own = bf.decentralize(model, OPTIMIZERS["sgd"](model), eager=True)
    own.zero_grad()
    loss_of(model, rank, 0).backward()
    with pytest.raises(ValueError, match="eager"):
        OldScaler().step(own)
    own.step()
