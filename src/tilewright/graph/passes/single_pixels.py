"""A product of rows by known weights is a convolution of single pixels on a CPU."""

from __future__ import annotations

from tilewright.graph.builder import build, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.value import Constant, Node, Value
from tilewright.topi.operators.gemm import Gemm

#: Rows, and columns, from which on tiles are full.
_ROWS, _COLUMNS = 8, 16


def single_pixels(graph: Graph) -> Graph:
    """Pixels are rows, channels columns; epilogues stay.

    >>> import numpy as np
    >>> from tilewright.graph.value import Input
    >>> x, w = Input("x", (49, 32), "float32"), Constant(np.ones((32, 64), "float32"), "w")
    >>> print(single_pixels(Graph("g", (x,), {"y": Node("gemm", (x, w))})))
    g(x: float32[49x32]):
      %0 = reshape(x, newshape=(1, 49, 1, 32))  # float32[1x49x1x32]
      %1 = conv2d(%0, w: float32[64x1x1x32], epilogue=(), layout='NHWC')  # float32[1x49x1x64]
      y = reshape(%1, newshape=(49, 64))  # float32[49x64]

    Behind epilogues and layouts, which know products by their columns. A convolution packs its
    filter ahead of calls, in the order in which vectors across channels read it; of a single row,
    that takes as long as reading the filter from memory. Products of a few rows stay, as they have
    kernels for any number of these; their weights lie along the sum.
    """
    return graph.map(lambda old, now: _by_weights(now) or now)


def _by_weights(node: Node) -> Value | None:
    p = node.problem if node.operator == "gemm" else None
    if not isinstance(p, Gemm) or p.batch != 1 or p.transpose_a or p.pass_ != "forward":
        return None
    rows, weights, *more = node.inputs
    plain = p.dtype == p.accumulate == "float32" and isinstance(weights, Constant)
    if not plain or p.n < _COLUMNS:
        return None
    few = 1 < p.m < _ROWS
    if few and p.transpose_b:
        return None
    turned = weights if p.transpose_b else build("transpose", weights, axes=(1, 0))
    if few:
        values = {**node.attributes, "transpose_b": True}
        return Node("gemm", (rows, turned, *more), values, node.name)
    flat = [x if x.rank == 1 else reshape(x, (1, p.m, 1, p.n)) for x in more]
    made = build(
        "conv2d", reshape(rows, (1, p.m, 1, p.k)), reshape(turned, (p.n, 1, 1, p.k)), *flat,
        name=node.name, epilogue=node.attributes.get("epilogue", ()), layout="NHWC",
    )  # fmt: skip
    return reshape(made, node.shape)
