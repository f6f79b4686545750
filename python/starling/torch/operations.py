"""Collectives: all-reduce, broadcast, all-gather, barrier; one tensor, or a group as one message."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch

from . import process, timeline, windows
from .handles import Started, complete, register, take_name
from .process import flock
from .tensors import ANY, FLOATING, SUMMABLE, Operand, Room, operand, shape_number

__all__ = [
    "allgather", "allgather_lists", "allgather_nonblocking", "allreduce", "allreduce_", "allreduce_group",
    "allreduce_group_", "allreduce_group_nonblocking", "allreduce_group_nonblocking_",
    "allreduce_nonblocking",
    "allreduce_nonblocking_", "barrier", "broadcast", "broadcast_", "broadcast_group", "broadcast_group_",
    "broadcast_group_nonblocking", "broadcast_group_nonblocking_", "broadcast_nonblocking",
    "broadcast_nonblocking_", "recv", "reduce_scatter", "send",
]



def started(operation: str, name: str, named: Optional[str], pending: Any, finish: Callable[[], Any],
            operands: Sequence[Operand], averages: bool = False) -> Started:
    """Registers an operation started under `name`, which the caller may have chosen."""
    one = Started(name if named is not None else None, pending, finish, operands)
    if timeline.writer is not None:
        one.traced = timeline.Span(operation, name, averages)
    return one


# All-reduce


def allreduce(tensor, average: bool = True, is_hierarchical_local: bool = False, name: Optional[str] = None):
    """The average or sum over all ranks, bit for bit the same on every rank; with ``is_hierarchical_local`` over the
    ranks of this machine. Returns a new tensor.

        mean = bf.allreduce(loss)
    """
    return complete(_allreduce(tensor, average, is_hierarchical_local, name, in_place=False))


def allreduce_(tensor, average: bool = True, is_hierarchical_local: bool = False, name: Optional[str] = None):
    """allreduce in place; returns the tensor."""
    return complete(_allreduce(tensor, average, is_hierarchical_local, name, in_place=True))


def allreduce_nonblocking(tensor, average: bool = True, is_hierarchical_local: bool = False,
                          name: Optional[str] = None) -> int:
    """Starts an allreduce; ``bf.synchronize(handle)`` returns its result. The tensor must not change until
    then."""
    return register(_allreduce(tensor, average, is_hierarchical_local, name, in_place=False))


def allreduce_nonblocking_(tensor, average: bool = True, is_hierarchical_local: bool = False,
                           name: Optional[str] = None) -> int:
    """Starts an allreduce in place."""
    return register(_allreduce(tensor, average, is_hierarchical_local, name, in_place=True))


def _allreduce(tensor, average: bool, local: bool, name: Optional[str], in_place: bool) -> Started:
    return _allreduce_group([tensor], average, local, name, in_place, "allreduce", lambda results: results[0])


def allreduce_group(tensors: Sequence, average: bool = True, name: Optional[str] = None) -> List:
    """allreduce of several tensors of one dtype as one message; returns new ones."""
    return complete(_allreduce_group(tensors, average, False, name, False))


def allreduce_group_(tensors: Sequence, average: bool = True, name: Optional[str] = None) -> List:
    """allreduce_group in place."""
    return complete(_allreduce_group(tensors, average, False, name, True))


def allreduce_group_nonblocking(tensors: Sequence, average: bool = True, name: Optional[str] = None) -> int:
    """Starts an allreduce_group."""
    return register(_allreduce_group(tensors, average, False, name, False))


def allreduce_group_nonblocking_(tensors: Sequence, average: bool = True, name: Optional[str] = None) -> int:
    """Starts an allreduce_group in place."""
    return register(_allreduce_group(tensors, average, False, name, True))


def _allreduce_group(tensors: Sequence, average: bool, local: bool, name: Optional[str], in_place: bool,
                     operation: str = "allreduce_group", unpack=list) -> Started:
    members = flock()
    operands = [operand(tensor, SUMMABLE) for tensor in tensors]
    for one in operands:
        dtype = one.memory.dtype
        assert not average or dtype in FLOATING, f"{dtype} cannot be averaged; use average=False"
    called = take_name(operation, name)
    if local and members.local_size < members.size:
        members = process.local_flock()
    outs = [None if in_place else one.empty() for one in operands]
    pending = members.start_allreduce([one.block(out) for one, out in zip(operands, outs)],
                                      "average" if average else "sum", called,
                                      [one.shape for one in operands])

    def finish():
        if in_place:
            return unpack([one.write_back() for one in operands])
        return unpack([one.like_given(out) for one, out in zip(operands, outs)])

    return started(operation, called, name, pending, finish, operands, average)


# Broadcast


def broadcast(tensor, root_rank: int, name: Optional[str] = None):
    """The tensor of ``root_rank``, as a new tensor."""
    return complete(_broadcast([tensor], root_rank, name, False))


def broadcast_(tensor, root_rank: int, name: Optional[str] = None):
    """broadcast in place; returns the tensor."""
    return complete(_broadcast([tensor], root_rank, name, True))


def broadcast_nonblocking(tensor, root_rank: int, name: Optional[str] = None) -> int:
    """Starts a broadcast."""
    return register(_broadcast([tensor], root_rank, name, False))


def broadcast_nonblocking_(tensor, root_rank: int, name: Optional[str] = None) -> int:
    """Starts a broadcast in place."""
    return register(_broadcast([tensor], root_rank, name, True))


def broadcast_group(tensors: Sequence, root_rank: int, name: Optional[str] = None) -> List:
    """broadcast of several tensors, of any dtypes, as one message; returns new ones."""
    return complete(_broadcast(tensors, root_rank, name, False, "broadcast_group", list))


def broadcast_group_(tensors: Sequence, root_rank: int, name: Optional[str] = None) -> List:
    """broadcast_group in place."""
    return complete(_broadcast(tensors, root_rank, name, True, "broadcast_group", list))


def broadcast_group_nonblocking(tensors: Sequence, root_rank: int, name: Optional[str] = None) -> int:
    """Starts a broadcast_group."""
    return register(_broadcast(tensors, root_rank, name, False, "broadcast_group", list))


def broadcast_group_nonblocking_(tensors: Sequence, root_rank: int, name: Optional[str] = None) -> int:
    """Starts a broadcast_group in place."""
    return register(_broadcast(tensors, root_rank, name, True, "broadcast_group", list))


def _broadcast(tensors: Sequence, root: int, name: Optional[str], in_place: bool,
               operation: str = "broadcast", unpack=lambda results: results[0]) -> Started:
    members = flock()
    operands = [operand(tensor, ANY) for tensor in tensors]
    called = take_name(operation, name)
    outs = [one.memory if in_place else one.empty() for one in operands]
    blocks = [one.block(out) for one, out in zip(operands, outs)]
    pending = members.start_broadcast(blocks, root, called, [one.shape for one in operands])

    def finish():
        if in_place:
            return unpack([one.write_back() for one in operands])
        if members.rank == root:
            for one, out in zip(operands, outs):
                out.copy_(one.memory)
        return unpack([one.like_given(out) for one, out in zip(operands, outs)])

    return started(operation, called, name, pending, finish, operands)


# All-gather


def allgather(tensor, name: Optional[str] = None):
    """All ranks' tensors joined along the first dimension, which may differ in length."""
    return complete(_allgather(tensor, name))


