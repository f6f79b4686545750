"""Averages and gathers with neighbors: of the topology, or chosen in the call."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch

from .. import _core
from . import timeline
from .handles import Checked, Started, abandon, complete, register, take_name, unchecked, with_shapes
from .operations import gatherable, gathered, row_number, start_allgather_lists, started
from .process import flock, state
from .tensors import CODES, FLOATING, Room, operand, shape_number
from .weights import (Destinations, NeighborWeights, Weights, check_matches, destination_weights, own_weight,
                      read_weights, source_weights)

__all__ = [
    "hierarchical_neighbor_allreduce", "hierarchical_neighbor_allreduce_nonblocking", "neighbor_allgather",
    "neighbor_allgather_nonblocking", "neighbor_allreduce", "neighbor_allreduce_group",
    "neighbor_allreduce_group_nonblocking", "neighbor_allreduce_nonblocking", "pair_gossip",
    "pair_gossip_nonblocking",
]


_FLOAT_CODES = {dtype: CODES[dtype] for dtype in FLOATING}
_empty_like = torch.empty_like


def neighbor_allreduce(tensor, self_weight: Optional[float] = None, src_weights: Optional[Weights] = None,
                       dst_weights: Optional[Destinations] = None, enable_topo_check: bool = True,
                       name: Optional[str] = None, *, neighbor_weights: Optional[Weights] = None,
                       send_neighbors: Optional[Destinations] = None):
    """The weighted average of this rank's tensor and those of its sources; returns a new tensor.

    Without weights, those of the topology. With ``self_weight`` and ``src_weights`` ({rank: weight}) this rank's own;
    with ``dst_weights`` as well, a dict or a list, the call chooses its neighbors itself, inside the topology or not:

        x = bf.neighbor_allreduce(x)
        x = bf.neighbor_allreduce(x, self_weight=0.5, src_weights={left: 0.5}, dst_weights=[right])

    Then, with ``enable_topo_check``, all ranks raise ValueError if a rank sends to one that does not expect it.
    ``neighbor_weights`` and ``send_neighbors`` are older names of ``src_weights`` and ``dst_weights``.
    """
    if (self_weight is None and src_weights is None and dst_weights is None and name is None
            and neighbor_weights is None and send_neighbors is None and timeline.writer is None
            and not unchecked):
        # A fast path for the most frequent call.
        out = None
        try:
            code = _FLOAT_CODES[tensor.dtype]
            if tensor.is_contiguous() and tensor.is_cpu and state.flock is not None:
                out = _empty_like(tensor)
                state.flock.neighbor_allreduce(tensor.data_ptr(), out.data_ptr(), tensor.numel(), code,
                                               "neighbor_allreduce", shape_number(tensor.shape))
                return out
        except (KeyError, AttributeError):
            pass
        except _core.Mismatch as error:
            raise with_shapes(error, [tensor.shape]) from None
        except KeyboardInterrupt:
            abandon((tensor, out))
            raise
    return complete(_neighbor_allreduce([tensor], self_weight, _older(src_weights, neighbor_weights),
                                        _older(dst_weights, send_neighbors), enable_topo_check, name))


def neighbor_allreduce_nonblocking(tensor, self_weight: Optional[float] = None,
                                   src_weights: Optional[Weights] = None,
                                   dst_weights: Optional[Destinations] = None, enable_topo_check: bool = True,
                                   name: Optional[str] = None, *, neighbor_weights: Optional[Weights] = None,
                                   send_neighbors: Optional[Destinations] = None) -> int:
    """Starts a neighbor_allreduce; ``bf.synchronize(handle)`` returns its result. The tensor must not change
    until then."""
    return register(_neighbor_allreduce([tensor], self_weight, _older(src_weights, neighbor_weights),
                                        _older(dst_weights, send_neighbors), enable_topo_check, name))


def neighbor_allreduce_group(tensors: Sequence, self_weight: Optional[float] = None,
                             src_weights: Optional[Weights] = None,
                             dst_weights: Optional[Destinations] = None, enable_topo_check: bool = True,
                             name: Optional[str] = None, in_place: bool = False) -> List:
    """neighbor_allreduce of several tensors as one message; they may differ in shape and dtype."""
    return complete(_neighbor_allreduce(tensors, self_weight, src_weights, dst_weights, enable_topo_check,
                                        name, "neighbor_allreduce_group", list, in_place))


def neighbor_allreduce_group_nonblocking(tensors: Sequence, self_weight: Optional[float] = None,
                                         src_weights: Optional[Weights] = None,
                                         dst_weights: Optional[Destinations] = None,
                                         enable_topo_check: bool = True,
                                         name: Optional[str] = None, in_place: bool = False) -> int:
    """Starts a neighbor_allreduce_group."""
    return register(_neighbor_allreduce(tensors, self_weight, src_weights, dst_weights, enable_topo_check,
                                        name, "neighbor_allreduce_group", list, in_place))


def _older(value: Any, older: Any) -> Any:
    if value is not None and older is not None:
        raise ValueError("neighbor_weights and send_neighbors are older names of src_weights, dst_weights")
    return value if older is None else older


def _first(results: List) -> Any:
    return results[0]


def _neighbor_allreduce(tensors: Sequence, self_weight, src_weights, dst_weights, check: bool,
                        name: Optional[str],
                        operation: str = "neighbor_allreduce", unpack: Callable[[List], Any] = _first,
                        in_place: bool = False) -> Started:
    members = flock()
    operands = [operand(tensor, FLOATING) for tensor in tensors]
    weights = read_weights(operation, self_weight, src_weights, dst_weights)
    called = take_name(operation, name)
    outs = [None if in_place else one.empty() for one in operands]
    blocks = [one.block(out) for one, out in zip(operands, outs)]
    shapes = [one.shape for one in operands]

    def finish():
        if in_place:
            return unpack([one.write_back() for one in operands])
        return unpack([one.like_given(out) for one, out in zip(operands, outs)])

    if weights is None:
        pending = members.start_neighbor_allreduce(blocks, called, shapes)
    else:
        pending = _checked(operation, called, weights, check,
                           lambda name_there: members.start_weighted_neighbor_allreduce(
            blocks, weights.own, weights.sources, weights.destinations, name_there, shapes))
    return started(operation, called, name, pending, finish, operands, True)


def _checked(operation: str, called: str, weights: NeighborWeights, check: bool,
             begin: Callable[[str], Any]) -> Any:
    """Calls begin(name): at once, or after all ranks have compared their lists."""
    if not (weights.dynamic and check):
        return begin(called)
    lists = [list(weights.sources), list(weights.destinations)]
    # It begins later than its call, so it is counted under a name of its own.
    called += "/checked"
    gathering, read = start_allgather_lists(lists, f"{called}/lists")

    def verify_and_begin() -> Any:
        check_matches(operation, read())
        return begin(called)

    return Checked(called, gathering, verify_and_begin)


def neighbor_allgather(tensor, *, src_ranks: Optional[Sequence[int]] = None,
                       dst_ranks: Optional[Sequence[int]] = None,
                       enable_topo_check: bool = True, name: Optional[str] = None):
    """The tensors of this rank's sources, without its own, joined along the first dimension, in the order of
    ``src_ranks`` or in_neighbor_ranks(). With both lists the call chooses its neighbors itself."""
    return complete(_neighbor_allgather(tensor, src_ranks, dst_ranks, enable_topo_check, name))


def neighbor_allgather_nonblocking(tensor, *, src_ranks: Optional[Sequence[int]] = None,
                                   dst_ranks: Optional[Sequence[int]] = None, enable_topo_check: bool = True,
                                   name: Optional[str] = None) -> int:
    """Starts a neighbor_allgather."""
    return register(_neighbor_allgather(tensor, src_ranks, dst_ranks, enable_topo_check, name))


def _neighbor_allgather(tensor, src_ranks, dst_ranks, check: bool, name: Optional[str]) -> Started:
    operation = "neighbor_allgather"
    members = flock()
    one = gatherable(operation, tensor)
    if (src_ranks is None) != (dst_ranks is None):
        raise ValueError(f"{operation}: src_ranks and dst_ranks are given together or not at all")
    called = take_name(operation, name)
    dynamic = src_ranks is not None
    sources = list(destination_weights(operation, "src_ranks", src_ranks)) if dynamic else state.sources
    destinations = list(destination_weights(operation, "dst_ranks",
                                            dst_ranks)) if dynamic else state.destinations
    room = Room(one)

    def begin(name_there: str) -> Any:
        return members.start_neighbor_allgather(one.block(), room, sources, destinations, name_there, row_number(one))

    weights = NeighborWeights(1.0, dict.fromkeys(sources, 1.0), dict.fromkeys(destinations, 1.0), dynamic)
    pending = _checked(operation, called, weights, check, begin)
    return started(operation, called, name, pending, lambda: gathered(room), [one])


def hierarchical_neighbor_allreduce(tensor, *, self_weight: Optional[float] = None,
                                    src_machine_weights: Optional[Weights] = None,
                                    dst_machine_weights: Optional[Destinations] = None,
                                    enable_topo_check: bool = False, name: Optional[str] = None):
    """The mean within each machine, then the machines' weighted average, by the machine topology or the given
    weights (all three or none), in which ranks are machines'."""
    return complete(_hierarchical(tensor, self_weight, src_machine_weights, dst_machine_weights,
                                  enable_topo_check, name))


