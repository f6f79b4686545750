"""Compares BlueFog's graphs, edge by edge, with definitions written as sets and fractions."""

from fractions import Fraction

import networkx
import numpy
import pytest

from starling import topology_util as topo

SIZES = range(1, 18)
POWERS = {base: {base**exponent for exponent in range(12)} for base in range(2, 8)}


def circulant(size, hops):
    share = Fraction(1, len(hops) + 1)
    return {(rank, (rank + hop) % size): share for rank in range(size) for hop in {0, *hops}}


def exponential(size, base):
    return circulant(size, {hop for hop in POWERS[base] if hop < size})


def symmetric_exponential(size, base):
    near = {hop for hop in POWERS[base] if 2 * hop <= size}
    return circulant(size, near | {size - hop for hop in near})


def metropolis(size, pairs):
    degree = [sum(rank in pair for pair in pairs) for rank in range(size)]
    weights = {}
    for first, second in pairs:
        weights[first, second] = weights[second, first] = Fraction(1, 1 + max(degree[first], degree[second]))
    for rank in range(size):
        weights[rank, rank] = 1 - sum(weights.get((rank, other), 0) for other in range(size) if other != rank)
    return weights


def grid(rows, columns):
    places = [(row, column) for row in range(rows) for column in range(columns)]
    near = {(a, b) for a in places for b in places if a < b and abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1}
    return metropolis(rows * columns, {(places.index(a), places.index(b)) for a, b in near})


