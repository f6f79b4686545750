"""starling.torch.decentralize: methods on topologies, schedulers, saving and loading, clipping, averages."""

import copy
import gc
import io
import os
import pickle
import shutil
import tempfile
import weakref

import networkx
import numpy
import pytest
import torch

import starling
import starling.torch as bf
from dense_training import OPTIMIZERS, DenseFlock, assert_same, loss_of, matrix_of, network, parameters_of, train_step
from starling import _core

bf.init()
rank, n = bf.rank(), bf.size()


def sgd(model, lr=0.05):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


class Point(torch.nn.Module):
    """Ranks have different minimizers and curvatures, so the optimum is not the mean of their minimizers."""

    def __init__(self):
        super().__init__()
        self.x = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))

    @staticmethod
    def curvature(one):
        return 1 + 0.5 * one

    @staticmethod
    def center(one):
        return torch.tensor([one, -2.0 * one, 1.0 + one * one], dtype=torch.float64)

    def forward(self):
        return 0.5 * self.curvature(rank) * (self.x - self.center(rank)).square().sum()


def optimum():
    return sum(Point.curvature(r) * Point.center(r) for r in range(n)) / sum(Point.curvature(r) for r in range(n))


def descend(method, topology, steps=300, lr=0.2, **options):
    model = Point()
    own = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=lr), method=method, topology=topology, **options)
    for _ in range(steps):
        own.zero_grad()
        model().backward()
        own.step()
    return model, own


@pytest.mark.parametrize("method, topology", [("gradient-tracking", "base(k=1)"), ("gradient-tracking", "one-peer-exponential"),
                                              ("exact-diffusion", "ring"), ("diging", "exponential"), ("extra", "ring"),
                                              ("allreduce", "ring"), ("d2", "complete"), ("push-diging", "exponential")])
def test_bias_corrected_methods_reach_the_optimum(method, topology):
    model, own = descend(method, topology, lr=0.1, steps=250)
    assert float((model.x - optimum()).abs().max()) < 1e-8
    assert own.consensus_distance() < 1e-8


@pytest.mark.parametrize("method, topology", [("dsgd-atc", "one-peer-exponential"), ("dsgd-awc", "ring"),
                                              ("local-sgd(tau=4)", "complete"), ("choco(codec=identity,gamma=1)", "ring"),
                                              ("relay-sgd", "chain"), ("allreduce-model", "complete"),
                                              ("gossip-pga(h=4)", "ring"), ("quasi-global-momentum", "ring")])
def test_other_methods_come_close(method, topology):
    far, _ = descend(method, topology, lr=0.2, steps=80)
    near, _ = descend(method, topology, lr=0.05, steps=320)
    bias = float((near.x - optimum()).abs().max())
    assert bias <= 0.5 * float((far.x - optimum()).abs().max()) + 1e-6, bias
    assert bias < 1.0


def test_unknown_names_are_errors():
    with pytest.raises(ValueError, match="gradient-tracking"):
        descend("gradient-trackin", "ring", steps=0)
    with pytest.raises(ValueError, match="ring"):
        descend("dsgd-atc", "rimg", steps=0)
    with pytest.raises(ValueError, match="bfloat16"):
        descend("dsgd-atc", "ring", steps=0, message="bfloat")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_follows_the_dense_iterates_from_rank_0(optimizer):
    """All ranks start with rank 0's model; adapt-while-communicate is the default."""
    model = network(rank)
    own = bf.decentralize(model, OPTIMIZERS[optimizer](model), topology="ring")
    dense = DenseFlock(n, OPTIMIZERS[optimizer], lambda _: network(0))
    weights = matrix_of(_core.make_schedule("ring", n), 0)
    for step in range(3):
        train_step(own, model, rank, step)
        dense.adapt_with_combine(weights)
        assert_same(model, dense[rank])


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("make", [sgd, OPTIMIZERS["rmsprop"]], ids=["native", "other"])
def test_schedulers_made_before_and_after(make, before, recwarn):
    model = network(0)
    optimizer = make(model)
    made = [torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)] if before else []
    own = bf.decentralize(model, optimizer, method="allreduce")
    made += [] if before else [torch.optim.lr_scheduler.StepLR(own, 2, gamma=0.5)]
    dense = DenseFlock(n, make, lambda _: network(0))
    schedulers = [torch.optim.lr_scheduler.StepLR(one, 2, gamma=0.5) for one in dense.optimizers]
    for step in range(6):
        train_step(own, model, rank, step)
        dense.average_and_update()
        for scheduler in made + schedulers:
            scheduler.step()
        assert_same(model, dense[rank], f"step {step}")
        if step == 2:  # code that inspects the optimizer sees the loaded groups
            own.load_state_dict(own.state_dict())
    assert own.param_groups[0]["lr"] == dense.optimizers[0].param_groups[0]["lr"]
    assert not [one for one in recwarn if "lr_scheduler" in str(one.message)]


