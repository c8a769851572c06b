"""What multiplies the channels of a convolution, or of a product of matrices, multiplies its
weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.graph.builder import build, cast, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.rewrite import Match, Rule, rewrite
from tilewright.graph.value import Constant, Node, Operand, Value

_WIDE = "float32"
#: Of types of 16 bits, how large the largest weight of a channel is at least, so that it has all
#: digits and those that matter beside it have most, and at most.
_SIZES = {"float16": (2.0**-13, 65504.0), "bfloat16": (2.0**-125, 3.38e38)}


def fold_scales(graph: Graph) -> Graph:
    """Batch normalisation becomes the weights and a bias.

    >>> import numpy as np
    >>> from tilewright.graph.value import Input
    >>> x, w = Input("x", (1, 3, 8, 8), "float32"), Constant(np.ones((4, 3, 1, 1), "float32"), "w")
    >>> s = Constant(np.full((4, 1, 1), 2, "float32"), "s")
    >>> y = Node("add", (Node("multiply", (Node("conv2d", (x, w)), s)), s))
    >>> print(Graph("g", (x,), {"y": y}))
    g(x: float32[1x3x8x8]):
      %0 = conv2d(x, w: float32[4x3x1x1])  # float32[1x4x8x8]
      %1 = multiply(%0, s: float32[4x1x1])  # float32[1x4x8x8]
      y = add(%1, s: float32[4x1x1])  # float32[1x4x8x8]
    >>> print(fold_scales(Graph("g", (x,), {"y": y})))
    g(x: float32[1x3x8x8]):
      %0 = conv2d(x, const: float32[4x3x1x1])  # float32[1x4x8x8]
      y = add(%0, s: float32[4x1x1])  # float32[1x4x8x8]

    Before epilogues, which would hold the product.
    """
    return rewrite(graph, RULES)


def channel_axis(product: Node) -> int:
    """The dimension of a product's result along which its channels lie."""
    last = product.operator == "gemm" or product.attributes.get("layout", "").endswith("C")
    return product.rank - 1 if last else 1


def by_channel(product: Value, x: Operand, dtype: str = "") -> Operand | None:
    """A known operand as a number, or as one number a channel of the product, of its type or
    ``dtype``; None where it is neither."""
    if not isinstance(product, Node) or not isinstance(x, (int, float, Constant)):
        return None
    if not isinstance(x, Constant):
        return x
    axis, channels = channel_axis(product), product.shape[channel_axis(product)]
    shape = (1,) * (product.rank - x.rank) + x.shape
    lies = len(shape) == product.rank and all(e == 1 for d, e in enumerate(shape) if d != axis)
    if not lies or shape[axis] not in (1, channels) or x.dtype != (dtype or product.dtype):
        return None
    if shape[axis] == 1 < channels:
        x = build("broadcast_to", reshape(x, (1,)), shape=(channels,))
    return reshape(x, (channels,))


def _scaled(product: Node, w: Operand, s: Operand) -> Value | None:
    """Weights of which those of each channel are multiplied; None where they are not known."""
    if not isinstance(w, Constant) or product.attributes.get("epilogue"):
        return None
    if product.attributes.get("layout"):  # behind this pass
        return None
    if not isinstance(s, Constant):
        return build("multiply", w, s)
    axis = 0
    if product.operator == "gemm":
        axis = w.rank - (2 if product.attributes.get("transpose_b") else 1)
    elif product.attributes.get("pass_") == "dgrad":
        if product.attributes.get("groups", 1) != 1:
            return None
        axis = 1
    shape = tuple(s.shape[0] if d == axis else 1 for d in range(w.rank))
    if w.dtype not in _SIZES:
        made = build("multiply", w, reshape(s, shape))
        return made if isinstance(made, Constant) else None
    made = build("multiply", cast(w, _WIDE), reshape(cast(s, _WIDE), shape))
    return cast(made, w.dtype) if _keeps_digits(made, w.dtype, axis) else None


def _keeps_digits(wide: Value, dtype: str, axis: int) -> bool:
    """Whether the weights of every channel are of a size that 16 bits have all digits of."""
    if not isinstance(wide, Constant):
        return False
    others = tuple(d for d in range(wide.rank) if d != axis)
    size, (least, most) = np.abs(wide.array).max(axis=others, initial=0), _SIZES[dtype]
    return bool(((size == 0) | ((size >= least) & (size <= most))).all())


def _scale(m: Match) -> Mapping[str, Any] | None:
    product = m.nodes["product"]
    s = by_channel(product, m["s"])
    made = None if s is None else _scaled(product, m["w"], s)
    return None if made is None else {"ws": made}


def _scale_and_shift(m: Match) -> Mapping[str, Any] | None:
    found, product = _scale(m), m.nodes["product"]
    b = by_channel(product, m["b"])
    if found is None or b is None:
        return None
    s = m["s"]
    shift: Any = m["b"]
    if isinstance(shift, Value):
        shift = build("multiply", shift, s)
    elif isinstance(s, Value):
        shift = build("multiply", s, shift)
    else:
        shift = shift * s
    return {**found, "bs": shift}


def _wide_scale_and_shift(m: Match) -> Mapping[str, Any] | None:
    """Normalisation in float32 of results in 16 bits, to which it is rounded: one rounding less."""
    product = m.nodes["product"]
    if m.root.dtype != product.dtype or product.dtype not in _SIZES:
        return None
    s, b = (by_channel(product, m[name], _WIDE) for name in "sb")
    made = None if s is None or not isinstance(b, Constant) else _scaled(product, m["w"], s)
    if made is None or not np.abs(m["b"].array).max(initial=0) <= _SIZES[product.dtype][1]:
        return None
    return {"ws": made, "bs": cast(m["b"], product.dtype)}


RULES = (
    Rule("multiply(product(x, w), s)", "product(x, ws)", _scale),
    Rule("multiply(add(product(x, w), b), s)", "add(product(x, ws), bs)", _scale_and_shift),
    Rule(
        "cast(add(multiply(cast(product(x, w)), s), b))",
        "add(product(x, ws), bs)",
        _wide_scale_and_shift,
    ),
)
