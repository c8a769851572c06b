"""Long sums over rows and columns become sums of columns, and short ones of what these are."""

from __future__ import annotations

import math

from tilewright.graph.builder import build, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.value import Node, Value

#: How many elements a block of threads adds without a loss: fewer are one sum.
_LONG = 1 << 13
#: Results by which a GPU has enough to do.
_MANY = 4096


def split_sums(graph: Graph) -> Graph:
    """Add up the rows of an image first, and then what is left of them.

    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (8, 56, 56, 64), "float32")
    >>> y = Node("exp", (Node("sum", (x,), {"axis": (1, 2, 3), "keepdims": True}),))
    >>> print(split_sums(Graph("g", (x,), {"y": y})))
    g(x: float32[8x56x56x64]):
      %0 = sum(x, axis=(1, 2), keepdims=True)  # float32[8x1x1x64]
      %1 = sum(%0, axis=(3,), keepdims=True)  # float32[8x1x1x1]
      y = exp(%1)  # float32[8x1x1x1]

    On GPUs: one block would add all of what becomes one result, while most of the others have
    nothing to do. Sums of columns are divided among blocks, and :func:`join_sums` computes several
    of the same tensor at once: those that drop their dimensions are reshapes of such that do not.
    Not of 16 bits, in which what is between would be rounded.
    """
    return graph.map(_split)


def _split(_: Node, node: Node) -> Value:
    if node.operator != "sum" or node.dtype in ("float16", "bfloat16"):
        return node
    (x,) = node.inputs
    given = node.attributes.get("axis")
    if given is None or isinstance(given, int):
        return node
    if not node.attributes.get("keepdims"):
        if sorted(a % x.rank for a in given) != list(range(x.rank - 1)):
            return node
        total = build("sum", x, name=node.name, axis=tuple(given), keepdims=True)
        return reshape(total, node.shape)
    axes, last = sorted(a % x.rank for a in given), x.rank - 1
    before = [a for a in axes if a != last and x.shape[a] != 1]
    results = math.prod(node.shape)
    added = math.prod(x.shape[a] for a in axes)
    if last not in axes or not before or x.shape[last] == 1 or added < _LONG or results > _MANY:
        return node
    columns = build("sum", x, axis=tuple(before), keepdims=True)
    return build("sum", columns, name=node.name, axis=(last,), keepdims=True)
