"""Training on a GPU that several processes share: a part of `./run gpu bench`, where Python has a torch with CUDA.

Every case trains a model with Starling and, in turns, the same model in the same processes without Starling, each process alone,
with torch's fused optimizer. What is compared with the bar is the ratio of their times. The cases of `starling train` compare
16 workers with one that has the same total batch.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

TIME_LIMIT = 240  # seconds, for the processes of a case
IMAGES = 50000  # of an epoch of `starling train`


class Case(NamedTuple):
    name: str
    kind: str  # a model, or what else is measured
    size: int
    ranks: int
    of: str
    bar: float
    least: bool = False
    unit: str = "times"  # or "share", "us"

    def met(self, measured):
        return measured >= self.bar if self.least else measured <= self.bar

    def text_of(self, measured):
        return {"times": f"{measured:.3f}x", "share": f"{100 * measured:.1f} %", "us": f"{measured:.1f} us"}[self.unit]

    def bar_text(self):
        return ("at least " if self.least else "at most ") + \
            {"times": f"{self.bar:g}x", "share": f"{100 * self.bar:g} %", "us": f"{self.bar:g} us"}[self.unit]


def cases():
    alone = "the same processes alone"
    models = [("GPT 98 M, bf16 autocast, AdamW", "gpt", 16384, 1.05), ("GPT 124 M, bf16 autocast, AdamW", "gpt", 50304, 1.05),
              ("ResNet-50, batch 64, bf16 autocast", "resnet50", 64, 1.03), ("MLP 33.6 M, batch 128", "mlp", 128, 1.35)]
    found = [Case(name, kind, size, ranks, alone, bar) for name, kind, size, bar in models for ranks in (2, 4)]
    found.append(Case("step() on the host, GPT 98 M, a bucket", "host", 16384, 2, "", 50, unit="us"))
    found.append(Case("synchronizing calls in step(), GPT 98 M", "calls", 16384, 2, "the same without Starling", 0))
    found += [Case(f"starling train, {name}, batch 32 a worker", model, 32, 16, "one worker with the same total batch", 0.7, True, "share")
              for name, model in (("VGG-11", "vgg11"), ("ResNet-20", "resnet20"))]
    found.append(Case("neighbor_allreduce from Python, 100 MB", "average", 25_000_000, 2, "its bytes' time", 0.85, True, "share"))
    return found


# What a rank does.


def make_gpt(vocabulary):
    import torch
    import torch.nn.functional as F

    width, heads, layers, context = 768, 12, 12, 1024

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.before_attention, self.before_mlp = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.attention_in, self.attention_out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = (one.view(batch, length, heads, -1).transpose(1, 2)
                       for one in self.attention_in(self.before_attention(x)).split(width, 2))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
            x = x + self.attention_out(mixed)
            return x + self.mlp(self.before_mlp(x))

    class Gpt(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(context, width)
            self.layers = torch.nn.Sequential(*(Layer() for _ in range(layers)))
            self.after = torch.nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.layers(self.words(tokens) + self.places.weight[:tokens.shape[1]])
            return F.linear(self.after(x), self.words.weight)  # tied

    return Gpt(), lambda: torch.randint(vocabulary, (8, context), device="cuda")


class Workload:
    """A model of a case, alone or decentralized; `step` does one training step."""

    def __init__(self, kind, size, decentralized, **options):
        import torch
        import torch.nn.functional as F

        import starling.torch as bf

        torch.manual_seed(1)
        self.autocast = kind != "mlp"
        if kind == "gpt":
            self.model, draw = make_gpt(size)
            self.inputs = self.targets = draw()
            self.loss = lambda out, to: F.cross_entropy(out.flatten(0, 1), to.flatten())
            make = lambda parameters: torch.optim.AdamW(parameters, lr=1e-5, fused=True)
        else:
            if kind == "mlp":
                self.model = torch.nn.Sequential(*(module for _ in range(8)
                                                   for module in (torch.nn.Linear(2048, 2048), torch.nn.ReLU())))
                self.inputs, classes = torch.randn(size, 2048, device="cuda"), 2048
            else:
                import torchvision

                self.model = torchvision.models.resnet50().to(memory_format=torch.channels_last)
                self.inputs = torch.randn(size, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
                classes = 1000
            self.targets = torch.randint(classes, (size,), device="cuda")
            self.loss = F.cross_entropy
            make = lambda parameters: torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, fused=True)
        self.model.cuda()
        self.optimizer = make(self.model.parameters())
        if decentralized:
            self.optimizer = bf.decentralize(self.model, self.optimizer, **options)

    def gradients(self):
        import torch

        self.optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.autocast):
            loss = self.loss(self.model(self.inputs), self.targets)
        loss.backward()

    def step(self):
        self.gradients()
        self.optimizer.step()


def seconds_each(body, repeats):
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeats):
        body()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / repeats


def in_turns(limit, own, rounds, seconds):
    """Rounds of (the limit's seconds, its own), each rank's by its own clock."""
    import starling.torch as bf

    for _ in range(3):
        limit(), own()
    first = max(seconds_each(limit, 3), seconds_each(own, 3))
    repeats = max(2, int(seconds / slowest(first)))  # of the slowest rank, so that all do the same
    found = []
    for number in range(rounds):
        both = [0.0, 0.0]
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            bf.barrier()
            both[which] = seconds_each((limit, own)[which], repeats)
        found.append(both)
    bf.barrier()
    return found


def slowest(seconds):
    import torch

    import starling.torch as bf

    return bf.allgather(torch.tensor([seconds], dtype=torch.float64)).max().item()


def synchronizing_calls(body, steps):
    """Calls per step in which the host waits for the device, as CUDA's profiling interface sees them."""
    from torch.profiler import ProfilerActivity, profile

    body()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            body()
    names = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize",
             "cuEventSynchronize", "cudaMemcpy", "cuMemcpyDtoH_v2")
    counts = {event.key: event.count for event in seen.key_averages() if event.key in names}
    counts["cudaDeviceSynchronize"] = max(0, counts.get("cudaDeviceSynchronize", 0) - 1)  # the profile's own end
    return sum(counts.values()) / steps


