"""Uses of BlueFog's optimizer wrappers besides stepping: groups, lists of models, clipping, errors."""

import copy
import io
import warnings

import pytest
import torch

import starling
import starling.torch as bf
from dense_training import (OPTIMIZERS, CountingSgd, DenseFlock, assert_same, batch, loss_of, matrix_of, network, parameters_of,
                            train_step)
from starling.torch import process

bf.init()
rank, n = bf.rank(), bf.size()
ALL = [bf.DistributedGradientAllreduceOptimizer, bf.DistributedAdaptThenCombineOptimizer,
       bf.DistributedAdaptWithCombineOptimizer]


def uniform():
    return matrix_of(process.flock().schedule, 0)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def groups_of(model):
    return torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2].parameters(), "lr": 0.2}],
                           lr=0.1, momentum=0.5)


@pytest.mark.parametrize("make", [groups_of, lambda model: torch.optim.RMSprop(groups_of(model).param_groups, lr=0.1)],
                         ids=["native", "other"])
def test_groups_have_their_own_learning_rates(make):
    model = network(rank)
    own = bf.DistributedAdaptThenCombineOptimizer(make(model), model)
    dense = DenseFlock(n, make)
    for step in range(4):
        for optimizer in [own] + dense.optimizers:
            optimizer.param_groups[1]["lr"] = 0.2 / (1 + step)
        train_step(own, model, rank, step)
        dense.adapt_then_combine(uniform())
        assert_same(model, dense[rank])


class Partial(torch.nn.Module):
    """One layer is frozen; one is unused in odd steps or on odd ranks."""

    def __init__(self, seed):
        super().__init__()
        self.inner, self.spare = network(seed), network(seed + 50)
        for parameter in self.inner[0].parameters():
            parameter.requires_grad_(False)

    def forward(self, x, with_spare):
        return self.inner(x) + (self.spare(x) if with_spare else 0)


def partial_loss(model, one, step):
    x, y = batch(one, step)
    return ((model(x, step % 2 == 0 and one % 2 == 0) - y) ** 2).mean()


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop", "own"])
@pytest.mark.parametrize("wrapper", ALL[1:])
def test_frozen_and_unused_parameters(wrapper, optimizer):
    model = Partial(rank)
    own = wrapper(OPTIMIZERS[optimizer](model), model)
    dense = DenseFlock(n, OPTIMIZERS[optimizer], Partial, partial_loss)
    frozen = [parameter.clone() for parameter in model.inner[0].parameters()]
    for step in range(4):
        train_step(own, model, rank, step, partial_loss)
        # Frozen parameters are not averaged, either.
        untouched = [[parameter.clone() for parameter in one.inner[0].parameters()] for one in dense.models]
        for one in dense.models:
            one.zero_grad(set_to_none=True)
        (dense.adapt_then_combine if wrapper is ALL[1] else dense.adapt_with_combine)(uniform())
        for one, kept in zip(dense.models, untouched):
            for parameter, value in zip(one.inner[0].parameters(), kept):
                parameter.data.copy_(value)
        assert_same(model, dense[rank], f"step {step}")
    assert all(torch.equal(a, b) for a, b in zip(frozen, model.inner[0].parameters()))


def test_gradient_allreduce_updates_parameters_used_by_other_ranks():
    model = Partial(0)
    own = bf.DistributedGradientAllreduceOptimizer(sgd(model), model)
    dense = DenseFlock(n, sgd, lambda _: Partial(0), partial_loss)
    for step in range(1):
        train_step(own, model, rank, step, partial_loss)
        dense.average_and_update()
        assert_same(model, dense[rank])


@pytest.mark.parametrize("wrapper", ALL)
def test_several_models(wrapper):
    first, second = network(0), network(1)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    own = wrapper(optimizer, [first, second])
    before = parameters_of(second)
    for step in range(2):
        own.zero_grad()
        (loss_of(first, rank, step) + loss_of(second, rank, step)).backward()
        own.step()
    assert float((parameters_of(second) - before).abs().max()) > 1e-3
    models = bf.allgather(torch.cat([parameters_of(first), parameters_of(second)]).unsqueeze(0))
    far = float((models - models.mean(0)).norm())
    assert own.consensus_distance() == pytest.approx(far / n**0.5, abs=1e-12)


