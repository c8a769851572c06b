"""Reshapes go behind what is done element by element, so that nothing stands between a product and
its epilogue."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.graph.builder import build, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.value import Constant, Node, Operand, Value
from tilewright.topi.functions import FUNCTIONS


def sink_reshapes(graph: Graph) -> Graph:
    """Compute in the shape before it was changed, and change that of the result.

    >>> from tilewright.graph.value import Input
    >>> a, r = Input("a", (6, 8), "float32"), Input("r", (2, 3, 8), "float32")
    >>> y = Node("add", (Node("reshape", (a,), {"newshape": (2, 3, 8)}), r))
    >>> print(sink_reshapes(Graph("g", (a, r), {"y": Node("relu", (y,))})))
    g(a: float32[6x8], r: float32[2x3x8]):
      %0 = reshape(r, newshape=(6, 8))  # float32[6x8]
      %1 = add(a, %0)  # float32[6x8]
      %2 = relu(%1)  # float32[6x8]
      y = reshape(%2, newshape=(2, 3, 8))  # float32[2x3x8]

    Before epilogues. A reshape costs nothing: it is the same memory.
    """
    return _all(graph, lambda node: node.operator in FUNCTIONS)


def sink_reshapes_of_sums(graph: Graph) -> Graph:
    """:func:`sink_reshapes` for residual sums, and factors that are known, alone: other functions
    stay beside what reads them, in its shape, so that one program has both."""

    def sinks(node: Node) -> bool:
        known = any(isinstance(x, Constant) for x in node.operands)
        return node.operator == "add" or (node.operator == "multiply" and known)

    return _all(graph, sinks)


def _all(graph: Graph, sinks: Callable[[Node], bool]) -> Graph:
    uses = dict(graph.uses)

    def change(old: Node, now: Node) -> Value:
        made = (_sunk(now, uses) if sinks(now) else None) or now
        uses[made] = uses[old]
        return made

    return graph.map(change)


def _sunk(node: Node, uses: dict[Value, int]) -> Value | None:
    function = FUNCTIONS.get(node.operator)
    if function is None or function.kind != "broadcast":
        return None
    for x in node.inputs:
        if not isinstance(x, Node) or x.operator != "reshape" or x.shape != node.shape:
            continue
        source = x.inputs[0]
        others = [o for o in node.inputs if o is not x]
        if uses.get(x, 1) > 1:
            continue
        given = [o if o is not x else source for o in node.operands]
        if all(o.shape == x.shape for o in others):
            given = [_as(o, source.shape) if o is not source else o for o in given]
        elif _along_last(source, x, others):
            given = [_row(o) if isinstance(o, Constant) else o for o in given]
        else:
            continue
        found = build(node.operator, *given, name=node.name, **node.attributes)
        return reshape(found, node.shape)
    return None


def _as(x: Operand, shape: tuple[int, ...]) -> Operand:
    return reshape(x, shape) if isinstance(x, Value) else x


def _along_last(source: Value, x: Value, others: Sequence[Value]) -> bool:
    """Whether others are known and the same for all but the last dimension, which stays."""
    return (
        source.rank > 0
        and x.rank > 0
        and source.shape[-1] == x.shape[-1]
        and all(
            isinstance(o, Constant)
            and math.prod(o.shape[:-1]) == 1
            and math.prod(o.shape) in (1, x.shape[-1])
            for o in others
        )
    )


def _row(x: Constant) -> Value:
    """What is the same for all dimensions but the last, without these."""
    return reshape(x, x.shape[-1:]) if x.rank > 1 else x