def flock_of_parameters(model):
    return bf.allgather(parameters_of(model).unsqueeze(0))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop"])
def test_state_dict_continues_bit_for_bit(optimizer):
    make = OPTIMIZERS[optimizer]
    model = network(rank)
    own = bf.decentralize(model, make(model), method="dsgd-atc", topology="ring")
    for step in range(3):
        train_step(own, model, rank, step)
    other = network(rank + 20)
    twin = bf.decentralize(other, make(other), method="dsgd-atc", topology="ring")
    train_step(twin, other, rank, 99)  # state that loading must replace
    other.load_state_dict(model.state_dict())
    twin.load_state_dict(copy.deepcopy(own.state_dict()))  # torch 2 shares the loaded tensors
    for step in range(3, 6):
        train_step(own, model, rank, step)
        train_step(twin, other, rank, step)
        assert torch.equal(parameters_of(model), parameters_of(other)), f"step {step}"


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_state_dict_is_torchs(optimizer):
    """A plain optimizer can continue from it, and the state of a plain optimizer can be loaded."""
    make = OPTIMIZERS[optimizer]
    model, plain_model = network(0), network(0)
    own = bf.decentralize(model, make(model), method="allreduce")
    plain = make(plain_model)
    for step in range(2):
        for one, module in ((own, model), (plain, plain_model)):
            train_step(one, module, 0, step)
    ours, theirs = own.state_dict(), plain.state_dict()
    assert ours["state"].keys() == theirs["state"].keys()
    for key, values in theirs["state"].items():
        assert set(values) == set(ours["state"][key])
        for name, value in values.items():
            torch.testing.assert_close(ours["state"][key][name], value, rtol=1e-9, atol=1e-12)
    own.load_state_dict(theirs)
    plain.load_state_dict(ours)
    for one, module in ((own, model), (plain, plain_model)):
        train_step(one, module, 0, 2)
    assert_same(model, parameters_of(plain_model))


@pytest.mark.parametrize("method, make", [("gradient-tracking", sgd), ("dsgd-awc", OPTIMIZERS["adam"]),
                                          ("dsgd-atc", OPTIMIZERS["rmsprop"])])
def test_checkpoints_continue_bit_for_bit(method, make):
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, f"rank{rank}.ckpt")

    def trainer():
        model = network(rank)
        return model, bf.decentralize(model, make(model), method=method, topology="one-peer-exponential")

    model, own = trainer()
    for step in range(3):
        train_step(own, model, rank, step)
    own.save_checkpoint(path)
    for step in range(3, 6):
        train_step(own, model, rank, step)
    other, twin = trainer()
    twin.load_checkpoint(path)
    for step in range(3, 6):
        train_step(twin, other, rank, step)
    assert torch.equal(parameters_of(model), parameters_of(other))
    os.remove(path)
    os.rmdir(folder)


@pytest.mark.parametrize("method", ["dsgd-awc", "dsgd-atc", "gradient-tracking"])
def test_any_number_of_backward_passes(method):
    models = [network(rank), network(rank)]
    own = [bf.decentralize(model, sgd(model), method=method, topology="ring") for model in models]
    for step in range(4):
        passes = 1 + (step + rank) % 3
        for one, model in zip(own, models):
            one.zero_grad()
        for part in range(passes):
            loss_of(models[0], rank, 10 * step + part).backward()
        sum(loss_of(models[1], rank, 10 * step + part) for part in range(passes)).backward()
        for one in own:
            one.step()
        assert_same(models[0], parameters_of(models[1]))


