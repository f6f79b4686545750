"""Topologies: by name, from weights, from graphs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional

from . import _core
from ._checks import whole_number
from ._display import Listing, html_table, number_text

if TYPE_CHECKING:
    import networkx
    import numpy

_SUM_OFF = 1e-6  # tolerance of sums of weights, for rounding to float32


class Neighbors(NamedTuple):
    """One rank's exchange in one step: the weight of its own value, its sources with their weights, its destinations,
    and the group whose mean it takes first (empty: no group)."""

    self_weight: float
    sources: Dict[int, float]
    destinations: List[int]
    group: List[int]


class Topology:
    """Which ranks exchange, with which weights, in every step.

        ring = starling.topology("ring", 8)
        ring.weights()                      # 8 x 8, row = receiver
        ring.analysis().rho                 # 0.804...

    Use it wherever a topology's name works: ``flock.set_topology``, ``starling.simulate`` ...
    """

    def __init__(self, schedule: _core.Schedule):
        self._schedule = schedule

    @classmethod
    def from_weights(cls, weights: Any, name: Optional[str] = None, *, push: bool = False,
                     negative: bool = False) -> "Topology":
        """A fixed topology of your own weights: ``weights[i, j]`` is the weight that receiver i gives to sender j, as a
        numpy or scipy matrix. Every row sums to one, up to 1e-6; with ``push=True`` every column instead, for push-sum
        methods. Negative weights, which can make averages grow, need ``negative=True``. Weights of an undirected graph's
        edges: ``from_graph``."""
        return cls(_schedule_of_weights(weights, name, push=push, negative=negative))

    @classmethod
    def from_graph(cls, graph: "networkx.Graph", name: Optional[str] = None) -> "Topology":
        """A fixed topology from a networkx graph on 0 .. n-1. Where its edges have the attribute ``weight``, these are
        the weights (an edge (j, i) means that j sends to i; loops are the ranks' own). Else an undirected graph gets
        Metropolis weights, 1 / (1 + the larger degree) for an edge and the rest for a rank itself, which keep the mean;
        in a directed graph every rank averages evenly over its sources and itself."""
        import networkx
        import numpy

        n = graph.number_of_nodes()
        if set(graph.nodes) != set(range(n)):
            raise _core.InvalidArgument(f"the graph's nodes must be the ranks 0 .. {n - 1}")
        weighted = [("weight" in data) for _, _, data in graph.edges(data=True)]
        if any(weighted) and not all(weighted):
            raise _core.InvalidArgument("some edges of the graph have a weight, and some have none")
        matrix = networkx.to_numpy_array(graph, nodelist=range(n), weight="weight" if any(weighted) else None).T
        if not any(weighted):
            # Parallel edges of a multigraph count as one edge.
            numpy.fill_diagonal(matrix, 0.0)
            matrix = (matrix != 0).astype(float)
            degrees = matrix.sum(axis=1)
            if graph.is_directed():
                matrix /= (1 + degrees)[:, None]
            else:
                matrix /= 1 + numpy.maximum(degrees[:, None], degrees[None, :])
            numpy.fill_diagonal(matrix, 1 - matrix.sum(axis=1))
        return cls.from_weights(matrix, name)

    @property
    def name(self) -> str:
        """The full spec, with every seed: topologies of equal names and sizes are equal."""
        return self._schedule.name

    @property
    def n(self) -> int:
        """The number of ranks."""
        return self._schedule.size

    @property
    def period(self) -> int:
        """Steps until it repeats; 1: fixed; 0: never."""
        return self._schedule.period

    @property
    def random(self) -> bool:
        """Whether it is redrawn in every step."""
        return self._schedule.random

    def weights(self, step: int = 0, *, sparse: bool = False, block_b: bool = False) -> Any:
        """The matrix of one step, row = receiver, as a numpy array or (``sparse=True``) a scipy CSR matrix. CECA keeps
        two blocks per rank, a (the answer) and b: the matrix is n x 2n, its left half for all ranks' a and its right
        half for their b, and makes the new a or (``block_b=True``) the new b."""
        import scipy.sparse

        receivers, senders, values = self._schedule.entries(step, block_b)
        width = self.n
        if self._schedule.two_block:
            width = 2 * self.n
            lanes = self._schedule.lanes(step, block_b)
            senders = [sender + self.n * lane for sender, lane in zip(senders, lanes)]
        elif block_b:
            raise _core.InvalidArgument(f"{self.name} has one block per rank; block_b is for CECA")
        matrix = scipy.sparse.csr_matrix((values, (receivers, senders)), shape=(self.n, width))
        return matrix if sparse else matrix.toarray()

    def graph(self, step: int = 0) -> "networkx.DiGraph":
        """One step as a networkx graph: an edge (j, i) with attribute ``weight`` means that j sends to i; loops are own
        weights."""
        import networkx

        made = networkx.DiGraph()
        made.add_nodes_from(range(self.n))
        for receiver, sender, weight in zip(*self._schedule.entries(step)):
            if weight != 0:
                made.add_edge(sender, receiver, weight=weight)
        return made

    def neighbors(self, rank: int, step: int = 0) -> Neighbors:
        """The exchange of ``rank`` in one step."""
        return Neighbors(*self._schedule.exchange(step, rank))

    def analysis(self) -> _core.Analysis:
        """How fast it averages (``rho``), whether and when the average is exact (``exact_rounds``), what a step costs
        (``peers``, ``messages_per_step``, ``step_seconds``), and more: ``help(starling._core.Analysis)``."""
        return _core.analyze(self._schedule)

    def svg(self, rounds: int = 12) -> str:
        """An SVG picture of at most ``rounds`` rounds, up to 512 ranks."""
        return _core.topology_svg(self._schedule, rounds)

    def plot(self, step: int = 0, ax: Any = None) -> Any:
        """Draws one step with matplotlib; returns the axes."""
        import matplotlib.pyplot
        import networkx

        if ax is None:
            _, ax = matplotlib.pyplot.subplots(figsize=(4.5, 4.5))
        graph = self.graph(step)
        graph.remove_edges_from(list(networkx.selfloop_edges(graph)))
        widths = [0.5 + 3 * abs(weight) for _, _, weight in graph.edges(data="weight")]
        networkx.draw_networkx(graph, networkx.circular_layout(graph), ax=ax, width=widths, node_color="#9ecae1",
                               edge_color="#636363", connectionstyle="arc3,rad=0.06")
        ax.set_title(f"{self.name}, step {step}" if self.period != 1 else self.name)
        ax.set_axis_off()
        return ax

    def __repr__(self) -> str:
        return f"<starling.Topology: {self.name} on {self.n} ranks>"

    def _repr_html_(self) -> str:
        found = self.analysis()
        rho = "-" if found.rho is None else number_text(found.rho) + (" (mean square)" if found.rho_is_mean_square else "")
        period = str(found.period) if found.period else "never repeats"
        table = html_table(f"{self.name} on {self.n} ranks", [
            ("period", "1, fixed" if found.period == 1 and not found.random else period),
            ("rho", rho),
            ("exact average", "-" if found.exact_rounds is None else f"after {found.exact_rounds} rounds"),
            ("peers a step", str(found.peers)),
            ("messages a step", number_text(found.messages_per_step)),
        ])
        return table + (self.svg(6) if self.n <= 64 else "")


def _schedule_of_weights(weights: Any, name: Optional[str] = None, *, push: bool = False, negative: bool = False,
                         size: Optional[int] = None) -> _core.Schedule:
    """The result of Topology.from_weights(); ``size`` is the number of ranks, if known."""
    import numpy
    import scipy.sparse

    if hasattr(weights, "detach"):  # torch's tensors may require gradients or be on a device
        weights = weights.detach().cpu().numpy()
    try:
        matrix = scipy.sparse.coo_matrix(weights).astype(float)
    except (TypeError, ValueError) as error:
        raise _core.InvalidArgument(f"weights are a square matrix of numbers: {error}") from None
    n = matrix.shape[0]
    if matrix.ndim != 2 or matrix.shape[1] != n or n == 0:
        raise _core.InvalidArgument(f"weights are a square matrix, not {matrix.shape}")
    if not numpy.isfinite(matrix.data).all():
        raise _core.InvalidArgument("every weight must be a finite number")
    matrix.sum_duplicates()
    below = numpy.flatnonzero(matrix.data < -_SUM_OFF)
    if below.size and not negative:
        at = below[0]
        raise _core.InvalidArgument(f"row {matrix.row[at]}, column {matrix.col[at]} of the weights is {matrix.data[at]:g}; if negative "
                                    "weights are meant, make it with starling.Topology.from_weights(..., negative=True)")
    sums = numpy.asarray(matrix.sum(axis=0 if push else 1)).ravel()
    far = numpy.flatnonzero(numpy.abs(sums - 1) > _SUM_OFF)
    if far.size:
        line = "column" if push else "row"
        why = ("every column must sum to one, since a rank gives away all of its value"
               if push else "every row must sum to one, since a rank averages over its sources and itself")
        columns = numpy.asarray(matrix.sum(axis=0)).ravel()
        hint = ("; columns do: for push-sum methods make it with starling.Topology.from_weights(..., push=True)"
                if not push and (numpy.abs(columns - 1) <= _SUM_OFF).all() else "")
        raise _core.InvalidArgument(f"{line} {far[0]} of the weights sums to {sums[far[0]]:g}, not to 1: {why}{hint}")
    if size is not None and n != size:
        raise _core.InvalidArgument(f"the matrix of weights is for {n} ranks, not for {size}")
    entries = (matrix.row.tolist(), matrix.col.tolist(), matrix.data.tolist())
    if name is None:
        # Ranks that set equal weights must agree on the name.
        name = "weights-" + hashlib.sha256(repr(entries).encode()).hexdigest()[:12]
    return _core.schedule_from_weights(n, entries, name, push)


def schedule_from(given: Any, n: int) -> _core.Schedule:
    """The schedule over n ranks of a name, a Topology, a networkx graph or a matrix of weights."""
    if isinstance(given, str):
        return _core.make_schedule(given, n)
    if hasattr(given, "number_of_nodes"):
        given = Topology.from_graph(given)
    schedule = getattr(given, "_schedule", given)
    if not isinstance(schedule, _core.Schedule):
        if not hasattr(given, "shape") and not isinstance(given, (list, tuple)):
            raise TypeError("a topology is a name, a starling.Topology, a networkx graph or a matrix of weights, not a "
                            f"{type(given).__name__}")
        schedule = _schedule_of_weights(given, size=n)
    if schedule.size != n:
        raise _core.InvalidArgument(f"the topology {schedule.name} is for {schedule.size} ranks, this flock has {n}")
    return schedule


def topology(spec: str, n: int, seed: int = 0) -> Topology:
    """The topology of that name for n ranks: ``starling.topology("base(k=2)", 24)``. ``seed`` is for random ones.
    ``starling.topologies()`` lists all families."""
    if not isinstance(spec, str):
        raise TypeError(f"spec must be a topology's name, not the {type(spec).__name__} {spec!r}; Topology.from_weights and "
                        "Topology.from_graph make topologies of your own")
    return Topology(_core.make_schedule(spec, whole_number("n", n, 1, 2**31 - 1), whole_number("seed", seed, 0, 2**64 - 1)))


def topologies() -> Listing:
    """All families: a list of dicts with name, summary, parameters (name, default, help), random and changing."""
    return Listing(_core.topology_families())
