"""Every public name of BlueFog exists, with a docstring and the signature that users know."""

import importlib
import inspect

import pytest

import starling.torch as bf

PROCESS = """init shutdown size rank local_size local_rank machine_size machine_rank is_homogeneous load_topology
load_machine_topology set_topology set_machine_topology in_neighbor_ranks out_neighbor_ranks in_neighbor_machine_ranks
out_neighbor_machine_ranks mpi_threads_supported unified_mpi_window_model_supported nccl_built set_skip_negotiate_stage
get_skip_negotiate_stage suspend resume"""
COLLECTIVES = """allreduce allreduce_ allreduce_nonblocking allreduce_nonblocking_ broadcast broadcast_ broadcast_nonblocking
broadcast_nonblocking_ allgather allgather_nonblocking neighbor_allgather neighbor_allgather_nonblocking neighbor_allreduce
neighbor_allreduce_nonblocking hierarchical_neighbor_allreduce hierarchical_neighbor_allreduce_nonblocking poll synchronize
wait barrier"""
WINDOWS = """win_create win_free win_put win_put_nonblocking win_accumulate win_accumulate_nonblocking win_get
win_get_nonblocking neighbor_win_put neighbor_win_put_nonblocking neighbor_win_accumulate neighbor_win_accumulate_nonblocking
neighbor_win_get neighbor_win_get_nonblocking win_update win_update_then_collect win_poll win_wait get_win_version
get_current_created_window_names win_mutex win_associated_p turn_on_win_ops_with_associated_p
turn_off_win_ops_with_associated_p"""
OPTIMIZERS = """CommunicationType DistributedGradientAllreduceOptimizer DistributedAdaptThenCombineOptimizer
DistributedAdaptWithCombineOptimizer DistributedAllreduceOptimizer DistributedNeighborAllreduceOptimizer
DistributedHierarchicalNeighborAllreduceOptimizer DistributedWinPutOptimizer DistributedPushSumOptimizer
DistributedPullGetOptimizer decentralize DecentralizedDataParallel FlockSampler"""
UTILITY = """broadcast_parameters allreduce_parameters broadcast_optimizer_state timeline_start_activity timeline_end_activity
timeline_context"""
TOPOLOGIES = """ExponentialTwoGraph ExponentialGraph SymmetricExponentialGraph MeshGrid2DGraph StarGraph RingGraph
FullyConnectedGraph IsTopologyEquivalent IsRegularGraph GetRecvWeights GetSendWeights isPowerOf GetDynamicOnePeerSendRecvRanks
GetDynamicSendRecvRanks GetExp2DynamicSendRecvMachineRanks GetInnerOuterRingDynamicSendRecvRanks
GetInnerOuterExpo2DynamicSendRecvRanks InferSourceFromDestinationRanks InferDestinationFromSourceRanks"""
IN_MPI_OPS = "is_topo_weighted is_machine_topo_weighted pair_gossip pair_gossip_nonblocking win_lock"


@pytest.mark.parametrize("name", " ".join([PROCESS, COLLECTIVES, WINDOWS, OPTIMIZERS, UTILITY, TOPOLOGIES]).split())
def test_is_there_with_help(name):
    assert inspect.getdoc(getattr(bf, name))


@pytest.mark.parametrize("name", IN_MPI_OPS.split())
def test_is_in_mpi_ops(name):
    assert inspect.getdoc(getattr(importlib.import_module("starling.torch.mpi_ops"), name))


@pytest.mark.parametrize("name", TOPOLOGIES.split())
def test_is_in_topology_util(name):
    assert getattr(bf.topology_util, name) is getattr(bf, name)


SIGNATURES = {
    "init": "topology_fn=None is_weighted=False process_group=None",
    "set_topology": "topology=None is_weighted=False",
    "set_machine_topology": "topology is_weighted=False",
    "allreduce": "tensor average=True is_hierarchical_local=False name=None",
    "broadcast": "tensor root_rank name=None",
    "allgather": "tensor name=None",
    "neighbor_allgather": "tensor src_ranks=None dst_ranks=None enable_topo_check=True name=None",
    "win_create": "tensor name zero_init=False",
    "win_free": "name=None",
    "win_put": "tensor name self_weight=None dst_weights=None require_mutex=False",
    "win_accumulate": "tensor name self_weight=None dst_weights=None require_mutex=False",
    "win_get": "name src_weights=None require_mutex=False",
    "win_update": "name self_weight=None neighbor_weights=None reset=False clone=False require_mutex=False",
    "win_update_then_collect": "name require_mutex=True",
    "win_mutex": "name for_self=False ranks=None",
    "DistributedGradientAllreduceOptimizer": "optimizer model num_steps_per_communication=1",
    "DistributedWinPutOptimizer": "optimizer model num_steps_per_communication=1 window_prefix=None",
    "broadcast_parameters": "params root_rank",
    "broadcast_optimizer_state": "optimizer root_rank",
    "MeshGrid2DGraph": "size shape=None",
    "RingGraph": "size connect_style=0",
    "StarGraph": "size center_rank=0",
    "ExponentialGraph": "size base=2",
    "SymmetricExponentialGraph": "size base=4",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_has_the_signature(name):
    parameters = inspect.signature(getattr(bf, name)).parameters.values()
    words = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    assert words == SIGNATURES[name].split()


@pytest.mark.parametrize("name", ["neighbor_allreduce", "neighbor_allreduce_nonblocking"])
@pytest.mark.parametrize("argument", ["self_weight", "src_weights", "dst_weights", "enable_topo_check", "name"])
def test_neighbor_allreduce_takes(name, argument):
    assert argument in inspect.signature(getattr(bf, name)).parameters
