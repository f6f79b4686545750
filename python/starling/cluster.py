"""Worker processes that a notebook maps functions onto."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

from . import _core


class WorkerError(_core.Error):
    """An exception in a worker: ``rank`` is the first that failed, ``errors`` has the texts by rank. The exception
    itself is the ``__cause__`` where it could be pickled."""

    def __init__(self, text: str, rank: int, errors: Dict[int, str]):
        super().__init__(text)
        self.rank, self.errors = rank, errors


class WorkerLost(WorkerError):
    """A worker process has ended: ``rank`` says which. ``restart()`` starts all workers again."""


class Cluster:
    """n worker processes, ready to join a flock, which run what the notebook sends them.

        with starling.Cluster(4) as cluster:
            cluster.execute("import starling; flock = starling.join()")
            cluster.run(lambda: flock.allreduce(float(flock.rank), "sum"))      # [6.0, 6.0, 6.0, 6.0]

    Functions and classes that were defined in the notebook are sent as code, with the current values of the globals
    that they use; names that the notebook does not have are the worker's own (``push``, ``execute``, ``global``).
    ``rank`` and ``size`` are set from the start. Output of workers appears here with their rank in front.

    An exception in a worker raises WorkerError here; the others are interrupted at once, and killed if they do not stop
    within ``grace`` seconds. A flock whose ranks were interrupted is out of step: using it raises until you call
    ``restart()``. Workers end with this process, however it ends.

    Without ``n``, this is the cluster in the background (``ibfrun start -np 4``, ``Cluster.launch(4)``) if there is
    one, else one worker per core. ``timeout`` bounds the waits of the flock, in seconds.
    """

    def __init__(self, n: Optional[int] = None, *, timeout: Optional[float] = None, grace: float = 5.0):
        from ._pool import Pool

        background = _connect("default") if n is None else None
        self._begin(background or Pool(n or _cores(), timeout=timeout, grace=grace))

    def _begin(self, workers: Any) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._closed = False

    # Clusters that keep running after the notebook ends.

    @classmethod
    def connect(cls, name: str = "default") -> "Cluster":
        """The cluster in the background of that name; closing it leaves its workers running."""
        remote = _connect(name)
        if remote is None:
            raise _core.Error(f"no cluster named {name} is running; `ibfrun start -np N` or Cluster.launch(N) starts one")
        cluster = cls.__new__(cls)
        cluster._begin(remote)
        return cluster

    @classmethod
    def launch(cls, n: int, name: str = "default", *, timeout: Optional[float] = None, grace: float = 5.0) -> "Cluster":
        """Starts a cluster in the background, which outlives this process, and connects to it; ``stop`` ends it."""
        from ._cluster_server import launch

        cluster = cls.__new__(cls)
        cluster._begin(launch(n, name, timeout, grace))
        return cluster

    @staticmethod
    def serve(n: int, name: str = "default", *, timeout: Optional[float] = None, grace: float = 5.0) -> None:
        """Runs the background cluster in this process: returns at Ctrl-C, SIGTERM or ``stop``."""
        from ._cluster_server import serve

        serve(n, name, timeout, grace)

    @staticmethod
    def stop(name: str = "default") -> bool:
        """Ends the background cluster; returns False if none was running."""
        remote = _connect(name)
        if remote is not None:
            remote.stop()
        return remote is not None

    # Running code on the workers.

    @property
    def n(self) -> int:
        """The number of workers."""
        return self._workers.n

    @property
    def pids(self) -> List[int]:
        """The workers' process ids."""
        return self._workers.pids()

    def __len__(self) -> int:
        return self.n

    def run(self, function: Callable, *args: Any, ranks: Optional[Sequence[int]] = None, **kwargs: Any) -> List[Any]:
        """Calls ``function(*args, **kwargs)`` in every worker (or in ``ranks``) at once: the results, by rank."""
        chosen = self._chosen(ranks)
        arguments = self._dump((args, kwargs))
        return self._perform(function, [(rank, arguments) for rank in chosen], chosen)

    def map(self, function: Callable, items: Iterable[Any], ranks: Optional[Sequence[int]] = None) -> List[Any]:
        """``[function(item) for item in items]``; each call runs on the next free worker."""
        tasks = [(None, self._dump(((item,), {}))) for item in items]
        return self._perform(function, tasks, self._chosen(ranks))

    def push(self, ranks: Optional[Sequence[int]] = None, /, **values: Any) -> None:
        """Gives every worker global names: ``cluster.push(data=x, lr=0.1)``."""
        from .cluster_worker import push

        self.run(push, values, ranks=ranks)

    def pull(self, name: str, ranks: Optional[Sequence[int]] = None) -> List[Any]:
        """The values of a global name, by rank."""
        from .cluster_worker import pull

        return self.run(pull, name, ranks=ranks)

    def execute(self, code: str, ranks: Optional[Sequence[int]] = None) -> None:
        """Runs code among every worker's global names: ``cluster.execute("import torch; torch.manual_seed(rank)")``."""
        from .cluster_worker import execute

        self.run(execute, code, ranks=ranks)

    def restart(self) -> None:
        """Ends all workers and starts new ones, without any state."""
        with self._lock:
            self._check_open()
            self._workers.restart()

    def close(self) -> None:
        """Ends the workers; for a cluster in the background, only the connection."""
        if not self._closed:
            self._closed = True
            self._workers.close()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<starling.Cluster of {self.n} workers{', closed' if self._closed else ''}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Cluster cannot be pickled: it belongs to the process that started it")

    # Implementation.

    def _check_open(self) -> None:
        if self._closed:
            raise _core.Error("the cluster is closed; make a new one")

    def _chosen(self, ranks: Optional[Sequence[int]]) -> List[int]:
        self._check_open()
        chosen = list(range(self.n)) if ranks is None else [int(rank) for rank in ranks]
        if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0 or max(chosen) >= self.n:
            raise _core.InvalidArgument(f"ranks must be distinct numbers from 0 to {self.n - 1}, not {chosen}")
        return chosen

    @staticmethod
    def _dump(value: Any) -> bytes:
        from . import _by_value

        return _by_value.dumps(value)

    def _perform(self, function: Callable, tasks: list, ranks: List[int]) -> List[Any]:
        from ._by_value import loads
        from ._pool import CtrlC

        code = self._dump(function)
        with self._lock:
            self._check_lost(ranks)
            with CtrlC() as cancel:
                outcomes = self._workers.perform(code, tasks, ranks, _show, cancel)
        _raise_failures(outcomes)
        return [loads(outcome.data) for outcome in outcomes]

    def _check_lost(self, ranks: List[int]) -> None:
        lost = {rank: text for rank, text in self._workers.lost().items() if rank in ranks}
        if lost:
            left = [rank for rank in range(self.n) if rank not in self._workers.lost()]
            raise WorkerLost(f"{'; '.join(lost.values())}: restart() starts all workers again, ranks={left} uses those "
                             "that are left", min(lost), lost)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _connect(name: str) -> Any:
    from ._cluster_client import Remote, open_link

    link = open_link(name)
    return None if link is None else Remote(link)


