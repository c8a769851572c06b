"""A convolution whose window is the whole image is a product of matrices."""

from __future__ import annotations

import math

from tilewright.graph.builder import build, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.value import Node, Value
from tilewright.topi.operators.convolution import Convolution


def whole_windows(graph: Graph) -> Graph:
    """Rows are images, columns output channels; epilogues stay.

    >>> from tilewright.graph.value import Input
    >>> x, w = Input("x", (2, 32, 1, 1), "float32"), Input("w", (8, 32, 1, 1), "float32")
    >>> print(whole_windows(Graph("g", (x, w), {"y": Node("conv2d", (x, w))})))
    g(x: float32[2x32x1x1], w: float32[8x32x1x1]):
      %0 = reshape(x, newshape=(2, 32))  # float32[2x32]
      %1 = reshape(w, newshape=(8, 32))  # float32[8x32]
      %2 = gemm(%0, %1, transpose_b=True, epilogue=())  # float32[2x8]
      y = reshape(%2, newshape=(2, 8, 1, 1))  # float32[2x8x1x1]

    Behind epilogues, for which a convolution knows its channels. Such are the layers of
    squeeze-and-excite, and the first linear layer of VGG as exporters write it.
    """
    return graph.map(lambda old, now: _product(now) or now)


def _product(node: Node) -> Value | None:
    if not node.operator.startswith("conv"):
        return None
    p = node.problem
    assert isinstance(p, Convolution)
    whole = all(d.taps == d.extent and not d.before and not d.after for d in p.dims)
    if p.pass_ != "forward" or p.groups != 1 or not whole:
        return None
    x, w, *more = node.inputs
    rows, depth = x.shape[0], math.prod(x.shape[1:])
    flat = [m if m.rank == 1 else reshape(m, (rows, p.out_channels)) for m in more]
    made = build(
        "gemm", reshape(x, (rows, depth)), reshape(w, (p.out_channels, depth)), *flat,
        name=node.name, transpose_b=True, epilogue=node.attributes.get("epilogue", ()),
    )  # fmt: skip
    return reshape(made, node.shape)
