"""A plugin of pytest (``-p fake_gpu``): tensors of this host count as tensors on a GPU, which is STARLING_FAKE_DEVICE, a library
of tests/kernel/fake_device.h. So operations take the way of CUDA tensors, but torch's part of it."""

import collections
import contextlib
import ctypes
import os

import torch

import starling.torch as bf
from starling.torch import neighbors, tensors

library = ctypes.CDLL(os.environ["STARLING_FAKE_DEVICE"])
library.use_fake_device()
ON_DEVICE = (0, 0)  # its default stream


def place(device: torch.device):
    return ON_DEVICE if bf.is_initialized() and tensors.state.flock.exchanges_device_memory else None


def follow(one):
    """What torch does next is not enqueued, so the device must have finished."""
    if one.place is not None:
        library.synchronize_fake_device()


in_use = collections.deque(maxlen=100)  # by the device; torch gives memory of a GPU away in the order of its streams
block = tensors.Operand.block


def keeping_block(one, out=None):
    in_use.append((one.memory, out))
    return block(one, out)


tensors._place = place
tensors.Operand.block = keeping_block
tensors._stream_of = lambda place: contextlib.nullcontext()
tensors.Operand.follow = follow
neighbors._FLOAT_CODES.clear()  # no fast path for tensors of the host