@pytest.mark.parametrize("make", [sgd, OPTIMIZERS["rmsprop"]], ids=["native", "other"])
def test_clip_norm_is_torchs(make):
    model = network(0)
    own = bf.decentralize(model, make(model), method="allreduce", clip_norm=0.05, bucket_mb=1e-5)
    dense = DenseFlock(n, make, lambda _: network(0))
    for step in range(4):
        train_step(own, model, rank, step)
        dense.average_gradients()
        norms = [float(torch.nn.utils.clip_grad_norm_(one.parameters(), 0.05)) for one in dense.models]
        dense.update()
        assert own.gradient_norm == pytest.approx(norms[rank], rel=1e-9)
        assert_same(model, dense[rank])
    assert norms[rank] > 0.05


def test_average_and_consensus_distance():
    model = network(rank)
    own = bf.decentralize(model, sgd(model), method="dsgd-atc", topology="ring")
    train_step(own, model, rank, 0)
    models = flock_of_parameters(model)
    mean = models.mean(0)
    assert own.consensus_distance() == pytest.approx(float((models - mean).norm()) / n**0.5, rel=1e-9, abs=1e-15)
    mine = parameters_of(model)
    with own.global_average():
        assert_same(model, mean)
        model(torch.zeros(1, 3, dtype=torch.float64))  # evaluation; does not begin a step
        with pytest.raises(ValueError, match="average"):
            own.step()
    assert torch.equal(parameters_of(model), mine)
    own.adopt_average()
    assert_same(model, mean)
    assert own.consensus_distance() < 1e-14


@pytest.mark.parametrize("buffers", ["average", "broadcast", "local"])
def test_batch_norm_buffers(buffers):
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)).double()
    own = bf.decentralize(model, sgd(model), buffers=buffers)
    for step in range(2):
        train_step(own, model, rank, step)
    mine = model[1].running_mean.clone()
    everybody = bf.allgather(mine.unsqueeze(0))
    expected = {"average": everybody.mean(0), "broadcast": everybody[0], "local": mine}[buffers]
    with own.global_average():
        assert float((model[1].running_mean - expected).abs().max()) < 1e-14
    assert torch.equal(model[1].running_mean, mine)


def test_dropped_and_made_again():
    model = network(rank)
    own = bf.decentralize(model, sgd(model), method="allreduce")
    train_step(own, model, rank, 0)
    kept = weakref.ref(own.trainer)
    del own
    gc.collect()
    assert kept() is None and not model._forward_pre_hooks and not model._forward_hooks
    for method in ("gradient-tracking", "dsgd-awc"):
        start = parameters_of(model)
        again = bf.decentralize(model, sgd(model), method=method, topology="complete", broadcast_at_start=False)
        assert torch.equal(start, parameters_of(model))
        for step in range(2):
            train_step(again, model, rank, step)
        assert again.trainer.steps == 2
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    del again
    before = parameters_of(model)
    plain.zero_grad()
    loss_of(model, rank, 0).backward()
    gradient = torch.cat([one.grad.flatten() for one in model.parameters()])
    plain.step()
    assert_same(model, before - 0.1 * gradient)


@pytest.mark.parametrize("options, tolerance", [({"message": "bfloat16"}, 0.05), ({"message": "float16"}, 0.01),
                                                ({"message": "int8"}, 0.05),
                                                ({"loss_scale": 1024.0}, 1e-5)])
def test_shorter_messages_and_loss_scale(options, tolerance):
    def trained(**more):
        model = network(0, torch.float32)
        own = bf.decentralize(model, sgd(model), method="dsgd-atc", topology="ring", **more)
        for step in range(10):
            own.zero_grad()
            own.scale(loss_of(model, rank, step % 3)).backward()
            own.step()
        return parameters_of(model)

    start, exact, got = parameters_of(network(0, torch.float32)), trained(), trained(**options)
    assert float((got - exact).abs().max()) < tolerance < float((exact - start).abs().max())
    if "message" in options and n > 1:
        assert not torch.equal(got, exact)


