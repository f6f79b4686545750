"""Collectives by which ranks learn their sources or destinations."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Sequence

if TYPE_CHECKING:
    import numpy

_NO_RANKS = [-1]  # sent instead of a list that cannot be sent: an invalid list, so all ranks raise


def InferSourceFromDestinationRanks(
    dst_ranks: Sequence[int], construct_adjacency_matrix: bool = False
) -> list[int] | tuple[list[int], numpy.ndarray]:
    """The ranks that will send to this one, given those that this one will send to. All ranks must call it.

    With construct_adjacency_matrix also the matrix W of the averaging rule: W[i, j] is the weight on the edge from i to
    j, self loops included, and what j receives, a column, sums to 1. A wrong list on any rank (not ints, out of range,
    a rank twice, the rank itself) is an error on all ranks, which names that rank.
    """
    rank, told = _gather("dst_ranks", dst_ranks)
    sources = [source for source, targets in enumerate(told) if rank in targets]
    return (sources, _averaging_matrix(told)) if construct_adjacency_matrix else sources


def InferDestinationFromSourceRanks(
    src_ranks: Sequence[int], construct_adjacency_matrix: bool = False
) -> list[int] | tuple[list[int], numpy.ndarray]:
    """The ranks that will receive from this one, given those that this one will receive from. All ranks must call it.

    The matrix and the errors are those of InferSourceFromDestinationRanks.
    """
    rank, heard = _gather("src_ranks", src_ranks)
    targets = [target for target, sources in enumerate(heard) if rank in sources]
    if not construct_adjacency_matrix:
        return targets
    told: list[list[int]] = [[] for _ in heard]
    for target, sources in enumerate(heard):
        for source in sources:
            told[source].append(target)
    return targets, _averaging_matrix(told)


def _gather(name: str, ranks: Sequence[int]) -> tuple[int, list[list[int]]]:
    """(my rank, every rank's list), checked after the exchange, so that a wrong list leaves no rank waiting."""
    import starling.torch as flock
    from starling.torch import operations

    wrong: TypeError | None = None
    try:
        mine = _as_ints(name, ranks)
    except TypeError as error:
        mine, wrong = _NO_RANKS, error
    lists = operations.allgather_lists(mine)
    if wrong is not None:
        raise wrong
    for owner, listed in enumerate(lists):
        _check(f"{name} of rank {owner}", listed, owner, len(lists))
    return flock.rank(), lists


def _as_ints(name: str, ranks: Sequence[int]) -> list[int]:
    try:
        if any(isinstance(rank, bool) for rank in ranks):
            raise TypeError
        return [operator.index(rank) for rank in ranks]
    except TypeError:
        raise TypeError(f"{name} must be a list of ints, other ranks, not {ranks!r}") from None


def _check(what: str, ranks: list[int], owner: int, size: int) -> None:
    if ranks == _NO_RANKS:
        raise ValueError(f"{what} must be a list of ints from 0 to {size - 1}, and is not")
    stranger = next((rank for rank in ranks if not 0 <= rank < size), None)
    if stranger is not None:
        raise ValueError(f"{what} must be ints from 0 to {size - 1}; it has {stranger}")
    if owner in ranks:
        raise ValueError(f"{what} must be other ranks; it has {owner} itself")
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"{what} must name each rank once; it is {ranks}")


def _averaging_matrix(told: list[list[int]]) -> numpy.ndarray:
    import numpy

    matrix = numpy.eye(len(told))
    for source, targets in enumerate(told):
        matrix[source, targets] = 1.0
    return matrix / matrix.sum(axis=0)
