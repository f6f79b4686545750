"""Each rank's own part of a data set, for torch's DataLoader."""

from __future__ import annotations

from typing import Iterator, Optional, Sequence, Sized, Union

import numpy
import torch

from .. import _core, _torch
from . import process


class FlockSampler(torch.utils.data.Sampler):
    """Splits a data set among the ranks: no sample goes to two of them, and all take equally many batches.

        sampler = bf.FlockSampler(dataset, seed=1)
        loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)
        for epoch in range(10):
            for x, y in loader:           # every pass is the next epoch, reshuffled
                ...

    ``dataset`` is anything with a length, or the length. ``partition``: "iid", "contiguous", or "dirichlet(alpha=0.1)",
    which splits by class and needs ``labels``. ``seed`` is the same on every rank. ``shuffle=False`` keeps the order of the
    data. Ranks with fewer samples repeat some, unless ``even=False``. ``set_epoch(epoch)`` says which epoch the next pass
    is, as torch's DistributedSampler wants to be told; without it they count up from 0.
    Making one is a collective: every rank does, with the same arguments, which are compared.
    After a death the split stays: the dead rank's samples are left out.
    """

    def __init__(self, dataset: Union[Sized, int], *, partition: str = "iid", labels: Optional[Sequence[int]] = None,
                 seed: int = 0, shuffle: bool = True, even: bool = True) -> None:
        super().__init__(None)
        self._count = dataset if isinstance(dataset, int) else len(dataset)
        self._labels = None if labels is None else _small(labels, self._count)
        self._options = (partition, seed, shuffle, even)
        self._epoch = 0
        self._member = None
        self._split = None
        _torch.check_same_split(process.flock()._address(), self._count, self._labels, *self._options)
        self._current()

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass; later passes count up from it."""
        self._epoch = int(epoch)

    def __iter__(self) -> Iterator[int]:
        order = self._current().order(self._epoch)
        self._epoch += 1
        return iter(order)

    def __len__(self) -> int:
        return self._current().size

    def _current(self) -> "_core.DataSplit":
        """The split among the current ranks, which newcomers change."""
        flock = process.flock()
        member = (flock.rank, flock.size)
        if member != self._member:
            self._split = _core.DataSplit(self._count, self._labels, *member, *self._options)
            self._member = member
        return self._split


def _small(labels: Sequence[int], count: int) -> bytes:
    """Labels as bytes, the classes numbered from 0."""
    classes, numbered = numpy.unique(numpy.asarray(labels), return_inverse=True)
    if len(numbered) != count:
        raise ValueError(f"there are {len(numbered)} labels for {count} samples")
    if len(classes) > 256:
        raise ValueError(f"labels name {len(classes)} classes; a partition by class takes at most 256")
    return numbered.astype(numpy.uint8).tobytes()
