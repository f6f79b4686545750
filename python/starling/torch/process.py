"""This process's rank, the topology, and their settings."""

from __future__ import annotations

import atexit
import hashlib
import os
import struct
import warnings
from typing import TYPE_CHECKING, Callable, Iterable, List, Optional

from .. import _core, flock as _numpy_flock
from .._checks import warn_renamed
from .._graph_checks import check_digraph
from ..topologies import Topology, schedule_from

if TYPE_CHECKING:
    import networkx

__all__ = [
    "admit", "get_skip_negotiate_stage", "in_neighbor_machine_ranks", "in_neighbor_ranks", "init", "is_homogeneous",
    "is_initialized", "is_machine_topo_weighted", "is_topo_weighted", "load_machine_topology",
    "living_ranks", "load_topology",
    "local_rank", "local_size", "machine_rank", "machine_size", "mpi_threads_supported", "nccl_built",
    "out_neighbor_machine_ranks", "out_neighbor_ranks", "rank", "resume", "set_machine_topology",
    "set_skip_negotiate_stage", "set_topology", "shutdown", "size", "suspend",
    "unified_mpi_window_model_supported", "welcome",
]



class _State:
    """State of this module between calls."""

    def __init__(self) -> None:
        self.flock: Optional[_core.Flock] = None
        self.local: Optional[_core.Flock] = None  # the ranks of this machine; created on first use
        self.graph: Optional["networkx.DiGraph"] = None
        self.weighted = False
        self.chosen = False  # the program has chosen the topology
        # makes the topology for another number of ranks
        self.remake: Optional[Callable[[int], object]] = None
        self.sources: List[int] = []  # in-neighbors, over all steps if they change
        self.destinations: List[int] = []
        self.machine_graph: Optional["networkx.DiGraph"] = None
        self.machine_weighted = False
        self.machine_schedule: Optional[_core.Schedule] = None
        self.skip_negotiation = False
        self.process = 0  # the id of the process that joined


state = _State()
_at_init: List[Callable[[int], None]] = []
_at_shutdown: List[Callable[[], None]] = []
_reasons: List[Callable[[], Optional[str]]] = []


def at_init(action: Callable[[int], None]) -> Callable[[int], None]:
    """Registers a function to call once the rank is known."""
    _at_init.append(action)
    return action


def at_shutdown(action: Callable[[], None]) -> Callable[[], None]:
    """Registers a function to call when the flock is left; the last one is called first."""
    _at_shutdown.append(action)
    return action


def may_forbid_topologies(ask: Callable[[], Optional[str]]) -> Callable[[], Optional[str]]:
    """Registers a function that returns why the topology must not change now, or None."""
    _reasons.append(ask)
    return ask


def flock() -> _core.Flock:
    """The flock that operations use; raises an error that says what to call if there is none."""
    if state.flock is None:
        raise _core.InvalidArgument("there is no flock: bf.init() was not called, or bf.shutdown() was")
    return state.flock


def init(topology_fn: Optional[Callable[[int], "networkx.DiGraph"]] = None,
         is_weighted: bool = False, *, process_group=None) -> None:
    """Joins the flock this process was started in, or makes a flock of one.

    The topology is ``topology_fn(size)``, by default the static exponential graph, with uniform weights unless
    ``is_weighted``. Calling it again resets the topology.

        bf.init()
        bf.init(bf.RingGraph)

    In a program that uses torch.distributed, ``process_group=True`` joins over its ranks, or those of a group, through
    Gloo, also between hosts:

        torch.distributed.init_process_group("gloo")
        bf.init(process_group=True)
    """
    if process_group is None:
        state.flock = _numpy_flock.joined()
    else:
        from .adopted import flock_over
        state.flock = flock_over(process_group)
    state.process = os.getpid()
    for action in _at_init:
        action(state.flock.rank)
    topology = None if topology_fn is None else topology_fn(state.flock.size)
    if set_topology(topology, is_weighted) and topology_fn is not None:
        state.remake = topology_fn


def shutdown() -> None:
    """Leaves the flock: operations raise RuntimeError from now on. Unfinished operations are abandoned."""
    if state.process == os.getpid():  # not in a forked child
        for action in reversed(_at_shutdown):
            action()
    state.__init__()


def is_initialized() -> bool:
    """Whether operations may be called."""
    return state.flock is not None


def size() -> int:
    """The number of ranks."""
    return flock().size


def rank() -> int:
    """This process's rank, from 0."""
    return flock().rank


def living_ranks() -> List[int]:
    """The live ranks that all agree on, ascending. Some may be missing where training continues without them
    (``on_peer_failure="reweight"``)."""
    return sorted(flock().members)


