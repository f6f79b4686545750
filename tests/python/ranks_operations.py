"""Collectives of starling.torch, in every rank."""

import time

import numpy as np
import pytest
import torch

import starling
import starling.torch as bf

bf.init()
rank, n = bf.rank(), bf.size()
several = pytest.mark.skipif(n == 1, reason="one rank agrees with itself")

floating = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
summable = floating + [torch.int32, torch.int64]
anything = summable + [torch.uint8, torch.int8, torch.int16]


def mine(dtype=torch.float32, shape=(2, 3), of=rank):
    count = int(np.prod(shape))
    return (torch.arange(count, dtype=torch.float64).reshape(shape) + of).to(dtype)


def everybody(dtype=torch.float32, shape=(2, 3)):
    return torch.stack([mine(torch.float64, shape, r) for r in range(n)])


def close(got, wanted):
    torch.testing.assert_close(got.double(), wanted.double(),
                               rtol=1e-2 if got.dtype in floating[2:] else 1e-6, atol=1e-2)


@pytest.mark.parametrize("dtype", summable, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4), (1000,)], ids=str)
def test_allreduce_sums(dtype, shape):
    x = mine(dtype, shape)
    got = bf.allreduce(x, average=False)
    assert got.dtype == dtype and got.shape == x.shape and got.data_ptr() != x.data_ptr() or x.numel() == 0
    close(got, everybody(dtype, shape).sum(0).to(dtype))
    close(x, mine(dtype, shape))


@pytest.mark.parametrize("dtype", floating, ids=str)
def test_allreduce_averages_by_default(dtype):
    close(bf.allreduce(mine(dtype)), everybody().mean(0))


def test_allreduce_in_place():
    x = mine()
    before = x.data_ptr()
    assert bf.allreduce_(x) is x and x.data_ptr() == before
    close(x, everybody().mean(0))
    handle = bf.allreduce_nonblocking_(x, average=False)
    assert bf.synchronize(handle) is x
    close(x, n * everybody().mean(0))


def test_allreduce_of_integers_has_no_average():
    for call in (bf.allreduce, bf.allreduce_, bf.allreduce_nonblocking, bf.allreduce_nonblocking_):
        with pytest.raises(AssertionError):
            call(torch.ones(3, dtype=torch.int32))


