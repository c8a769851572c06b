"""A product reads turned images as they lay, and weights that are turned instead."""

from __future__ import annotations

import math

from tilewright.graph.builder import build, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.value import Constant, Node, Value


def turn_weights(graph: Graph) -> Graph:
    """What is known is turned once, in place of the images of each call.

    >>> import numpy as np
    >>> from tilewright.graph.value import Input
    >>> x, w = Input("x", (2, 3, 3, 8), "float32"), Constant(np.ones((5, 72), "float32"), "w")
    >>> turned = Node("transpose", (x,), {"axes": (0, 3, 1, 2)})
    >>> rows = Node("reshape", (turned,), {"newshape": (2, 72)})
    >>> print(turn_weights(Graph("g", (x,), {"y": Node("gemm", (rows, w), {"transpose_b": True})})))
    g(x: float32[2x3x3x8]):
      %0 = reshape(x, newshape=(2, 72))  # float32[2x72]
      y = gemm(%0, w: float32[5x72], transpose_b=True)  # float32[2x5]

    Behind what moves channels last: the first linear layer behind convolutions reads their last
    images as rows.
    """
    return graph.map(lambda old, now: _of_rows_as_they_lay(now) or now)


def _of_rows_as_they_lay(node: Node) -> Value | None:
    if node.operator != "gemm" or node.attributes.get("transpose_a") or node.rank != 2:
        return None
    rows, weights, *more = node.inputs
    turned = rows.inputs[0] if isinstance(rows, Node) and rows.operator == "reshape" else None
    if not isinstance(turned, Node) or turned.operator != "transpose":
        return None
    axes, (count, depth) = tuple(turned.attributes["axes"]), rows.shape
    whole = axes[0] == 0 and (turned.shape[0], math.prod(turned.shape[1:])) == (count, depth)
    if not whole or not isinstance(weights, Constant):
        return None
    along = bool(node.attributes.get("transpose_b"))
    other = weights.shape[0 if along else 1]
    inner = turned.shape[1:]
    # Where each dimension of a row as it lay is among those of the turned one.
    places = [axes.index(d) - 1 for d in range(1, len(axes))]
    if along:
        parts = reshape(weights, (other, *inner))
        order = (0, *(p + 1 for p in places))
    else:
        parts = reshape(weights, (*inner, other))
        order = (*places, len(inner))
    lying = reshape(build("transpose", parts, axes=order, name=weights.name), weights.shape)
    given = (reshape(turned.inputs[0], (count, depth)), lying, *more)
    return Node(node.operator, given, node.attributes, node.name)
