"""What happened when: ``BLUEFOG_TIMELINE=prefix`` makes every rank write ``<prefix><rank>.json``, Chrome trace events
one per line, each flushed as it is written. Without the variable nothing is recorded, at no cost."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import warnings
from typing import Dict, Iterator, List, Optional, Tuple

from .process import at_init, at_shutdown

__all__ = [
    "timeline_context", "timeline_end_activity", "timeline_start_activity",
]



class _Writer:
    """One file. A tensor's name is a process of the trace, the calling threads are its threads."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8")
        self._lock = threading.Lock()
        self._tensors: Dict[str, int] = {}
        self._threads: Dict[int, int] = {}
        self._open: Dict[Tuple[str, int], List[str]] = {}  # started and not ended
        self._first = True
        self._began = time.perf_counter_ns()
        self._file.write("[\n")

    def begin(self, tensor: str, activity: str, thread: Optional[int] = None) -> int:
        """Begins an event; returns the thread's number, which end() needs if another thread calls it."""
        with self._lock:
            thread = thread or self._threads.setdefault(threading.get_ident(), len(self._threads) + 1)
            self._open.setdefault((tensor, thread), []).append(activity)
            self._write("B", tensor, activity, thread)
            return thread

    def end(self, tensor: str, thread: Optional[int] = None) -> bool:
        """Ends the event that began last; returns False if there is none."""
        with self._lock:
            thread = thread or self._threads.get(threading.get_ident(), 0)
            begun = self._open.get((tensor, thread))
            if not begun:
                return False
            self._write("E", tensor, begun.pop(), thread)
            return True

    def close(self) -> None:
        with self._lock:
            self._file.write("\n]\n")
            self._file.close()

    def _write(self, phase: str, tensor: str, activity: str, thread: int) -> None:
        number = self._tensors.get(tensor)
        if number is None:
            number = self._tensors[tensor] = len(self._tensors) + 1
            self._line({"name": "process_name", "ph": "M", "pid": number, "args": {"name": tensor}})
        micros = (time.perf_counter_ns() - self._began) / 1000
        self._line({"name": activity, "ph": phase, "ts": micros, "pid": number, "tid": thread})
        self._file.flush()

    def _line(self, event: dict) -> None:
        self._file.write(("" if self._first else ",\n") + json.dumps(event))
        self._first = False


writer: Optional[_Writer] = None


class Span:
    """An operation in the timeline, from its start to its result."""

    __slots__ = ("_tensor", "_thread", "_depth", "_averages")

    def __init__(self, operation: str, tensor: str, averages: bool) -> None:
        word = operation.upper()
        self._tensor = tensor
        self._averages = averages
        self._thread = writer.begin(tensor, f"ENQUEUE_{word}")
        writer.end(tensor, self._thread)
        # Older programs search for names that contain MPI.
        activities = [word if word.startswith("WIN_") else f"PROC_{word}", f"MPI_{word}"]
        activities.append("COMMUNICATE")
        for activity in activities:
            writer.begin(tensor, activity, self._thread)
        self._depth = len(activities)

    def end(self) -> None:
        if writer is None:
            return
        writer.end(self._tensor, self._thread)
        if self._averages:
            writer.begin(self._tensor, "COMPUTE_AVERAGE", self._thread)
            writer.end(self._tensor, self._thread)
        for _ in range(self._depth - 1):
            writer.end(self._tensor, self._thread)


def timeline_start_activity(tensor_name: str, activity_name: str) -> bool:
    """Begins an activity of this tensor. False when there is no timeline."""
    if writer is None:
        return False
    writer.begin(tensor_name, activity_name)
    return True


def timeline_end_activity(tensor_name: str) -> bool:
    """Ends the activity that this thread began last under this name."""
    return writer is not None and writer.end(tensor_name)


@contextlib.contextmanager
def timeline_context(tensor_name: str, activity_name: str) -> Iterator[bool]:
    """An activity for the length of a ``with`` block.

        with bf.timeline_context("layer1.weight", "FORWARD"):
            ...
    """
    started = timeline_start_activity(tensor_name, activity_name)
    try:
        yield started
    finally:
        if started:
            timeline_end_activity(tensor_name)


@at_init
def _open(rank: int) -> None:
    global writer
    prefix = os.environ.get("BLUEFOG_TIMELINE")
    if prefix and writer is None:
        try:
            writer = _Writer(f"{prefix}{rank}.json")
        except OSError as error:
            warnings.warn(f"cannot write the timeline: {error}; rank {rank} continues without one", stacklevel=3)


@at_shutdown
def _close() -> None:
    global writer
    if writer is not None:
        writer.close()
        writer = None