@pytest.mark.parametrize("wrapper", ALL)
def test_parameters_that_do_not_fit(wrapper):
    model, other = network(0), network(1)
    with pytest.raises(ValueError, match="none of the models"):
        wrapper(sgd(other), model)
    with pytest.raises(ValueError, match="twice"):
        wrapper(sgd(model), [model, model])
    doubled = sgd(model)
    doubled.param_groups[0]["params"].append(doubled.param_groups[0]["params"][0])
    with pytest.raises(ValueError, match="twice"):
        wrapper(doubled, model)
    for bad in (0, -1, 1.5):
        with pytest.raises(ValueError, match="num_steps_per_communication"):
            wrapper(sgd(model), model, num_steps_per_communication=bad)
    with pytest.raises(TypeError):
        wrapper(model, model)
    with pytest.raises(TypeError):
        wrapper(sgd(model), [])
    with pytest.raises(ValueError, match="LBFGS"):
        wrapper(torch.optim.LBFGS(model.parameters()), model)
    own = wrapper(sgd(model), model)
    with pytest.raises(ValueError, match="already"):
        wrapper(own, model)
    with pytest.raises(TypeError, match="loops"):
        own.step(loops=3)


def test_zero_grad_in_mid_step():
    model = network(0)
    own = bf.DistributedGradientAllreduceOptimizer(sgd(model), model)
    own.zero_grad()
    loss_of(model, rank, 0).backward()
    for kind in (AssertionError, starling.InvalidArgument):  # BlueFog's error and ours
        with pytest.raises(kind, match="between backward.. and step.*Call step.. first"):
            own.zero_grad()
    own.step()
    own.zero_grad()
    assert all(float(parameter.grad.abs().max()) == 0 for parameter in model.parameters())


def test_synchronize_shows_averaged_gradients_to_clip():
    model = network(0)
    own = bf.DistributedGradientAllreduceOptimizer(sgd(model), model)
    dense = DenseFlock(n, sgd, lambda _: network(0))
    for step in range(3):
        own.zero_grad()
        loss_of(model, rank, step).backward()
        own.synchronize()
        dense.average_gradients()
        for mine, theirs in zip(model.parameters(), dense.models[rank].parameters()):
            assert float((mine.grad - theirs.grad).abs().max()) < 1e-12
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with own.skip_synchronize():
            own.step()
        for one in dense.models:
            torch.nn.utils.clip_grad_norm_(one.parameters(), 0.1)
        dense.update()
        assert_same(model, dense[rank])


@pytest.mark.parametrize("wrapper", ALL[1:])
def test_synchronize_reads_the_settings(wrapper):
    """Also with the model in evaluation mode, where no forward pass has read the settings."""
    model = network(rank).eval()
    own = wrapper(sgd(model), model)
    dense = DenseFlock(n, sgd)
    for step, kind in enumerate(["allreduce", "empty", "allreduce"]):
        own.communication_type = kind
        own.zero_grad()
        loss_of(model, rank, step).backward()
        own.synchronize()
        own.step()
        weights = uniform() * 0 + (1 / n if kind == "allreduce" else 0)
        weights += 0 if kind == "allreduce" else torch.eye(n).numpy()
        (dense.adapt_then_combine if wrapper is ALL[1] else dense.adapt_with_combine)(weights)
        assert_same(model, dense[rank])


@pytest.mark.parametrize("wrapper", ALL)
def test_result_is_of_the_users_class(wrapper):
    for make in OPTIMIZERS.values():
        model = network(0)
        optimizer = make(model)
        own = wrapper(optimizer, model)
        assert isinstance(own, type(optimizer)) and isinstance(own, bf.Decentralized)
        assert type(own).__name__ == type(optimizer).__name__
        assert own.param_groups[0] is optimizer.param_groups[0]
        assert own.defaults == optimizer.defaults


def test_own_optimizers_step_once_per_step():
    model = network(rank)
    own = bf.DistributedAdaptThenCombineOptimizer(CountingSgd(model.parameters()), model)
    for step in range(3):
        train_step(own, model, rank, step)
    assert own.asked == 3


