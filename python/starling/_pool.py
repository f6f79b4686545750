"""The processes behind starling.Cluster, their input and output. Payloads are bytes here."""

from __future__ import annotations

import collections
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from multiprocessing.connection import Connection, wait
from typing import Callable, Dict, List, NamedTuple, Optional, Protocol, Sequence, Set, Tuple

from . import _core
from .cluster_worker import FLOCK_USE

Show = Callable[[int, bool, str], None]  # rank, whether the line is from standard error, the line
Task = Tuple[Optional[int], bytes]  # the rank (None: the next free worker), the pickled arguments

_START_SECONDS = 60.0
# after a rank's exception: the time that others have to fail by themselves before they are interrupted
_TELL_SECONDS = 0.2


class Outcome(NamedTuple):
    """The outcome of a task. ``kind`` is value or error (``data`` is pickled), lost or, by us, ended (``data`` says
    how), or skipped. ``place`` is its position in time among the outcomes."""

    kind: str
    rank: int = -1
    data: bytes = b""
    place: int = -1


class Cancel(Protocol):
    """A source of cancellation: when its file is ready, ``times`` says how often cancellation was requested; once it is
    ``over``, nothing more will come."""

    over: bool

    def fileno(self) -> int: ...

    def times(self) -> int: ...


class CtrlC:
    """Ctrl-C as a source of cancellation, so that it cannot cut a message in two; raises KeyboardInterrupt at the
    end."""

    def __enter__(self) -> "CtrlC":
        self.over = False
        self._times = 0
        self._read, self._write = os.pipe()
        self._own = threading.current_thread() is threading.main_thread()
        if self._own:
            self._before = signal.signal(signal.SIGINT, lambda *_: os.write(self._write, b"c"))
        return self

    def fileno(self) -> int:
        return self._read

    def times(self) -> int:
        self._times += len(os.read(self._read, 16))
        return self._times

    def __exit__(self, kind, error, trace) -> None:
        if self._own:
            signal.signal(signal.SIGINT, self._before)
        os.close(self._write)
        unseen = os.read(self._read, 16)  # the pipe is empty
        os.close(self._read)
        if (self._times or unseen) and kind is None:
            raise KeyboardInterrupt


