"""A convolution whose windows do not overlap is one of single pixels: of what a window has."""

from __future__ import annotations

import math
from typing import Any

from tilewright.graph.builder import build, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.value import Node, Value
from tilewright.ir.dtype import dtype
from tilewright.target.devices import WIDEST
from tilewright.topi.operators.convolution import Convolution

#: Pixels from which on the copy is worth its launch. Rows of taps are more bytes than the image by
#: as many as there are taps, so that strided windows, which are fewer than pixels, have none: on an
#: H200 those of ResNet-50 and EfficientNet-B0 took longer so, those of VGG-16 two thirds of it.
_MANY = 1 << 18
#: What says where windows are.
_WINDOWS = ("stride", "padding", "dilation")


def windows_apart(graph: Graph) -> Graph:
    """Taps become channels, where channels are too few for a vector: all of a window of stems that
    cut an image into patches, and a row of it where windows overlap and are as many as pixels. The
    image is written once more, and what multiplies it reads whole vectors.

    >>> import numpy as np
    >>> from tilewright.graph.value import Constant, Input
    >>> x = Input("x", (64, 64, 64, 3), "float16")
    >>> w = Constant(np.ones((8, 4, 4, 3), "float16"), "w")
    >>> y = Node("conv2d", (x, w), {"stride": 4, "layout": "NHWC"})
    >>> print(windows_apart(Graph("g", (x,), {"y": y})))
    g(x: float16[64x64x64x3]):
      %0 = reshape(x, newshape=(64, 16, 4, 16, 12))  # float16[64x16x4x16x12]
      %1 = transpose(%0, axes=(0, 1, 3, 2, 4))  # float16[64x16x16x4x12]
      %2 = reshape(%1, newshape=(64, 16, 16, 48))  # float16[64x16x16x48]
      y = conv2d(%2, w: float16[8x1x1x48], layout='NHWC')  # float16[64x16x16x8]

    Behind what moves channels last, and before programs, which move the image.
    """
    return graph.map(lambda old, now: _of_pixels(now) or now)


def _of_pixels(node: Node) -> Value | None:
    if not node.operator.startswith("conv") or not node.attributes.get("layout"):
        return None
    p = node.problem
    assert isinstance(p, Convolution)
    bytes_ = dtype(p.dtype).bytes
    taps = math.prod(d.taps for d in p.dims)
    if p.pass_ != "forward" or p.groups != 1 or taps == 1 or p.channels * bytes_ % WIDEST == 0:
        return None
    if p.batch * math.prod(p.image_extents) < _MANY:
        return None
    if are_apart(p):
        return _patches(node, p, taps)
    few = p.channels * bytes_ < WIDEST and dtype(p.dtype).is_float
    d = p.dims[-1]
    return _rows(node, p, WIDEST // bytes_) if few and d.stride == d.dilation == 1 else None


def are_apart(p: Convolution) -> bool:
    """Whether windows cut an image into parts, of which each pixel is in one."""
    return all(
        d.taps == d.stride and d.dilation == 1 and not (d.before or d.after)
        and d.extent == d.taps * d.results for d in p.dims
    )  # fmt: skip


def _patches(node: Node, p: Convolution, taps: int) -> Value:
    x, w, *more = node.inputs
    image = reshape(_windows(x, p), (x.shape[0], *p.out_extents, taps * p.channels))
    filter = reshape(w, (p.out_channels, *(1,) * len(p.dims), taps * p.channels))
    return _like(node, (image, filter, *more), {})


def _rows(node: Node, p: Convolution, vector: int) -> Value:
    """A row of taps is channels, in whole vectors."""
    x, w, *more = node.inputs
    *others, d = p.dims
    size = d.taps * p.channels
    width = -(-size // vector) * vector
    image = build(
        "frames", x, count=d.results, size=d.taps, stride=d.stride, before=d.before, width=width
    )
    filter = reshape(w, (p.out_channels, *(o.taps for o in others), 1, size))
    if width > size:
        none = (0,) * (filter.rank - 1)
        filter = build("constant_pad", filter, before=(*none, 0), after=(*none, width - size))
    values = {
        "stride": (*(o.stride for o in others), 1),
        "padding": (*(o.before for o in others), 0, *(o.after for o in others), 0),
        "dilation": (*(o.dilation for o in others), 1),
    }
    return _like(node, (image, filter, *more), values)


def _like(node: Node, operands: tuple[Value, ...], values: dict[str, Any]) -> Node:
    kept = {k: v for k, v in node.attributes.items() if k not in _WINDOWS}
    return Node(node.operator, operands, kept | values, node.name)


def _windows(x: Value, p: Convolution) -> Value:
    """The image with the places of windows before those in a window, and channels last."""
    rank, batch = len(p.dims), x.shape[0]
    parts = [e for d in p.dims for e in (d.results, d.taps)]
    to_last = (0, *range(2, rank + 2), 1)
    if isinstance(x, Node) and x.operator == "transpose" and x.attributes["axes"] == to_last:
        # It is turned once.
        at, taps = range(2, 2 * rank + 2, 2), range(3, 2 * rank + 2, 2)
        cut = reshape(x.inputs[0], (batch, p.channels, *parts))
        return build("transpose", cut, axes=(0, *at, *taps, 1))
    # Taps of the last dimension lie before channels.
    at, taps = range(1, 2 * rank + 1, 2), range(2, 2 * rank + 1, 2)
    cut = reshape(x, (batch, *parts[:-1], parts[-1] * p.channels))
    return build("transpose", cut, axes=(0, *at, *taps))