def test_loss_scale_falls_after_an_overflow_on_one_rank():
    model = network(rank)
    own = bf.decentralize(model, sgd(model), method="dsgd-atc", topology="complete", loss_scale=8.0)
    before = parameters_of(model)
    own.zero_grad()
    own.scale(loss_of(model, rank, 0) * (float("inf") if rank == 0 else 1.0)).backward()
    own.step()
    assert own.trainer.loss_scale == (4.0 if rank == 0 else 8.0)
    assert torch.isfinite(parameters_of(model)).all()
    if n > 1:
        assert not torch.equal(before, parameters_of(model))


def ring_weights():
    weights = numpy.zeros((n, n))
    for one in range(n):
        for other in {one, (one + 1) % n, (one - 1) % n}:
            weights[one, other] = 1 / len({one, (one + 1) % n, (one - 1) % n})
    return weights


@pytest.mark.parametrize("make", [
    lambda: starling.topology("ring", n), lambda: starling.Topology.from_weights(ring_weights()), ring_weights,
    lambda: networkx.cycle_graph(n) if n > 2 else networkx.path_graph(n)], ids=["Topology", "weights", "matrix", "graph"])
def test_topologies_of_every_kind(make):
    by_name, _ = descend("dsgd-atc", "ring", steps=5)
    model, _ = descend("dsgd-atc", make(), steps=5)
    torch.testing.assert_close(model.x, by_name.x)


def test_invalid_topologies_are_errors():
    with pytest.raises(TypeError, match="a topology is a name, a starling.Topology, a networkx graph or a matrix"):
        descend("dsgd-atc", object(), steps=0)
    with pytest.raises(ValueError, match=f"is for {n + 1} ranks, this flock has {n}"):
        descend("dsgd-atc", starling.topology("ring", n + 1), steps=0)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps, lambda one: torch.save(one, io.BytesIO())],
                         ids=["deepcopy", "pickle", "torch.save"])
def test_copies_of_optimizers_are_refused_with_advice(copied):
    model = network(rank)
    with pytest.raises(TypeError, match=r"save optimizer.state_dict\(\)"):
        copied(bf.decentralize(model, sgd(model)))


@pytest.mark.parametrize("method", ["dsgd-awc", "dsgd-atc", "allreduce"])
def test_scripted_modules(method):
    plain, scripted = network(rank), torch.jit.script(network(rank))
    for model in (plain, scripted):
        own = bf.decentralize(model, sgd(model), method=method, topology="ring")
        for step in range(4):
            own.zero_grad()
            loss_of(model, rank, step).backward()
            own.step()
    for one, other in zip(plain.parameters(), scripted.parameters()):
        torch.testing.assert_close(one, other)


def test_epochs_of_different_lengths():
    model = Point()
    own = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1), topology="ring")
    assert own.begin_epoch(rank + 2) == n + 1
    for _ in range(rank + 2):
        own.zero_grad()
        model().backward()
        own.step()
    own.finish_epoch()
    assert own.trainer.steps == n + 1
    own.skip()
    assert own.trainer.steps == n + 2
    with pytest.raises(ValueError, match="batches"):
        own.begin_epoch(-1)


def test_settle_ends_pending_operations():
    model, own = descend("async-average", "ring", steps=10)
    own.settle()
    assert own.consensus_distance() < 1e3


def test_living_ranks():
    assert bf.living_ranks() == list(range(n)) == starling.join().living_ranks()


def shared_folder():
    """The same new folder on every rank."""
    folder = tempfile.mkdtemp() if rank == 0 else ""
    length = int(bf.broadcast(torch.tensor([len(folder)]), root_rank=0)[0])
    text = torch.tensor(list(folder.encode()) or [0] * length, dtype=torch.uint8)
    return bytes(bf.broadcast(text, root_rank=0).tolist()).decode()


