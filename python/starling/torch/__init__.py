"""BlueFog's API for PyTorch on Starling's core: ``import starling.torch as bf``.

    bf.init()
    x = torch.randn(1000)
    for step in range(100):
        x = bf.neighbor_allreduce(x)      # a weighted average with a few neighbours

Every operation has a form that returns a handle (``*_nonblocking``), for ``bf.synchronize``; a trailing ``_`` works in
place. Tensors may lie on any device and in any layout, and numpy arrays are taken as well.
"""

from .. import topology_util
from ..topology_util import *  # noqa: F401,F403  BlueFog's older programs find them here
from . import timeline as _timeline  # noqa: F401
from .handles import poll, synchronize, wait
from .neighbors import (hierarchical_neighbor_allreduce, hierarchical_neighbor_allreduce_nonblocking, neighbor_allgather,
                        neighbor_allgather_nonblocking, neighbor_allreduce, neighbor_allreduce_group,
                        neighbor_allreduce_group_nonblocking, neighbor_allreduce_nonblocking, pair_gossip,
                        pair_gossip_nonblocking)
from .operations import (allgather, allgather_lists, allgather_nonblocking, allreduce, allreduce_, allreduce_group,
                         allreduce_group_, allreduce_group_nonblocking, allreduce_group_nonblocking_,
                         allreduce_nonblocking, allreduce_nonblocking_, barrier, broadcast, broadcast_, broadcast_group,
                         broadcast_group_, broadcast_group_nonblocking, broadcast_group_nonblocking_,
                         broadcast_nonblocking, broadcast_nonblocking_)
from .process import (get_skip_negotiate_stage, in_neighbor_machine_ranks, in_neighbor_ranks, init, is_homogeneous,
                      is_initialized, is_machine_topo_weighted, is_topo_weighted, load_machine_topology, load_topology,
                      local_rank, local_size, machine_rank, machine_size, mpi_threads_supported, nccl_built,
                      out_neighbor_machine_ranks, out_neighbor_ranks, rank, resume, set_machine_topology,
                      set_skip_negotiate_stage, set_topology, shutdown, size, suspend,
                      unified_mpi_window_model_supported)
from .timeline import timeline_context, timeline_end_activity, timeline_start_activity

from .data_parallel import DecentralizedDataParallel
from .decentralize import Decentralized, decentralize
from .optimizers import (CommunicationType, DistributedAdaptThenCombineOptimizer, DistributedAdaptWithCombineOptimizer,
                         DistributedAllreduceOptimizer, DistributedGradientAllreduceOptimizer,
                         DistributedHierarchicalNeighborAllreduceOptimizer, DistributedNeighborAllreduceOptimizer)
from .window_optimizers import (DistributedPullGetOptimizer, DistributedPushSumOptimizer, DistributedWinPutOptimizer)
