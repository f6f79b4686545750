"""Windows of starling.torch, in every rank."""

import time

import numpy as np
import pytest
import torch

import starling.torch as bf

bf.init()
rank, n = bf.rank(), bf.size()
several = pytest.mark.skipif(n == 1, reason="one rank has no neighbors")
sources, destinations = bf.in_neighbor_ranks(), bf.out_neighbor_ranks()
share = 1 / (len(sources) + 1)


@pytest.fixture(autouse=True)
def no_windows_left():
    yield
    bf.turn_off_win_ops_with_associated_p()
    bf.barrier()
    bf.win_free()
    assert bf.get_current_created_window_names() == []


def mine(dtype=torch.float32, shape=(3, 2)):
    return torch.full(shape, rank + 1, dtype=dtype)


def test_create_and_free():
    assert bf.win_create(mine(), "b") and bf.win_create(mine(), "a")
    assert not bf.win_create(mine(), "a")
    assert bf.get_current_created_window_names() == ["a", "b"]
    assert bf.win_free("a")
    assert bf.get_current_created_window_names() == ["b"]
    with pytest.raises(KeyError, match="a"):
        bf.win_free("a")
    for call in (lambda: bf.win_put(mine(), "a"), lambda: bf.win_accumulate(mine(), "a"),
                 lambda: bf.win_get("a"),
                 lambda: bf.win_update("a"), lambda: bf.get_win_version("a"),
                 lambda: bf.win_associated_p("a")):
        with pytest.raises(KeyError):
            call()


def test_slots_begin_as_the_tensor_or_empty():
    x, y = mine(), mine()
    bf.win_create(x, "full")
    bf.win_create(y, "empty", zero_init=True)
    torch.testing.assert_close(bf.win_update("full"), mine())
    torch.testing.assert_close(bf.win_update("empty"), mine() * share)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_put_and_update(dtype):
    x = mine(dtype)
    bf.win_create(x, "x")
    assert bf.win_put(x, "x")
    bf.barrier()
    got = bf.win_update("x")
    assert got is x
    wanted = torch.full((3, 2), share * (rank + 1 + sum(s + 1 for s in sources)), dtype=dtype)
    torch.testing.assert_close(x, wanted, rtol=1e-2, atol=1e-2)


def test_windows_of_integers():
    x = mine(torch.int64)
    bf.win_create(x, "x", zero_init=True)
    bf.win_accumulate(x, "x")
    bf.barrier()
    bf.win_update_then_collect("x")
    assert torch.equal(x, torch.full((3, 2), rank + 1 + sum(s + 1 for s in sources)))


@several
def test_weights_of_destinations_and_of_oneself():
    x = mine()
    bf.win_create(x, "x", zero_init=True)
    bf.win_put(x, "x", self_weight=0.5, dst_weights={to: 2.0 for to in destinations})
    torch.testing.assert_close(x, mine() * 0.5)
    bf.barrier()
    got = bf.win_update("x", self_weight=1.0, neighbor_weights={s: 1.0 for s in sources}, clone=True)
    torch.testing.assert_close(got,
                               torch.full((3, 2), 0.5 * (rank + 1) + sum(2.0 * (s + 1) for s in sources)))
    torch.testing.assert_close(x, mine() * 0.5)  # a clone does not change x
    bf.barrier()
    bf.win_put(x, "x", dst_weights=[destinations[0]])
    bf.barrier()
    graph = bf.load_topology()
    first = {s: min(to for to in graph.successors(s) if to != s) for s in sources}
    assert bf.get_win_version("x") == {s: int(first[s] == rank) for s in sources}


def test_versions_count_what_was_fetched():
    bf.win_create(mine(), "x")
    assert bf.get_win_version("x") == {s: 0 for s in sources}
    bf.barrier()
    bf.win_get("x")
    bf.win_get("x", src_weights=sources[:1])
    assert bf.get_win_version("x") == {s: 1 + int(s in sources[:1]) for s in sources}
    bf.win_update("x")
    assert bf.get_win_version("x") == {s: 0 for s in sources}


def test_slots_have_no_p_until_they_are_written():
    bf.turn_on_win_ops_with_associated_p()
    bf.win_create(mine(), "x")
    bf.barrier()
    bf.win_update("x")
    assert bf.win_associated_p("x") == pytest.approx(share)