def nearest_square(size):
    divisors = [rows for rows in range(1, size + 1) if size % rows == 0]
    return max((rows, size // rows) for rows in divisors if rows * rows <= size)


def star(size, center):
    return metropolis(size, {tuple(sorted((rank, center))) for rank in range(size) if rank != center})


def ring(size, sides):
    return circulant(size, {side % size for side in sides} - {0})


def same(graph, expected, size):
    assert type(graph) is networkx.DiGraph
    assert list(graph) == list(range(size))
    assert set(graph.edges()) == set(expected)
    for (source, target), weight in expected.items():
        assert graph.edges[source, target] == {"weight": pytest.approx(float(weight), rel=1e-14)}
        assert type(graph.edges[source, target]["weight"]) is float
    matrix = networkx.to_numpy_array(graph)  # all of BlueFog's graphs are doubly stochastic
    numpy.testing.assert_allclose(matrix.sum(axis=0), 1, rtol=1e-14)
    numpy.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-14)


@pytest.mark.parametrize("size", SIZES)
class TestGraphs:
    def test_exponential_two(self, size):
        same(topo.ExponentialTwoGraph(size), exponential(size, 2), size)
        share, told = topo.GetSendWeights(topo.ExponentialTwoGraph(size), size - 1)
        assert share == pytest.approx(1 / (1 + (size - 1).bit_length()))  # tau + 1 equal shares
        assert len(told) == (size - 1).bit_length()

    @pytest.mark.parametrize("base", range(2, 8))
    def test_exponential_of_any_base(self, size, base):
        same(topo.ExponentialGraph(size, base), exponential(size, base), size)
        same(topo.SymmetricExponentialGraph(size, base=base), symmetric_exponential(size, base), size)

    def test_default_bases(self, size):
        same(topo.ExponentialGraph(size), exponential(size, 2), size)
        same(topo.SymmetricExponentialGraph(size), symmetric_exponential(size, 4), size)

    def test_grid(self, size):
        same(topo.MeshGrid2DGraph(size), grid(*nearest_square(size)), size)
        for rows in (rows for rows in range(1, size + 1) if size % rows == 0):
            same(topo.MeshGrid2DGraph(size, shape=(rows, size // rows)), grid(rows, size // rows), size)

    def test_star(self, size):
        same(topo.StarGraph(size), star(size, 0), size)
        for center in range(size):
            same(topo.StarGraph(size, center_rank=center), star(size, center), size)

    def test_ring(self, size):
        same(topo.RingGraph(size), ring(size, {-1, 1}), size)
        for style, sides in enumerate(({-1, 1}, {-1}, {1})):
            same(topo.RingGraph(size, connect_style=style), ring(size, sides), size)

    def test_fully_connected(self, size):
        everybody = {(a, b): Fraction(1, size) for a in range(size) for b in range(size)}
        same(topo.FullyConnectedGraph(size), everybody, size)


def test_directions_are_bluefogs():
    assert set(topo.ExponentialTwoGraph(6).successors(0)) == {0, 1, 2, 4}
    assert set(topo.RingGraph(5, 1).successors(0)) == {0, 4}
    assert set(topo.RingGraph(5, 2).successors(0)) == {0, 1}


def test_known_weights():
    assert networkx.to_numpy_array(topo.StarGraph(4, 1)).tolist() == [
        [0.75, 0.25, 0, 0], [0.25, 0.25, 0.25, 0.25], [0, 0.25, 0.75, 0], [0, 0.25, 0, 0.75]]
    third, quarter = 1 / 3, 1 / 4
    corner = 1 - third - quarter
    numpy.testing.assert_allclose(networkx.to_numpy_array(topo.MeshGrid2DGraph(6)), [
        [corner, quarter, 0, third, 0, 0], [quarter, quarter, quarter, 0, quarter, 0],
        [0, quarter, corner, 0, 0, third], [third, 0, 0, corner, quarter, 0],
        [0, quarter, 0, quarter, quarter, quarter], [0, 0, third, 0, quarter, corner]])


def test_powers_are_exact():
    for base, powers in POWERS.items():
        assert [x for x in range(1, 1000) if topo.isPowerOf(x, base)] == sorted(p for p in powers if p < 1000)
    assert topo.isPowerOf(243, 3)  # a quotient of logarithms is slightly below 5
    assert topo.isPowerOf(7**80, 7) and not topo.isPowerOf(7**80 + 7, 7)


def test_weights_of_one_rank():
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from([(2, 0, 0.5), (0, 0, 0.125), (1, 0, 0.375), (0, 2, 0.75), (2, 2, 0.25)])
    graph.add_edge(1, 2)  # networkx reads a missing weight as 1; rank 1 keeps nothing
    assert topo.GetRecvWeights(graph, 0) == (0.125, {1: 0.375, 2: 0.5})
    assert topo.GetSendWeights(graph, 0) == (0.125, {2: 0.75})
    assert topo.GetRecvWeights(graph, 1) == (0.0, {})
    assert topo.GetSendWeights(graph, 1) == (0.0, {0: 0.375, 2: 1.0})
    assert list(topo.GetRecvWeights(graph, 0)[1]) == [1, 2]  # ascending, however the graph was made


@pytest.mark.parametrize("size", SIZES)
def test_receiving_is_the_transpose_of_sending(size):
    graph = topo.ExponentialGraph(size, 3)
    sent = [topo.GetSendWeights(graph, rank) for rank in range(size)]
    for rank in range(size):
        own, heard = topo.GetRecvWeights(graph, rank)
        assert own == sent[rank][0]
        assert heard == {source: told[rank] for source, (_, told) in enumerate(sent) if rank in told}


def test_equivalence_is_of_ranks_edges_and_weights():
    ring8 = topo.RingGraph(8)
    assert topo.IsTopologyEquivalent(ring8, topo.RingGraph(8)) is True
    assert topo.IsTopologyEquivalent(topo.ExponentialGraph(8), topo.ExponentialTwoGraph(8)) is True
    backwards = networkx.DiGraph()  # the same edges in another order
    backwards.add_weighted_edges_from(reversed(list(ring8.edges.data("weight"))))
    assert topo.IsTopologyEquivalent(ring8, backwards) is True
    for other in (None, topo.RingGraph(9), topo.RingGraph(8, 1), networkx.DiGraph(topo.StarGraph(8))):
        assert topo.IsTopologyEquivalent(ring8, other) is False
        assert topo.IsTopologyEquivalent(other, ring8) is False
    reweighted = topo.RingGraph(8)
    reweighted.edges[3, 4]["weight"] = 0.25
    assert topo.IsTopologyEquivalent(ring8, reweighted) is False
    assert topo.IsTopologyEquivalent(topo.RingGraph(8, 1), topo.RingGraph(8, 2)) is False  # isomorphic
    lonely = topo.RingGraph(8)
    lonely.add_node(8)
    assert topo.IsTopologyEquivalent(ring8, lonely) is False


def test_regular():
    for size in SIZES:
        assert topo.IsRegularGraph(topo.ExponentialGraph(size)) is True
        assert topo.IsRegularGraph(topo.RingGraph(size, 1)) is True
        assert topo.IsRegularGraph(topo.StarGraph(size)) is (size <= 2)
    assert topo.IsRegularGraph(topo.MeshGrid2DGraph(4)) is True
    assert topo.IsRegularGraph(topo.MeshGrid2DGraph(6)) is False


MAKERS = [topo.ExponentialTwoGraph, topo.ExponentialGraph, topo.SymmetricExponentialGraph,
          topo.MeshGrid2DGraph, topo.StarGraph, topo.RingGraph, topo.FullyConnectedGraph]


@pytest.mark.parametrize("make", MAKERS)
def test_invalid_sizes_are_errors(make):
    for size, error in ((0, ValueError), (-3, ValueError), (2.0, TypeError), ("4", TypeError),
                        (None, TypeError), (True, TypeError)):
        with pytest.raises(error, match="size must be a whole number of at least 1, not"):
            make(size)
    assert list(make(numpy.int64(3))) == [0, 1, 2]


@pytest.mark.parametrize("call, error, words", [
    (lambda: topo.ExponentialGraph(8, 1), ValueError, "base must be .* at least 2, not 1"),
    (lambda: topo.SymmetricExponentialGraph(8, 0), ValueError, "base must be .* at least 2, not 0"),
    (lambda: topo.ExponentialGraph(1, 2.5), TypeError, "base must be .* not the float 2.5"),
    (lambda: topo.isPowerOf(0, 2), ValueError, "x must be .* at least 1, not 0"),
    (lambda: topo.isPowerOf(8, 1), ValueError, "base must be .* at least 2, not 1"),
    (lambda: topo.isPowerOf(8, "2"), TypeError, "base must be .* not the str '2'"),
    (lambda: topo.StarGraph(4, 4), ValueError, "center_rank must be .* from 0 to 3, not 4"),
    (lambda: topo.StarGraph(4, -1), ValueError, "center_rank must be .* from 0 to 3, not -1"),
    (lambda: topo.RingGraph(4, 3), ValueError, r"connect_style \(0 both sides, 1 left, 2 right\) .* not 3"),
    (lambda: topo.RingGraph(4, "left"), TypeError, "connect_style .* not the str 'left'"),
    (lambda: topo.MeshGrid2DGraph(6, (2, 2)), ValueError, r"rows \* columns = size = 6, not 2 \* 2"),
    (lambda: topo.MeshGrid2DGraph(6, (-2, -3)), ValueError, r"shape\[0\] must be .* at least 1, not -2"),
    (lambda: topo.MeshGrid2DGraph(6, (6,)), TypeError, r"shape must be a pair \(rows, columns\) or None"),
    (lambda: topo.MeshGrid2DGraph(6, 6), TypeError, r"shape must be a pair \(rows, columns\) or None"),
    (lambda: topo.GetRecvWeights(topo.RingGraph(4), 4), ValueError, "rank must be .* from 0 to 3, not 4"),
    (lambda: topo.GetSendWeights(topo.RingGraph(4), -1), ValueError, "rank must be .* from 0 to 3, not -1"),
    (lambda: topo.GetSendWeights(numpy.eye(4), 0), TypeError, "topo must be a .*DiGraph .* not a ndarray"),
    (lambda: topo.GetRecvWeights(networkx.cycle_graph(4), 0), TypeError, "DiGraph .* not a Graph"),
    (lambda: topo.GetRecvWeights(networkx.MultiDiGraph([(0, 1)]), 0), TypeError, "not a MultiDiGraph"),
    (lambda: topo.IsRegularGraph(networkx.DiGraph()), ValueError, r"ranks 0..n-1, n >= 1; it has 0: none"),
    (lambda: topo.IsRegularGraph(networkx.DiGraph([(1, 2)])), ValueError, "ranks 0..n-1, .* it has 2: 1, 2"),
    (lambda: topo.IsTopologyEquivalent(topo.RingGraph(4), 4), TypeError, "topo2 must be a networkx.DiGraph"),
])
def test_errors_say_what_is_valid(call, error, words):
    with pytest.raises(error, match=words):
        call()
