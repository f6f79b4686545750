"""BlueFog's optimizers over windows: ranks do not wait for each other, unless force_barrier asks for it."""

import time

import numpy as np
import pytest
import torch

import starling.torch as bf
from dense_training import OPTIMIZERS, DenseFlock, assert_same, loss_of, matrix_of, network, parameters_of, train_step
from starling.torch import process

bf.init()
rank, n = bf.rank(), bf.size()
ALL = [bf.DistributedWinPutOptimizer, bf.DistributedPushSumOptimizer, bf.DistributedPullGetOptimizer]


@pytest.fixture(autouse=True)
def topology():
    assert bf.set_topology(bf.ExponentialGraph(n))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def weights(step=0):
    return matrix_of(process.flock().schedule, step)


def wrapped(wrapper, make=sgd, **options):
    model = network(rank)
    own = wrapper(make(model), model, **options)
    own.force_barrier = True
    return model, own


def begun(own, model):
    """The model at the start of the next step: forward takes in the deposits that have arrived."""
    model(torch.zeros(1, 3, dtype=torch.float64))
    return model


class Point(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.x = torch.nn.Parameter(torch.full((4,), float(rank)))

    def forward(self):
        return (self.x - rank).square().sum()


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize("wrapper", ALL)
def test_convex_problem(wrapper, barrier):
    """With a decreasing step size, all ranks come close to the mean of the minimizers, whichever rank is faster."""
    model = Point()
    own = wrapper(torch.optim.SGD(model.parameters(), lr=0.2), model)
    own.force_barrier = barrier
    for step in range(150):
        own.param_groups[0]["lr"] = 0.2 / (1 + 0.05 * step)
        train_step(own, model, rank, step, lambda one, *_: one())
        if not barrier and step % 10 == 9:
            bf.barrier()  # ranks share cores: no rank should finish before the others start
    bf.barrier()
    assert float((model.x - (n - 1) / 2).abs().max()) < (0.3 if barrier else 1.0)
    own.unregister_window()


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop", "own"])
def test_win_put_in_lock_step_is_adapt_then_combine(optimizer):
    make = OPTIMIZERS[optimizer]
    model, own = wrapped(bf.DistributedWinPutOptimizer, make)
    dense = DenseFlock(n, make)
    for step in range(4):
        train_step(own, model, rank, step)
        dense.adapt_then_combine(weights())
        assert_same(begun(own, model), dense[rank], f"step {step}")
    own.unregister_window()


@pytest.mark.parametrize("wrapper", [ALL[0], ALL[2]])
def test_local_steps_in_between(wrapper):
    bf.set_topology("one-peer-exponential")
    model, own = wrapped(wrapper, num_steps_per_communication=2)
    dense = DenseFlock(n, sgd)
    for step in range(6):
        train_step(own, model, rank, step)
        average, rest = divmod(step + 1, 2)
        dense.adapt_then_combine(np.eye(n) if rest else weights(average - 1))
        assert_same(begun(own, model), dense[rank], f"step {step}")
    own.unregister_window()


def test_destination_weights():
    """A dict scales the deposits; a list selects the destinations."""
    model, own = wrapped(bf.DistributedWinPutOptimizer)
    dense = DenseFlock(n, sgd)
    for step in range(3):
        scales = [{to: 0.5 + 0.25 * (step + source) for to in bf.load_topology().successors(source) if to != source}
                  for source in range(n)]
        own.dst_weights = scales[rank]
        train_step(own, model, rank, step)
        matrix = weights()
        for source in range(n):
            for to, scale in scales[source].items():
                matrix[to, source] *= scale
        dense.adapt_then_combine(matrix)
        assert_same(begun(own, model), dense[rank], f"step {step}")
    own.dst_weights = [n + 1]
    with pytest.raises(ValueError, match="out-neighbors"):
        train_step(own, model, rank, 3)
    own.dst_weights = []
    train_step(own, model, rank, 3)
    own.unregister_window()


def test_source_weights():
    for wrapper in (ALL[0], ALL[2]):
        model, own = wrapped(wrapper)
        dense = DenseFlock(n, sgd)
        matrix = np.diag(np.full(n, 0.5))
        for one in range(n):
            for source in bf.load_topology().predecessors(one):
                if source != one:
                    matrix[one, source] = 0.25
        own.self_weight, own.src_weights = 0.5, {source: 0.25 for source in bf.in_neighbor_ranks()}
        for step in range(3):
            train_step(own, model, rank, step)
            dense.adapt_then_combine(matrix)
            assert_same(begun(own, model), dense[rank])
        own.unregister_window()


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop"])
def test_pull_get_in_lock_step_is_adapt_then_combine(optimizer):
    make = OPTIMIZERS[optimizer]
    model, own = wrapped(bf.DistributedPullGetOptimizer, make)
    dense = DenseFlock(n, make)
    for step in range(4):
        train_step(own, model, rank, step)
        dense.adapt_then_combine(weights())
        assert_same(model, dense[rank], f"step {step}")
    own.unregister_window()


@pytest.mark.parametrize("every, chosen", [(1, False), (2, False), (1, True)])
def test_push_sum_in_lock_step(every, chosen):
    """On a star, whose ranks have different degrees: x and the scalar are pushed in equal shares, or in chosen ones."""
    if n > 1:
        bf.set_topology(bf.StarGraph(n))
    graph = bf.load_topology()
    shares = np.zeros((n, n))
    for source in range(n):
        told = set(graph.successors(source)) | {source}
        for to in told:
            shares[to, source] = 1 / len(told)
        if chosen and len(told) > 1:  # moves part of the rank's own share to the first destination
            shares[source, source] -= 0.125
            shares[min(told - {source}), source] += 0.125
    model, own = wrapped(bf.DistributedPushSumOptimizer, num_steps_per_communication=every)
    if chosen:
        own.self_weight = float(shares[rank, rank])
        own.dst_weights = {to: float(shares[to, rank]) for to in bf.out_neighbor_ranks()}
    dense = DenseFlock(n, sgd)
    p = np.ones(n)
    for step in range(6):
        train_step(own, model, rank, step)
        dense.compute_gradients()
        dense.update()
        matrix = np.eye(n) if (step + 1) % every else shares
        p_next = matrix @ p
        dense.mix(matrix * p[None, :] / p_next[:, None])
        p = p_next
        assert_same(begun(own, model), dense[rank], f"step {step}")
    own.unregister_window()


def test_invalid_shares_are_errors():
    model, own = wrapped(bf.DistributedPushSumOptimizer)
    own.self_weight = 0.5
    with pytest.raises(ValueError, match="together"):
        own.step()
    own.dst_weights = {}
    with pytest.raises(ValueError, match="sum to one"):
        own.step()
    own.self_weight, own.dst_weights = 0.5, {n + 3: 0.5}
    with pytest.raises(ValueError, match="out-neighbors"):
        own.step()
    own.self_weight, own.dst_weights = 1.0, []
    own.step()
    own.unregister_window()


@pytest.mark.parametrize("wrapper", ALL)
def test_barriers_make_it_deterministic(wrapper):
    def run():
        model, own = wrapped(wrapper)
        generator = np.random.default_rng(int(time.time() * 1e6) % 2**32 + rank)
        for step in range(8):
            time.sleep(generator.random() * 0.004)
            own.zero_grad()
            loss = loss_of(model, rank, step)
            time.sleep(generator.random() * 0.004)
            loss.backward()
            own.step()
        own.unregister_window()
        return parameters_of(model)

    assert torch.equal(run(), run())


@pytest.mark.parametrize("wrapper", ALL)
def test_windows_are_freed_and_made_again(wrapper):
    flock = process.flock()
    for _ in range(2):
        model = network(rank)
        own = wrapper(OPTIMIZERS["adam"](model), model, window_prefix="mine")
        train_step(own, model, rank, 0)
        names = own._window_names
        assert names and all(name.startswith("mine") and flock.has_window(name) for name in names)
        own.unregister_window()
        assert not any(flock.has_window(name) for name in names)
        loss_of(model, rank, 1)  # the model is trained further without the optimizer
        with pytest.raises(RuntimeError, match="unregister_window"):
            train_step(own, model, rank, 1)
        assert all(float(state["step"]) == 1 for state in own.state_dict()["state"].values())
        own.unregister_window()


@pytest.mark.parametrize("wrapper", ALL)
def test_a_sleeping_rank_delays_no_other(wrapper):
    model = network(rank)
    own = wrapper(sgd(model), model)
    train_step(own, model, rank, 0)
    bf.barrier()
    begin = time.monotonic()
    if rank == n - 1 and n > 1:
        time.sleep(1.5)
    else:
        for step in range(1, 10):
            train_step(own, model, rank, step)
    took = time.monotonic() - begin
    bf.barrier()
    assert took < 1.0 or (rank == n - 1 and n > 1)
    train_step(own, model, rank, 20)
    assert torch.isfinite(parameters_of(model)).all()
    bf.barrier()
    own.unregister_window()


@pytest.mark.parametrize("wrapper", ALL)
def test_random_topologies_are_refused(wrapper):
    if n < 3:
        pytest.skip("two always draw each other")
    bf.set_topology("random-matching")
    model = network(rank)
    with pytest.raises(ValueError, match="known in advance"):
        wrapper(sgd(model), model)