def hierarchical_neighbor_allreduce_nonblocking(tensor, *, self_weight: Optional[float] = None,
                                                src_machine_weights: Optional[Weights] = None,
                                                dst_machine_weights: Optional[Destinations] = None,
                                                enable_topo_check: bool = False,
                                                name: Optional[str] = None) -> int:
    """Starts a hierarchical_neighbor_allreduce."""
    return register(_hierarchical(tensor, self_weight, src_machine_weights, dst_machine_weights,
                                  enable_topo_check, name))


def _hierarchical(tensor, self_weight, src_weights, dst_weights, check: bool, name: Optional[str]) -> Started:
    operation = "hierarchical_neighbor_allreduce"
    members = flock()
    one = operand(tensor, FLOATING)
    if members.local_size < 2:
        raise _core.InvalidArgument(f"{operation} needs more than one rank on each machine")
    given = [weight is not None for weight in (self_weight, src_weights, dst_weights)]
    if any(given) and not all(given):
        raise ValueError(f"{operation}: self_weight, src_machine_weights and dst_machine_weights are given "
                         "together or not at all")
    if state.machine_graph is None:
        raise RuntimeError(f"{operation} needs a machine topology: bf.set_machine_topology(...) first")
    called = take_name(operation, name)
    out = one.empty()
    blocks = [one.block(out)]
    if not any(given):
        pending = members.start_hierarchical(blocks, called, [one.shape])
    else:
        own = own_weight(operation, self_weight)
        sources = source_weights(operation, "src_machine_weights", src_weights)
        destinations = destination_weights(operation, "dst_machine_weights", dst_weights)
        # The check compares ranks: those with the same local rank exchange.
        local, place = members.local_size, members.local_rank
        ranks = NeighborWeights(own, {machine * local + place: 1.0 for machine in sources},
                                {machine * local + place: 1.0 for machine in destinations}, True)
        pending = _checked(operation, called, ranks, check,
                           lambda name_there: members.start_weighted_hierarchical(
            blocks, own, sources, destinations, name_there, [one.shape]))
    return started(operation, called, name, pending, lambda: one.like_given(out), [one], True)


