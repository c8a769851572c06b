"""Slices that lie in memory as they are read are views of it."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from tilewright.graph.graph import Graph
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Input, Node, Value
from tilewright.graph.views import dense
from tilewright.ir.dtype import dtype
from tilewright.topi.functions import FUNCTIONS

#: Bytes of the widest vector that a kernel loads: parts begin at multiples of them.
ALIGNED = 16


def view_slices(graph: Graph) -> Graph:
    """Read parts of what is stored where they lie.

    >>> x = Input("x", (4, 8, 64), "float32")
    >>> part = {"begin": (1, 0, 0), "strides": (1, 1, 1), "shape": (1, 1, 64)}
    >>> y = Node("exp", (Node("strided_slice", (x,), part),))
    >>> print(view_slices(Graph("g", (x,), {"y": y})))
    g(x: float32[4x8x64]):
      %0 = slice_view(x, begin=(1, 0, 0), strides=(1, 1, 1), shape=(1, 1, 64))  # float32[1x1x64]
      y = exp(%0)  # float32[1x1x64]

    On CUDA, where a kernel takes any address; before programs, which would compute a slice, and
    then have dimensions that :func:`collapse_dims` cannot join.
    """

    def change(_: Node, now: Node) -> Value:
        if now.operator != "strided_slice" or not _is_view(now):
            return now
        return Node("slice_view", now.operands, now.attributes, now.name)

    return graph.map(change)


def _is_view(node: Node) -> bool:
    (x,), a = node.inputs, node.attributes
    source = owner(x)
    stored = isinstance(source, Input) or (
        isinstance(source, Node) and (source.operator == "sums" or source.operator not in FUNCTIONS)
    )
    return (
        stored
        and all(s == 1 for s in a["strides"])
        and lies_together(node.shape, x.shape)
        and begins_aligned(sum(map(operator.mul, a["begin"], dense(x.shape))), x.dtype)
    )


def lies_together(part: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether the elements of a part are neighbours in a dense whole.

    >>> lies_together((1, 2, 4), (3, 8, 4)), lies_together((2, 1, 4), (3, 8, 4))
    (True, False)
    """
    first = next((d for d, e in enumerate(part) if e > 1), len(part))
    return tuple(part[first + 1 :]) == tuple(whole[first + 1 :])


def begins_aligned(element: int, type: str) -> bool:
    """Whether vectors may be loaded from an element on."""
    return element * dtype(type).bytes % ALIGNED == 0
