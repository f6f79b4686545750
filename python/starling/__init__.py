"""Starling: one model, many workers, a few neighbours each.

    import starling.torch as bf          # PyTorch: BlueFog's API, and starling.torch.decentralize
    import starling                      # topologies, simulation, numpy arrays; needs no torch

``help(starling.torch)`` lists what there is for PyTorch.
"""

from ._core import Deadlock, Error, InvalidArgument, Mismatch, PeerLost, TimedOut, __version__
from .cluster import Cluster, WorkerError, WorkerLost
from .flock import Flock, join
from .tool import tool_path

__all__ = [
    "Cluster", "Deadlock", "Error", "Flock", "InvalidArgument", "Mismatch", "PeerLost", "TimedOut", "WorkerError", "WorkerLost",
    "__version__", "join", "tool_path",
]
