"""Neighbor averages and gathers of starling.torch, in every rank."""

import networkx
import numpy as np
import pytest
import torch

import starling.torch as bf

bf.init()
rank, n = bf.rank(), bf.size()
several = pytest.mark.skipif(n == 1, reason="one rank has no neighbors")
right, left = (rank + 1) % n, (rank - 1) % n


@pytest.fixture(autouse=True)
def usual_topology():
    assert bf.set_topology()


def values():
    return torch.arange(float(n))


def mine(dtype=torch.float32, shape=(3, 2)):
    return torch.full(shape, float(rank), dtype=dtype)


def uniform(graph):
    sources = set(graph.predecessors(rank)) | {rank}
    return sum(sources) / len(sources)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(3, 2), (), (0, 2), (100_000,)], ids=str)
def test_the_default_is_uniform(dtype, shape):
    x = mine(dtype, shape)
    got = bf.neighbor_allreduce(x)
    assert got.dtype == dtype and got.shape == x.shape
    torch.testing.assert_close(got, torch.full(shape, uniform(bf.load_topology()), dtype=dtype), rtol=1e-2,
                               atol=1e-2)
    assert torch.equal(x, mine(dtype, shape))


def test_the_topologys_weights_where_it_is_weighted():
    weights = np.random.default_rng(7).random((n, n))
    assert bf.set_topology(networkx.from_numpy_array(weights, create_using=networkx.DiGraph),
                           is_weighted=True)
    got = bf.neighbor_allreduce(torch.tensor([float(rank)], dtype=torch.float64))
    assert got.item() == pytest.approx(weights[:, rank] @ np.arange(n))
    got = bf.synchronize(bf.neighbor_allreduce_nonblocking(torch.tensor([float(rank)], dtype=torch.float64)))
    assert got.item() == pytest.approx(weights[:, rank] @ np.arange(n))


def test_schedules_advance_from_step_to_step():
    assert bf.set_topology("one-peer-exponential")
    schedule = bf.process.state.flock.schedule
    x = torch.tensor([float(rank)], dtype=torch.float64)
    for step in range(5):
        receivers, senders, entries = schedule.entries(step)
        wanted = sum(w * s for r, s, w in zip(receivers, senders, entries) if r == rank)
        assert bf.neighbor_allreduce(x).item() == pytest.approx(wanted)


@several
def test_static_calls_with_given_weights():
    bf.set_topology(bf.RingGraph(n))
    sources = bf.in_neighbor_ranks()
    weights = {source: 0.1 * (source + 1) for source in sources}
    wanted = 0.5 * rank + sum(0.1 * (source + 1) * source for source in sources)
    for call in (bf.neighbor_allreduce, lambda *a,
                 **k: bf.synchronize(bf.neighbor_allreduce_nonblocking(*a, **k))):
        for got in (call(mine(), self_weight=0.5, src_weights=weights),
                    call(mine(), 0.5, weights),
                    call(mine(), self_weight=0.5, neighbor_weights=weights)):
            torch.testing.assert_close(got, torch.full((3, 2), wanted))
    # A source that is not named has no weight, although it sends.
    assert torch.equal(bf.neighbor_allreduce(mine(), self_weight=1.0, src_weights={}), mine())
    some = {sources[0]: 1.0} if rank == 0 else weights
    got = bf.neighbor_allreduce(mine(), self_weight=0.5, src_weights=some)
    torch.testing.assert_close(got, torch.full((3, 2), float(sources[0]) if rank == 0 else wanted))