def local_size() -> int:
    """The number of ranks on this machine; ``BLUEFOG_NODES_PER_MACHINE=k`` sets it to k."""
    return flock().local_size


def local_rank() -> int:
    """This process's number among those of its machine."""
    return flock().local_rank


def machine_size() -> int:
    """How many machines there are."""
    return flock().machine_size


def machine_rank() -> int:
    """The number of this process's machine."""
    return flock().machine_rank


def is_homogeneous() -> bool:
    """Whether every machine has as many ranks as this one, as Starling requires."""
    return flock().size % flock().local_size == 0


def set_topology(topology=None, is_weighted: bool = False) -> bool:
    """Sets which ranks exchange: a ``networkx.DiGraph`` over the ranks (an edge i -> j means that i sends to j), a
    topology by its name, a ``starling.Topology``, an undirected graph, which gets Metropolis weights unless its edges
    have some, or a matrix of weights (row = receiver). Every rank must set the same.

    Of a ``DiGraph``, the edges' weights count only with ``is_weighted``; otherwise every rank averages evenly over
    itself and its sources. Returns False, and changes nothing, while windows exist or operations are under way.

        bf.set_topology(bf.RingGraph(bf.size()))
        bf.set_topology("one-peer-exponential")
    """
    members = flock().size
    remake = None
    chosen = topology is not None
    if topology is None:
        from ..topology_util import ExponentialGraph

        topology, remake = ExponentialGraph(members), ExponentialGraph
    schedule, graph = _read("topology", topology, members, is_weighted)
    if _must_stay("topology"):
        return False
    flock().set_schedule(schedule)
    state.chosen = chosen
    by_name = graph is not topology
    state.remake = (lambda _: schedule.name) if by_name else remake
    state.graph, state.weighted = graph, bool(is_weighted) or by_name
    own = flock().rank
    state.sources = _others(graph.predecessors(own), own) if graph is not None else []
    state.destinations = _others(graph.successors(own), own) if graph is not None else []
    return True


def admit() -> bool:
    """Admits newcomers (processes started with ``STARLING_ENTER=1``): a collective between two operations. Returns
    whether any joined; rank and size have then changed, and the topology is the same over the new number of ranks. In
    training, call the optimizer's ``admit()`` instead, which also gives newcomers a model."""
    check_admission()
    return switch_flock(flock().admit(next_schedule))


def welcome() -> bool:
    """The old name of ``admit()``."""
    warn_renamed("welcome", "admit")
    return admit()


def check_admission() -> None:
    """Raises if an operation or window would remain in the old flock."""
    for reason in filter(None, (ask() for ask in _reasons)):
        raise _core.InvalidArgument(f"admit: no newcomer can be admitted while {reason}")
    if state.remake is None:
        raise _core.InvalidArgument(f"admit: the topology is a graph of {size()} ranks; set one by its name, or give "
                                    "bf.init() the function that makes it for any number")


def next_schedule(members: int) -> _core.Schedule:
    """The topology for another number of ranks."""
    schedule, _ = _read("topology", state.remake(members), members, state.weighted)
    return schedule


def switch_flock(larger: _core.Flock) -> bool:
    """Switches to the flock after an admission; returns whether it is a new one."""
    if larger == state.flock:
        return False
    remake, weighted, chosen = state.remake, state.weighted, state.chosen
    if state.flock is _numpy_flock.joined():
        _numpy_flock.replace_joined(larger)
    state.flock, state.local = larger, None
    state.machine_graph, state.machine_schedule, state.machine_weighted = None, None, False
    set_topology(remake(larger.size), weighted)
    state.remake, state.chosen = remake, chosen
    return True


def load_topology() -> Optional["networkx.DiGraph"]:
    """The topology as a graph whose edges i -> j have the attribute ``weight``; None before init. For a schedule that
    changes from step to step: all its edges, with their mean weights; None for random ones."""
    return state.graph


def set_machine_topology(topology, is_weighted: bool = False) -> bool:
    """Sets which machines exchange in hierarchical operations; like set_topology, over the machines."""
    if topology is None:
        raise ValueError("set_machine_topology needs a topology over the machines, not None")
    schedule, graph = _read("machine topology", topology, flock().machine_size, is_weighted)
    if _must_stay("machine topology"):
        return False
    flock().set_machine_schedule(schedule)
    state.machine_schedule = schedule
    state.machine_graph, state.machine_weighted = graph, bool(is_weighted) or graph is not topology
    return True


def load_machine_topology() -> Optional["networkx.DiGraph"]:
    """The machines' topology; None until one is set."""
    return state.machine_graph


def is_topo_weighted() -> bool:
    """Whether averages take the weights of the topology's edges."""
    return state.weighted


