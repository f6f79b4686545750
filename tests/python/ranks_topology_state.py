"""Ranks, sizes and topologies of starling.torch, in every rank."""

import networkx
import pytest
import torch

import starling
import starling.torch as bf

before_init = (bf.load_topology(), bf.load_machine_topology(), bf.in_neighbor_ranks(),
               bf.out_neighbor_ranks(), bf.in_neighbor_machine_ranks(), bf.is_initialized())
errors_before_init = []
for function in (bf.size, bf.rank, bf.local_size, bf.local_rank, bf.machine_size, bf.machine_rank,
                 bf.is_homogeneous,
                 bf.set_topology, bf.barrier, bf.suspend, lambda: bf.allreduce(torch.ones(1)),
                 lambda: bf.neighbor_allreduce(torch.ones(1)), lambda: bf.win_create(torch.ones(1), "x")):
    try:
        function()
        errors_before_init.append(None)
    except ValueError as error:
        errors_before_init.append(error)

bf.init()
rank, n = bf.rank(), bf.size()


@pytest.fixture(autouse=True)
def usual_topology():
    yield
    assert bf.set_topology()


def test_before_init():
    assert before_init == (None, None, [], [], [], False)
    assert all("bf.init()" in str(error) and isinstance(error, RuntimeError) for error in errors_before_init)


def test_rank_and_size():
    assert 0 <= rank < n and n == starling.join().size and rank == starling.join().rank
    assert (bf.local_size(), bf.local_rank(), bf.machine_size(), bf.machine_rank()) == (n, rank, 1, 0)
    assert bf.is_homogeneous() and bf.is_initialized()


def test_functions_kept_for_old_programs():
    assert bf.mpi_threads_supported() and bf.unified_mpi_window_model_supported() and not bf.nccl_built()
    bf.set_skip_negotiate_stage(True)
    assert bf.get_skip_negotiate_stage()
    bf.set_skip_negotiate_stage(False)
    assert not bf.get_skip_negotiate_stage()
    bf.suspend()
    bf.resume()
    for name in ("pair_gossip", "win_lock", "is_topo_weighted", "allreduce", "rank", "win_create", "barrier",
                 "poll"):
        assert getattr(bf.mpi_ops, name) is getattr(bf, name)
    for name in bf.__all__:
        assert hasattr(bf, name)


def test_the_usual_topology():
    assert bf.IsTopologyEquivalent(bf.load_topology(), bf.ExponentialGraph(n))
    assert bf.in_neighbor_ranks() == sorted({(rank - 2**k) % n for k in range(4) if 2**k < n})
    assert bf.out_neighbor_ranks() == sorted({(rank + 2**k) % n for k in range(4) if 2**k < n})
    assert not bf.is_topo_weighted()


def test_init_again_resets():
    bf.init(bf.RingGraph, is_weighted=True)
    assert bf.IsTopologyEquivalent(bf.load_topology(), bf.RingGraph(n)) and bf.is_topo_weighted()
    bf.init()
    assert bf.IsTopologyEquivalent(bf.load_topology(), bf.ExponentialGraph(n)) and not bf.is_topo_weighted()


def test_a_directed_ring():
    assert bf.set_topology(bf.RingGraph(n, connect_style=2))
    assert bf.in_neighbor_ranks() == ([(rank - 1) % n] if n > 1 else [])
    assert bf.out_neighbor_ranks() == ([(rank + 1) % n] if n > 1 else [])


def test_undirected_graphs_and_matrices():
    star = networkx.star_graph(n - 1)
    weights = starling.Topology.from_graph(star).weights()
    for given in (star, weights, weights.tolist(), torch.tensor(weights)):
        assert bf.set_topology(given) and bf.is_topo_weighted()
        assert bf.in_neighbor_ranks() == sorted(star[rank])
        x = bf.neighbor_allreduce(torch.tensor([float(rank)], dtype=torch.float64))
        assert abs(x.item() - weights[rank] @ range(n)) < 1e-12
    with pytest.raises(ValueError, match=f"row 0 of the weights sums to {n + 1}"):
        bf.set_topology([[n + 1.0]])


def test_is_weighted_counts_even_if_the_graph_is_the_same():
    graph = bf.StarGraph(n)
    assert bf.set_topology(graph) and not bf.is_topo_weighted()
    even = bf.neighbor_allreduce(torch.tensor([float(rank)], dtype=torch.float64))
    assert bf.set_topology(graph, is_weighted=True) and bf.mpi_ops.is_topo_weighted()
    weighted = bf.neighbor_allreduce(torch.tensor([float(rank)], dtype=torch.float64))
    own, sources = bf.GetRecvWeights(graph, rank)
    assert weighted.item() == pytest.approx(own * rank + sum(weight * source for source,
                                                             weight in sources.items()))
    assert even.item() == pytest.approx((rank + sum(sources)) / (len(sources) + 1))


def test_a_graph_without_loops_averages_over_oneself_too():
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(n))
    if n > 1:
        graph.add_edge(0, 1)
    assert bf.set_topology(graph)
    got = bf.neighbor_allreduce(torch.tensor([float(rank)]))
    assert got.item() == pytest.approx(0.5 if rank == 1 else rank)


