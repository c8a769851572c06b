"""A transposed convolution whose windows do not overlap is one of single pixels, and a move."""

from __future__ import annotations

import math

from tilewright.graph.builder import build, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.passes.windows_apart import are_apart
from tilewright.graph.value import Node, Value
from tilewright.topi.operators.conv_shapes import layouts
from tilewright.topi.operators.convolution import Convolution


def transposed_apart(graph: Graph) -> Graph:
    """A pixel's products for all taps of its window are channels, which then move to their places.

    >>> from tilewright.graph.value import Input
    >>> x, w = Input("x", (1, 8, 8, 64), "float32"), Input("w", (64, 2, 2, 3), "float32")
    >>> y = Node("conv2d", (x, w), {"stride": 2, "pass_": "dgrad", "layout": "NHWC"})
    >>> print(transposed_apart(Graph("g", (x, w), {"y": y})))
    g(x: float32[1x8x8x64], w: float32[64x2x2x3]):
      %0 = transpose(w, axes=(1, 2, 3, 0))  # float32[2x2x3x64]
      %1 = reshape(%0, newshape=(12, 1, 1, 64))  # float32[12x1x1x64]
      %2 = conv2d(x, %1, layout='NHWC')  # float32[1x8x8x12]
      %3 = reshape(%2, newshape=(1, 8, 8, 2, 2, 3))  # float32[1x8x8x2x2x3]
      %4 = transpose(%3, axes=(0, 1, 3, 2, 4, 5))  # float32[1x8x2x8x2x3]
      y = reshape(%4, newshape=(1, 16, 16, 3))  # float32[1x16x16x3]

    On CPUs, whose products of single pixels are several times as fast as gradients that are
    computed tap by tap, and behind what moves channels last. What follows, biases too, becomes
    part of the program that moves (:func:`~tilewright.graph.passes.sink_reshapes.sink_moves`).
    """
    return graph.map(lambda old, now: _of_pixels(now) or now)


def _of_pixels(node: Node) -> Value | None:
    if node.attributes.get("pass_") != "dgrad" or node.attributes.get("epilogue"):
        return None
    p = node.problem
    if not isinstance(p, Convolution) or p.groups != 1 or len(node.inputs) != 2:
        return None
    taps, rank = [d.taps for d in p.dims], len(p.dims)
    layout = layouts(rank)[1]
    if node.attributes.get("layout") != layout or not are_apart(p) or math.prod(taps) == 1:
        return None
    x, w = node.inputs
    if w.shape != (x.shape[-1], *taps, p.channels):  # as depthwise ones lie
        return None
    filter = build("transpose", w, axes=(*range(1, rank + 2), 0))
    filter = reshape(filter, (math.prod(taps) * p.channels, *(1,) * rank, x.shape[-1]))
    pixels = build(node.operator, x, filter, name=node.name, layout=layout)
    parts = reshape(pixels, (*x.shape[:-1], *taps, p.channels))
    places = [axis for d in range(rank) for axis in (1 + d, 1 + rank + d)]
    moved = build("transpose", parts, axes=(0, *places, 2 * rank + 1))
    return reshape(moved, node.shape)
