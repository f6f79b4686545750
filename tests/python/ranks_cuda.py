"""Operations on tensors on a GPU, in every rank: the results are those of the CPU, and nothing passes through the host. Without a
GPU they are skipped, unless tests/python/fake_gpu.py makes tensors of the host count as such."""

import json
import os

import pytest
import torch

import starling.torch as bf

FAKE = "STARLING_FAKE_DEVICE" in os.environ
pytestmark = pytest.mark.skipif(not (FAKE or torch.cuda.is_available()), reason="no GPU here")
bf.init()
rank, n = bf.rank(), bf.size()
device = torch.device("cpu" if FAKE else f"cuda:{bf.local_rank() % torch.cuda.device_count()}" if torch.cuda.is_available() else "cuda")
on_gpu = pytest.mark.skipif(FAKE, reason="needs a GPU")
several = pytest.mark.skipif(n == 1, reason="one rank agrees with itself")


def windows(x):
    bf.win_create(x, "w")
    bf.win_put(x, "w", self_weight=0.5 if x.is_floating_point() else None)
    bf.barrier()
    clone = bf.win_update("w", 1.0, dict.fromkeys(bf.in_neighbor_ranks(), 1.0), clone=True, require_mutex=True)
    bf.barrier()
    bf.win_accumulate(x, "w", dst_weights=dict.fromkeys(bf.out_neighbor_ranks(), 2.0 if x.is_floating_point() else 1.0), require_mutex=True)
    bf.barrier()
    bf.win_update_then_collect("w")
    bf.barrier()
    bf.win_get("w")
    bf.barrier()
    bf.win_accumulate(x + 1, "w")  # a value other than the window's tensor
    bf.barrier()
    with bf.win_mutex("w", for_self=True):
        assert bf.win_update("w", 1.0, dict.fromkeys(bf.in_neighbor_ranks(), 1.0), reset=True) is x
    bf.barrier()
    bf.win_free("w")
    return clone, x


def ring(x):
    if n == 1:
        return ()
    bf.send(x, (rank + 1) % n)
    return (bf.recv(x, (rank - 1) % n),)


def chosen(x):
    return bf.neighbor_allgather(x, src_ranks=[(rank - 1) % n], dst_ranks=[(rank + 1) % n]) if n > 1 else x


def later(x):
    handles = [bf.allgather_nonblocking(x, name="a"), bf.neighbor_allgather_nonblocking(x, name="b"),
               bf.allreduce_nonblocking(x, average=False, name="c"), bf.broadcast_nonblocking(x, n - 1, name="d")]
    return [bf.synchronize(handle) for handle in reversed(handles)]


OPERATIONS = {
    "allreduce": lambda x: (bf.allreduce(x, average=False), bf.allreduce_(x, average=False), x),
    "group": lambda x: [*bf.allreduce_group([x, x[:1]], average=False), *bf.broadcast_group([x, x[1:]], 0)],
    "broadcast": lambda x: (bf.broadcast(x, n - 1), bf.broadcast_(x, 0), x),
    "allgather": lambda x: (bf.allgather(x), bf.allgather(x[:rank])),
    "neighbor_allgather": lambda x: (bf.neighbor_allgather(x), chosen(x)),
    "reduce_scatter": lambda x: (bf.reduce_scatter(x, average=False),),
    "send and recv": ring,
    "windows": windows,
    "handles": later,
    "mean": lambda x: (bf.allreduce(x), bf.reduce_scatter(x)),
    "neighbor_allreduce": lambda x: (bf.neighbor_allreduce(x), *bf.neighbor_allreduce_group([x, x[:1]])),
    "pair_gossip": lambda x: (bf.pair_gossip(x, rank ^ 1) if n % 2 == 0 else x,),
}
AVERAGES = {"mean", "neighbor_allreduce", "pair_gossip"}
SHAPES = {"plain": (5, 3), "turned": (3, 5), "empty": (0, 3), "large": (100_000, 3)}


