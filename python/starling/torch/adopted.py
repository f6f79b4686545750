"""A flock over a process group of torch.distributed."""

from __future__ import annotations

import itertools

import torch.distributed as dist

from .. import _core, _torch

_numbers = itertools.count()


def flock_over(group) -> _core.Flock:
    """The flock of the ranks of a process group, over Gloo groups of its own. Every rank of the default group must call
    it, as torch requires for making groups."""
    if not dist.is_available() or not dist.is_initialized():
        raise _core.InvalidArgument("call torch.distributed.init_process_group() before using process_group")
    if group is True:
        group = dist.group.WORLD
    ranks = [dist.distributed_c10d._get_global_rank(group, r) if group is not dist.group.WORLD else r
             for r in range(dist.get_world_size(group))]
    groups = [dist.new_group(ranks=ranks, backend="gloo") for _ in range(3)]
    store = dist.PrefixStore(f"starling/{next(_numbers)}", dist.distributed_c10d._get_default_store())
    return _core.flock_over(_torch.adopt(groups, store))
