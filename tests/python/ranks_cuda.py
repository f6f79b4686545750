"""Tensors and models on a GPU, copied through the host, in every rank; skipped without a GPU."""

import pytest
import torch

import starling.torch as bf

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
bf.init()
rank, n = bf.rank(), bf.size()
device = torch.device("cuda")


def test_operations():
    x = torch.arange(6.0, device=device).reshape(2, 3).t() + rank  # not contiguous
    total = sum(torch.arange(6.0).reshape(2, 3).t() + r for r in range(n))
    got = bf.allreduce(x)
    assert got.device.type == "cuda"
    torch.testing.assert_close(got.cpu(), total / n)
    assert bf.allreduce_(x) is x
    torch.testing.assert_close(x.cpu(), total / n)
    torch.testing.assert_close(bf.broadcast(torch.full((3,), float(rank), device=device), 0).cpu(), torch.zeros(3))
    assert bf.allgather(torch.full((rank + 1, 2), float(rank), device=device)).shape == (n * (n + 1) // 2, 2)
    handle = bf.neighbor_allreduce_nonblocking(torch.full((1000,), float(rank), device=device))
    mixed = bf.synchronize(handle)
    sources = bf.in_neighbor_ranks()
    torch.testing.assert_close(mixed.cpu(), torch.full((1000,), (rank + sum(sources)) / (len(sources) + 1)))
    half = bf.allreduce(torch.full((5,), float(rank), device=device, dtype=torch.bfloat16))
    torch.testing.assert_close(half.float().cpu(), torch.full((5,), (n - 1) / 2))


def test_windows():
    x = torch.full((4,), float(rank), device=device)
    assert bf.win_create(x, "cuda")
    bf.win_put(x, "cuda")
    bf.barrier()
    bf.win_update("cuda")
    sources = bf.in_neighbor_ranks()
    torch.testing.assert_close(x.cpu(), torch.full((4,), (rank + sum(sources)) / (len(sources) + 1)))
    bf.barrier()
    bf.win_free("cuda")


def net(where, seed=3):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8, bias=False), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(where)


def batch(step, where):
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(16, 4, generator=generator)
    return x.to(where), x.sum(1, keepdim=True).to(where)


def train(where, make, steps=8):
    model = net(where)
    optimizer = make(model)
    for step in range(steps):
        x, y = batch(step, where)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return model, optimizer


MAKERS = {
    "allreduce": lambda m: bf.DistributedGradientAllreduceOptimizer(torch.optim.SGD(m.parameters(), 0.05, 0.9), m),
    "atc": lambda m: bf.DistributedAdaptThenCombineOptimizer(torch.optim.Adam(m.parameters(), 0.01), m),
    "awc": lambda m: bf.DistributedAdaptWithCombineOptimizer(torch.optim.SGD(m.parameters(), 0.05), m),
    "unknown": lambda m: bf.DistributedAdaptThenCombineOptimizer(torch.optim.RMSprop(m.parameters(), 0.01), m),
    "tracking": lambda m: bf.decentralize(m, torch.optim.SGD(m.parameters(), 0.05), "gradient-tracking", "exponential"),
    "clipped": lambda m: bf.decentralize(m, torch.optim.SGD(m.parameters(), 0.05), clip_norm=0.1),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_training_is_the_same_as_on_the_cpu(maker):
    on_cpu, _ = train("cpu", MAKERS[maker])
    on_gpu, optimizer = train(device, MAKERS[maker])
    for one, other in zip(on_cpu.parameters(), on_gpu.parameters()):
        assert other.is_cuda
        torch.testing.assert_close(other.detach().cpu(), one.detach(), rtol=2e-3, atol=2e-4)
    with optimizer.global_average():
        pass
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)


def test_checkpoint(tmp_path):
    def make(model):
        return bf.decentralize(model, torch.optim.Adam(model.parameters(), 0.01), "gradient-tracking", "exponential")

    model, optimizer = train(device, make, 4)
    optimizer.save_checkpoint(tmp_path / f"{rank}")
    other = net(device, seed=9)
    resumed = make(other)
    resumed.load_checkpoint(tmp_path / f"{rank}")
    for m, o in ((model, optimizer), (other, resumed)):
        for step in range(4, 6):
            x, y = batch(step, device)
            o.zero_grad()
            torch.nn.functional.mse_loss(m(x), y).backward()
            o.step()
    for one, two in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("maker", ["allreduce", "awc", "atc"])
def test_mixed_precision_with_an_overflow_on_one_rank(maker):
    model = net(device)
    optimizer = MAKERS[maker](model)
    scaler = torch.cuda.amp.GradScaler(init_scale=1024.0)
    losses = []
    for step in range(30):
        x, y = batch(step, device)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.mse_loss(model(x).float(), y)
        if step == 5 and rank == 0:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert sum(losses[-5:]) < sum(losses[:5])
    assert scaler.get_scale() == (512.0 if rank == 0 else 1024.0)
