"""Compares BlueFog's optimizer wrappers with training of the whole flock in plain torch."""

import os

if os.environ.get("STARLING_SIZE") in ("2", "4"):
    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "2"

import numpy as np
import pytest

import starling.torch as bf
from dense_training import OPTIMIZERS, DenseFlock, assert_same, loss_of, matrix_of, network, train_step
from starling.torch import process

bf.init()
rank, n = bf.rank(), bf.size()
Kind = bf.CommunicationType
WRAPPERS = {"atc": (bf.DistributedAdaptThenCombineOptimizer, DenseFlock.adapt_then_combine),
            "awc": (bf.DistributedAdaptWithCombineOptimizer, DenseFlock.adapt_with_combine)}


@pytest.fixture(autouse=True)
def topology():
    bf.set_topology(bf.ExponentialGraph(n))


def wrapped(name, make=OPTIMIZERS["sgd"], make_model=network, **options):
    model = make_model(rank)
    return model, WRAPPERS[name][0](make(model), model, **options)


def uniform():
    return matrix_of(process.flock().schedule, 0)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", WRAPPERS)
def test_every_optimizer_follows_the_dense_iterates(name, optimizer):
    model, own = wrapped(name, OPTIMIZERS[optimizer])
    dense = DenseFlock(n, OPTIMIZERS[optimizer])
    for step in range(4):
        train_step(own, model, rank, step)
        WRAPPERS[name][1](dense, uniform())
        assert_same(model, dense[rank], f"step {step}")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_gradient_allreduce_follows_the_dense_iterates(optimizer):
    model = network(0)
    own = bf.DistributedGradientAllreduceOptimizer(OPTIMIZERS[optimizer](model), model)
    dense = DenseFlock(n, OPTIMIZERS[optimizer], lambda _: network(0))
    for step in range(4):
        train_step(own, model, rank, step)
        dense.average_and_update()
        assert_same(model, dense[rank], f"step {step}")


@pytest.mark.parametrize("passes", [2, 3])
def test_gradient_allreduce_adds_up_backward_passes(passes):
    model = network(0)
    own = bf.DistributedGradientAllreduceOptimizer(OPTIMIZERS["sgd"](model), model, num_steps_per_communication=passes)
    dense = DenseFlock(n, OPTIMIZERS["sgd"], lambda _: network(0))
    for step in range(3):
        own.zero_grad()
        for one in range(passes):
            loss_of(model, rank, step * passes + one).backward()
        own.step()
        dense.average_and_update(passes)
        assert_same(model, dense[rank])


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("name", WRAPPERS)
def test_local_steps_between_communications(name, every):
    bf.set_topology("one-peer-exponential")
    model, own = wrapped(name, num_steps_per_communication=every)
    dense = DenseFlock(n, OPTIMIZERS["sgd"])
    for step in range(3 * every):
        train_step(own, model, rank, step)
        average, rest = divmod(step + 1, every)
        WRAPPERS[name][1](dense, np.eye(n) if rest else matrix_of(process.flock().schedule, average - 1))
        assert_same(model, dense[rank], f"step {step}")


@pytest.mark.parametrize("name", WRAPPERS)
def test_schedules_are_followed_step_by_step(name):
    bf.set_topology("one-peer-exponential")
    model, own = wrapped(name)
    dense = DenseFlock(n, OPTIMIZERS["sgd"])
    for step in range(4):
        train_step(own, model, rank, step)
        WRAPPERS[name][1](dense, matrix_of(process.flock().schedule, step))
        assert_same(model, dense[rank])


def dynamic(step):
    """Rank r sends to r + 1 + step, scaled. Returns (self weight, source weights, destination weights) of every rank, and the matrix."""
    shift = 1 + step % max(1, n - 1)
    weights, settings = np.zeros((n, n)), []
    for one in range(n):
        source, to = (one - shift) % n, (one + shift) % n
        mine = {} if n == 1 else {source: 0.3 + 0.1 * one}
        settings.append((0.5 + 0.1 * step, mine, {} if n == 1 else {to: 1.5 + one}))
        weights[one, one] = settings[-1][0]
        if n > 1:
            weights[one, source] = mine[source] * (1.5 + source)
    return settings, weights


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("name", WRAPPERS)
def test_weights_of_every_step(name, check):
    model, own = wrapped(name)
    own.enable_topo_check = check
    dense = DenseFlock(n, OPTIMIZERS["sgd"])
    for step in range(5):
        settings, weights = dynamic(step)
        own.self_weight, own.src_weights, own.dst_weights = settings[rank]
        train_step(own, model, rank, step)
        WRAPPERS[name][1](dense, weights)
        assert_same(model, dense[rank])
    own.self_weight = own.src_weights = own.dst_weights = None
    train_step(own, model, rank, 5)
    WRAPPERS[name][1](dense, uniform())
    assert_same(model, dense[rank], "the topology's weights again")


def test_adapt_with_combine_reads_the_weights_when_forward_begins():
    model, own = wrapped("awc")
    dense = DenseFlock(n, OPTIMIZERS["sgd"])
    for step in range(2):
        own.self_weight, own.src_weights = None, None
        own.zero_grad()
        loss = loss_of(model, rank, step)
        own.self_weight, own.src_weights = 0, {n + 7: 1}  # for the next step, where they would be an error
        loss.backward()
        own.step()
        dense.adapt_with_combine(uniform())
        assert_same(model, dense[rank])


