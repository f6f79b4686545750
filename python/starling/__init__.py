"""Starling: one model, many workers, a few neighbors each.

    import starling.torch as bf          # PyTorch: BlueFog's API, and starling.torch.decentralize
    import starling                      # topologies, simulation, clusters, numpy arrays; needs no torch

``help(starling.torch)`` lists the functions for PyTorch.
"""

from ._core import Deadlock, Error, Excluded, InvalidArgument, Mismatch, NonFinite, PeerLost, TimedOut, __version__
from .cluster import Cluster, WorkerError, WorkerLost
from .flock import Flock, join
from .simulation import Consensus, Simulation, consensus, methods, problem, problems, simulate
from .tool import tool_path
from .topologies import Neighbors, Topology, topologies, topology  # the function topologies, not its module

__all__ = [
    "Cluster", "Consensus", "Deadlock", "Error", "Excluded", "Flock", "InvalidArgument", "Mismatch", "Neighbors", "NonFinite", "PeerLost", "Simulation",
    "TimedOut", "Topology", "WorkerError", "WorkerLost", "__version__", "consensus", "join", "methods", "problem", "problems",
    "simulate", "tool_path", "topologies", "topology",
]
