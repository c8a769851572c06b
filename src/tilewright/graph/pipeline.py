"""The passes over graphs, in their order: a table of contents."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graph.graph import Graph
from tilewright.graph.passes.own_outputs import own_outputs

#: Each is a function of a graph; its file says what it does, and why it stands where it stands.
PASSES: tuple[Callable[[Graph], Graph], ...] = (own_outputs,)


def optimized(graph: Graph, trace: Callable[[str, Graph], None] | None = None) -> Graph:
    """A graph after all passes; ``trace`` is given each pass's name and what it leaves."""
    for run in PASSES:
        graph = run(graph)
        if trace is not None:
            trace(run.__name__, graph)
    return graph