def _show(rank: int, is_error: bool, line: str) -> None:
    print(f"[{rank}] {line}", file=sys.stderr if is_error else sys.stdout, flush=True)


def _error_text(data: bytes) -> str:
    """A traceback with source lines from here, since workers do not have the notebook."""
    text, frames, _ = pickle.loads(data)
    summary = traceback.StackSummary.from_list([traceback.FrameSummary(*frame) for frame in frames])
    return "".join(summary.format()) + text


def _raise_failures(outcomes: list) -> None:
    outcomes = sorted(outcomes, key=lambda one: one.place)
    lost = [one for one in outcomes if one.kind == "lost"]
    ended = [f"{one.data.decode()}, because it did not stop" for one in outcomes if one.kind == "ended"]
    failed = {one.rank: _error_text(one.data) for one in outcomes if one.kind == "error"}
    if lost:
        # Errors of the other workers are consequences.
        texts = {**failed, **{one.rank: one.data.decode() for one in lost}}
        raise WorkerLost("; ".join([one.data.decode() for one in lost] + ended), lost[0].rank, texts)
    if not failed:
        return
    rank = next(iter(failed))
    others = [f"rank {other}: {text.splitlines()[-1]}" for other, text in failed.items() if other != rank]
    itself = next(pickle.loads(one.data)[2] for one in outcomes if one.kind == "error")
    first = [f"rank {rank}: {failed[rank].splitlines()[-1]}", failed[rank]]
    raise WorkerError("\n".join(first + others + ended), rank, failed) from (None if itself is None else pickle.loads(itself))
