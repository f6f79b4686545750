"""Simulated training and consensus of many nodes in one process."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Union

from . import _core
from ._checks import set_setting, whole_number
from ._display import Listing, html_table, line_chart, number_text
from ._time_model import make_time_model
from .topologies import Topology, schedule_from, topology as make_topology

if TYPE_CHECKING:
    import numpy

_USUAL_DIM = 10
_LARGEST_SEED = 2**64 - 1
_WORTH_A_THREAD = 4096  # the largest number of values for which one thread is used


class _Result:
    """The result of a run: attributes, a table in notebooks, a plot."""

    _curves: Sequence[str]
    _x_axes: Sequence[str]

    def __init__(self, found: dict):
        self.__dict__.update(found)

    def __dir__(self) -> list:
        return sorted({*super().__dir__(), *self.__dict__})

    def plot(self, y: Optional[Sequence[str]] = None, x: str = "step", ax: Any = None, label: Optional[str] = None) -> Any:
        """Draws curves over ``x`` with matplotlib, on a logarithmic axis; returns the axes."""
        import matplotlib.pyplot

        names = [y] if isinstance(y, str) else list(y or self._curves)
        for name in (*names, x):
            if name not in (*self._curves, *self._x_axes):
                raise _core.InvalidArgument(f"{name} is no curve; {', '.join((*self._curves, *self._x_axes))} are")
        if ax is None:
            _, ax = matplotlib.pyplot.subplots(figsize=(6, 3.5))
        for name in names:
            ax.semilogy(getattr(self, x), getattr(self, name), label=name if label is None else f"{label}: {name}")
        ax.set_xlabel(x)
        ax.legend()
        return ax

    def _repr_html_(self) -> str:
        curves = {name: (self.step, getattr(self, name)) for name in self._curves}
        return html_table(repr(self)[1:-1], self._rows()) + line_chart(curves, "step")

    def _rows(self) -> list:
        raise NotImplementedError


class Consensus(_Result):
    """A run of average consensus. ``steps`` until ``error`` (||x - mean|| relative to the start) was reached, by ``outcome``:
    reached, computed (by eigenvalues), estimated (from rho), stopped. ``messages`` were sent, of one model's size.
    ``step``, ``errors`` and ``messages_sent`` are the curve."""

    _curves = ("errors",)
    _x_axes = ("step", "messages_sent")

    def __repr__(self) -> str:
        return f"<starling.Consensus: {self.topology} on {self.n} ranks, {self.steps} steps, error {number_text(self.error)}>"

    def _rows(self) -> list:
        return [("outcome", self.outcome), ("steps", str(self.steps)), ("error", number_text(self.error)),
                ("messages", number_text(self.messages)), ("time here", f"{self.wall_seconds:.3g} s")]


class Simulation(_Result):
    """A simulated training. Curves, one number per point: ``step``, ``gap`` (f of the mean model above its least value; f
    itself where ``gap_known`` is false), ``gradient_norm``, ``consensus`` (root mean square distance of the nodes from their
    mean), ``distance`` (from the minimizer), ``bytes`` (sent by all), ``seconds`` (modeled), ``staleness``. At the end:
    ``models`` (nodes x dim) and ``mean_model``. ``diverged`` says where a run ended early, since a model was not finite; it
    is empty otherwise. ``trace[step, node]`` is every iterate, where asked for."""

    _curves = ("gap", "gradient_norm", "consensus", "distance")
    _x_axes = ("step", "bytes", "seconds")

    @property
    def n(self) -> int:
        """The number of nodes."""
        return len(self.models)

    @property
    def modelled_seconds(self) -> float:
        """Modelled seconds until the slowest node has done its last step."""
        return float(self.seconds[-1])

    def __repr__(self) -> str:
        where = f" on {self.topology}" if self.topology else ""
        return (f"<starling.Simulation: {self.method}{where}, {self.n} nodes, {self.step[-1]} steps: "
                f"{'diverged, ' if self.diverged else ''}{'gap' if self.gap_known else 'value'} {number_text(self.gap[-1])}>")

    def _rows(self) -> list:
        rows = [("gap" if self.gap_known else "value", number_text(self.gap[-1])),
                ("gradient", number_text(self.gradient_norm[-1])), ("consensus", number_text(self.consensus[-1])),
                ("bytes a node", number_text(self.bytes[-1] / self.n)),
                ("modeled time", f"{self.modelled_seconds:.4g} s"), ("time here", f"{self.wall_seconds:.3g} s")]
        return rows + [(key, text) for key, text in (("diverged", self.diverged), ("warning", self.warning)) if text]


def consensus(topology: Union[str, Topology], n: Optional[int] = None, steps: int = 1_000_000, *, tolerance: float = 1e-10,
              dim: int = 1, seed: int = 0) -> Consensus:
    """Averages random values until all ranks agree: ``starling.consensus("base(k=1)", 4900).steps``. At most ``steps``
    are run; more are computed where that is possible."""
    if not isinstance(topology, (str, Topology)):
        size = topology.shape[0] if hasattr(topology, "shape") else len(topology)
        topology = Topology(schedule_from(topology, size if n is None else n))
    elif not isinstance(topology, Topology):
        topology = make_topology(topology, _needed(n, "consensus"), seed)
    options = _core.ConsensusOptions()
    for key, setting in dict(tolerance=tolerance, dim=dim, seed=seed, steps=steps).items():
        set_setting(options, key, setting)
    return Consensus(_core.run_consensus(topology._schedule, options))


def simulate(method: str = _core.DEFAULT_METHOD, topology: Union[str, Topology] = _core.DEFAULT_TOPOLOGY,
             n: Optional[int] = None, *,
             problem: Union[str, _core.Objective] = "quadratic", dim: int = _USUAL_DIM, steps: int = 1000, lr: float = 0.01,
             optimizer: str = _core.DEFAULT_OPTIMIZER, decay: float = 1, decay_every: int = 0, seed: int = 0, precision: str = "float64",
             threads: Optional[int] = None, drop: float = 0, time: Any = None, points: int = 50, trace: bool = False,
             a: Any = None, b: Any = None, x0: Any = None, noise: float = 0,
             gradient: Optional[Callable] = None, value: Optional[Callable] = None, optimum: Any = None) -> Simulation:
    """Trains n nodes in this process, with the methods and topologies of real flocks.

        starling.simulate("gradient-tracking", "ring", 32, problem="logistic", lr=0.5).gap[-1]

    It minimizes the mean of the nodes' functions: a ``problem`` by name (``starling.problems()``) or from
    ``starling.problem``; your own quadratics 1/2 sum_k a[i,k] (x_k - b[i,k])^2 from ``x0``, with ``noise``; or, with
    ``gradient(node, x)`` or ``gradient(node, x, step)``, anything, from ``x0`` (dim, or nodes x dim), where
    ``value(x)`` is the mean of the functions and ``optimum`` its minimizer, if you know them. ``drop`` is the share of
    messages that are lost; ``time`` describes the machines (a dict, or a TOML file as of ``starling simulate train
    --time``). The same seed gives the same bits, whatever the number of ``threads`` (0: one per core).
    """
    _refuse_mixtures(problem, a, b, gradient, value, optimum)
    seed, dim = whole_number("seed", seed, 0, _LARGEST_SEED), whole_number("dim", dim, 1)
    nodes = topology.n if n is None and isinstance(topology, Topology) else n
    if gradient is not None:
        objective = _from_gradient(gradient, value, optimum, x0, nodes)
    elif a is not None:
        objective = _from_arrays(a, b, x0, noise, seed)
    else:
        objective = problem if isinstance(problem, _core.Objective) else _core.make_objective(
            problem, _needed(nodes, "simulate"), dim, seed)
    if n is not None and whole_number("n", n, 1) != objective.nodes:
        raise _core.InvalidArgument(f"the problem has {objective.nodes} nodes, but n is {n}")
    options = _core.TrainingOptions()
    if threads is None:
        # Python functions run one at a time anyway, and small problems are done before another thread wakes
        # up.
        threads = 1 if gradient is not None or objective.nodes * objective.dim < _WORTH_A_THREAD else 0
    settings = dict(method=method, optimizer=optimizer, lr=lr, decay=decay, decay_every=decay_every, steps=steps, seed=seed,
                    precision=precision, threads=threads, drop=drop, points=points,
                    time=make_time_model(time, objective.nodes, seed))
    if isinstance(topology, str):
        settings["topology"] = topology
    for key, setting in settings.items():
        set_setting(options, key, setting)
    schedule = None
    if isinstance(topology, Topology):
        schedule = topology._schedule  # C++ compares the sizes
    elif not isinstance(topology, str):
        schedule = schedule_from(topology, objective.nodes)
    return Simulation(_core.run_training(objective, options, schedule, trace))


def problem(spec: str, n: int, dim: int = _USUAL_DIM, seed: int = 0) -> _core.Objective:
    """A problem by name, for repeated use; it has ``value(x)``, ``gradient(x, node)`` and ``minimize()``."""
    return _core.make_objective(spec, whole_number("n", n, 1), whole_number("dim", dim, 1),
                                whole_number("seed", seed, 0, _LARGEST_SEED))


def problems() -> Listing:
    """The problems by name: a list of dicts with name, summary and parameters."""
    return Listing(_core.objective_families())


def methods() -> Listing:
    """The methods of decentralized training: a list of dicts with name, summary and parameters."""
    return Listing(_core.method_families())


def _needed(n: Optional[int], what: str) -> int:
    if n is None:
        raise _core.InvalidArgument(f"{what} needs n, the number of nodes")
    return whole_number("n", n, 1)


def _refuse_mixtures(problem: Any, a: Any, b: Any, gradient: Any, value: Any, optimum: Any) -> None:
    if (a is None) != (b is None):
        raise _core.InvalidArgument("quadratics need both a and b")
    if sum([gradient is not None, a is not None, problem != "quadratic"]) > 1:
        raise _core.InvalidArgument("give one of problem, a and b, or gradient")
    if gradient is None and (value is not None or optimum is not None):
        raise _core.InvalidArgument("value and optimum need a gradient of your own")


def _from_arrays(a: Any, b: Any, x0: Any, noise: float, seed: int) -> _core.Objective:
    import numpy

    a, b = numpy.asarray(a, dtype=float), numpy.asarray(b, dtype=float)
    if a.ndim != 2 or a.shape != b.shape:
        raise _core.InvalidArgument(f"a and b must be nodes x dim, not {a.shape} and {b.shape}")
    start = numpy.zeros(a.shape[1]) if x0 is None else numpy.asarray(x0, dtype=float)
    return _core.quadratic_objective(len(a), a, b, start, noise, seed)


def _from_gradient(gradient: Callable, value: Optional[Callable], optimum: Any, x0: Any, n: Optional[int]) -> _core.Objective:
    import numpy

    if x0 is None:
        raise _core.InvalidArgument("a gradient of your own needs x0, where the nodes start")
    start = numpy.asarray(x0, dtype=float)
    nodes = len(start) if start.ndim == 2 else _needed(n, "simulate with one x0 for all")
    start = numpy.broadcast_to(start, (nodes, start.shape[-1] if start.ndim else 1))
    best = numpy.zeros(0) if optimum is None else numpy.asarray(optimum, dtype=float).reshape(-1)
    if best.size not in (0, start.shape[1]):
        raise _core.InvalidArgument(f"the optimum has {best.size} elements, x0 has {start.shape[1]}")
    return _core.python_objective(nodes, _with_step(gradient), value, start, best)


def _with_step(gradient: Callable) -> Callable:
    try:
        inspect.signature(gradient).bind(0, None, 0)
        return gradient
    except (TypeError, ValueError):
        return lambda node, x, step: gradient(node, x)
