"""Sequences of peers: the sources and destinations of every step, and the collectives that infer one from the other."""

import math
import subprocess
import sys
import types
from itertools import islice

import networkx
import numpy
import pytest

from starling import topology_util as topo

SIZES = range(1, 18)
STEPS = 60
MACHINES = topo.GetExp2DynamicSendRecvMachineRanks
RING = topo.GetInnerOuterRingDynamicSendRecvRanks
EXPO = topo.GetInnerOuterExpo2DynamicSendRecvRanks


def first(peers, steps=STEPS):
    return list(islice(peers, steps))


def rounds(make, ranks):
    """The list over ranks of (send, recv), for every step."""
    return list(zip(*(first(make(rank)) for rank in range(ranks))))


def match(round_):
    """Checks that j receives from i exactly if i sends to j."""
    told = {(rank, target) for rank, (send, _) in enumerate(round_) for target in send}
    heard = {(source, rank) for rank, (_, recv) in enumerate(round_) for source in recv}
    assert told == heard
    assert all(rank not in send and len(send) <= 1 for rank, (send, _) in enumerate(round_))
    assert all(recv == sorted(set(recv)) for _, recv in round_)


def random_graph(size):
    drawn = numpy.random.default_rng(size).random((size, size)) < 0.3
    return networkx.from_numpy_array(drawn.astype(float), create_using=networkx.DiGraph)


GRAPHS = [topo.ExponentialTwoGraph, topo.SymmetricExponentialGraph, topo.MeshGrid2DGraph, topo.StarGraph,
          topo.RingGraph, topo.FullyConnectedGraph, lambda size: topo.ExponentialGraph(size, 3), random_graph]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("make", GRAPHS)
def test_one_peer_of_any_graph(make, size):
    graph = make(size)
    degrees = [len(set(graph.successors(rank)) - {rank}) for rank in range(size)]
    seen = rounds(lambda rank: topo.GetDynamicOnePeerSendRecvRanks(graph, rank), size)
    for step, round_ in enumerate(seen):
        match(round_)
        for rank, (send, _) in enumerate(round_):
            around = [(rank + hop) % size for hop in range(1, size)]
            clockwise = [other for other in around if graph.has_edge(rank, other)]
            assert send == ([clockwise[step % degrees[rank]]] if clockwise else [])
    period = math.lcm(*(degree for degree in degrees if degree))
    for step in range(max(0, STEPS - period)):
        assert seen[step] == seen[step + period]


def test_one_peer_sequences():
    graph = topo.ExponentialTwoGraph(8)
    assert first(topo.GetDynamicOnePeerSendRecvRanks(graph, 0), 4) == [
        ([1], [7]), ([2], [6]), ([4], [4]), ([1], [7])]
    assert first(topo.GetDynamicOnePeerSendRecvRanks(graph, 6), 3) == [([7], [5]), ([0], [4]), ([2], [2])]
    star = topo.StarGraph(4)
    assert first(topo.GetDynamicOnePeerSendRecvRanks(star, 0), 4) == [
        ([1], [1, 2, 3]), ([2], [1, 2, 3]), ([3], [1, 2, 3]), ([1], [1, 2, 3])]
    assert first(topo.GetDynamicOnePeerSendRecvRanks(star, 2), 3) == [([0], []), ([0], [0]), ([0], [])]


def test_one_peer_without_self_loops_visits_every_rank():
    graph = networkx.DiGraph([(0, 1), (0, 2), (1, 0), (2, 0)])
    peers = topo.GetDynamicOnePeerSendRecvRanks(graph, 0)
    assert [send for send, _ in first(peers, 4)] == [[1], [2], [1], [2]]


def test_older_spelling():
    assert topo.GetDynamicSendRecvRanks is topo.GetDynamicOnePeerSendRecvRanks


