"""BlueFog's API for PyTorch on Starling's core: ``import starling.torch as bf``.

    bf.init()
    x = torch.randn(1000)
    for step in range(100):
        x = bf.neighbor_allreduce(x)      # a weighted average with a few neighbors

Every operation has a form that returns a handle (``*_nonblocking``), for ``bf.synchronize``; a trailing ``_`` works in
place. Tensors may be on any device and in any layout; numpy arrays work as well.
"""

from .. import topology_util
from ..topology_util import *
from . import handles, mpi_ops, neighbors, operations, process, timeline, utility, windows
from .handles import *
from .neighbors import *
from .operations import *
from .process import *
from .timeline import *
from .utility import *
from .windows import *

__all__ = ["mpi_ops", "topology_util", *topology_util.__all__]
for _module in (handles, neighbors, operations, process, timeline, utility, windows):
    __all__ += _module.__all__

from .data_parallel import DecentralizedDataParallel
from .decentralize import Decentralized, decentralize
from .sampler import FlockSampler
from .optimizers import (CommunicationType, DistributedAdaptThenCombineOptimizer, DistributedAdaptWithCombineOptimizer,
                         DistributedAllreduceOptimizer, DistributedGradientAllreduceOptimizer,
                         DistributedHierarchicalNeighborAllreduceOptimizer, DistributedNeighborAllreduceOptimizer)
from .window_optimizers import (DistributedPullGetOptimizer, DistributedPushSumOptimizer, DistributedWinPutOptimizer)