def allgather_nonblocking(tensor, name: Optional[str] = None) -> int:
    """Starts an allgather."""
    return register(_allgather(tensor, name))


def _allgather(tensor, name: Optional[str]) -> Started:
    one = gatherable("allgather", tensor)
    called = take_name("allgather", name)
    room = Room(one)
    pending = flock().start_allgather(one.block(), room, called, row_number(one))
    return started("allgather", called, name, pending, lambda: gathered(room), [one])


def gatherable(operation: str, tensor) -> Operand:
    """The operand of a gather, which needs a first dimension."""
    one = operand(tensor, ANY)
    if one.memory.dim() == 0:
        raise ValueError(f"{operation} joins tensors along their first dimension, which this one lacks")
    return one


def row_number(one: Operand) -> int:
    """A number for the shape after the first dimension, on which ranks must agree."""
    return shape_number(one.memory.shape[1:])


def gathered(room: Room):
    """The result of a gather: rows of the operand's shape."""
    rows = room.one.memory.shape[1:]
    return room.result(room.tensor.numel() // max(1, rows.numel()), *rows)


# Parts of a sum, and messages between two ranks


def reduce_scatter(tensor, average: bool = True, name: Optional[str] = None):
    """This rank's part of the average or sum over all ranks: of the tensor's N elements in their order, those from
    N * rank // size up to N * (rank + 1) // size. Returns a new tensor of one dimension.

        part = bf.reduce_scatter(gradient)
    """
    one = operand(tensor, SUMMABLE)
    assert not average or one.memory.dtype in FLOATING, f"{one.memory.dtype} cannot be averaged; use average=False"
    called = take_name("reduce_scatter", name)
    room = Room(one)
    pending = flock().start_reduce_scatter(one.block(), room, "average" if average else "sum", called, one.shape)
    return complete(started("reduce_scatter", called, name, pending, lambda: room.result(-1), [one], average))


def send(tensor, dst_rank: int, name: Optional[str] = None) -> None:
    """Sends a tensor to a rank that calls ``recv`` under the same name. Returns when the tensor may be changed."""
    one = operand(tensor, ANY)  # kept until its elements were copied
    flock().send(one.block(), dst_rank, take_name("send", name))


def recv(like, src_rank: int, name: Optional[str] = None):
    """The tensor that ``src_rank`` sends, which has the shape and dtype of ``like``, as a new tensor where ``like`` is."""
    one = operand(like, ANY)
    called = take_name("send", name)
    out = one.empty()
    pending = flock().start_recv(one.block(out), src_rank, called)
    return complete(started("recv", called, name, pending, lambda: one.like_given(out), [one]))


def barrier(name: Optional[str] = None) -> None:
    """Returns when all ranks have called it. Also publishes the current tensors of windows."""
    windows.publish_all()
    pending = flock().start_barrier(take_name("barrier", name))
    complete(started("barrier", "barrier", None, pending, lambda: None, ()))


def allgather_lists(ranks: Sequence[int], name: str = "lists") -> List[List[int]]:
    """Every rank's list of integers; a collective."""
    pending, read = start_allgather_lists([ranks], name)
    complete(Started(None, pending, lambda: None, ()))
    return [lists[0] for lists in read()]


def start_allgather_lists(lists: Sequence[Sequence[int]], name: str):
    """(the operation to wait for, the function that then returns every rank's lists)."""
    packed = torch.tensor([len(lists), *(number for one in lists for number in (len(one), *one))],
                          dtype=torch.int64)
    room = Room(Operand(packed, packed, packed))
    pending = flock().start_allgather(room.one.block(), room, name)

    def read() -> List[List[List[int]]]:
        numbers = iter(room.tensor.tolist())
        return [[[next(numbers) for _ in range(next(numbers))] for _ in range(count)] for count in numbers]

    return pending, read