class Worker:
    """One worker process: its connection, its lifetime and its output."""

    def __init__(self, rank: int, environment: Dict[str, str], lifeline: int):
        self.rank = rank
        self.ending: Optional[str] = None
        ours, theirs = socket.socketpair()
        with theirs:
            fds = (theirs.fileno(), lifeline)
            start = f"import sys; sys.path[:] = {sys.path!r}; from starling.cluster_worker import main; main{fds}"
            # Starts a session of its own, because we forward the terminal's Ctrl-C, once.
            self.process = subprocess.Popen(
                [sys.executable, "-c", start], env=environment, pass_fds=fds, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.link = Connection(ours.detach())
        self.death = os.pidfd_open(self.process.pid)
        self.streams = {self.process.stdout.fileno(): False, self.process.stderr.fileno(): True}
        self._partial = {fd: b"" for fd in self.streams}
        for fd in self.streams:
            os.set_blocking(fd, False)

    def read_output(self, fd: int, show: Show, limit: int = 1) -> None:
        """Shows the complete lines that have been written so far."""
        for _ in range(limit):
            try:
                text = os.read(fd, 1 << 16)
            except BlockingIOError:
                return
            if not text:
                self.streams.pop(fd, None)
                return
            *lines, self._partial[fd] = (self._partial[fd] + text).split(b"\n")
            for line in lines:
                show(self.rank, self.streams[fd], line.decode(errors="replace"))

    def flush_output(self, show: Show) -> None:
        """Shows everything that has been written so far, with or without a final newline."""
        for fd, is_error in list(self.streams.items()):
            self.read_output(fd, show, limit=1000)
            if self._partial[fd]:
                show(self.rank, is_error, self._partial[fd].decode(errors="replace"))
                self._partial[fd] = b""

    def send(self, sig: int) -> None:
        if self.ending is None:
            os.kill(self.process.pid, sig)

    def reap(self) -> None:
        """Call it after the worker's end: kills the processes that it has started, and records how it ended."""
        if self.ending is not None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # not reaped yet, so the process id is still its own
        except (ProcessLookupError, PermissionError):
            pass
        status = self.process.wait()
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        self.ending = f"rank {self.rank} (process {self.process.pid}) {how}"
        self.link.close()
        os.close(self.death)


class Pool:
    """n worker processes; ``perform`` gives them work. Use it from one thread at a time."""

    def __init__(self, n: int, timeout: Optional[float] = None, grace: float = 5.0):
        if n < 1:
            raise _core.InvalidArgument(f"a cluster has at least 1 worker, not {n}")
        self.n, self.timeout, self.grace = n, timeout, grace
        self._start()

    def _start(self) -> None:
        ours: List = []
        self.workers: List[Worker] = ours
        read_end, self._lifeline = os.pipe()
        self._finalizer = weakref.finalize(self, _end, os.getpid(), ours, self._lifeline, self.grace)
        try:
            for rank, changed in enumerate(_core.worker_environments(self.n)):
                environment = {**os.environ, **changed, "PYTHONUNBUFFERED": "1"}
                if self.timeout is not None:
                    environment["STARLING_TIMEOUT"] = str(self.timeout)
                ours.append(Worker(rank, environment, read_end))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(read_end)
        self._await_ready()

    def _await_ready(self) -> None:
        said: List[str] = []
        until = time.monotonic() + _START_SECONDS
        for worker in self.workers:
            try:
                if not worker.link.poll(max(0, until - time.monotonic())):
                    raise EOFError
                worker.link.recv_bytes()
            except (EOFError, ConnectionError):
                worker.flush_output(lambda rank, is_error, line: said.append(line))
                self.close()
                text = "\n  ".join([f"worker {worker.rank} of the cluster did not start: {worker.ending}", *said])
                raise _core.Error(text) from None

    def lost(self) -> Dict[int, str]:
        """How workers that have ended did so."""
        return {worker.rank: worker.ending for worker in self.workers if worker.ending is not None}

    def pids(self) -> List[int]:
        return [worker.process.pid for worker in self.workers]

    def perform(self, function: bytes, tasks: Sequence[Task], ranks: Sequence[int], show: Show,
                cancel: Optional["Cancel"] = None) -> List[Outcome]:
        """Runs the tasks on the workers ``ranks`` and returns their outcomes in the order of the tasks. After the first
        failure no more tasks are started; busy workers are interrupted (at once after an exception, after ``grace``
        seconds after a death), and killed ``grace`` seconds later. Flocks that got out of step by it raise from then
        on."""
        performance = _Performance(self, function, tasks, ranks, show, cancel)
        outcomes = performance.run()
        failed = [one for one in outcomes if one.kind == "error"]
        if failed and performance.out_of_step():
            self._break_flocks(min(failed, key=lambda one: one.place).rank, show)
        return outcomes

    def _break_flocks(self, culprit: int, show: Show) -> None:
        from . import _by_value
        from .cluster_worker import break_flock

        text = (f"the flock is out of step, since an earlier call ended on rank {culprit} before the others; the cluster's "
                "restart() starts all workers again")
        left = [worker.rank for worker in self.workers if worker.ending is None]
        arguments = _by_value.dumps(((text,), {}))
        _Performance(self, _by_value.dumps(break_flock), [(rank, arguments) for rank in left], left, show, None).run()

    def restart(self) -> None:
        self.close()
        self._start()

    def close(self) -> None:
        self._finalizer()


def _end(owner: int, workers: List[Worker], lifeline: int, grace: float) -> None:
    """Lets the workers end, then kills those that remain."""
    if os.getpid() != owner:
        return  # in a forked child, the workers belong to the parent
    for worker in workers:
        worker.link.close()
    until = time.monotonic() + grace
    for worker in workers:
        if worker.ending is None:
            if not wait([worker.death], max(0, until - time.monotonic())):
                worker.send(signal.SIGKILL)
            worker.reap()
        for stream in (worker.process.stdout, worker.process.stderr):
            stream.close()
    os.close(lifeline)


class _Performance:
    """One call of Pool.perform."""

    def __init__(self, pool: Pool, function: bytes, tasks: Sequence[Task], ranks: Sequence[int], show: Show,
                 cancel: Optional["Cancel"]):
        self.pool, self.function, self.show, self.cancel = pool, function, show, cancel
        self.tasks = tasks
        self.outcomes = [Outcome("skipped")] * len(tasks)
        self.settled = 0
        self.killing = False
        self.queues: Dict[Optional[int], collections.deque] = {rank: collections.deque() for rank in (None, *ranks)}
        for index, (rank, _) in enumerate(tasks):
            self.queues[rank].append(index)
        self.ranks = ranks
        self.busy: Dict[int, int] = {}  # rank: task
        self.interrupt_at = self.kill_at = float("inf")
        self.interrupted: Set[int] = set()
        self.flock_used = False
        self.flock_steps: Set[int] = set()

    def run(self) -> List[Outcome]:
        for rank in self.ranks:
            self._give_work(rank)
        while self.busy:
            self._step()
        for rank in self.ranks:
            self.pool.workers[rank].flush_output(self.show)
        return self.outcomes

    def _give_work(self, rank: int) -> None:
        queue = self.queues[rank] or self.queues[None]
        if not queue or self.kill_at < float("inf"):
            return
        worker, index = self.pool.workers[rank], queue.popleft()
        self.busy[rank] = index
        try:
            worker.link.send_bytes(self.function)
            worker.link.send_bytes(self.tasks[index][1])
        except OSError:
            self._on_death(worker)

    def _step(self) -> None:
        workers = [self.pool.workers[rank] for rank in self.busy]
        by_link = {worker.link: worker for worker in workers}
        by_stream = {fd: worker for worker in self.pool.workers for fd in worker.streams}
        deaths = {worker.death: worker for worker in workers}
        watched = [*by_link, *by_stream, *deaths]
        if self.cancel is not None:
            watched.append(self.cancel)
        now = time.monotonic()
        until = min(self.interrupt_at, self.kill_at if not self.killing else float("inf"))
        ready = wait(watched, None if until == float("inf") else max(0.0, until - now))
        for one in ready:
            if one in by_link:
                self._on_reply(by_link[one])
            elif one in by_stream:
                by_stream[one].read_output(one, self.show)
            elif one in deaths and deaths[one].rank in self.busy and not deaths[one].link.poll():
                self._on_death(deaths[one])
        if self.cancel in ready:
            # A second cancellation does not wait.
            self._stop_soon(0, kill=self.cancel.times() > 1)
            if self.cancel.over:
                self.cancel = None
        self._check_clock()

    def _on_reply(self, worker: Worker) -> None:
        try:
            reply = worker.link.recv_bytes()
        except (EOFError, OSError):
            self._on_death(worker)
            return
        failed = reply[:1] == b"e"
        used, step = FLOCK_USE.unpack_from(reply, 1)
        self.flock_used = self.flock_used or used
        if used or step >= 0:
            self.flock_steps.add(step)
        self._settle("error" if failed else "value", worker.rank, reply[1 + FLOCK_USE.size:])
        if failed:
            self._stop_soon(min(_TELL_SECONDS, self.pool.grace))
        self._give_work(worker.rank)

    def out_of_step(self) -> bool:
        """Whether ranks that were interrupted or failed may have stopped at different points of their flock."""
        return self.flock_used and bool(self.interrupted or len(self.flock_steps) > 1)

    def _on_death(self, worker: Worker) -> None:
        worker.reap()
        self._settle("ended" if self.killing else "lost", worker.rank, worker.ending.encode())
        self._stop_soon(self.pool.grace)

    def _settle(self, kind: str, rank: int, data: bytes) -> None:
        self.outcomes[self.busy.pop(rank)] = Outcome(kind, rank, data, self.settled)
        self.settled += 1

    def _stop_soon(self, seconds: float, kill: bool = False) -> None:
        now = time.monotonic()
        self.interrupt_at = min(self.interrupt_at, now + seconds)
        self.kill_at = now if kill else min(self.kill_at, now + seconds + self.pool.grace)

    def _check_clock(self) -> None:
        now = time.monotonic()
        if now >= self.kill_at and not self.killing:
            self.killing = True
            self._signal_busy(signal.SIGKILL)
        elif now >= self.interrupt_at:
            self.interrupt_at = float("inf")
            self.interrupted |= set(self.busy)
            self._signal_busy(signal.SIGINT)

    def _signal_busy(self, sig: int) -> None:
        for rank in self.busy:
            self.pool.workers[rank].send(sig)