def test_allreduce_within_a_machine(monkeypatch):
    if n != 4:
        pytest.skip("four ranks make two machines of two")
    monkeypatch.setenv("BLUEFOG_NODES_PER_MACHINE", "2")
    assert (bf.local_size(), bf.machine_size(), bf.machine_rank()) == (2, 2, rank // 2)
    close(bf.allreduce(mine(), is_hierarchical_local=True), everybody()[rank // 2 * 2 :][:2].mean(0))


@pytest.mark.parametrize("call, dtypes", [
    (bf.allreduce, summable), (bf.neighbor_allreduce, floating), (lambda x: bf.broadcast(x, 0), anything),
    (bf.allgather, anything), (bf.neighbor_allgather, anything), (lambda x: bf.pair_gossip(x, 0), floating),
    (lambda x: bf.win_create(x, "refused"), summable)])
def test_types_that_do_not_travel_are_refused(call, dtypes):
    for dtype in anything + [torch.bool, torch.complex64]:
        if dtype not in dtypes:
            with pytest.raises(ValueError, match="Tensor type torch.*is not supported"):
                call(torch.zeros(3, dtype=dtype))
    with pytest.raises(ValueError, match="Tensor type .*[uU][iI]nt16.* is not supported"):
        call(np.zeros(3, dtype=np.uint16))
    with pytest.raises(TypeError, match="list"):
        call([1.0, 2.0])


@pytest.mark.parametrize("dtype", anything, ids=str)
@pytest.mark.parametrize("root", {0, n - 1})
def test_broadcast(dtype, root):
    x = mine(dtype)
    got = bf.broadcast(x, root)
    close(got, mine(dtype, of=root))
    close(x, mine(dtype))
    assert bf.broadcast_(x, root_rank=root) is x
    close(x, mine(dtype, of=root))
    y, z = mine(dtype), mine(dtype)
    first, second = bf.broadcast_nonblocking(y, root), bf.broadcast_nonblocking_(z, root)
    close(bf.synchronize(second), mine(dtype, of=root))
    close(bf.wait(first), mine(dtype, of=root))
    close(y, mine(dtype))
    close(z, mine(dtype, of=root))


def test_broadcast_of_one_number_and_of_none():
    assert bf.broadcast(torch.tensor(float(rank)), n - 1).item() == n - 1
    assert bf.broadcast(torch.empty(0, 3), 0).shape == (0, 3)


def test_roots_out_of_range_are_errors():
    with pytest.raises(ValueError, match=f"rank {n} is not one of"):
        bf.broadcast(mine(), n)


@several
def test_different_roots_are_an_error_on_all():
    with pytest.raises(ValueError, match="root"):
        bf.broadcast(mine(), 0 if rank == 0 else 1, name="roots")
    bf.barrier()


@pytest.mark.parametrize("dtype", anything, ids=str)
def test_allgather_of_different_lengths(dtype):
    got = bf.allgather(torch.full((rank + 1, 2), rank, dtype=dtype))
    assert got.dtype == dtype and got.shape == (n * (n + 1) // 2, 2)
    assert got[:, 1].tolist() == [r for r in range(n) for _ in range(r + 1)]


def test_allgather_of_nothing_and_of_one_number():
    assert bf.allgather(torch.empty(0, 3)).shape == (0, 3)
    assert bf.allgather(torch.ones(rank % 2, 3)).shape == (n // 2, 3)
    with pytest.raises(ValueError, match="first dimension"):
        bf.allgather(torch.tensor(1.0))
    with pytest.raises(ValueError, match="first dimension"):
        bf.neighbor_allgather(torch.tensor(1.0))


def test_allgather_nonblocking():
    handles = [bf.allgather_nonblocking(torch.full((1, k + 1), rank), name=f"k{k}") for k in range(3)]
    for k in (2, 0, 1):
        assert bf.synchronize(handles[k]).tolist() == [[r] * (k + 1) for r in range(n)]


def test_memory_that_is_not_contiguous():
    x = mine(shape=(4, 6)).t()
    close(bf.allreduce(x), everybody(shape=(4, 6)).mean(0).t())
    close(bf.allgather(x[::2]), torch.cat([mine(shape=(4, 6), of=r).t()[::2] for r in range(n)]))
    y = mine(shape=(6, 4))[:, ::2]
    bf.allreduce_(y)
    close(y, everybody(shape=(6, 4)).mean(0)[:, ::2])
    z = mine(shape=(6, 4))
    bf.broadcast_(z[:, 1], n - 1)
    close(z[:, 1], mine(shape=(6, 4), of=n - 1)[:, 1])
    close(z[:, 0], mine(shape=(6, 4))[:, 0])
    close(bf.neighbor_allreduce(torch.ones(3, 1).expand(3, 4)), torch.ones(3, 4))


def test_parameters_that_need_gradients():
    weight = torch.nn.Parameter(mine())
    got = bf.neighbor_allreduce(weight)
    assert not got.requires_grad
    bf.allreduce_(weight)
    close(weight.detach(), everybody().mean(0))
    strided = torch.nn.Parameter(mine(shape=(3, 2)).t())
    bf.allreduce_(strided)
    close(strided.detach(), everybody(shape=(3, 2)).mean(0).t())


def test_numpy_arrays_in_and_out():
    x = np.arange(6.0).reshape(2, 3) + rank
    got = bf.allreduce(x)
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, np.arange(6.0).reshape(2, 3) + (n - 1) / 2)
    assert isinstance(bf.neighbor_allreduce(x), np.ndarray) and isinstance(bf.allgather(x), np.ndarray)
    y = x[::-1, ::-1]
    assert bf.allreduce_(y) is y
    np.testing.assert_allclose(x, np.arange(6.0).reshape(2, 3) + (n - 1) / 2)
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    np.testing.assert_allclose(bf.allreduce(fixed), 0)
    with pytest.raises(ValueError, match="read-only"):
        bf.allreduce_(fixed)


def test_handles_in_any_order_under_names():
    names = [f"tensor{k}" for k in range(6)]
    order = names if rank % 2 == 0 else names[::-1]
    handles = {name: bf.allreduce_nonblocking(mine() * (names.index(name) + 1), name=name) for name in order}
    for name in names if rank % 3 == 0 else names[::-1]:
        close(bf.synchronize(handles[name]), everybody().mean(0) * (names.index(name) + 1))


def test_handles_without_names_meet_in_their_order():
    handles = [bf.allreduce_nonblocking(torch.full((4,), float(10 * k + rank))) for k in range(5)]
    for k in (4, 2, 0, 1, 3):
        close(bf.synchronize(handles[k]), torch.full((4,), 10 * k + (n - 1) / 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_reduce_scatter(dtype):
    for count in (0, 1, 7, 20_000):
        x = (torch.arange(count) % 50 + rank).to(dtype)
        whole = sum((torch.arange(count) % 50 + r).to(dtype) for r in range(n))
        part = bf.reduce_scatter(x, average=False)
        close(part, whole[count * rank // n:count * (rank + 1) // n])
        assert part.dtype == dtype and part.device == x.device
    turned = torch.arange(6.0).reshape(2, 3).t()
    close(bf.reduce_scatter(turned), turned.flatten()[6 * rank // n:6 * (rank + 1) // n])
    with pytest.raises(AssertionError, match="average=False"):
        bf.reduce_scatter(torch.ones(3, dtype=torch.int64))


@several
@pytest.mark.parametrize("shape", [(), (0,), (3, 2), (30_000,)], ids=str)
def test_send_and_recv(shape):
    def value(r):
        return torch.full(shape, r, dtype=torch.int16)

    bf.send(value(rank), (rank + 1) % n)
    bf.send(value(rank + 10), (rank + 1) % n, name="other")
    source = (rank - 1) % n
    close(bf.recv(value(0), source, name="other"), value(source + 10))
    close(bf.recv(value(0), source), value(source))
    for call in (bf.send, bf.recv):
        with pytest.raises(ValueError, match=f"rank {n} is not one of the {n} ranks"):
            call(value(0), n)


def test_poll_and_invalid_handles():
    handle = bf.allreduce_nonblocking(mine())
    bf.barrier()
    until = time.monotonic() + 10
    while not bf.poll(handle):  # a device may still be at work
        assert time.monotonic() < until
    bf.synchronize(handle)
    for call in (bf.poll, bf.synchronize, bf.wait):
        for wrong in (handle, -1, None, "x"):
            with pytest.raises(ValueError, match="handle"):
                call(wrong)


def test_a_name_is_taken_while_its_operation_is_pending():
    handle = bf.allreduce_nonblocking(mine(), name="taken")
    for call in (bf.allreduce_nonblocking, bf.allreduce, bf.allreduce_):
        with pytest.raises(ValueError, match="taken"):
            call(mine(), name="taken")
    other = bf.broadcast_nonblocking(mine(), 0, name="taken")  # the same name for another operation is allowed
    bf.synchronize(handle)
    bf.synchronize(other)
    close(bf.allreduce(mine(), name="taken"), everybody().mean(0))


@several
@pytest.mark.parametrize("call", [bf.allreduce, bf.allgather, lambda x, name: bf.broadcast(x, 0, name)])
def test_mismatches_are_errors_and_survived(call):
    with pytest.raises(ValueError, match="float32.*float64|float64.*float32"):
        call(mine(torch.float32 if rank == 0 else torch.float64), name="types")
    bf.barrier()
    shape = (2, 3) if rank == 0 else (3, 2)
    with pytest.raises(ValueError, match=r"shape is \({}, {}\)".format(*shape)):
        call(mine(shape=shape), name="shapes")
    bf.barrier()
    close(bf.allreduce(mine(), name="after"), everybody().mean(0))


@several
def test_mismatched_counts_are_an_error():
    with pytest.raises(starling.Mismatch, match="3 x float32.*4 x float32|4 x float32.*3 x float32"):
        bf.allreduce(torch.ones(3 if rank == 0 else 4))
    bf.barrier()


def test_groups():
    tensors = [mine(), mine(shape=(5,)), mine(shape=())]
    for got, x in zip(bf.allreduce_group(tensors), tensors):
        close(got, everybody(shape=x.shape).mean(0))
    mixed = [mine(torch.float64), mine(torch.int16, (3,)), mine(torch.bfloat16, (4, 1))]
    for got, x in zip(bf.broadcast_group(mixed, n - 1), mixed):
        assert got.dtype == x.dtype
        close(got, mine(x.dtype, x.shape, n - 1))
    handle = bf.allreduce_group_nonblocking_(tensors, average=False, name="g")
    assert all(a is b for a, b in zip(bf.synchronize(handle), tensors))
    close(tensors[1], everybody(shape=(5,)).sum(0))
    bf.broadcast_group_(mixed, 0)
    close(mixed[1], mine(torch.int16, (3,), 0))
    assert len(bf.synchronize(bf.allreduce_group_nonblocking([mine()]))) == 1
    assert len(bf.synchronize(bf.broadcast_group_nonblocking([mine()], 0))) == 1
    assert len(bf.synchronize(bf.broadcast_group_nonblocking_([mine()], 0))) == 1
    with pytest.raises(ValueError, match="no tensors"):
        bf.allreduce_group([])


def test_lists_of_all_ranks():
    assert bf.allgather_lists([rank] * rank) == [[r] * r for r in range(n)]


def test_barrier_waits_for_every_rank():
    import time

    bf.barrier()
    time.sleep(0.05 * rank)
    came = time.monotonic()
    bf.barrier()
    moments = bf.allgather(torch.tensor([[came, time.monotonic()]], dtype=torch.float64))
    assert moments[:, 0].max() <= moments[:, 1].min()


def test_no_copy_of_contiguous_memory():
    before = bf.process.state.flock.bytes_sent
    x = torch.ones(1000)
    bf.neighbor_allreduce(x)
    assert bf.process.state.flock.bytes_sent - before == 4000 * len(bf.out_neighbor_ranks())
    one = bf.operations.operand(x, bf.neighbors.FLOATING)
    assert one.memory is x and one.block()[0] == x.data_ptr()
