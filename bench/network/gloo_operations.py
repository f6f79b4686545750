"""Operations as one would write them on torch.distributed by hand: the peer of our operations on the network.

Rank and meeting point come from torchrun's variables. Reads lines "one-peer ELEMENTS REPEATS" (the average with the one
neighbor of the one-peer exponential graph's step) and "all-reduce ELEMENTS REPEATS" (gloo's), and answers each with the
seconds they took. "lose RANK" waits for a message that never comes and answers with the moment at which gloo gave up.
"""
import sys
import time

import torch
import torch.distributed as dist


class OnePeer:
    """x <- (x + the source's x) / 2; rank r receives from r + 2^k and sends to r - 2^k."""

    def __init__(self, elements):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.x, self.heard = torch.full((elements,), float(1 + self.rank)), torch.empty(elements)
        self.rounds = max(1, (self.size - 1).bit_length())
        self.step = 0

    def __call__(self):
        offset = 1 << self.step % self.rounds
        self.step += 1
        hears = dist.irecv(self.heard, (self.rank + offset) % self.size)
        tells = dist.isend(self.x, (self.rank - offset) % self.size)
        hears.wait()
        tells.wait()
        self.x.lerp_(self.heard, 0.5)

    def check(self):
        """Checks the result of the first operation."""
        expected = (1 + self.rank + 1 + (self.rank + 1) % self.size) / 2
        if not torch.all(self.x == expected):
            raise SystemExit(f"gloo_operations: rank {self.rank} got {self.x[0]} instead of {expected}")


class AllReduce:
    def __init__(self, elements):
        self.size = dist.get_world_size()
        self.x = torch.full((elements,), float(1 + dist.get_rank()))

    def __call__(self):
        dist.all_reduce(self.x)

    def check(self):
        if not torch.all(self.x == self.size * (self.size + 1) / 2):
            raise SystemExit(f"gloo_operations: the sum was {self.x[0]}")
        self.x.zero_()  # otherwise sums would overflow


OPERATIONS = {"one-peer": OnePeer, "all-reduce": AllReduce}


def give_up_on(lost):
    try:
        dist.recv(torch.empty(1), lost)
    except RuntimeError:
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    raise SystemExit("gloo_operations: a message came from a rank that was to be lost")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ready = {}
    for line in sys.stdin:
        name, number, *rest = line.split()
        if name == "lose":
            print(give_up_on(int(number)), flush=True)
            continue
        key = (name, int(number))
        if key not in ready:
            ready[key] = OPERATIONS[name](int(number))
            ready[key]()
            ready[key].check()
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(int(rest[0])):
            ready[key]()
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main()