@several
@pytest.mark.parametrize("check", [True, False])
def test_dynamic_calls(check):
    bf.set_topology(bf.RingGraph(n, connect_style=1))
    far = (rank + n // 2) % n
    for call in (bf.neighbor_allreduce, lambda *a,
                 **k: bf.synchronize(bf.neighbor_allreduce_nonblocking(*a, **k))):
        got = call(mine(), self_weight=0.25, src_weights={left: 0.75}, dst_weights=[right],
                   enable_topo_check=check)
        torch.testing.assert_close(got, torch.full((3, 2), 0.25 * rank + 0.75 * left))
        got = call(mine(), self_weight=0.25, src_weights={left: 0.75}, dst_weights={right: 2.0},
                   enable_topo_check=check)
        torch.testing.assert_close(got, torch.full((3, 2), 0.25 * rank + 1.5 * left))
        got = call(mine(), 0.5, {left: 0.5}, [right], check)
        torch.testing.assert_close(got, torch.full((3, 2), 0.5 * rank + 0.5 * left))
        got = call(mine(), self_weight=0.5, neighbor_weights={left: 0.5}, send_neighbors=[right],
                   enable_topo_check=check)
        torch.testing.assert_close(got, torch.full((3, 2), 0.5 * rank + 0.5 * left))
        got = call(mine(), self_weight=0.5, src_weights={far: 0.5}, dst_weights=[(rank - n // 2) % n],
                   enable_topo_check=check)
        torch.testing.assert_close(got, torch.full((3, 2), 0.5 * rank + 0.5 * far))


@several
def test_dynamic_calls_in_which_some_ranks_do_not_send():
    told = [r for r in range(n) if r != 0]
    got = bf.neighbor_allreduce(mine(), self_weight=1.0,
                                src_weights={r: 1.0 for r in told} if rank == 0 else {},
                                dst_weights=[] if rank == 0 else [0])
    torch.testing.assert_close(got, torch.full((3, 2), float(sum(range(n)) if rank == 0 else rank)))
    assert torch.equal(bf.neighbor_allreduce(mine(), self_weight=1.0, src_weights={}, dst_weights=[]), mine())


@several
def test_checked_calls_in_different_orders():
    def start(k):
        return bf.neighbor_allreduce_nonblocking(mine() + k, self_weight=0.5, src_weights={left: 0.5},
                                                 dst_weights=[right], name=f"checked{k}")

    order = range(4) if rank % 2 == 0 else range(3, -1, -1)
    handles = {k: start(k) for k in order}
    bf.neighbor_allreduce(mine())  # another operation in between
    bf.barrier()
    for k in range(4) if rank % 3 == 0 else (2, 0, 3, 1):
        torch.testing.assert_close(bf.synchronize(handles[k]),
                                   torch.full((3, 2), 0.5 * rank + 0.5 * left + k))


@several
def test_a_checked_call_progresses_while_its_rank_waits():
    handle = bf.neighbor_allreduce_nonblocking(mine(), self_weight=0.5, src_weights={left: 0.5},
                                               dst_weights=[right])
    if rank == 0:
        bf.neighbor_allreduce(mine())
        got = bf.synchronize(handle)
    else:
        got = bf.synchronize(handle)
        bf.neighbor_allreduce(mine())
    torch.testing.assert_close(got, torch.full((3, 2), 0.5 * rank + 0.5 * left))


@several
def test_checked_calls_without_names_meet_in_their_order():
    handles = [bf.neighbor_allreduce_nonblocking(mine() + 10 * k, self_weight=0.5, src_weights={left: 0.5},
                                                 dst_weights=[right]) for k in range(4)]
    for k in (3, 1, 0, 2) if rank % 2 else range(4):
        torch.testing.assert_close(bf.synchronize(handles[k]),
                                   torch.full((3, 2), 0.5 * rank + 0.5 * left + 10 * k))


@several
def test_senders_and_receivers_that_do_not_match():
    sources = {} if rank == 1 else {left: 0.5}
    for call in (lambda **k: bf.neighbor_allreduce(mine(), self_weight=0.5, src_weights=sources,
                                                   dst_weights=[right], **k),
                 lambda **k: bf.neighbor_allgather(mine(), src_ranks=list(sources), dst_ranks=[right], **k)):
        with pytest.raises(ValueError, match="rank 0 sends to 1, which does not listen to it"):
            call(name="unmatched")
    sources = {left: 0.5, rank if n == 2 else right: 0.5} if rank == 0 else {left: 0.5}
    if n > 2:
        with pytest.raises(ValueError, match="rank 0 listens to 1, which does not send to it"):
            bf.neighbor_allreduce(mine(), self_weight=0.5, src_weights=sources, dst_weights=[right])
    # Nothing was sent, so the next call matches.
    got = bf.neighbor_allreduce(mine(), self_weight=0.5, src_weights={left: 0.5}, dst_weights=[right],
                                name="unmatched")
    torch.testing.assert_close(got, torch.full((3, 2), 0.5 * rank + 0.5 * left))


@pytest.mark.parametrize("call", [bf.neighbor_allreduce, bf.neighbor_allreduce_nonblocking])
def test_invalid_arguments_are_errors(call):
    x = mine()
    one = {other: 1.0 for other in bf.in_neighbor_ranks()}
    for wrong in ({"self_weight": 0.5}, {"src_weights": one}, {"self_weight": 1, "src_weights": one},
                  {"self_weight": True, "src_weights": one}, {"self_weight": 0.5, "src_weights": [0]},
                  {"self_weight": 0.5, "src_weights": one, "dst_weights": [0, 0]},
                  {"self_weight": 0.5, "src_weights": one, "dst_weights": 1},
                  {"self_weight": 0.5, "src_weights": {n: 1.0}},
                  {"self_weight": 0.5, "src_weights": {rank: 1.0}},
                  {"self_weight": 0.5, "src_weights": {n: 1.0}, "dst_weights": [],
                   "enable_topo_check": False},
                  {"self_weight": 0.5, "src_weights": {}, "dst_weights": [n], "enable_topo_check": False},
                  {"self_weight": 0.5, "src_weights": one, "neighbor_weights": one},
                  {"self_weight": 0.5, "src_weights": one, "dst_weights": [0], "send_neighbors": [0]}):
        with pytest.raises(ValueError):
            call(x, **wrong)
    with pytest.raises(TypeError, match="dst_weights"):
        call(x, dst_weights=[0])
    if n == 1:
        assert torch.equal(bf.neighbor_allreduce(x, self_weight=np.float32(1.0), src_weights={}), x)


def test_names_and_handles():
    handle = bf.neighbor_allreduce_nonblocking(mine(), name="n")
    with pytest.raises(ValueError, match="'n' is under way"):
        bf.neighbor_allreduce(mine(), name="n")
    bf.synchronize(handle)
    names = [f"n{k}" for k in range(5)]
    handles = {name: bf.neighbor_allreduce_nonblocking(mine(), name=name) for name in
               (names if rank % 2 else reversed(names))}
    for name in names:
        torch.testing.assert_close(bf.synchronize(handles[name]),
                                   torch.full((3, 2), uniform(bf.load_topology())))


def test_neighbor_groups():
    wanted = uniform(bf.load_topology())
    tensors = [mine(), mine(torch.float64, (4,)), mine(torch.float16, ())]
    for got, x in zip(bf.neighbor_allreduce_group(tensors), tensors):
        torch.testing.assert_close(got, torch.full(x.shape, wanted, dtype=x.dtype), rtol=1e-3, atol=1e-3)
    handle = bf.neighbor_allreduce_group_nonblocking(tensors, name="group", in_place=True)
    assert bf.synchronize(handle)[1] is tensors[1]
    torch.testing.assert_close(tensors[1], torch.full((4,), wanted, dtype=torch.float64))


def test_neighbor_allgather():
    bf.set_topology(bf.RingGraph(n, connect_style=2))
    assert bf.neighbor_allgather(mine()).tolist() == ([[left] * 2] * 3 if n > 1 else [])
    bf.set_topology(bf.FullyConnectedGraph(n))
    others = [r for r in range(n) if r != rank]
    got = bf.neighbor_allgather(torch.full((rank + 1, 2), float(rank)))  # lengths may differ
    assert got[:, 0].tolist() == [r for r in others for _ in range(r + 1)]
    handle = bf.neighbor_allgather_nonblocking(torch.full((1,), rank, dtype=torch.int8), name="gather")
    assert bf.synchronize(handle).tolist() == others
    assert bf.neighbor_allgather(torch.empty(0, 5)).shape == (0, 5)


@several
def test_neighbor_allgather_of_chosen_ranks():
    others = [r for r in range(n) if r != rank]
    got = bf.neighbor_allgather(mine(shape=(1,)), src_ranks=others[::-1], dst_ranks=others)
    assert got.tolist() == others[::-1]
    same = bf.neighbor_allgather(mine(shape=(1,)), src_ranks=np.array(others[::-1]), dst_ranks=torch.tensor(others))
    torch.testing.assert_close(same, got)
    got = bf.neighbor_allgather(mine(shape=(1,)), src_ranks=[left], dst_ranks=[right],
                                enable_topo_check=False)
    assert got.tolist() == [left]
    for wrong in ({"src_ranks": [left]}, {"dst_ranks": [right]},
                  {"src_ranks": [left, left], "dst_ranks": [right]},
                  {"src_ranks": np.array([left + 0.5]), "dst_ranks": [right]}, {"src_ranks": [left], "dst_ranks": {right + 0.5: 1.0}}):
        with pytest.raises(ValueError):
            bf.neighbor_allgather(mine(), **wrong)
    bf.set_topology(bf.FullyConnectedGraph(n))
    shape = (2, 3) if rank == 0 else (2, 4)
    with pytest.raises(ValueError, match="shape"):
        bf.neighbor_allgather(mine(shape=shape), name="rows")
    bf.barrier()


@several
def test_mismatches_of_neighbors():
    bf.set_topology(bf.FullyConnectedGraph(n))
    for first, second in (((3, 2), (2, 3)), ((3,), (4,)), ((70_000, 2), (2, 70_000))):
        shape = first if rank == 0 else second
        with pytest.raises(ValueError,
                           match="shape is " + str(shape).replace("(", r"\(").replace(")", r"\)")):
            bf.neighbor_allreduce(mine(shape=shape))
        bf.barrier()
    with pytest.raises(ValueError, match="float"):
        bf.neighbor_allreduce(mine(torch.float32 if rank == 0 else torch.float64), name="types")
    bf.barrier()
    torch.testing.assert_close(bf.neighbor_allreduce(mine()), torch.full((3, 2), (n - 1) / 2))


@several
def test_pair_gossip():
    if n == 3 and rank == 2:
        return
    other = rank ^ 1
    torch.testing.assert_close(bf.pair_gossip(mine(), other), torch.full((3, 2), (rank + other) / 2))
    got = bf.mpi_ops.pair_gossip(mine(), other, self_weight=0.25, pair_weight=0.5, name="pair")
    torch.testing.assert_close(got, torch.full((3, 2), 0.25 * rank + 0.5 * other))
    handle = bf.mpi_ops.pair_gossip_nonblocking(mine(), other)
    torch.testing.assert_close(bf.synchronize(handle), torch.full((3, 2), (rank + other) / 2))
    for wrong in ({"self_weight": 0.5}, {"pair_weight": 0.5}):
        with pytest.raises(ValueError):
            bf.pair_gossip(mine(), other, **wrong)
    with pytest.raises(ValueError):
        bf.pair_gossip(mine(), n)


def test_hierarchical(monkeypatch):
    if n != 4:
        with pytest.raises(RuntimeError):
            bf.hierarchical_neighbor_allreduce(mine())
        return
    monkeypatch.setenv("BLUEFOG_NODES_PER_MACHINE", "2")
    with pytest.raises(RuntimeError, match="machine topology"):
        bf.hierarchical_neighbor_allreduce(mine())
    assert bf.set_machine_topology(bf.RingGraph(2))
    machine, means = rank // 2, [0.5, 2.5]
    torch.testing.assert_close(bf.hierarchical_neighbor_allreduce(mine()), torch.full((3, 2), 1.5))
    weights = {"self_weight": 0.25, "src_machine_weights": {1 - machine: 0.5},
               "dst_machine_weights": [1 - machine]}
    wanted = torch.full((3, 2), 0.25 * means[machine] + 0.5 * means[1 - machine])
    torch.testing.assert_close(bf.hierarchical_neighbor_allreduce(mine(), **weights), wanted)
    torch.testing.assert_close(bf.hierarchical_neighbor_allreduce(mine(), enable_topo_check=True, **weights),
                               wanted)
    handle = bf.hierarchical_neighbor_allreduce_nonblocking(mine(), name="h", **weights)
    torch.testing.assert_close(bf.synchronize(handle), wanted)
    for missing in weights:
        with pytest.raises(ValueError):
            bf.hierarchical_neighbor_allreduce(mine(), **{k: v for k, v in weights.items() if k != missing})
    with pytest.raises(ValueError, match="machine 2"):
        bf.hierarchical_neighbor_allreduce(mine(), self_weight=0.5, src_machine_weights={2: 0.5},
                                           dst_machine_weights=[])
    monkeypatch.setenv("BLUEFOG_NODES_PER_MACHINE", "1")
    with pytest.raises(RuntimeError, match="more than one"):
        bf.hierarchical_neighbor_allreduce(mine())
