"""starling.join() and its operations on numpy arrays, in every rank."""

import numpy as np
import pytest

import starling

flock = starling.join()
rank, n = flock.rank, flock.size


def test_neighbor_allreduce_follows_the_matrix():
    x = np.arange(6.0).reshape(2, 3) + 10 * rank
    got = flock.neighbor_allreduce(x)
    weights = np.zeros((n, n))
    receivers, senders, values = flock.schedule.entries(0)
    weights[receivers, senders] = values
    np.testing.assert_allclose(got, sum(weights[rank, j] * (np.arange(6.0).reshape(2, 3) + 10 * j) for j in range(n)))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8"])
def test_allreduce_sums_every_dtype(dtype):
    got = flock.allreduce(np.full(5, rank + 1, dtype=dtype), "sum")
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, n * (n + 1) // 2)


def test_arrays_that_are_not_contiguous():
    x = np.arange(12.0).reshape(3, 4).T + rank
    np.testing.assert_allclose(flock.allreduce(x), np.arange(12.0).reshape(3, 4).T + (n - 1) / 2)


def test_zero_dimensions_and_no_elements():
    assert flock.allreduce(np.float32(rank)).shape == ()
    assert flock.allreduce(np.empty((0, 3))).shape == (0, 3)


def test_allgather_of_different_lengths():
    got = flock.allgather(np.full((rank + 1, 2), rank))
    assert got.shape == (n * (n + 1) // 2, 2)
    np.testing.assert_array_equal(got[:, 0], np.repeat(np.arange(n), np.arange(n) + 1))


def test_broadcast():
    np.testing.assert_array_equal(flock.broadcast(np.full(3, rank), root=n - 1), n - 1)


def test_dtypes_that_do_not_travel_are_named():
    with pytest.raises(ValueError, match="complex128.*float64"):
        flock.allreduce(np.zeros(2, dtype=complex))


def test_mismatched_lengths_are_an_error_on_all_ranks():
    if n == 1:
        pytest.skip("one rank agrees with itself")
    with pytest.raises(ValueError, match="lengths: rank"):
        flock.allreduce(np.zeros(3 + rank % 2), name="lengths")
    flock.barrier()


def test_attributes_that_do_nothing_are_refused():
    with pytest.raises(AttributeError, match=r"the flock has no attribute 'timout' to set \(did you mean timeout\?\); valid are "):
        flock.timout = 3
    with pytest.raises(AttributeError, match="did you mean on_peer_failure"):
        flock.on_peer_failur = "reweight"
    before = flock.timeout
    flock.timeout = before + 1
    assert flock.timeout == before + 1
    flock.timeout = before


def test_arguments_of_another_type_are_named():
    with pytest.raises(TypeError, match="timeout must be a number above 0, not the str 'x'"):
        flock.timeout = "x"
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="timeout must be a number above 0"):
            flock.timeout = wrong
    with pytest.raises(ValueError, match="on_peer_failure is raise or reweight, not None"):
        flock.on_peer_failure = None
    with pytest.raises(TypeError, match="root must be a whole number from 0 to .*, not the str '0'"):
        flock.broadcast(np.ones(2), "0")


def test_send_and_recv():
    if n > 1 and rank == 0:
        flock.send(np.arange(6.0).reshape(2, 3).T, 1)
    if n > 1 and rank == 1:
        np.testing.assert_array_equal(flock.recv(np.empty((3, 2)), 0), np.arange(6.0).reshape(2, 3).T)
    with pytest.raises(TypeError, match="to must be a whole number"):
        flock.send(np.ones(2), "1")
    flock.barrier()