def test_destinations_as_a_list_count_once():
    model, own = wrapped("atc")
    dense = DenseFlock(n, OPTIMIZERS["sgd"])
    for step in range(3):
        settings, weights = dynamic(step)
        own.self_weight, own.src_weights, scaled = settings[rank]
        own.dst_weights = list(scaled)
        for one, (_, mine, _) in enumerate(settings):
            for source, weight in mine.items():
                weights[one, source] = weight
        train_step(own, model, rank, step)
        dense.adapt_then_combine(weights)
        assert_same(model, dense[rank])


@pytest.mark.parametrize("name", WRAPPERS)
def test_static_source_weights(name):
    """Own weights for sources that the topology allows; also the older spelling."""
    model, own = wrapped(name)
    dense = DenseFlock(n, OPTIMIZERS["sgd"])
    weights = np.diag(np.full(n, 0.25))
    for one in range(n):
        for source in bf.load_topology().predecessors(one):
            if source != one:
                weights[one, source] = 0.1 * (1 + source)
    own.self_weight = 0.25
    own.neighbor_weights = {source: 0.1 * (1 + source) for source in bf.in_neighbor_ranks()}
    for step in range(3):
        train_step(own, model, rank, step)
        WRAPPERS[name][1](dense, weights)
        assert_same(model, dense[rank])


@pytest.mark.parametrize("name", WRAPPERS)
def test_communication_types_may_change(name):
    model, own = wrapped(name, communication_type=Kind.empty)
    dense = DenseFlock(n, OPTIMIZERS["sgd"])
    machines = n >= 2 and bf.local_size() == 2 and n % 2 == 0
    if machines:
        bf.set_machine_topology(bf.RingGraph(bf.machine_size()))
    for step, kind in enumerate(["empty", "neighbor.allreduce", "allreduce", "hierarchical.neighbor.allreduce",
                                 "neighbor.allreduce", "empty", "allreduce"]):
        if kind.startswith("hier") and not machines:
            kind = "empty"
        own.communication_type = Kind(kind) if step % 2 else kind
        train_step(own, model, rank, step)
        weights = {"empty": np.eye(n), "neighbor.allreduce": uniform(), "allreduce": np.full((n, n), 1 / n),
                   "hierarchical.neighbor.allreduce": np.full((n, n), 1 / n)}[kind]
        WRAPPERS[name][1](dense, weights)
        assert_same(model, dense[rank], kind)


@pytest.mark.parametrize("name", WRAPPERS)
def test_machine_weights(name):
    if n != 4:
        pytest.skip("two machines of two")
    model, own = wrapped(name, communication_type=Kind.hierarchical_neighbor_allreduce)
    dense = DenseFlock(n, OPTIMIZERS["sgd"])
    other = 1 - bf.machine_rank()
    own.self_weight, own.src_machine_weights, own.dst_machine_weights = 0.25, {other: 0.75}, {other: 2.0}
    outer = np.array([[0.25, 1.5], [1.5, 0.25]])
    for step in range(3):
        train_step(own, model, rank, step)
        WRAPPERS[name][1](dense, np.kron(outer, np.full((2, 2), 0.5)))
        assert_same(model, dense[rank])
    own.src_machine_weights = None
    with pytest.raises(ValueError, match="together"):
        train_step(own, model, rank, 3)


@pytest.mark.parametrize("name", WRAPPERS)
def test_unmatched_senders_are_an_error_on_all_ranks(name):
    if n < 3:
        pytest.skip("needs somebody who does not listen")
    model, own = wrapped(name)
    dense = DenseFlock(n, OPTIMIZERS["sgd"])
    own.enable_topo_check = True
    own.self_weight, own.src_weights = 0.5, {(rank - 1) % n: 0.5}
    own.dst_weights = [(rank + 2) % n] if rank == 1 else [(rank + 1) % n]
    with pytest.raises(ValueError, match=f"rank 1 sends to {3 % n}"):
        train_step(own, model, rank, 0)
    # After the error, the step can be made with the right arguments.
    own.dst_weights = [(rank + 1) % n]
    train_step(own, model, rank, 0)
    weights = 0.5 * (np.eye(n) + np.roll(np.eye(n), -1, axis=1))
    WRAPPERS[name][1](dense, weights)
    assert_same(model, dense[rank])


def test_invalid_weights_are_errors():
    model, own = wrapped("atc")
    own.dst_weights = [0]
    with pytest.raises(TypeError, match="self_weight and src_weights"):
        own.step()
    own.dst_weights, own.self_weight = None, 0.5
    with pytest.raises(ValueError, match="together"):
        own.step()
    own.src_weights = {n + 5: 0.5}
    with pytest.raises(ValueError, match="receives from"):
        own.step()
    own.self_weight, own.src_weights = 1, {}
    with pytest.raises(ValueError, match="float"):
        own.step()
    own.self_weight = None
    own.src_weights, own.communication_type = None, "telepathy"
    with pytest.raises(ValueError, match="telepathy"):
        own.step()
    own.communication_type = Kind.neighbor_allreduce
    own.step()
