"""Training on a GPU, in every rank: it gives what training on the CPU gives, with what torch has for GPUs. Without a GPU it runs
on the CPU, as a test of these tests."""

import os
import shutil
import tempfile

import pytest
import torch

import starling
import starling.torch as bf

bf.init()
rank, n = bf.rank(), bf.size()
has_gpu = torch.cuda.is_available()
device = torch.device(f"cuda:{bf.local_rank() % torch.cuda.device_count()}" if has_gpu else "cpu")
on_gpu = pytest.mark.skipif(not has_gpu, reason="no GPU here")


def net(where="cpu", seed=3):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8, bias=False), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(where)


def batch(step, where):
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(16, 4, generator=generator)
    return x.to(where), x.sum(1, keepdim=True).to(where)


def loss_of(model, step):
    x, y = batch(step, next(model.parameters()).device)
    return torch.nn.functional.mse_loss(model(x).float(), y)


def sgd(model, **options):
    return bf.decentralize(model, torch.optim.SGD(model.parameters(), 0.05), **options)


def train(model, optimizer, steps=4, first=0):
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    return model


def parameters_of(model):
    return torch.cat([one.detach().flatten().float().cpu() for one in model.parameters()])


def assert_near(found, expected, atol=2e-4):
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=atol)


def shared_folder():
    """The same new folder on all ranks."""
    text = torch.tensor(list((tempfile.mkdtemp() if rank == 0 else "").encode()), dtype=torch.uint8)
    return bytes(bf.allgather(text).tolist()).decode()


# Every way to train: `way(where)` returns what must be the same on the CPU and on the GPU.


def optimizers(make):
    def way(where):
        model = net(where)
        return parameters_of(train(model, make(model), 8))
    return way


def accumulation(where):
    model = net(where)
    optimizer = sgd(model, accumulation=2)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, 2 * step).backward()
        loss_of(model, 2 * step + 1).backward()
        optimizer.step()
    return parameters_of(model)


def schedulers(where):
    model = net(where)
    optimizer = sgd(model, method="gradient-tracking")
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for step in range(4):
        train(model, optimizer, 1, step)
        decay.step()
    assert optimizer.param_groups[0]["lr"] == 0.05 / 16
    return parameters_of(model)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.out(self.second(torch.tanh(self.first(x))))


def tied(where):
    torch.manual_seed(3)
    model = Tied().to(where)
    train(model, sgd(model))
    assert model.second.weight is model.first.weight
    return parameters_of(model)


def frozen(where):
    model = net(where)
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    train(model, sgd(model))
    assert torch.equal(model[0].weight, before) and model[0].weight.grad is None
    return parameters_of(model)


class Images(torch.nn.Sequential):
    def forward(self, x):
        return super().forward(x.reshape(-1, 1, 2, 2).repeat(1, 4, 4, 4).contiguous(memory_format=torch.channels_last))


def channels_last(where):
    torch.manual_seed(3)
    model = Images(torch.nn.Conv2d(4, 6, 3), torch.nn.ReLU(), torch.nn.Conv2d(6, 2, 3), torch.nn.Flatten(), torch.nn.Linear(32, 1))
    model.to(device=where, memory_format=torch.channels_last)
    train(model, bf.decentralize(model, torch.optim.Adam(model.parameters(), 0.01), "dsgd-atc"))
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    return parameters_of(model)


def clipping(where):
    model = net(where)
    optimizer = sgd(model, clip_norm=0.1)
    train(model, optimizer)
    return torch.cat([parameters_of(model), torch.tensor([optimizer.gradient_norm])])


def skipping(where):
    model = net(where)
    optimizer = sgd(model, method="dsgd-atc")
    for step in range(4):
        optimizer.zero_grad()
        if step == 1 and rank == 0:
            optimizer.skip()
        else:
            train(model, optimizer, 1, step)
    return parameters_of(model)


def averages(where):
    model = net(where)
    optimizer = sgd(model, topology="ring")
    train(model, optimizer)
    own = parameters_of(model)
    distance = optimizer.consensus_distance()
    with optimizer.global_average():
        mean = parameters_of(model)
    assert torch.equal(parameters_of(model), own)
    optimizer.adopt_average()
    assert torch.equal(parameters_of(model), mean)
    return torch.cat([own, mean, torch.tensor([distance])])


def state_dicts(where):
    model = net(where)
    optimizer = bf.decentralize(model, torch.optim.AdamW(model.parameters(), 0.01))
    train(model, optimizer)
    for state in optimizer.state_dict()["state"].values():
        assert state["exp_avg"].device.type == torch.device(where).type
    optimizer.load_state_dict(optimizer.state_dict())
    return parameters_of(train(model, optimizer, 2, 4))


def autocast(where):
    model = net(where)
    optimizer = sgd(model)
    for step in range(4):
        optimizer.zero_grad()
        with torch.autocast(torch.device(where).type, dtype=torch.bfloat16):
            loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
    return parameters_of(model)


WAYS = {
    "allreduce": optimizers(lambda m: bf.DistributedGradientAllreduceOptimizer(torch.optim.SGD(m.parameters(), 0.05, 0.9), m)),
    "atc": optimizers(lambda m: bf.DistributedAdaptThenCombineOptimizer(torch.optim.Adam(m.parameters(), 0.01), m)),
    "awc": optimizers(lambda m: bf.DistributedAdaptWithCombineOptimizer(torch.optim.SGD(m.parameters(), 0.05), m)),
    "other optimizer": optimizers(lambda m: bf.DistributedAdaptThenCombineOptimizer(torch.optim.RMSprop(m.parameters(), 0.01), m)),
    "eager": optimizers(lambda m: sgd(m, method="dsgd-atc", eager=True)),
    **{one.__name__: one for one in (accumulation, schedulers, tied, frozen, channels_last, clipping, skipping, averages,
                                     state_dicts, autocast)},
}


