"""What scales an image's channels scales the weights that multiply them, if these are fewer."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilewright.graph.builder import build, cast, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.value import Constant, Node, Value
from tilewright.ir.dtype import dtype
from tilewright.topi.operators.convolution import Convolution

#: How many times as many pixels as output channels an image has at least, and where all images are
#: of that many bytes: with fewer, weights of each image are no less than images.
_MORE, _LARGE, _BYTES = 64, 1.5, 4 << 20
#: What a product has of a convolution.
_KEPT = frozenset({"epilogue", "accumulate", "precision", "deterministic", "out_dtype"})


def gate_weights(graph: Graph) -> Graph:
    """Multiply the weights of each image, instead of its pixels, by factors of its channels.

    >>> import numpy as np
    >>> from tilewright.graph.value import Input
    >>> x, g = Input("x", (2, 56, 56, 96), "float16"), Input("g", (2, 1, 1, 96), "float16")
    >>> w = Constant(np.zeros((24, 1, 1, 96), "float16"), "w")
    >>> y = Node("conv2d", (Node("multiply", (x, g)), w), {"layout": "NHWC"})
    >>> print(gate_weights(Graph("g", (x, g), {"y": y})))
    g(x: float16[2x56x56x96], g: float16[2x1x1x96]):
      %0 = reshape(x, newshape=(2, 3136, 96))  # float16[2x3136x96]
      %1 = reshape(g, newshape=(2, 1, 96))  # float16[2x1x96]
      %2 = multiply(%1, w: float16[1x24x96])  # float16[2x24x96]
      %3 = gemm(%0, %2, transpose_b=True)  # float16[2x3136x24]
      y = reshape(%3, newshape=(2, 56, 56, 24))  # float16[2x56x56x24]

    On GPUs, of images with channels last: squeeze-and-excite reads and writes an image once more
    to scale it, and of large ones there are far more pixels than channels of what comes of them.
    """
    return graph.exchange(_gated)


def _gated(node: Node, uses: Mapping[Value, int]) -> Value | None:
    if node.operator != "conv2d" or node.attributes.get("layout") != "NHWC":
        return None
    p = node.problem
    assert isinstance(p, Convolution)
    x, w, *more = node.inputs
    single = all(d.taps == d.stride == 1 and not d.before and not d.after for d in p.dims)
    pixels = math.prod(x.shape[1:3])
    if p.pass_ != "forward" or p.groups != 1 or not single or not isinstance(w, Constant):
        return None
    large = math.prod(x.shape) * dtype(x.dtype).bytes >= _BYTES
    if pixels < (_LARGE if large else _MORE) * p.out_channels or uses.get(x, 1) > 1:
        return None
    found = _scaled(x, uses)
    if found is None:
        return None
    image, gate = found
    count, channels, out = x.shape[0], x.shape[-1], p.out_channels
    weights = build(
        "multiply", reshape(gate, (count, 1, channels)),
        cast(reshape(w, (1, out, channels)), gate.dtype),
    )  # fmt: skip
    batch = (count,) if count > 1 else ()
    matrices = (*batch, pixels, out)
    kept = {name: value for name, value in node.attributes.items() if name in _KEPT}
    y = build(
        "gemm", reshape(image, (*batch, pixels, channels)),
        reshape(cast(weights, w.dtype), (*batch, out, channels)),
        *(m if m.rank == 1 else reshape(m, matrices) for m in more),
        name=node.name, transpose_b=True, **kept,
    )  # fmt: skip
    return reshape(y, node.shape)


def _scaled(x: Value, uses: Mapping[Value, int]) -> tuple[Value, Value] | None:
    """An image and the factors of its channels, in whatever type they were multiplied; weights of
    8 bits would be rounded to too few values."""
    kind = x.dtype
    if not dtype(kind).is_float or dtype(kind).bytes < 2:
        return None
    if isinstance(x, Node) and x.operator == "cast":
        (x,) = x.inputs
    if not isinstance(x, Node) or x.operator != "multiply" or len(x.inputs) != 2:
        return None
    gates = [g for g in x.inputs if g.shape == (x.shape[0], 1, 1, x.shape[-1])]
    images = [i for i in x.inputs if i.shape == x.shape]
    if uses.get(x, 1) > 1 or len(gates) != 1 or len(images) != 1:
        return None
    image = images[0]
    if image.dtype != kind and isinstance(image, Node) and image.operator == "cast":
        (image,) = image.inputs
    return (image, gates[0]) if image.dtype == kind else None