def pair_gossip(tensor, target_rank: int, self_weight: Optional[float] = None,
                pair_weight: Optional[float] = None, name: Optional[str] = None):
    """self_weight times this rank's tensor plus pair_weight times that of ``target_rank``, which calls it with this
    rank; one half each unless both are given."""
    return complete(_pair_gossip(tensor, target_rank, self_weight, pair_weight, name))


def pair_gossip_nonblocking(tensor, target_rank: int, self_weight: Optional[float] = None,
                            pair_weight: Optional[float] = None, name: Optional[str] = None) -> int:
    """Starts a pair_gossip."""
    return register(_pair_gossip(tensor, target_rank, self_weight, pair_weight, name))


def _pair_gossip(tensor, target: int, self_weight, pair_weight, name: Optional[str]) -> Started:
    operation = "pair_gossip"
    members = flock()
    one = operand(tensor, FLOATING)
    if (self_weight is None) != (pair_weight is None):
        raise ValueError(f"{operation}: self_weight and pair_weight are given together or not at all")
    own, pair = (0.5, 0.5) if self_weight is None else (own_weight(operation, self_weight),
                                                        float(pair_weight))
    called = take_name(operation, name)
    out = one.empty()
    pending = members.start_weighted_neighbor_allreduce([one.block(out)], own, {target: pair}, {target: 1.0},
                                                        called, [one.shape])
    return started(operation, called, name, pending, lambda: one.like_given(out), [one], True)