@pytest.mark.parametrize("way", WAYS)
def test_gives_what_the_cpu_gives(way):
    assert_near(WAYS[way](device), WAYS[way]("cpu"), atol=0.03 if way == "autocast" else 2e-4)


def test_getting_from_windows():
    model = net(device)
    optimizer = bf.DistributedPullGetOptimizer(torch.optim.SGD(model.parameters(), 0.05), model)
    optimizer.force_barrier = True
    train(model, optimizer)
    assert parameters_of(model).isfinite().all() and all(one.device == device for one in model.parameters())
    optimizer.unregister_window()


METHODS = {method["name"]: method for method in starling.methods()}


def any_setting(model, method):
    """The method on a topology and with an optimizer that it works with."""
    for topology in ("one-peer-exponential", "exponential", "ring", "random-matching", "chain"):
        for make in (lambda p: torch.optim.SGD(p, 0.02), lambda p: torch.optim.Adam(p, 0.02)):
            try:
                return bf.decentralize(model, make(model.parameters()), method, topology)
            except starling.InvalidArgument as error:
                refused = error
    raise refused


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method):
    """Asynchronous ones depend on the ranks' speed."""
    found = []
    for where in ("cpu", device):
        model = net(where)
        optimizer = any_setting(model, method)
        train(model, optimizer, 3)
        optimizer.settle()
        bf.barrier()
        found.append(parameters_of(model))
        optimizer._retire()
    assert found[1].isfinite().all()
    if method not in ("async-push-sum", "async-average", "ad-psgd", "win-put"):
        assert_near(found[1], found[0])


@pytest.mark.parametrize("method", ["dsgd-awc", "gradient-tracking"])
def test_checkpoints_continue_on_the_other_device(method):
    folder = shared_folder()

    def made(where, seed):
        model = net(where, seed)
        return model, bf.decentralize(model, torch.optim.Adam(model.parameters(), 0.01), method, "exponential")

    model, optimizer = made(device, 3)
    train(model, optimizer, 3)
    optimizer.save(folder)
    train(model, optimizer, 3, 3)
    for where in (device, "cpu"):
        other, resumed = made(where, 9)
        assert resumed.resume(folder).step == 3
        assert_near(parameters_of(train(other, resumed, 3, 3)), parameters_of(model))
    optimizer.save_checkpoint(os.path.join(folder, f"own-{rank}"))
    other, resumed = made(device, 9)
    resumed.load_checkpoint(os.path.join(folder, f"own-{rank}"))
    assert torch.equal(parameters_of(other), parameters_of(model))
    bf.barrier()
    if rank == 0:
        shutil.rmtree(folder)


def test_through_the_host():
    models = [net(where) for where in ("cpu", device)]
    for model in models:
        train(model, sgd(model, through_host=True))
    assert_near(parameters_of(models[1]), parameters_of(models[0]))
    assert next(models[1].parameters()).device.type == device.type


@on_gpu
@pytest.mark.parametrize("way", ["allreduce", "awc", "atc"])
def test_mixed_precision_with_an_overflow_on_one_rank(way):
    model = net(device)
    optimizer = sgd(model, method={"allreduce": "allreduce", "awc": "dsgd-awc", "atc": "dsgd-atc"}[way])
    scaler = torch.cuda.amp.GradScaler(init_scale=1024.0)
    losses = []
    for step in range(30):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_of(model, step)
        if step == 5 and rank == 0:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert parameters_of(model).isfinite().all()
    assert sum(losses[-5:]) < sum(losses[:5])
    # An overflow in a mean gradient is on every rank.
    assert scaler.get_scale() == (512.0 if rank == 0 or way == "allreduce" else 1024.0)


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="this torch compiles no models")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("first", ["compiled", "decentralized"])
def test_compiled_models(first, backend):
    plain = net(device)
    train(plain, sgd(plain))
    model = net(device)
    if first == "decentralized":
        optimizer = sgd(model)
        compiled = torch.compile(model, backend=backend)
    else:
        compiled = torch.compile(model, backend=backend)
        optimizer = sgd(compiled)
    train(compiled, optimizer)
    assert_near(parameters_of(model), parameters_of(plain))


class Parts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def forward(self, x):
        return self.body(x)


@on_gpu
@pytest.mark.parametrize("method", ["dsgd-awc", "dsgd-atc", "allreduce", "gradient-tracking"])
def test_graphs_of_the_forward_and_backward_pass(method):
    """Of the parts of a decentralized model, whose parameters have their places then. Not on the default stream, for which torch
    cannot capture the gradients of parameters with hooks."""
    plain = Parts().to(device)
    train(plain, sgd(plain, method=method))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream(device)):
        model = Parts().to(device)
        optimizer = sgd(model, method=method)
        torch.cuda.make_graphed_callables(model.body, (batch(0, device)[0],))
        train(model, optimizer)
        torch.cuda.synchronize()
    assert_near(parameters_of(model), parameters_of(plain))


def test_a_graphed_model_is_not_decentralized():
    """Its graphs read the memory that the parameters had when it was captured."""
    model = Parts().to(device)
    if has_gpu:
        torch.cuda.make_graphed_callables(model.body, (batch(0, device)[0],))
    else:
        model.body.forward = lambda x: x
        model.body.forward.__module__ = "torch.cuda.graphs"
    with pytest.raises(ValueError, match="body.*make_graphed_callables"):
        sgd(model)