def tensor(shape, dtype, where):
    """The same on every device; "turned" is not contiguous."""
    x = (torch.arange(torch.Size(SHAPES[shape]).numel()) % 61 + 10 * rank).reshape(SHAPES[shape]).to(dtype).to(where)
    return x.t() if shape == "turned" else x


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_has_the_bits_of_the_cpu(name, dtype, shape):
    if name in AVERAGES and not dtype.is_floating_point:
        pytest.skip("is not averaged")
    expected = OPERATIONS[name](tensor(shape, dtype, "cpu"))
    found = OPERATIONS[name](tensor(shape, dtype, device))
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one.device.type == device.type and one.dtype == dtype and one.shape == other.shape
        assert torch.equal(one.cpu(), other)


@on_gpu
def test_on_a_stream_of_the_callers():
    """Behind work that takes long, and in the order of this stream alone."""
    x = torch.zeros(1_000_000, device=device)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream(device)):
        torch.cuda._sleep(50_000_000)
        x += rank + 1
        handle = bf.allgather_nonblocking(x[:3].clone(), name="other stream")
        total = bf.allreduce(x, average=False)
        bf.win_create(x, "stream", zero_init=True)
        bf.win_put(x, "stream")
        bf.barrier()
        bf.win_update_then_collect("stream")
        found = [total[-1].item(), x[-1].item()]
    gathered = bf.synchronize(handle)
    bf.barrier()
    bf.win_free("stream")
    assert found == [n * (n + 1) / 2, rank + 1 + sum(r + 1 for r in bf.in_neighbor_ranks())]
    assert gathered.tolist() == [r + 1 for r in range(n) for _ in range(3)]


def bytes_copied(call, path):
    """The largest copy between host and device during the call; None if the profiler sees none."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    profile.export_chrome_trace(str(path))
    copies = [event["args"]["bytes"] for event in json.loads(path.read_text())["traceEvents"]
              if "Memcpy" in event.get("name", "") and ("DtoH" in event["name"] or "HtoD" in event["name"])]
    return max(copies, default=None)


@on_gpu
@pytest.mark.parametrize("name", OPERATIONS)
def test_makes_no_copy_on_the_host(name, tmp_path):
    x = tensor("large", torch.float32, device)
    OPERATIONS[name](x.clone())
    seen = bytes_copied(lambda: x.cpu(), tmp_path / "control.json")
    copied = bytes_copied(lambda: OPERATIONS[name](x), tmp_path / "trace.json")
    if seen is None:
        pytest.skip("the profiler shows no copies here")
    assert seen > 4096
    assert (copied or 0) <= 4096


# Bad input


@several
@on_gpu
@pytest.mark.parametrize("name", ["allreduce", "broadcast", "allgather", "reduce_scatter", "windows"])
def test_ranks_with_tensors_of_different_kinds_get_an_error(name):
    x = tensor("plain", torch.float32, "cpu" if rank == 0 else device)
    with pytest.raises(ValueError, match="host memory.*CUDA memory|CUDA memory.*host memory"):
        OPERATIONS[name](x)
    assert bf.allgather(torch.tensor([rank])).tolist() == list(range(n))


@several
@on_gpu
def test_neighbors_with_tensors_of_different_kinds_get_an_error():
    bf.set_topology("complete")
    for call in (bf.neighbor_allreduce, bf.neighbor_allgather):
        with pytest.raises(ValueError, match="host memory.*CUDA memory|CUDA memory.*host memory"):
            call(tensor("plain", torch.float32, "cpu" if rank == 0 else device))
        bf.barrier()


@on_gpu
def test_a_group_lies_in_one_kind_of_memory_and_on_one_device():
    x = torch.ones(3, device=device)
    groups = [([x, x.cpu()], "one kind of memory")]
    if torch.cuda.device_count() > 1:
        groups.append(([x, x.to(f"cuda:{(device.index + 1) % torch.cuda.device_count()}")], "one device"))
    for group, match in groups:
        for call in (bf.allreduce_group, bf.neighbor_allreduce_group, lambda g: bf.broadcast_group(g, 0)):
            with pytest.raises(ValueError, match=match):
                call(group)
    bf.barrier()


@on_gpu
def test_a_value_for_a_window_comes_to_its_device():
    x = torch.full((4,), float(rank), device=device)
    bf.win_create(x, "cuda", zero_init=True)
    bf.win_put(torch.full((4,), rank + 1.0), "cuda")
    bf.barrier()
    bf.win_update_then_collect("cuda")
    assert x.tolist() == [rank + sum(r + 1.0 for r in bf.in_neighbor_ranks())] * 4
    bf.barrier()
    bf.win_free("cuda")