@several
def test_a_tensor_other_than_the_windows_own():
    x, other = mine(), mine() * 10
    bf.win_create(x, "x", zero_init=True)
    bf.win_put(other, "x", self_weight=0.5)
    torch.testing.assert_close(other, mine() * 5)
    torch.testing.assert_close(x, mine())
    bf.barrier()
    bf.win_update("x", self_weight=1.0, neighbor_weights={s: 1.0 for s in sources})
    torch.testing.assert_close(x, torch.full((3, 2), rank + 1 + sum(10.0 * (s + 1) for s in sources)))
    with pytest.raises(ValueError, match="shape"):
        bf.win_put(torch.ones(7), "x")
    with pytest.raises(ValueError, match="float64"):
        bf.win_put(mine(torch.float64), "x")
    parameter = torch.nn.Parameter(mine())
    bf.barrier()
    bf.win_create(parameter, "p", zero_init=True)
    bf.win_put(parameter.data, "p", self_weight=0.25)  # another tensor on the same memory
    torch.testing.assert_close(parameter.detach(), mine() * 0.25)


@several
def test_accumulate_adds_up():
    x = mine()
    bf.win_create(x, "x", zero_init=True)
    for _ in range(3):
        bf.win_accumulate(x, "x")
    bf.barrier()
    assert bf.get_win_version("x") == {s: 3 for s in sources}
    bf.win_update_then_collect("x")
    torch.testing.assert_close(x, torch.full((3, 2), rank + 1 + sum(3.0 * (s + 1) for s in sources)))
    assert bf.get_win_version("x") == {s: 0 for s in sources}
    before = x.clone()
    bf.win_update_then_collect("x")  # collecting has emptied the slots
    torch.testing.assert_close(x, before)


@several
def test_get():
    x = mine()
    bf.win_create(x, "x", zero_init=True)
    x.mul_(10)
    bf.barrier()  # others see the value from here on
    assert bf.win_get("x", src_weights={s: 0.5 for s in sources})
    bf.barrier()  # no rank changes its value until all have read it
    bf.win_update("x", self_weight=0.0, neighbor_weights={s: 1.0 for s in sources})
    torch.testing.assert_close(x, torch.full((3, 2), sum(5.0 * (s + 1) for s in sources)))
    bf.barrier()
    x.fill_(rank)
    bf.win_publish("x")
    bf.barrier()
    assert bf.win_wait(bf.win_get_nonblocking("x", require_mutex=True))
    bf.barrier()
    got = bf.win_update("x", self_weight=0.0, neighbor_weights={sources[0]: 1.0}, clone=True)
    torch.testing.assert_close(got, torch.full((3, 2), float(sources[0])))


@several
def test_reset_empties_the_slots():
    x = mine()
    bf.win_create(x, "x")
    bf.barrier()
    ones = {s: 1.0 for s in sources}
    bf.win_update("x", self_weight=0.0, neighbor_weights=ones, reset=True)
    torch.testing.assert_close(x, mine() * len(sources))
    bf.win_update("x", self_weight=1.0, neighbor_weights=ones)
    torch.testing.assert_close(x, mine() * len(sources))


def test_invalid_arguments_are_errors():
    x = mine()
    bf.win_create(x, "x")
    for wrong in ({"self_weight": 0.5}, {"neighbor_weights": {}}, {"self_weight": 1, "neighbor_weights": {}},
                  {"self_weight": 0.5, "neighbor_weights": [0]},
                  {"self_weight": 0.5, "neighbor_weights": {n: 1.0}}):
        with pytest.raises(ValueError):
            bf.win_update("x", **wrong)
    for weights in ({n: 1.0}, {rank: 1.0}, [0, 0]):
        with pytest.raises(ValueError):
            bf.win_put(x, "x", dst_weights=weights)
        with pytest.raises(ValueError):
            bf.win_accumulate(x, "x", dst_weights=weights)
        with pytest.raises(ValueError):
            bf.win_get("x", src_weights=weights)


def test_handles():
    x = mine()
    bf.win_create(x, "x")
    for call in (bf.win_put_nonblocking, bf.win_accumulate_nonblocking, bf.neighbor_win_put_nonblocking,
                 bf.neighbor_win_accumulate_nonblocking):
        handle = call(x, "x", require_mutex=True)
        assert isinstance(handle, int) and bf.win_poll(handle)
        assert bf.win_wait(handle) and not bf.win_wait(handle)
    assert not bf.win_wait(-1) and not bf.win_poll(-1)
    assert bf.neighbor_win_put(x, "x") and bf.neighbor_win_accumulate(x, "x") and bf.neighbor_win_get("x")
    assert bf.win_wait(bf.neighbor_win_get_nonblocking("x"))


