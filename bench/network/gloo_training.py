"""One-peer training as one would write it on torch.distributed by hand: the neighbor's model travels while the gradients
are computed. What our training on the network should not be slower than.

Rank and meeting point come from torchrun's variables. Reads lines "steps K [message=float32|bfloat16]
[late=MS,PERIOD,PHASE]" and "alone K" (the same without the neighbor), and answers each with the seconds they took,
or "cannot" and why.
"""
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import peer_ddp  # noqa: E402  the same networks

AS_BYTES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Contender:
    def __init__(self, make, message):
        torch.manual_seed(1)
        self.net = make()
        parameters = list(self.net.parameters())
        # All parameters in one tensor, so that one message holds them.
        self.flat = torch.cat([p.detach().flatten() for p in parameters])
        at = 0
        for p in parameters:
            p.data = self.flat[at:at + p.numel()].view_as(p)
            at += p.numel()
        self.sgd = torch.optim.SGD(parameters, lr=1e-5, momentum=0.9)
        self.dtype = AS_BYTES[message]
        self.sent = torch.empty_like(self.flat, dtype=self.dtype)
        self.heard = torch.empty_like(self.sent)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.rounds, self.number = max(1, (self.size - 1).bit_length()), 0

    def compute(self, images, labels):
        self.sgd.zero_grad()
        F.cross_entropy(self.net(images), labels).backward()

    def alone(self, images, labels):
        self.compute(images, labels)
        self.sgd.step()

    def steps(self, images, labels):
        offset = 1 << self.number % self.rounds
        self.number += 1
        self.sent.copy_(self.flat)
        hears = dist.irecv(self.heard.view(torch.uint8), (self.rank + offset) % self.size)
        tells = dist.isend(self.sent.view(torch.uint8), (self.rank - offset) % self.size)
        self.compute(images, labels)
        hears.wait()
        tells.wait()
        # x + (neighbor's - own) / 2, both as they were sent
        self.flat.add_(self.heard.to(torch.float32), alpha=0.5).sub_(self.sent.to(torch.float32), alpha=0.5)
        self.sgd.step()


def main():
    name, batch = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    make, shape, classes = peer_ddp.MODELS[name]
    contenders = {}
    torch.manual_seed(100 + dist.get_rank())
    images, labels = torch.randn(batch, *shape), torch.randint(classes, (batch,))
    for line in sys.stdin:
        what, steps, options = line.split()[0], int(line.split()[1]), peer_ddp.options_of(line.split())
        message = options.get("message", "float32")
        if message not in AS_BYTES:
            print(f"cannot send {message}: by hand there are {', '.join(AS_BYTES)}", flush=True)
            continue
        if message not in contenders:
            contenders[message] = Contender(make, message)
        take_step = {"steps": contenders[message].steps, "alone": contenders[message].alone}[what]
        late = peer_ddp.lateness(options.get("late"))
        dist.barrier()
        begin = time.perf_counter()
        for step in range(steps):
            time.sleep(late(step))
            take_step(images, labels)
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main()
