"""Checks of the caller's graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import networkx


def check_digraph(name: str, graph: Any) -> networkx.DiGraph:
    """`graph` itself if it is a directed networkx graph over the ranks 0..n-1, n >= 1."""
    import networkx

    if not isinstance(graph, networkx.DiGraph) or graph.is_multigraph():
        kind = type(graph).__name__
        raise TypeError(f"{name} must be a networkx.DiGraph over the ranks 0..n-1, not a {kind}")
    size = graph.number_of_nodes()
    if size == 0 or set(graph) != set(range(size)):
        nodes = ", ".join(repr(node) for node in list(graph)[:5]) or "none"
        raise ValueError(f"the nodes of {name} must be the ranks 0..n-1, n >= 1; it has {size}: {nodes}")
    return graph
