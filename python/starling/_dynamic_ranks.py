"""Endless sequences of ([destinations], [sources]), one entry per step, with one destination per step."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Callable, Iterator

from ._checks import whole_number
from ._graph_checks import check_digraph

if TYPE_CHECKING:
    import networkx

SendRecv = tuple[list[int], list[int]]


def GetDynamicOnePeerSendRecvRanks(topo: networkx.DiGraph, self_rank: int) -> Iterator[SendRecv]:
    """Yields ([send], [recv...]): in step t every rank sends to the t-th of its out-neighbors, clockwise. After the
    last comes the first again. A rank may receive from several others in one step, or from none. A rank without
    out-neighbors sends nothing: [].

    >>> peers = GetDynamicOnePeerSendRecvRanks(ExponentialTwoGraph(8), 0)
    >>> next(peers), next(peers), next(peers)
    (([1], [7]), ([2], [6]), ([4], [4]))
    """
    graph = check_digraph("topo", topo)
    size = graph.number_of_nodes()
    self_rank = whole_number("self_rank", self_rank, 0, size - 1)

    def clockwise(rank: int) -> list[int]:
        others = (other for other in graph.successors(rank) if other != rank)
        return sorted(others, key=lambda other: (other - rank) % size)

    targets = clockwise(self_rank)
    senders = sorted(other for other in graph.predecessors(self_rank) if other != self_rank)
    sources = {sender: clockwise(sender) for sender in senders}

    def steps() -> Iterator[SendRecv]:
        for step in count():
            send = [targets[step % len(targets)]] if targets else []
            yield send, [source for source, told in sources.items() if told[step % len(told)] == self_rank]

    return steps()


GetDynamicSendRecvRanks = GetDynamicOnePeerSendRecvRanks
"""The name that GetDynamicOnePeerSendRecvRanks had in older versions of BlueFog."""


def GetExp2DynamicSendRecvMachineRanks(
    world_size: int, local_size: int, self_rank: int, local_rank: int
) -> Iterator[SendRecv]:
    """Yields ([send], [recv]) of MACHINE ranks: in step t machine m sends to m + 2^(t mod ceil(log2 machines)).

    All machines must have local_size ranks, and there must be two machines at least.
    """
    machines, machine, local = _place(world_size, local_size, 1, self_rank)
    if whole_number("local_rank", local_rank, 0) != local:
        raise ValueError(f"local_rank must be self_rank mod local_size = {local}, not {local_rank}")
    hops = _powers_of_two(machines - 1)

    def steps() -> Iterator[SendRecv]:
        for step in count():
            hop = hops(step)
            yield [(machine + hop) % machines], [(machine - hop) % machines]

    return steps()


def GetInnerOuterRingDynamicSendRecvRanks(
    world_size: int, local_size: int, self_rank: int
) -> Iterator[SendRecv]:
    """Yields ([send], [recv]): one local rank sends to its peer on the next machine, the others to their right. In step
    t local rank t mod local_size goes outside; the others form a ring inside. All machines have local_size ranks, at
    least 3, and there must be two machines at least.
    """
    return _inner_outer(world_size, local_size, self_rank, exponential=False)


def GetInnerOuterExpo2DynamicSendRecvRanks(
    world_size: int, local_size: int, self_rank: int
) -> Iterator[SendRecv]:
    """Yields ([send], [recv]): as the inner-outer ring, but with hops 1, 2, 4, ... outside as well as inside.

    The hop depends on the step alone, so when local_size and the number of hops have a common divisor a local
    rank meets only some of its peers on other machines. At least 3 ranks a machine and two machines.
    """
    return _inner_outer(world_size, local_size, self_rank, exponential=True)


def _powers_of_two(largest: int) -> Callable[[int], int]:
    """step -> 1, 2, 4, ... up to `largest`, and again from 1."""
    period = largest.bit_length()
    return lambda step: 1 << (step % period)


def _inner_outer(world_size: int, local_size: int, self_rank: int, exponential: bool) -> Iterator[SendRecv]:
    machines, machine, local = _place(world_size, local_size, 3, self_rank)
    local_size = int(local_size)  # otherwise numpy integers would spread to the ranks that this yields
    outside = _powers_of_two(machines - 1 if exponential else 1)
    # without this rank and the one that communicates outside
    inside = _powers_of_two(local_size - 2 if exponential else 1)

    def steps() -> Iterator[SendRecv]:
        for step in count():
            traveler = step % local_size
            if traveler == local:
                hop = outside(step)
                send, recv = (((machine + way) % machines) * local_size + local for way in (hop, -hop))
            else:
                # The ranks that communicate inside, clockwise from this one: hops skip the rank that
                # communicates outside.
                others = [(local + distance) % local_size for distance in range(1, local_size)]
                others.remove(traveler)
                hop = inside(step)
                send, recv = (machine * local_size + other for other in (others[hop - 1], others[-hop]))
            yield [send], [recv]

    return steps()


def _place(world_size: int, local_size: int, least_local: int, self_rank: int) -> tuple[int, int, int]:
    """(machines, my machine, my local rank) where rank = machine * local_size + local rank."""
    local_size = whole_number("local_size", local_size, least_local)
    world_size = whole_number("world_size", world_size, 1)
    if world_size % local_size != 0 or world_size == local_size:
        raise ValueError(
            f"world_size must be a multiple of local_size = {local_size}, two machines at least, not "
            f"{world_size}; GetDynamicOnePeerSendRecvRanks works with any graph on any number of ranks"
        )
    self_rank = whole_number("self_rank", self_rank, 0, world_size - 1)
    return world_size // local_size, *divmod(self_rank, local_size)
