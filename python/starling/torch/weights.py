"""Checks of the caller's weights, and the collective check that senders and receivers match."""

from __future__ import annotations

import numbers
import operator
from typing import Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .process import state

Weights = Mapping[int, float]
Destinations = Union[Mapping[int, float], Sequence[int]]


class NeighborWeights:
    """The weights of one call, checked."""

    __slots__ = ("own", "sources", "destinations", "dynamic")

    def __init__(self, own: float, sources: Dict[int, float], destinations: Dict[int, float],
                 dynamic: bool) -> None:
        self.own = own
        self.sources = sources
        self.destinations = destinations
        self.dynamic = dynamic  # the caller chose the destinations


def own_weight(operation: str, weight: object) -> float:
    """`weight` if it is a float: an int is probably a mistake, such as a rank in its place."""
    if not isinstance(weight, numbers.Real) or isinstance(weight, numbers.Integral):
        raise ValueError(f"{operation}: self_weight must be a float, not {weight!r}")
    return float(weight)


def _rank(operation: str, what: str, rank: object) -> int:
    try:
        return operator.index(rank)
    except TypeError:
        raise ValueError(f"{operation}: {what} has {rank!r}; ranks are whole numbers") from None


def source_weights(operation: str, what: str, weights: object) -> Dict[int, float]:
    if not isinstance(weights, Mapping):
        raise ValueError(f"{operation}: {what} must be a dict of ranks and weights, not {weights!r}")
    return {_rank(operation, what, rank): float(weight) for rank, weight in weights.items()}


def destination_weights(operation: str, what: str, weights: object) -> Dict[int, float]:
    """A list means weight 1 for each."""
    if isinstance(weights, Mapping):
        return {_rank(operation, what, rank): float(weight) for rank, weight in weights.items()}
    if hasattr(weights, "tolist"):  # numpy's arrays, tensors
        weights = weights.tolist()
    if not isinstance(weights, (list, tuple, set, frozenset, range)):
        raise ValueError(f"{operation}: {what} must be a dict of weights or a list of ranks, not {weights!r}")
    ranks = [_rank(operation, what, rank) for rank in weights]
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"{operation}: {what} has a rank twice: {ranks}")
    return dict.fromkeys(ranks, 1.0)


def read_weights(operation: str, self_weight: Optional[float], src_weights: Optional[Weights],
                 dst_weights: Optional[Destinations]) -> Optional[NeighborWeights]:
    """The caller's weights; None for the topology's."""
    if self_weight is None and src_weights is None:
        if dst_weights is not None:
            raise TypeError(f"{operation}: dst_weights needs self_weight and src_weights beside it")
        return None
    if self_weight is None or src_weights is None:
        raise ValueError(f"{operation}: self_weight and src_weights are given together or not at all")
    own = own_weight(operation, self_weight)
    sources = source_weights(operation, "src_weights", src_weights)
    if dst_weights is not None:
        return NeighborWeights(own, sources, destination_weights(operation, "dst_weights", dst_weights), True)
    strangers = sorted(set(sources) - set(state.sources))
    if strangers:
        raise ValueError(f"{operation}: src_weights has {strangers}, but in the topology this rank receives from "
                         f"only {state.sources}; with dst_weights it may receive from any rank")
    heard = {source: sources.get(source, 0.0) for source in state.sources}
    return NeighborWeights(own, heard, dict.fromkeys(state.destinations, 1.0), False)


def check_matches(operation: str, lists: List[List[List[int]]]) -> None:
    """`lists`: every rank's (sources, destinations). The same ValueError on all ranks where they do not
    match."""
    wrong: List[Tuple[int, int, str]] = []
    for rank, (sources, destinations) in enumerate(lists):
        for other in destinations:
            if not 0 <= other < len(lists) or rank not in lists[other][0]:
                wrong.append((rank, other, f"rank {rank} sends to {other}, which does not listen to it"))
        for other in sources:
            if not 0 <= other < len(lists) or rank not in lists[other][1]:
                wrong.append((other, rank, f"rank {rank} listens to {other}, which does not send to it"))
    if wrong:
        texts = "; ".join(text for *_, text in sorted(wrong))
        raise ValueError(f"{operation}: senders and receivers do not match: {texts}")
