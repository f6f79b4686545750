"""DecentralizedDataParallel gives the same bits as the loop that it replaces."""

import pytest
import torch

import starling.torch as bf
from dense_training import loss_of, network, parameters_of
from scalers import NewScaler, OldScaler

bf.init()
rank, n = bf.rank(), bf.size()


def sgd(named):
    return torch.optim.SGD([parameter for _, parameter in named], lr=0.05, momentum=0.9)


def rmsprop(named):
    return torch.optim.RMSprop([parameter for _, parameter in named], lr=0.01)


def halving(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)


class Explicit:
    """The same training with decentralize(), written out."""

    def __init__(self, make=sgd, scheduler=None, **options):
        self.model = network(rank)
        self.optimizer = bf.decentralize(self.model, make(list(self.model.named_parameters())), buffers="local", **options)
        self.scheduler = scheduler(self.optimizer) if scheduler else None

    def step(self, *batches):
        self.optimizer.zero_grad()
        for one in batches:
            loss_of(self.model, rank, one).backward()
        self.optimizer.step()
        if self.scheduler:
            self.scheduler.step()


def wrapped(make=sgd, scheduler=None, **options):
    return bf.DecentralizedDataParallel(network(rank), make, scheduler, **options)


def same(model, explicit):
    return torch.equal(parameters_of(model), parameters_of(explicit.model))


@pytest.mark.parametrize("make", [sgd, rmsprop])
@pytest.mark.parametrize("method", ["dsgd-awc", "dsgd-atc", "gradient-tracking", "allreduce"])
@pytest.mark.parametrize("topology", ["one-peer-exponential", "exponential"])
def test_is_the_explicit_loop(method, topology, make):
    model = wrapped(make, method=method, topology=topology)
    explicit = Explicit(make, method=method, topology=topology)
    assert same(model, explicit)
    for step in range(4):
        before = parameters_of(model)
        loss_of(model, rank, step).backward()
        explicit.step(step)
        assert same(model, explicit), f"step {step}"
        assert not torch.equal(before, parameters_of(model))  # starting with the first step
        assert model.optimizer.trainer.steps == step + 1  # and no round is skipped
        assert all(float(one.grad.abs().max()) == 0 for one in model.parameters())


@pytest.mark.parametrize("theirs, ours", [("ring", "ring" if n % 2 else "one-peer-ring"), ("ring()", "ring"),
                                          ("one-peer-exp", "one-peer-exponential"), ("aer", "aer(local={})"),
                                          ("alternating-exp-ring", "aer(local={})")])
def test_decent_dps_names_of_topologies(theirs, ours):
    ours = ours.format(bf.local_size())  # other test files change this variable
    model, explicit = wrapped(method="dsgd-atc", topology=theirs), Explicit(method="dsgd-atc", topology=ours)
    for step in range(3):
        loss_of(model, rank, step).backward()
        explicit.step(step)
    assert same(model, explicit)


@pytest.mark.parametrize("method", ["dsgd-awc", "dsgd-atc"])
def test_accumulation(method):
    model, explicit = wrapped(method=method), Explicit(method=method)
    for step in range(3):
        passes = range(10 * step, 10 * step + 1 + (step + rank) % 3)
        for one in passes:
            model.set_accumulate_grad(one != passes[-1])
            loss_of(model, rank, one).backward()
        explicit.step(*passes)
        assert same(model, explicit)
    assert model.optimizer.trainer.steps == 3


def test_scheduler_and_clipping():
    model = wrapped(scheduler=halving, grad_clip_norm=0.05, method="dsgd-atc", bucket_size_in_mb=1e-5)
    explicit = Explicit(scheduler=halving, clip_norm=0.05, method="dsgd-atc", bucket_mb=1e-5)
    plain, free = network(0), Explicit(method="dsgd-atc")
    for step in range(5):
        loss_of(model, rank, step).backward()
        explicit.step(step)
        free.step(step)
        assert same(model, explicit)
        if step == 0:  # the norm of all parameters together
            loss_of(plain, rank, 0).backward()
            norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.05)
            assert model.optimizer.gradient_norm == pytest.approx(float(norm), rel=1e-9)
            assert float(norm) > 0.05
    assert not same(model, free)
    assert model.lr_scheduler.get_last_lr() == [0.0125]


@pytest.mark.parametrize("synchronized", [False, True])
def test_global_average(synchronized):
    def normed():
        torch.manual_seed(rank)
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)).double()

    model = bf.DecentralizedDataParallel(normed(), sgd, topology="ring", sync_buffer_in_global_avg=synchronized)
    for step in range(3):
        loss_of(model, rank, step).backward()
    everybody = bf.allgather(parameters_of(model).unsqueeze(0))
    own = model.module[1].running_mean.clone()
    statistics = bf.allgather(own.unsqueeze(0))
    model.global_avg()
    assert float((parameters_of(model) - everybody.mean(0)).abs().max()) < 1e-14
    expected = statistics.mean(0) if synchronized else own
    assert float((model.module[1].running_mean - expected).abs().max()) < 1e-14
    loss_of(model, rank, 3).backward()
    assert model.optimizer.trainer.steps == 4


def test_a_failed_backward_does_not_stop_training():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise KeyError("on purpose")

    net = network(rank)
    model = bf.DecentralizedDataParallel(torch.nn.Sequential(net[0], net[1], net[2]), sgd, method="dsgd-atc")
    explicit = Explicit(method="dsgd-atc")
    loss_of(model, rank, 0).backward()
    with pytest.raises(KeyError, match="on purpose"):  # after the last layer's gradients were computed
        x = torch.ones(2, 3, dtype=torch.float64)
        model.module[2](Fails.apply(model.module[1](model.module[0](x)))).sum().backward()
    model.optimizer.zero_grad()
    loss_of(model, rank, 1).backward()
    assert model.optimizer.trainer.steps == 2
    explicit.step(0)
    explicit.step(1)
    assert same(model, explicit)


@pytest.mark.parametrize("scaler", [OldScaler, NewScaler])
def test_scaler(scaler):
    amp = scaler(64.0)
    model, explicit = wrapped(method="dsgd-atc", scaler=amp), Explicit(method="dsgd-atc")
    for step in range(3):
        amp.scale(loss_of(model, rank, step)).backward()
        explicit.step(step)
        assert same(model, explicit)  # scaling by a power of two does not round


def test_looks_like_the_module_inside():
    model = wrapped()
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in model.module.named_parameters()]
    other = network(99)
    model.load_state_dict(other.state_dict())
    assert torch.equal(parameters_of(model), parameters_of(other))
    assert model.state_dict().keys() == other.state_dict().keys()
    model.eval()
    assert not model.module.training