def rank_main(kind, size, rounds, seconds, options):
    import torch

    import starling.torch as bf

    torch.cuda.set_device(0)
    bf.init()
    if kind == "average":
        x, y = torch.zeros(size, device="cuda"), torch.zeros(size, device="cuda")
        found = in_turns(lambda: y.copy_(x), lambda: bf.neighbor_allreduce(x), rounds, seconds / 10)
        found = [(2.5 * copy, own) for copy, own in found]  # x into outgoing memory (2), and the sum (3)
    elif kind == "host":
        ours = Workload("gpt", size, True, **options)
        found = []
        for _ in range(3 + 4 * rounds):
            ours.gradients()
            torch.cuda.synchronize()
            bf.barrier()
            begin = time.perf_counter()
            ours.optimizer.step()
            found.append([1.0, (time.perf_counter() - begin) / ours.optimizer.trainer.buckets])
        found = found[3:]
    elif kind == "calls":
        alone, ours = Workload("gpt", size, False), Workload("gpt", size, True, **options)
        for _ in range(3):
            alone.step(), ours.step()
        found = [[1.0, synchronizing_calls(ours.step, 4) - synchronizing_calls(alone.step, 4)]]
        bf.barrier()
    else:
        alone, ours = Workload(kind, size, False), Workload(kind, size, True, **options)
        found = in_turns(alone.step, ours.step, rounds, seconds)
    print("measured " + json.dumps({"rank": bf.rank(), "rounds": found}), flush=True)


# What starts them.


