"""BlueFog's topology helpers: the same graphs, weights and sequences of peers, as networkx graphs.

Every graph is a `networkx.DiGraph` over the ranks 0..size-1 with the edge attribute `weight`. `W[i, j]` is
the weight on the edge from the sender i to the receiver j, self loops included; Starling's own schedules
write the receiver first, so their matrices are the transpose.

>>> from starling import topology_util
>>> graph = topology_util.ExponentialTwoGraph(8)
>>> topology_util.GetSendWeights(graph, 0)
(0.25, {1: 0.25, 2: 0.25, 4: 0.25})
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Sequence

from ._checks import whole_number
from ._dynamic_ranks import (
    GetDynamicOnePeerSendRecvRanks,
    GetDynamicSendRecvRanks,
    GetExp2DynamicSendRecvMachineRanks,
    GetInnerOuterExpo2DynamicSendRecvRanks,
    GetInnerOuterRingDynamicSendRecvRanks,
)
from ._graph_checks import check_digraph
from ._infer_ranks import InferDestinationFromSourceRanks, InferSourceFromDestinationRanks

if TYPE_CHECKING:
    import networkx
    import numpy

__all__ = [
    "ExponentialGraph",
    "ExponentialTwoGraph",
    "FullyConnectedGraph",
    "GetDynamicOnePeerSendRecvRanks",
    "GetDynamicSendRecvRanks",
    "GetExp2DynamicSendRecvMachineRanks",
    "GetInnerOuterExpo2DynamicSendRecvRanks",
    "GetInnerOuterRingDynamicSendRecvRanks",
    "GetRecvWeights",
    "GetSendWeights",
    "InferDestinationFromSourceRanks",
    "InferSourceFromDestinationRanks",
    "IsRegularGraph",
    "IsTopologyEquivalent",
    "MeshGrid2DGraph",
    "RingGraph",
    "StarGraph",
    "SymmetricExponentialGraph",
    "isPowerOf",
]


def isPowerOf(x: int, base: int) -> bool:
    """Whether x is 1, base, base^2, ...; exact for any size, because it uses no logarithm."""
    base = whole_number("base", base, 2)
    remainder = whole_number("x", x, 1)
    while remainder % base == 0:
        remainder //= base
    return remainder == 1


def ExponentialTwoGraph(size: int) -> networkx.DiGraph:
    """Rank r sends to r+1, r+2, r+4, ... (mod size) and keeps the same share for itself."""
    return ExponentialGraph(size, base=2)


def ExponentialGraph(size: int, base: int = 2) -> networkx.DiGraph:
    """Rank r sends to r+1, r+base, r+base^2, ... (mod size), all with the same weight as its own."""
    size = whole_number("size", size, 1)
    base = whole_number("base", base, 2)
    return _uniform_circulant(size, [hop for hop in range(1, size) if isPowerOf(hop, base)])


def SymmetricExponentialGraph(size: int, base: int = 4) -> networkx.DiGraph:
    """Rank r exchanges with the ranks whose distance, in the shorter direction, is a power of base."""
    size = whole_number("size", size, 1)
    base = whole_number("base", base, 2)
    return _uniform_circulant(size, [hop for hop in range(1, size) if isPowerOf(min(hop, size - hop), base)])


def MeshGrid2DGraph(size: int, shape: Sequence[int] | None = None) -> networkx.DiGraph:
    """A grid of shape (rows, columns), without wrap, with Metropolis-Hastings weights.

    Rank = row * columns + column. Without a shape, the one nearest to a square: 24 ranks are 4 x 6, and a
    prime number of them is a line.
    """
    size = whole_number("size", size, 1)
    rows, columns = _grid_shape(size, shape)
    neighbors: list[list[int]] = [[] for _ in range(size)]
    for rank in range(size):
        across, down = rank + 1, rank + columns
        for other, exists in ((across, across % columns != 0), (down, down < size)):
            if exists:
                neighbors[rank].append(other)
                neighbors[other].append(rank)
    matrix = _zeros(size)
    for rank, others in enumerate(neighbors):
        for other in others:
            matrix[rank, other] = 1.0 / (1 + max(len(others), len(neighbors[other])))
        matrix[rank, rank] = 1.0 - matrix[rank].sum()
    return _digraph(matrix)


def StarGraph(size: int, center_rank: int = 0) -> networkx.DiGraph:
    """All exchange with center_rank at weight 1/size; the others keep 1 - 1/size, the center 1/size."""
    size = whole_number("size", size, 1)
    center = whole_number("center_rank", center_rank, 0, size - 1)
    matrix = _zeros(size)
    matrix.flat[:: size + 1] = 1 - 1 / size
    matrix[center, :] = 1 / size
    matrix[:, center] = 1 / size
    return _digraph(matrix)


def RingGraph(size: int, connect_style: int = 0) -> networkx.DiGraph:
    """A circle of ranks. connect_style 0: r exchanges with both sides, 1: r sends to r-1, 2: r sends to r+1."""
    size = whole_number("size", size, 1)
    style = whole_number("connect_style (0 both sides, 1 left, 2 right)", connect_style, 0, 2)
    hops = {(-1) % size, 1 % size} if style == 0 else {(-1) % size} if style == 1 else {1 % size}
    return _uniform_circulant(size, sorted(hops - {0}))


def FullyConnectedGraph(size: int) -> networkx.DiGraph:
    """Every rank sends to every rank, all with weight 1/size."""
    size = whole_number("size", size, 1)
    return _uniform_circulant(size, range(1, size))


def IsTopologyEquivalent(topo1: networkx.DiGraph | None, topo2: networkx.DiGraph | None) -> bool:
    """Whether both have the same ranks, edges and weights, without renumbering; False if one is None."""
    if topo1 is None or topo2 is None:
        return False
    first, second = check_digraph("topo1", topo1), check_digraph("topo2", topo2)
    if first.number_of_nodes() != second.number_of_nodes():
        return False
    return _weights(first) == _weights(second)


def IsRegularGraph(topo: networkx.DiGraph) -> bool:
    """Whether all ranks have the same degree (edges in plus edges out)."""
    degrees = {degree for _, degree in check_digraph("topo", topo).degree()}
    return len(degrees) == 1


def GetRecvWeights(topo: networkx.DiGraph, rank: int) -> tuple[float, dict[int, float]]:
    """(weight that rank gives itself, {source: weight}) of what rank receives, sources ascending."""
    graph = check_digraph("topo", topo)
    rank = whole_number("rank", rank, 0, graph.number_of_nodes() - 1)
    weights = {source: _weight(graph, source, rank) for source in sorted(graph.predecessors(rank))}
    return weights.pop(rank, 0.0), weights


def GetSendWeights(topo: networkx.DiGraph, rank: int) -> tuple[float, dict[int, float]]:
    """(weight that rank gives itself, {destination: weight}) of what rank sends, destinations ascending."""
    graph = check_digraph("topo", topo)
    rank = whole_number("rank", rank, 0, graph.number_of_nodes() - 1)
    weights = {target: _weight(graph, rank, target) for target in sorted(graph.successors(rank))}
    return weights.pop(rank, 0.0), weights


def _weight(graph: networkx.DiGraph, source: int, target: int) -> float:
    # networkx gives edges without a weight the weight 1
    return float(graph.edges[source, target].get("weight", 1.0))


def _weights(graph: networkx.DiGraph) -> dict[tuple[int, int], float]:
    return {(source, target): _weight(graph, source, target) for source, target in graph.edges()}


def _zeros(size: int) -> numpy.ndarray:
    import numpy

    return numpy.zeros((size, size))


def _digraph(matrix: numpy.ndarray) -> networkx.DiGraph:
    import networkx

    return networkx.from_numpy_array(matrix, create_using=networkx.DiGraph)


def _uniform_circulant(size: int, hops: Sequence[int]) -> networkx.DiGraph:
    """Every rank sends to the ranks `hops` further on, with the same weight as its own."""
    import numpy

    matrix = _zeros(size)
    ranks = numpy.arange(size)
    for hop in [0, *hops]:
        matrix[ranks, (ranks + hop) % size] = 1.0 / (1 + len(hops))
    return _digraph(matrix)


def _grid_shape(size: int, shape: Sequence[int] | None) -> tuple[int, int]:
    if shape is None:
        rows = next(rows for rows in range(math.isqrt(size), 0, -1) if size % rows == 0)
        return rows, size // rows
    if not isinstance(shape, (tuple, list)) or len(shape) != 2:
        raise TypeError(f"shape must be a pair (rows, columns) or None, not {shape!r}")
    rows, columns = whole_number("shape[0]", shape[0], 1), whole_number("shape[1]", shape[1], 1)
    if rows * columns != size:
        raise ValueError(f"shape must have rows * columns = size = {size}, not {rows} * {columns}")
    return rows, columns