def test_step_function():
    def halved(optimizer, parameter, gradient, group):
        assert isinstance(optimizer, CountingSgd)
        parameter.add_(gradient, alpha=-group["lr"] / 2)

    model = network(rank)
    own = bf.DistributedAdaptThenCombineOptimizer(CountingSgd(model.parameters(), lr=0.2), model)
    own.register_step_function(halved)
    dense = DenseFlock(n, lambda one: torch.optim.SGD(one.parameters(), lr=0.1))
    for step in range(3):
        train_step(own, model, rank, step)
        dense.adapt_then_combine(uniform())
        assert_same(model, dense[rank])
    assert own.asked == 0
    with pytest.raises(RuntimeError, match="already"):
        own.register_step_function(halved)


@pytest.mark.parametrize("old, kind", [(bf.DistributedAllreduceOptimizer, "allreduce"),
                                       (bf.DistributedNeighborAllreduceOptimizer, "neighbor.allreduce"),
                                       (bf.DistributedHierarchicalNeighborAllreduceOptimizer,
                                        "hierarchical.neighbor.allreduce")])
def test_older_names(old, kind):
    model = network(rank)
    with pytest.warns(DeprecationWarning, match="DistributedAdaptWithCombineOptimizer"):
        own = old(sgd(model), model, num_steps_per_communication=2)
    assert own.communication_type is bf.CommunicationType(kind)


@pytest.mark.parametrize("wrapper", ALL)
def test_closures(wrapper):
    model = network(0)
    own = wrapper(sgd(model), model)
    twin, dense = network(0), DenseFlock(n, sgd, lambda _: network(0))

    def closure():
        own.zero_grad()
        value = loss_of(model, rank, 0)
        value.backward()
        return value

    with torch.no_grad():
        got = own.step(closure)
    assert float(got) == float(loss_of(twin, rank, 0))
    {ALL[0]: lambda w: dense.average_and_update(), ALL[1]: dense.adapt_then_combine,
     ALL[2]: dense.adapt_with_combine}[wrapper](uniform())
    assert_same(model, dense[rank])


def test_copies_of_a_model_have_no_owner():
    model = network(rank)
    own = bf.DistributedAdaptWithCombineOptimizer(sgd(model), model)
    dense = DenseFlock(n, sgd)
    twin = copy.deepcopy(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = torch.load(file, **({} if torch.__version__.startswith("1.") else {"weights_only": False}))
    for one in (twin, loaded):
        loss_of(one, rank, 0).backward()
    own.communication_type = "empty"  # the copies' forward passes have not read anything
    train_step(own, model, rank, 0)
    dense.adapt_with_combine(torch.eye(n).numpy())
    assert_same(model, dense[rank])


@pytest.mark.parametrize("make", [lambda model: torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.5),
                                  lambda model: torch.optim.AdamW(model.parameters(), lr=0.125)], ids=["sgd", "adamw"])
def test_half_precision_beside_float(make):
    """With buckets of several types, each parameter is stepped once."""

    def mixed(seed):
        model = network(seed, torch.float32)
        model[2].to(torch.bfloat16)
        return model

    def loss(model, one, step):
        x, _ = batch(one, step, torch.float32)
        return model[2](torch.tanh(model[0](x)).bfloat16()).float().square().mean()

    model, plain = mixed(rank), mixed(rank)
    own = bf.DistributedAdaptThenCombineOptimizer(make(model), model, communication_type="empty")
    optimizer = make(plain)
    for step in range(3):
        train_step(own, model, rank, step, loss)
        train_step(optimizer, plain, rank, step, loss)
        for mine, theirs in zip(model.parameters(), plain.parameters()):
            assert float((mine - theirs).abs().max()) <= 1e-2  # torch rounds bfloat16 after each operation


def test_timeline_is_off_without_a_file():
    model = network(rank)
    own = bf.DistributedAdaptThenCombineOptimizer(sgd(model), model)
    assert own.turn_on_timeline() is False
    train_step(own, model, rank, 0)
    assert own.turn_off_timeline() is False
