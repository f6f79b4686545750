"""Tensors as the core sees them: contiguous memory of this host or of a GPU, an address, a count and a dtype."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, FrozenSet, NamedTuple, Optional, Tuple

import torch

from .. import _core
from .process import state

CODES: Dict[torch.dtype, int] = {getattr(torch, name): code for name, code in _core.dtypes.items()}

FLOATING: FrozenSet[torch.dtype] = frozenset(dtype for dtype in CODES if dtype.is_floating_point)
SUMMABLE: FrozenSet[torch.dtype] = FLOATING | {torch.int32, torch.int64}
ANY: FrozenSet[torch.dtype] = frozenset(CODES)

Place = Tuple[int, int]  # a GPU and one of its streams
Block = Tuple[int, int, int, int, Optional[Place]]  # from, to, elements, dtype, place


class Operand(NamedTuple):
    """A tensor that an operation was called with, and its elements where the core can read them."""

    given: Any  # what the caller passed
    tensor: torch.Tensor  # the same as a tensor
    # contiguous memory: `tensor` itself if it is contiguous and the core can work on it in place
    memory: torch.Tensor
    place: Optional[Place] = None  # where work on it is enqueued; None on the host

    def block(self, out: Optional[torch.Tensor] = None) -> Block:
        """For an operation that writes to `out`, or in place."""
        there = self.memory if out is None else out
        return (self.memory.data_ptr(), there.data_ptr(), self.memory.numel(), CODES[self.memory.dtype], self.place)

    def scope(self) -> Any:
        """Within it, the core's calls enqueue their work on torch's current stream of the GPU."""
        return _core.PlaceScope(None if self.place is None else _place(self.memory.device))

    def follow(self) -> None:
        """Orders what torch enqueues from now on after the operation, which was enqueued on the stream of its call."""
        if self.place is None:
            return
        device, stream = self.place
        current = torch.cuda.current_stream(device)
        if current.cuda_stream != stream:
            current.wait_stream(torch.cuda.ExternalStream(stream, device=device))

    @property
    def shape(self) -> int:
        """A number for the shape, by which ranks notice that theirs differ."""
        return shape_number(self.memory.shape)

    def empty(self) -> torch.Tensor:
        """Memory for a result of the same shape."""
        return torch.empty(self.memory.shape, dtype=self.memory.dtype, device=self.memory.device)

    def like_given(self, result: torch.Tensor) -> Any:
        """`result` in the caller's form: on the device of the input, or as a numpy array."""
        if self.given is not self.tensor:
            return result.numpy()
        return result if result.device == self.tensor.device else result.to(self.tensor.device)

    def write_back(self) -> Any:
        """Copies `memory`, after the core has written to it, back to the caller's tensor."""
        if self.memory is not self.tensor:
            with torch.no_grad():
                self.tensor.copy_(self.memory)
        if self._is_copy():
            self.given[...] = self.tensor.numpy()
        return self.given

    def read_again(self) -> None:
        """Copies the caller's tensor, which may have changed, to `memory` again."""
        if self._is_copy():
            self.tensor.copy_(torch.from_numpy(self.given.copy()))
        if self.memory is not self.tensor:
            with torch.no_grad():
                self.memory.copy_(self.tensor)

    def _is_copy(self) -> bool:
        """Whether `tensor` had to be a copy of a numpy array."""
        if self.given is self.tensor:
            return False
        return self.given.__array_interface__["data"][0] != self.tensor.data_ptr()


def shape_number(shape: torch.Size) -> int:
    return hash(shape) & 0xFFFFFFFF


class Room:
    """Memory for the result of an operation whose length is not known before: torch's, where the operand is."""

    def __init__(self, one: Operand) -> None:
        self.one = one
        self.tensor: Optional[torch.Tensor] = None

    def __call__(self, count: int) -> int:
        """The address of memory for this many elements; called by the core."""
        like = self.one.memory
        with _stream_of(self.one.place):  # the one on which the core writes
            self.tensor = torch.empty(count, dtype=like.dtype, device=like.device)
        return self.tensor.data_ptr()

    def result(self, *shape: int) -> Any:
        """What the operation has written, in the form of the operand."""
        assert self.tensor is not None
        return self.one.like_given(self.tensor.reshape(shape))


def _stream_of(place: Optional[Place]) -> Any:
    if place is None or torch.cuda.current_stream(place[0]).cuda_stream == place[1]:
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(place[1], device=place[0]))


def operand(given: Any, allowed: FrozenSet[torch.dtype], device: Optional[torch.device] = None) -> Operand:
    """Accepts a tensor of any device and layout, or a numpy array; ValueError if its dtype is not supported. A tensor on
    a GPU stays there if the flock can exchange it from there, unless the operation needs it on another ``device``."""
    tensor = given if isinstance(given, torch.Tensor) else _from_numpy(given)
    if tensor.dtype not in allowed or tensor.layout != torch.strided:
        raise ValueError(f"Tensor type {tensor.type()} is not supported. These are: {_names(allowed)}.")
    place = _place(tensor.device if device is None else device)
    if device is None:
        device = torch.device("cpu") if place is None else tensor.device
    memory = tensor if tensor.device == device else tensor.detach().to(device)
    if not memory.is_contiguous():
        memory = memory.detach().contiguous()
    return Operand(given, tensor, memory, place)


def _place(device: torch.device) -> Optional[Place]:
    """Where the core enqueues work on a GPU's tensors: torch's current stream. None if it cannot, and on the host."""
    if device.type != "cuda" or state.flock is None or not state.flock.exchanges_device_memory:
        return None
    return device.index, torch.cuda.current_stream(device).cuda_stream


def _from_numpy(given: Any) -> torch.Tensor:
    import numpy

    if not isinstance(given, (numpy.ndarray, numpy.generic)):
        raise TypeError(f"a tensor or a numpy array is needed, not {type(given).__name__}")
    array = numpy.asarray(given)
    try:
        # torch supports neither read-only arrays nor negative strides.
        usable = array.flags.writeable and all(stride >= 0 for stride in array.strides)
        return torch.from_numpy(array if usable else array.copy())
    except TypeError:
        raise ValueError(f"Tensor type numpy.{array.dtype} is not supported.") from None


def _names(dtypes: FrozenSet[torch.dtype]) -> str:
    return ", ".join(str(dtype).replace("torch.", "") for dtype in CODES if dtype in dtypes)