@pytest.mark.parametrize("background", [False, True])
def test_save_and_resume_continue_bit_for_bit(background):
    folder = shared_folder()

    def trainer():
        model = network(rank)
        return model, bf.decentralize(model, OPTIMIZERS["adam"](model), method="gradient-tracking",
                                      topology="one-peer-exponential")

    model, own = trainer()
    assert own.resume(folder) is None
    for step in range(3):
        train_step(own, model, rank, step)
    own.save(folder, extra={"epoch": 3, "order": torch.arange(4) + rank}, background=background)
    for step in range(3, 6):
        train_step(own, model, rank, step)
    own._retire()  # waits for the save in the background
    bf.barrier()
    other, twin = trainer()
    resumed = twin.resume(folder)
    assert resumed.step == 3 == twin.trainer.steps and resumed.reset == ""
    assert resumed.extra["epoch"] == 3 and torch.equal(resumed.extra["order"], torch.arange(4) + rank)
    for step in range(3, 6):
        train_step(twin, other, rank, step)
    assert torch.equal(parameters_of(model), parameters_of(other))
    bf.barrier()
    if rank == 0:
        shutil.rmtree(folder)


def test_resume_refuses_another_model_on_every_rank_and_names_it():
    folder = shared_folder()
    model = torch.nn.Linear(3, 2)
    own = bf.decentralize(model, sgd(model))
    own.save(folder)
    wide = torch.nn.Linear(4, 2)
    other = bf.decentralize(wide, sgd(wide))
    with pytest.raises(starling.Error, match=r"parameter weight: \[2, 3\] in the checkpoint, \[2, 4\] here"):
        other.resume(folder)
    bf.barrier()
    if rank == 0:
        shutil.rmtree(folder)


def test_attributes_without_effect_are_refused():
    model = Point()
    own = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(AttributeError, match="clip_norm is an option of decentralize"):
        own.clip_norm = 1e-6
    with pytest.raises(AttributeError, match="no on_nonfinte; did you mean on_nonfinite"):
        own.on_nonfinte = "skip"
    own.per_rank_settings = True
    own.steps_of_mine = 3  # set by the program
    own.found_inf = torch.zeros(1)  # set by GradScaler
    wrapped = bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    with pytest.raises(AttributeError, match="no dts_weights; did you mean dst_weights"):
        wrapped.dts_weights = {}
    wrapped.dst_weights, wrapped.src_weights, wrapped.self_weight = {}, {}, 1.0


@pytest.mark.skipif(n == 1, reason="nobody to differ from")
def test_saving_into_different_folders_is_refused_at_once():
    model = Point()
    own = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(_core.InvalidArgument, match="folder: .*of-0 on rank 0, .*of-1 on rank 1"):
        own.save(os.path.join(tempfile.gettempdir(), f"of-{rank}"))
    assert not os.path.exists(os.path.join(tempfile.gettempdir(), "of-0"))


def test_resume_from_a_file_or_a_missing_folder(capfd):
    model = Point()
    own = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(starling.Error, match="cannot resume from /etc/passwd: it is not a folder"):
        own.resume("/etc/passwd")
    assert own.resume(os.path.join(tempfile.gettempdir(), "no-such-chekpoints")) is None
    if rank == 0:
        assert "no-such-chekpoints to resume from" in capfd.readouterr().err


def test_a_replaced_layer_is_noticed():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    own = bf.decentralize(model, torch.optim.SGD(model.parameters(), lr=0.1))
    model[1] = torch.nn.Linear(3, 2)
    with pytest.raises(_core.InvalidArgument, match="parameter 1.weight of the model is not one of those"):
        own.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        own.step()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_master_weights_keep_small_steps(dtype):
    model = torch.nn.Linear(8, 1, bias=False).to(dtype)
    torch.nn.init.ones_(model.weight)
    local = torch.optim.SGD(model.parameters(), lr=1e-4)
    if dtype is torch.float32:
        with pytest.raises(_core.InvalidArgument, match="master_weights are for parameters of float16 or bfloat16"):
            bf.decentralize(model, local, master_weights=True)
        return
    own = bf.decentralize(model, local, master_weights=True)
    for _ in range(100):
        own.zero_grad()
        model(torch.ones(1, 8, dtype=dtype)).sum().backward()
        own.step()
    assert model.weight.dtype is dtype and bool((model.weight == torch.tensor(0.99).to(dtype)).all())
