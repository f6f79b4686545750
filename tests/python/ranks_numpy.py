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