def seconds_of_training(model, workers, batch, epochs):
    """Seconds per epoch of `starling train`, after the first epoch."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.jsonl"
        command = [str(Path(os.environ["STARLING_BIN"]) / "starling"), "train", "--device", "cuda", "--data",
                   f"synthetic(channels=3,size=32,train={IMAGES},test=500)", "--model", model, "--workers", str(workers), "--batch",
                   str(batch), "--epochs", str(epochs), "--reports", "1", "--local-test", "0", "--metrics", str(log)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
        if ended.returncode != 0:
            raise RuntimeError("; ".join(ended.stderr.strip().splitlines()[-6:]) or f"exit status {ended.returncode}")
        reports = [line for line in map(json.loads, log.read_text().splitlines()) if line["kind"] == "report"]
    first = next(report for report in reports if report["epoch"] >= 1)
    return (reports[-1]["seconds"] - first["seconds"]) / (reports[-1]["epoch"] - first["epoch"])


def measure(case, given):
    """[(the limit's seconds, its own)] of each round, of its slowest rank."""
    if case.kind in ("vgg11", "resnet20"):
        return [(seconds_of_training(case.kind, 1, case.ranks * case.size, given.epochs),
                 seconds_of_training(case.kind, case.ranks, case.size, given.epochs))]
    tool = Path(os.environ["STARLING_BIN"]) / "starling"
    command = [str(tool), "run", "-n", str(case.ranks), "--", sys.executable, __file__, "--rank", case.kind, str(case.size), "--rounds",
               str(given.rounds), "--seconds", str(given.seconds), "--options", json.dumps(given.options)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
    lines = [line[line.index("measured ") + 9:] for line in ended.stdout.splitlines() if "measured {" in line]
    ranks = [json.loads(line)["rounds"] for line in lines]
    if ended.returncode != 0 or len(ranks) != case.ranks:
        raise RuntimeError("; ".join(ended.stderr.strip().splitlines()[-6:]) or f"exit status {ended.returncode}")
    return [tuple(max(rank[i][which] for rank in ranks) for which in (0, 1)) for i in range(len(ranks[0]))]


def judge(case, rounds):
    """(seconds, what is compared with the bar)"""
    seconds = statistics.median(own for _, own in rounds)
    if case.kind == "host":
        return seconds, 1e6 * seconds
    if case.kind == "calls":
        return None, rounds[0][1]
    ratios = [limit / own if case.least else own / limit for limit, own in rounds]
    return seconds, statistics.median(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one side in one round")
    parser.add_argument("--epochs", type=int, default=6, help="of starling train")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--options", type=json.loads, default={}, help="of decentralize(), as JSON")
    parser.add_argument("--json", type=Path, help="writes the results there, too")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--rank", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        return rank_main(given.rank[0], int(given.rank[1]), given.rounds, given.seconds, given.options)
    chosen = [case for case in cases() if given.only in case.name]
    if not chosen:
        parser.error(f"no case contains '{given.only}'; see --list")
    if given.list:
        print("\n".join(f"{case.name}, {case.ranks} processes: {case.bar_text()}" for case in chosen))
        return 0
    print(f"{'case':42} {'processes':>9} {'time':>10} {'measured':>10}  {'bar':18} met")
    results, failed = [], False
    for case in chosen:
        try:
            rounds = measure(case, given)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failed = True
            print(f"{case.name:42} {case.ranks:9} failed: {error}", flush=True)
            results.append({"case": case.name, "processes": case.ranks, "problem": str(error)})
            continue
        seconds, measured = judge(case, rounds)
        shown = "" if seconds is None else f"{1e3 * seconds:.3f} ms"
        print(f"{case.name:42} {case.ranks:9} {shown:>10} {case.text_of(measured):>10}  {case.bar_text():18} "
              f"{'yes' if case.met(measured) else 'no'}", flush=True)
        results.append({"case": case.name, "processes": case.ranks, "seconds": seconds, "measured": measured, "of": case.of,
                        "bar": case.bar_text(), "met": case.met(measured), "rounds": rounds})
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