def is_machine_topo_weighted() -> bool:
    """The same for the machines' topology."""
    return state.machine_weighted


def in_neighbor_ranks() -> List[int]:
    """The ranks that this rank receives from, ascending, without itself."""
    return list(state.sources)


def out_neighbor_ranks() -> List[int]:
    """The ranks that this rank sends to, ascending, without itself."""
    return list(state.destinations)


def in_neighbor_machine_ranks() -> List[int]:
    """The machines that this one receives from."""
    return _machines(lambda graph, own: graph.predecessors(own))


def out_neighbor_machine_ranks() -> List[int]:
    """The machines that this one sends to."""
    return _machines(lambda graph, own: graph.successors(own))


def mpi_threads_supported() -> bool:
    """True: operations may be called from any thread."""
    return True


def unified_mpi_window_model_supported() -> bool:
    """True: windows are memory that all ranks see."""
    return True


def nccl_built() -> bool:
    """False: tensors of a GPU are exchanged without NCCL."""
    return False


def set_skip_negotiate_stage(value: bool) -> None:
    """Kept for old programs, without effect: Starling never negotiates."""
    state.skip_negotiation = bool(value)


def get_skip_negotiate_stage() -> bool:
    """The value of set_skip_negotiate_stage()."""
    return state.skip_negotiation


def suspend() -> None:
    """Kept for old programs, without effect: there is no background thread to suspend."""
    flock()


def resume() -> None:
    """Ends suspend()."""
    flock()


def local_flock() -> _core.Flock:
    """The ranks of this machine as a flock of their own."""
    if state.local is None:
        whole = flock()
        first = whole.machine_rank * whole.local_size
        state.local = whole.group(list(range(first, first + whole.local_size)))
    return state.local


def _must_stay(what: str) -> bool:
    for reason in filter(None, (ask() for ask in _reasons)):
        warnings.warn(f"the {what} stays as it is while {reason}", stacklevel=3)
        return True
    return False


def _machines(select: Callable[["networkx.DiGraph", int], Iterable[int]]) -> List[int]:
    if state.machine_graph is None:
        return []
    own = machine_rank()
    return _others(select(state.machine_graph, own), own)


def _others(ranks: Iterable[int], own: int) -> List[int]:
    return sorted(rank for rank in ranks if rank != own)


def _read(what: str, topology, nodes: int, weighted: bool):
    """(schedule, graph) of any kind of topology."""
    given = getattr(topology, "_schedule", topology)
    if isinstance(given, str):
        given = _core.make_schedule(given, nodes)
    elif hasattr(given, "is_directed") and not given.is_directed():
        given = Topology.from_graph(given)._schedule
    elif isinstance(given, (list, tuple)) or hasattr(given, "shape"):
        given = schedule_from(given, nodes)
    if isinstance(given, _core.Schedule):
        if given.size != nodes:
            raise TypeError(f"the {what} {given.name} is for {given.size}, not for {nodes}")
        return given, _graph_of(given)
    graph = check_digraph(what, given)
    if graph.number_of_nodes() != nodes:
        raise TypeError(f"the {what} must have the nodes 0..{nodes - 1}, not {graph.number_of_nodes()} nodes")
    return _schedule_of(graph, weighted), graph


def _schedule_of(graph: "networkx.DiGraph", weighted: bool) -> _core.Schedule:
    receivers, senders, weights = [], [], []
    for receiver in range(graph.number_of_nodes()):
        sources = {source for source in graph.predecessors(receiver)} | {receiver}
        for source in sorted(sources):
            if not weighted:
                weight = 1.0 / len(sources)
            elif graph.has_edge(source, receiver):
                weight = float(graph.edges[source, receiver].get("weight", 1.0))
            else:
                weight = 0.0
            receivers.append(receiver)
            senders.append(source)
            weights.append(weight)
    packed = struct.pack(f"{2 * len(weights)}i{len(weights)}d", *receivers, *senders, *weights)
    name = f"graph-{hashlib.sha256(packed).hexdigest()[:16]}"
    return _core.schedule_from_weights(graph.number_of_nodes(), (receivers, senders, weights), name)


def _graph_of(schedule: _core.Schedule) -> Optional["networkx.DiGraph"]:
    import networkx

    if schedule.random:
        return None
    steps = max(1, schedule.period)
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(schedule.size))
    for step in range(steps):
        for receiver, sender, weight in zip(*schedule.entries(step)):
            before = graph.edges[sender, receiver]["weight"] if graph.has_edge(sender, receiver) else 0.0
            graph.add_edge(sender, receiver, weight=before + weight / steps)
    return graph


atexit.register(shutdown)