@pytest.mark.parametrize("wrong", [3, object(), {0: 1}], ids=["number", "object", "dict"])
def test_topologies_of_a_wrong_type(wrong):
    with pytest.raises(TypeError):
        bf.set_topology(wrong)
    with pytest.raises(TypeError):
        bf.set_machine_topology(wrong)


def test_topologies_of_a_wrong_size():
    for wrong in (networkx.path_graph(n + 1), torch.eye(n + 1)):
        with pytest.raises((TypeError, ValueError), match=f"is for {n + 1}( ranks)?, not for {n}"):
            bf.set_topology(wrong)
    with pytest.raises(TypeError, match=f"0..{n - 1}"):
        bf.set_topology(bf.RingGraph(n + 1))
    with pytest.raises(TypeError):
        bf.set_machine_topology(bf.RingGraph(2))
    with pytest.raises(ValueError, match="nonsense"):
        bf.set_topology("nonsense")
    assert bf.IsTopologyEquivalent(bf.load_topology(), bf.ExponentialGraph(n))


def test_topologies_cannot_change_while_operations_are_pending():
    handle = bf.allreduce_nonblocking(torch.ones(3), name="pending")
    with pytest.warns(UserWarning, match="allreduce.pending"):
        assert not bf.set_topology(bf.RingGraph(n))
    bf.synchronize(handle)
    assert bf.set_topology(bf.RingGraph(n))


class Holder:
    """A stand-in for starling.Topology, which holds a schedule of the core."""

    def __init__(self, schedule):
        self._schedule = schedule


@pytest.mark.parametrize("make", [lambda: "one-peer-exponential",
                                  lambda: Holder(starling._core.make_schedule("one-peer-exponential", n))])
def test_schedules_of_ours(make):
    assert bf.set_topology(make()) and bf.is_topo_weighted()
    graph = bf.load_topology()
    assert bf.out_neighbor_ranks() == sorted(other for other in graph.successors(rank) if other != rank)
    columns = {node: sum(data["weight"] for _, _, data in graph.in_edges(node, data=True)) for node in graph}
    assert all(total == pytest.approx(1) for total in columns.values())
    with pytest.raises(TypeError):
        bf.set_topology(Holder(starling._core.make_schedule("ring", n + 1)))


def test_random_schedules_have_no_graph():
    if n < 3:
        pytest.skip("two ranks always draw each other")
    assert bf.set_topology("random-matching")
    assert bf.load_topology() is None and bf.in_neighbor_ranks() == []
    x = bf.neighbor_allreduce(torch.tensor([float(rank)], dtype=torch.float64))
    assert bf.allreduce(x).item() == pytest.approx((n - 1) / 2)


def test_ranks_with_different_topologies_are_an_error():
    if n == 1:
        pytest.skip("one rank agrees with itself")
    graph = bf.FullyConnectedGraph(n)
    bf.set_topology(graph, is_weighted=rank == 0)
    if rank == 0:
        graph.edges[0, 1]["weight"] = 0.123
        bf.set_topology(graph, is_weighted=True)
    with pytest.raises(ValueError, match="schedule"):
        bf.neighbor_allreduce(torch.ones(1), name="different")
    bf.barrier()


def test_machine_topologies(monkeypatch):
    with pytest.raises(ValueError, match="None"):
        bf.set_machine_topology(None)
    assert bf.load_machine_topology() is None and bf.in_neighbor_machine_ranks() == []
    monkeypatch.setenv("BLUEFOG_NODES_PER_MACHINE", "1")
    assert (bf.local_size(), bf.machine_size(), bf.machine_rank(), bf.local_rank()) == (1, n, rank, 0)
    assert bf.set_machine_topology(bf.RingGraph(n, connect_style=2), is_weighted=True)
    assert bf.mpi_ops.is_machine_topo_weighted()
    assert bf.in_neighbor_machine_ranks() == ([(rank - 1) % n] if n > 1 else [])
    assert bf.out_neighbor_machine_ranks() == ([(rank + 1) % n] if n > 1 else [])
    assert bf.IsTopologyEquivalent(bf.load_machine_topology(), bf.RingGraph(n, connect_style=2))


def test_infer_ranks():
    if n == 1:
        assert bf.InferSourceFromDestinationRanks([]) == []
        return
    assert bf.InferSourceFromDestinationRanks([(rank + 1) % n]) == [(rank - 1) % n]
    assert bf.InferDestinationFromSourceRanks([(rank + 1) % n]) == [(rank - 1) % n]


def test_init_after_shutdown():
    bf.win_create(torch.ones(2), "stays")
    handle = bf.allreduce_nonblocking(torch.ones(2))
    bf.shutdown()
    assert not bf.is_initialized() and bf.load_topology() is None
    for call in (lambda: bf.allreduce(torch.ones(1)), lambda: bf.neighbor_allreduce(torch.ones(1)),
                 bf.barrier,
                 lambda: bf.win_put(torch.ones(2), "stays"), lambda: bf.broadcast(torch.ones(1), 0),
                 lambda: bf.allgather(torch.ones(1)), lambda: bf.neighbor_allgather(torch.ones(1))):
        with pytest.raises(RuntimeError, match="bf.init()"):
            call()
    with pytest.raises(ValueError):
        bf.size()
    with pytest.raises(ValueError):
        bf.synchronize(handle)
    bf.init()
    assert bf.win_create(torch.ones(2), "stays") and bf.win_free("stays")
    assert bf.allreduce(torch.ones(1), average=False).item() == n
