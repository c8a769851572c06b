"""The passes over graphs, in their order: a table of contents."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graph.graph import Graph
from tilewright.graph.passes.collapse_dims import collapse_dims
from tilewright.graph.passes.fold_epilogues import fold_epilogues
from tilewright.graph.passes.fold_scales import fold_scales
from tilewright.graph.passes.make_programs import make_programs
from tilewright.graph.passes.own_outputs import own_outputs
from tilewright.graph.passes.simplify import simplify
from tilewright.graph.passes.sink_reshapes import sink_reshapes
from tilewright.graph.passes.whole_windows import whole_windows

#: Each is a function of a graph; its file says what it does, and why it stands where it stands.
PASSES: tuple[Callable[[Graph], Graph], ...] = (
    simplify,  # one form of everything, for what comes after
    sink_reshapes,  # nothing between a product and what follows it
    fold_scales,  # products of channels into weights, which leaves biases
    fold_epilogues,  # biases, residual sums and activations into products
    whole_windows,  # convolutions of whole images are products of matrices
    make_programs,  # what is left, several functions a kernel
    collapse_dims,  # long loops, and one kernel for several shapes
    own_outputs,  # whatever replaces a node may make two outputs one
)


def optimized(graph: Graph, trace: Callable[[str, Graph], None] | None = None) -> Graph:
    """A graph after all passes; ``trace`` is given each pass's name and what it leaves."""
    for run in PASSES:
        graph = run(graph)
        if trace is not None:
            trace(run.__name__, graph)
    return graph