@pytest.mark.parametrize("local", [1, 2, 3, 5])
@pytest.mark.parametrize("machines", range(2, 18))
def test_machines_exponential(machines, local):
    hops = [hop for hop in (1, 2, 4, 8, 16) if hop < machines]
    ranks = machines * local
    seen = rounds(lambda rank: MACHINES(ranks, local, rank, rank % local), ranks)
    for step, round_ in enumerate(seen):
        match([round_[machine * local] for machine in range(machines)])
        hop = hops[step % len(hops)]
        for rank, (send, recv) in enumerate(round_):  # all ranks of a machine agree
            assert (send, recv) == ([(rank // local + hop) % machines], [(rank // local - hop) % machines])


def inner_outer_target(machines, local, rank, step, exponential):
    """The formula of the definition, with d' = d + 1 where the rank that communicates outside is skipped."""
    machine, own = divmod(rank, local)
    traveler = step % local
    if own == traveler:
        hop = 2 ** (step % (math.floor(math.log2(machines - 1)) + 1)) if exponential else 1
        return (machine + hop) % machines * local + own
    distance = 2 ** (step % (math.floor(math.log2(local - 2)) + 1)) if exponential else 1
    if distance >= (traveler - own) % local:
        distance += 1
    return machine * local + (own + distance) % local


@pytest.mark.parametrize("exponential", [False, True])
@pytest.mark.parametrize("local", range(3, 11))
@pytest.mark.parametrize("machines", [2, 3, 4, 5, 8, 9])
def test_inner_outer(machines, local, exponential):
    ranks = machines * local
    seen = rounds(lambda rank: (EXPO if exponential else RING)(ranks, local, rank), ranks)
    for step, round_ in enumerate(seen):
        match(round_)
        assert all(len(recv) == 1 for _, recv in round_)
        assert [send for send, _ in round_] == [
            [inner_outer_target(machines, local, rank, step, exponential)] for rank in range(ranks)]
    hops = ((machines - 1).bit_length(), (local - 2).bit_length()) if exponential else (1, 1)
    period = math.lcm(local, *hops)
    for step in range(max(0, STEPS - period)):
        assert seen[step] == seen[step + period]


def test_inner_outer_sequences():
    assert first(RING(6, 3, 0), 4) == [([3], [3]), ([2], [2]), ([1], [1]), ([3], [3])]
    assert first(EXPO(12, 4, 5), 4) == [([6], [7]), ([1], [9]), ([7], [4]), ([4], [6])]


def test_yields_plain_ints():
    eight, four = numpy.int64(8), numpy.int32(4)
    for peers in (EXPO(eight, four, numpy.int64(5)), MACHINES(eight, four, numpy.int64(5), numpy.int64(1)),
                  topo.GetDynamicOnePeerSendRecvRanks(topo.RingGraph(eight), numpy.int64(5))):
        assert {type(rank) for send, recv in first(peers, 8) for rank in send + recv} == {int}


@pytest.mark.parametrize("call, error, words", [
    (lambda: MACHINES(4, 4, 0, 0), ValueError, "multiple of local_size = 4, two machines at least, not 4"),
    (lambda: MACHINES(10, 4, 0, 0), ValueError, "multiple of local_size = 4, two machines at least, not 10"),
    (lambda: MACHINES(8, 4, 5, 2), ValueError, "local_rank must be self_rank mod local_size = 1, not 2"),
    (lambda: MACHINES(8, 4, 8, 0), ValueError, "self_rank must be .* from 0 to 7, not 8"),
    (lambda: MACHINES(8, 0, 0, 0), ValueError, "local_size must be .* at least 1, not 0"),
    (lambda: RING(8, 2, 0), ValueError, "local_size must be .* at least 3, not 2"),
    (lambda: RING(3, 3, 0), ValueError, "two machines at least, not 3; GetDynamicOnePeerSendRecvRanks works"),
    (lambda: EXPO(8, 2, 0), ValueError, "local_size must be .* at least 3, not 2"),
    (lambda: EXPO(8, 3, 0), ValueError, "multiple of local_size = 3"),
    (lambda: EXPO(3, 3, 0), ValueError, "two machines at least, not 3"),
    (lambda: EXPO(6, 3, 6), ValueError, "self_rank must be .* from 0 to 5, not 6"),
    (lambda: EXPO(6.0, 3, 0), TypeError, "world_size must be .* not the float 6.0"),
    (lambda: topo.GetDynamicSendRecvRanks(topo.RingGraph(4), 4), ValueError, "self_rank must .* not 4"),
    (lambda: topo.GetDynamicOnePeerSendRecvRanks([[1]], 0), TypeError, "topo must be a networkx.DiGraph"),
])
def test_errors_come_at_the_call(call, error, words):
    with pytest.raises(error, match=words):
        call()  # not only at the first next()


@pytest.fixture
def flock(monkeypatch):
    """flock(rank, [lists of all ranks, None for mine]) simulates the other ranks."""
    def join(rank, lists):
        def allgather_lists(mine):
            assert type(mine) is list and all(type(entry) is int for entry in mine)
            operations.sent = mine
            return [mine if theirs is None else theirs for theirs in lists]
        operations = types.ModuleType("starling.torch.operations")
        operations.allgather_lists = allgather_lists
        package = types.ModuleType("starling.torch")
        package.rank, package.operations = (lambda: rank), operations
        monkeypatch.setattr(sys.modules["starling"], "torch", package, raising=False)
        monkeypatch.setitem(sys.modules, "starling.torch", package)
        monkeypatch.setitem(sys.modules, "starling.torch.operations", operations)
        return operations
    return join


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("make", GRAPHS)
def test_infer_both_ways(flock, make, size):
    graph = make(size)
    told = [[other for other in graph.successors(rank) if other != rank] for rank in range(size)]
    heard = [[other for other in graph.predecessors(rank) if other != rank] for rank in range(size)]
    average = numpy.zeros((size, size))
    for rank in range(size):
        average[[rank, *heard[rank]], rank] = 1 / (1 + len(heard[rank]))
    for rank in range(size):
        flock(rank, told[:rank] + [None] + told[rank + 1:])
        assert topo.InferSourceFromDestinationRanks(told[rank]) == sorted(heard[rank])
        sources, matrix = topo.InferSourceFromDestinationRanks(told[rank], construct_adjacency_matrix=True)
        assert sources == sorted(heard[rank])
        numpy.testing.assert_allclose(matrix, average, rtol=1e-15)
        flock(rank, heard[:rank] + [None] + heard[rank + 1:])
        assert topo.InferDestinationFromSourceRanks(heard[rank]) == sorted(told[rank])
        targets, matrix = topo.InferDestinationFromSourceRanks(heard[rank], construct_adjacency_matrix=True)
        assert targets == sorted(told[rank])
        numpy.testing.assert_allclose(matrix, average, rtol=1e-15)


@pytest.mark.parametrize("infer, name", [(topo.InferSourceFromDestinationRanks, "dst_ranks"),
                                         (topo.InferDestinationFromSourceRanks, "src_ranks")])
@pytest.mark.parametrize("ranks, error, words", [
    ([4], ValueError, "of rank 1 must be ints from 0 to 3; it has 4"),
    ([0, -2], ValueError, "of rank 1 must be ints from 0 to 3; it has -2"),
    ([2, 1], ValueError, "of rank 1 must be other ranks; it has 1 itself"),
    ([2, 0, 2], ValueError, r"of rank 1 must name each rank once; it is \[2, 0, 2\]"),
    ([0, 2.0], TypeError, "must be a list of ints, other ranks, not"),
    ([0, True], TypeError, "must be a list of ints, other ranks, not"),
    (3, TypeError, "must be a list of ints, other ranks, not 3"),
])
def test_a_wrong_list_is_an_error_on_all_ranks(flock, infer, name, ranks, error, words):
    operations = flock(1, [[1], None, [], [0]])
    with pytest.raises(error, match=f"{name} .*{words}"):
        infer(ranks)
    others_see = operations.sent  # the rank took part, so no rank waits for it
    flock(2, [[1], others_see, None, [0]])
    with pytest.raises(ValueError, match=f"{name} of rank 1 must"):
        infer([])


def test_infer_takes_numpy_arrays(flock):
    flock(2, [[1, 2], [0], None, [0]])
    assert topo.InferSourceFromDestinationRanks(numpy.array([0, 3])) == [0]


def test_nothing_heavy_is_imported_with_the_module():
    heavy = "import sys, starling.topology_util; print({'numpy', 'networkx', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True).stdout == "set()\n"
