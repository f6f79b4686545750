"""PyTorch's DistributedDataParallel as users write it: the peer of `starling bench training` and ./run network-bench.

Rank and meeting point come from torchrun's variables. Reads lines "steps K [bucket=MB] [hook=fp16] [late=MS,PERIOD,PHASE]"
and answers each with the seconds they took. `hook` sends gradients in half precision; `late` waits so long in every step
whose number leaves PHASE when divided by PERIOD.
"""
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.added, self.stride = outputs - inputs, stride

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.added:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.added // 2, self.added - self.added // 2))
        return F.relu(y + x)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        blocks, inputs = [], 16
        for outputs in (16, 32, 64):
            for _ in range(3):
                blocks.append(Residual(inputs, outputs, 1 if inputs == outputs else 2))
                inputs = outputs
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.norm(self.stem(x)))).mean((2, 3)))


def mlp():
    layers = [nn.Flatten()]
    for i in range(8):
        layers += [nn.ReLU()] * (i > 0) + [nn.Linear(1024, 1024)]
    return nn.Sequential(*layers)


MODELS = {  # name: (network, shape of an image, classes)
    "lenet": (LeNet, (1, 28, 28), 10),
    "resnet20": (ResNet20, (3, 32, 32), 10),
    "mlp": (mlp, (1, 32, 32), 1024),
}


HOOKS = {"fp16": default_hooks.fp16_compress_hook}


def options_of(words):
    return dict(word.split("=", 1) for word in words if "=" in word)


def lateness(text):
    """How many seconds to wait in a step, as a function of its number."""
    if not text:
        return lambda step: 0.0
    milliseconds, period, phase = map(int, text.split(","))
    return lambda step: milliseconds / 1000 if step % period == phase else 0.0


class Contender:
    def __init__(self, make, bucket_mb, hook):
        torch.manual_seed(1)
        self.net = DistributedDataParallel(make(), bucket_cap_mb=bucket_mb)
        if hook:
            self.net.register_comm_hook(None, HOOKS[hook])
        self.sgd = torch.optim.SGD(self.net.parameters(), lr=1e-5, momentum=0.9)

    def step(self, images, labels):
        self.sgd.zero_grad()
        F.cross_entropy(self.net(images), labels).backward()
        self.sgd.step()


def main():
    name, batch, bucket_mb, threads = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    dist.init_process_group("gloo")
    make, shape, classes = MODELS[name]
    contenders = {}
    torch.manual_seed(100 + dist.get_rank())
    images, labels = torch.randn(batch, *shape), torch.randint(classes, (batch,))
    for line in sys.stdin:
        steps, options = int(line.split()[1]), options_of(line.split())
        key = (float(options.get("bucket", bucket_mb)), options.get("hook"))
        if key not in contenders:
            contenders[key] = Contender(make, *key)
        late = lateness(options.get("late"))
        dist.barrier()
        begin = time.perf_counter()
        for step in range(steps):
            time.sleep(late(step))
            contenders[key].step(images, labels)
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main()