@pytest.mark.parametrize("make",
                         [lambda: torch.full((2, 3), rank + 1.0).t(),
                          lambda: torch.full((3, 4), rank + 1.0)[:, ::2],
                                  lambda: np.full((3, 2), rank + 1.0),
                          lambda: np.full((3, 4), rank + 1.0)[:, ::-2]])
def test_memory_of_any_layout(make):
    x = make()
    bf.win_create(x, "x", zero_init=True)
    x *= 2
    bf.win_put(x, "x", self_weight=0.5)
    np.testing.assert_allclose(x, rank + 1)
    bf.barrier()
    bf.win_update("x")
    np.testing.assert_allclose(x, share * (rank + 1 + sum(2.0 * (s + 1) for s in sources)), rtol=1e-6)


@several
def test_topologies_cannot_change_while_windows_exist():
    bf.win_create(mine(), "x")
    with pytest.warns(UserWarning, match="windows exist: x"):
        assert not bf.set_topology(bf.RingGraph(n))
    bf.win_free("x")
    assert bf.set_topology(bf.RingGraph(n)) and bf.set_topology()


@several
def test_mutexes_exclude():
    bf.win_create(mine(), "x")
    held = []
    for _ in range(20):
        with bf.win_mutex("x", ranks=[0]):  # no collective inside: only rank 0's mutex orders the ranks
            began = time.monotonic()
            time.sleep(0.001)
            held.append([began, time.monotonic()])
    spans = sorted(bf.allgather(torch.tensor(held, dtype=torch.float64)).tolist())
    assert len(spans) == 20 * n
    assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:]))
    with bf.win_mutex("x", for_self=True):
        pass
    with bf.win_mutex("x"):
        bf.win_put(mine(), "x")
    with bf.mpi_ops.win_lock("x"):
        pass


@several
def test_waits_for_the_holder_of_the_mutex():
    bf.win_create(mine(), "x")
    if rank == 0:
        with bf.win_mutex("x", for_self=True):
            bf.barrier()
            time.sleep(0.1)  # the others try to lock it meanwhile
            moment = time.monotonic()
    else:
        bf.barrier()
        with bf.win_mutex("x", ranks=[0]):
            moment = time.monotonic()
    moments = bf.allgather(torch.tensor([moment], dtype=torch.float64)).tolist()
    assert min(moments) == moments[0]


def test_p_stays_while_it_is_off():
    x = mine()
    bf.win_create(x, "x", zero_init=True)
    assert bf.win_associated_p("x") == 1.0
    bf.win_accumulate(x, "x", self_weight=0.25, dst_weights={to: 0.25 for to in destinations})
    assert bf.win_associated_p("x") == 1.0
    bf.barrier()
    bf.win_update_then_collect("x")
    assert bf.win_associated_p("x") == 1.0


@several
def test_push_sum_with_p():
    bf.turn_on_win_ops_with_associated_p()
    x = mine(torch.float64, (5,))
    bf.win_create(x, "x", zero_init=True)
    part = 1 / (len(destinations) + 1)
    for _ in range(60):
        bf.win_accumulate(x, "x", self_weight=part, dst_weights={to: part for to in destinations},
                          require_mutex=True)
        bf.win_update_then_collect("x")
    bf.barrier()
    bf.win_update_then_collect("x")
    p = bf.win_associated_p("x")
    assert bf.allreduce(torch.tensor([p], dtype=torch.float64), average=False).item() == pytest.approx(n)
    torch.testing.assert_close(bf.allreduce(x, average=False),
                               torch.full((5,), n * (n + 1) / 2, dtype=torch.float64))
    before = bf.win_associated_p("x")
    bf.win_put(mine(torch.float64, (5,)), "x", self_weight=0.5)
    assert bf.win_associated_p("x") == pytest.approx(before / 2)


@several
def test_a_sleeping_target_delays_no_rank():
    x = torch.ones(4_000_000)
    bf.win_create(x, "x")
    bf.barrier()
    if rank == 0:
        time.sleep(1.0)
    else:
        began = time.monotonic()
        bf.win_put(x, "x")
        bf.win_get("x")
        assert time.monotonic() - began < 0.8
