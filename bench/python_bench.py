"""What Python costs: `./run bench python`.

A 1 kB neighbor_allreduce from Python beside the same loop in C++, and training steps of the Python package beside those of
the C++ Trainer, in interleaved rounds on the same cores. Ratios and differences of medians, never absolute bars.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import peer_ddp  # the same networks, in this folder

MALLOC = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}  # as `starling bench training`
MOST_OVERHEAD = 10e-6  # seconds per call
MOST_RATIO = 1.05
BATCH = {"lenet": 32, "mlp": 128}


class Job:
    """The ranks of one program, which read commands and answer them, one line each."""

    def __init__(self, words, ranks, **settings):
        from starling import _core

        self.processes = []
        for variables in _core.worker_environments(ranks):
            environment = {**os.environ, **settings, "OMP_NUM_THREADS": "1", **variables}
            self.processes.append(subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                   text=True, bufsize=1))

    def ask(self, line):
        for process in self.processes:
            process.stdin.write(line + "\n")
        answers = [process.stdout.readline().split() for process in self.processes]
        if not all(answers):
            raise SystemExit(f"python_bench: a rank ended during the command '{line}'")
        return answers

    def end(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait(30)


def seconds_per_step(job, line, steps):
    return statistics.mean(float(answer[0]) for answer in job.ask(f"{line} {steps}")) / steps


def training(network, ranks, starts, rounds, seconds):
    """Python over C++, round by round: a step of the package over the Trainer's, and torch alone, which only computes
    gradients. Processes are started several times, since where their memory lies matters to a few percent."""
    tool = str(Path(os.environ["STARLING_BIN"]) / "starling-torch")
    ratios, bare, natives = [], [], []
    for _ in range(starts):
        native = Job([tool, "worker", network, "1"], ranks, **MALLOC)
        python = Job([sys.executable, __file__, "--worker", network], ranks, **MALLOC)
        sides = [(native, "dsgd-awc one-peer-exponential"), (python, "steps"),
                 (native, "gradients one-peer-exponential"), (python, "gradients")]
        first = [seconds_per_step(job, line, 5) for job, line in sides]  # warms up, too
        steps = max(2, int(seconds / max(first)))
        for number in range(rounds):
            times = [0.0] * len(sides)
            for which in range(len(sides)) if number % 2 == 0 else reversed(range(len(sides))):
                times[which] = seconds_per_step(*sides[which], steps)
            ratios.append(times[1] / times[0])
            bare.append(times[3] / times[2])
            natives.append(times[0])
        native.end()
        python.end()
    return ratios, bare, statistics.median(natives)


def worker(network):
    import torch
    import torch.nn.functional as F

    import starling.torch as bf

    torch.set_num_threads(1)
    bf.init()
    torch.manual_seed(1)
    make, shape, classes = peer_ddp.MODELS[network]
    net = make()
    optimizer = bf.decentralize(net, torch.optim.SGD(net.parameters(), lr=1e-5, momentum=0.9))
    torch.manual_seed(100 + bf.rank())
    images, labels = torch.randn(BATCH[network], *shape), torch.randint(classes, (BATCH[network],))
    alone = make()
    for line in sys.stdin:
        what, steps = line.split()[0], int(line.split()[1])
        bf.barrier()
        begin = time.perf_counter()
        if what == "gradients":
            for _ in range(steps):
                alone.zero_grad(set_to_none=False)
                F.cross_entropy(alone(images), labels).backward()
        else:
            for _ in range(steps):
                optimizer.zero_grad()
                F.cross_entropy(net(images), labels).backward()
                optimizer.step()
        print(time.perf_counter() - begin, flush=True)


def caller():
    """Answers "calls K elements" with the seconds of K calls in place from Python, and of K in C++."""
    import torch

    import starling.torch as bf

    bf.init()
    flock = bf.process.flock()
    for line in sys.stdin:
        calls, elements = map(int, line.split()[1:])
        x = torch.zeros(elements)
        bf.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            bf.neighbor_allreduce(x)
        python = time.perf_counter() - begin
        bf.barrier()
        print(python, flock._time_neighbor_allreduce(x.data_ptr(), x.numel(), calls), flush=True)


def calls_in_both(ranks, rounds, calls, elements):
    """(seconds of a call from Python, in C++), round by round."""
    job = Job([sys.executable, __file__, "--caller"], ranks)
    job.ask(f"calls {max(1, calls // 20)} {elements}")
    times = []
    for _ in range(rounds):
        answers = job.ask(f"calls {calls} {elements}")
        times.append([statistics.mean(float(answer[k]) for answer in answers) / calls for k in (0, 1)])
    job.end()
    return times


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--starts", type=int, default=4, help="how often the training processes are started")
    parser.add_argument("--seconds", type=float, default=0.4, help="of one side in one round")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--caller", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return worker(given.worker)
    if given.caller:
        return caller()
    good = True
    print("neighbor_allreduce of 1 kB from Python over the loop in C++ (bar: 10 us more per call)")
    for ranks in (1, 2):
        times = calls_in_both(ranks, given.rounds, 2000, 256)
        natives = [native for _, native in times]
        low, middle, high = spread([python - native for python, native in times])
        met = middle <= MOST_OVERHEAD
        good &= met
        print(f"  n = {ranks}: {1e6 * middle:5.2f} us more ({1e6 * low:.2f} to {1e6 * high:.2f}); C++ "
              f"{1e6 * statistics.median(natives):.2f} us  {'met' if met else 'MISSED'}")
    print("the same of 100 MB, as a ratio (bar: 1.05; a copy of the tensor would be seen)")
    low, middle, high = spread([python / native for python, native in calls_in_both(2, given.rounds, 3, 25_000_000)])
    good &= middle <= MOST_RATIO
    print(f"  n = 2: {middle:.3f} ({low:.3f} to {high:.3f})  {'met' if middle <= MOST_RATIO else 'MISSED'}")
    print("a training step of starling.torch over one of the C++ Trainer, and torch's own gradients in Python over those in "
          "C++ (bar: 1.05 between the two)")
    for network in ("lenet", "mlp"):
        for ranks in (1, 2):
            ratios, bare, native = training(network, ranks, given.starts, given.rounds, given.seconds)
            low, middle, high = spread(ratios)
            own = statistics.median(bare)  # Python's overhead in torch itself, which we cannot remove
            met = middle <= MOST_RATIO * max(1.0, own)
            good &= met
            print(f"  {network:5} n = {ranks}: {middle:.3f} ({low:.3f} to {high:.3f}); torch alone "
                  f"{own:.3f}; C++ {1e3 * native:.2f} ms  {'met' if met else 'MISSED'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
