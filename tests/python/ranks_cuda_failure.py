"""A rank whose GPU fails for good: it gets CUDA's error, and the others are told why it is lost. In every rank, on a GPU or on the
fake one of tests/python/fake_gpu.py. The process has no GPU afterwards, so this file has one test."""

import os

import pytest
import torch

import starling
import starling.torch as bf

FAKE = "STARLING_FAKE_DEVICE" in os.environ
bf.init()
rank, n = bf.rank(), bf.size()


def crash():
    if FAKE:
        import fake_gpu
        fake_gpu.library.crash_fake_device(b"device-side assert triggered")
    else:
        torch.zeros(1, device="cuda")[torch.tensor([7], device="cuda")]  # an index that is out of range


@pytest.mark.skipif(n == 1 or not (FAKE or torch.cuda.is_available()), reason="needs a GPU and several ranks")
def test_the_others_are_told_why():
    x = torch.ones(1000, device="cpu" if FAKE else "cuda")
    bf.allreduce_(x)
    bf.barrier()
    if rank != 0:
        with pytest.raises(starling.PeerLost, match="rank 0 .*its device failed: .*assert"):
            for _ in range(100):
                bf.allreduce_(x)
        return
    crash()
    with pytest.raises(RuntimeError, match="assert"):
        for _ in range(100):
            bf.allreduce_(x)
    with pytest.raises(starling.Error, match="rank 0 has left: its device failed: .*assert"):
        bf.barrier()
