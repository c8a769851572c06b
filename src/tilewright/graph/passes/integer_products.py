"""Products of quantised numbers are products of integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.graph.builder import build, constant, reshape
from tilewright.graph.graph import Graph
from tilewright.graph.passes.one_type import MOVING, one_type
from tilewright.graph.rewrite import Match, Rule, rewrite
from tilewright.graph.value import Constant, Node, Operand, Value
from tilewright.topi.problem import QUANTIZED

_LOW, _HIGH = -128, 127


def integer_products(graph: Graph) -> Graph:
    """Convolutions and products of matrices of dequantised values multiply the integers, and what
    only moves values moves those.

    >>> from tilewright.graph.value import Input
    >>> x, w = Input("x", (1, 4, 8, 8), "int8"), Constant(np.ones((4, 4, 1, 1), "int8"), "w")
    >>> y = Node("conv2d", (Node("dequantize", (x, 0.5, 0)), Node("dequantize", (w, 0.25, 0))))
    >>> print(integer_products(Graph("g", (x,), {"y": Node("quantize", (y, 2.0, 3),
    ...                                                    {"dtype": "int8"})})))
    g(x: int8[1x4x8x8]):
      %0 = conv2d(x, w: int8[4x4x1x1], sum_scale: float32[4], epilogue=('dequantize',))
        # float32[1x4x8x8]
      y = quantize(%0, 2.0, 3, dtype='int8')  # int8[1x4x8x8]

    First: what is left are functions of floats behind each product, which epilogues take, as they
    take quantised sums and results. A zero point of images is a bias; a padded image whose zeros
    are none of its integers is padded beforehand. What is dequantised for several others is
    computed by each; weights of which there is no such product are floats.
    """
    graph = one_type(_moved(graph))
    return _dequantized_by_each(rewrite(graph, PRODUCTS))


def _moved(graph: Graph) -> Graph:
    """What only moves values moves integers: again, where one leaves what another finds."""
    while True:
        found = rewrite(graph, MOVES).map(_joined)
        if found.values == graph.values:
            return found
        graph = found


def _joined(old: Node, now: Node) -> Value:
    """What is dequantised alike is joined before."""
    if now.operator != "concatenate":
        return now
    parts = [x for x in now.operands if isinstance(x, Node) and x.operator == "dequantize"]
    numbers = {
        x.operands[1:] for x in parts if not any(isinstance(p, Value) for p in x.operands[1:])
    }
    types = {x.inputs[0].dtype for x in parts}
    if len(parts) != len(now.operands) or len(numbers) != 1 or len(types) != 1:
        return now
    whole = Node(now.operator, tuple(x.operands[0] for x in parts), now.attributes, now.name)
    return Node("dequantize", (whole, *numbers.pop()), name=now.name)


def _dequantized_by_each(graph: Graph) -> Graph:
    """A node for each that reads dequantised values; those of constants are computed."""

    def own(x: Operand) -> Operand:
        if isinstance(x, Node) and x.operator == "dequantize":
            return build(x.operator, *x.operands, name=x.name)
        return x

    def change(old: Node, now: Node) -> Value:
        if not any(isinstance(x, Node) and x.operator == "dequantize" for x in now.operands):
            return now
        return Node(now.operator, tuple(map(own, now.operands)), now.attributes, now.name)

    found = graph.map(change)
    outputs = {name: own(x) for name, x in found.outputs.items()}
    return Graph(
        graph.name, graph.inputs, {k: v for k, v in outputs.items() if isinstance(v, Value)}
    )


# -- conditions -------------------------------------------------------------------------------


def _numbers(m: Match) -> Mapping[str, Any] | None:
    """That the scale and the zero point are numbers: the same for all elements."""
    return {} if not any(isinstance(m[name], Value) for name in "sz") else None


def _in_order(m: Match) -> Mapping[str, Any] | None:
    """That integers have the order of what they stand for, which a negative scale turns round."""
    return _numbers(m) if not isinstance(m["s"], Value) and m["s"] > 0 else None


def _same_type(m: Match) -> Mapping[str, Any] | None:
    return {} if m["x"].dtype == m.root.dtype and _numbers(m) is not None else None


def _float(m: Match) -> Mapping[str, Any] | None:
    """That a value is a float32 in some order that its quantised one has, too."""
    return _in_order(m) if isinstance(m["x"], Node) and m["x"].dtype == "float32" else None


def _zeros(m: Match) -> Mapping[str, Any] | None:
    """That what an image is padded with is 0, which the zero point stands for."""
    zero = not m.nodes["constant_pad"].attributes.get("value", 0.0)
    return _numbers(m) if zero else None


def _product(m: Match) -> Mapping[str, Any] | None:
    """The product of integers, and what its sums are too large by added."""
    node, x = m.nodes["product"], m["x"]
    if x.dtype not in QUANTIZED or _numbers(m) is None or node.attributes.get("epilogue"):
        return None
    if node.attributes.get("pass_", "forward") != "forward":
        return None
    known = integer_weights(m["w"], m["u"])
    if known is None and (m["z"] or m["u"] or m["w"].dtype != "int8"):
        return None
    weights = m["w"] if known is None else known
    scale = _by_channel(node, weights, m["t"])
    if scale is None or node.dtype != "float32":
        return None
    scale = scale * np.float32(m["s"])
    made = integer_product(
        node, x, weights, m["z"], constant(scale, name="sum_scale"), epilogue=("dequantize",)
    )
    if m["z"] and isinstance(weights, Constant):
        more = constant(sums_of_weights(node, weights) * -float(m["z"]) * scale.astype("float64"))
        made = build("add", made, along_channels(node, Constant(more.array.astype("float32"))))
    return {"made": made}


# -- products of integers ---------------------------------------------------------------------


def integer_weights(w: Value, zero: Operand) -> Constant | None:
    """Weights less their zero points, in int8; None where they are not known, or do not fit."""
    if not isinstance(w, Constant) or w.dtype not in QUANTIZED:
        return None
    if isinstance(zero, Value) and not isinstance(zero, Constant):
        return None
    if not isinstance(zero, Value) and zero == 0 and w.dtype == "int8":
        return w
    less = zero.array if isinstance(zero, Constant) else zero
    whole = w.array.astype("int32") - np.asarray(less, "int32")
    if whole.size and (whole.min() < _LOW or whole.max() > _HIGH):
        return None
    return Constant(whole.astype("int8"), w.name)


def integer_product(
    node: Node, x: Value, w: Value, zero: Any, *more: Value, **attributes: Any
) -> Value:
    """A product as ``node`` is, of integers: padding is what stands for 0."""
    values = {**node.attributes, **attributes}
    padding = values.get("padding", ())
    if zero and any(padding):
        rank = x.rank - 2
        before, after = (0, 0, *padding[:rank]), (0, 0, *padding[rank:])
        x = build("constant_pad", x, before=before, after=after, value=zero)
        values["padding"] = (0,) * len(padding)
    return build(node.operator, x, w, *more, name=node.name, **values)


def sums_of_weights(node: Node, w: Constant) -> np.ndarray[Any, Any]:
    """For each channel of a product the sum of its weights."""
    axis = weights_axis(node, w.rank)
    found: np.ndarray[Any, Any] = w.array.sum(
        axis=tuple(d for d in range(w.rank) if d != axis), dtype="int64"
    )
    return found


def weights_axis(node: Node, rank: int) -> int:
    """The dimension of weights along which the channels of the result lie."""
    if node.operator == "gemm":
        return rank - (2 if node.attributes.get("transpose_b") else 1)
    return 0


def along_channels(node: Node, numbers: Constant) -> Value:
    """One number a channel in a shape that is broadcast to that of a product."""
    space = 0 if node.operator == "gemm" else node.rank - 2
    return reshape(numbers, (*numbers.shape, *(1,) * space))


def _by_channel(node: Node, w: Value, scale: Operand) -> np.ndarray[Any, Any] | None:
    """Scales of weights, one a channel; None where they are others, or not known."""
    axis = weights_axis(node, w.rank)
    if isinstance(scale, Node) or (isinstance(scale, Value) and not isinstance(scale, Constant)):
        return None
    array = scale.array if isinstance(scale, Constant) else np.asarray(scale)
    shape = (1,) * (w.rank - array.ndim) + array.shape
    others = math.prod(shape) // shape[axis] if math.prod(shape) > 1 else 1
    if others != 1:  # another one for each matrix of a batch, or each row
        return None
    return np.broadcast_to(array.astype("float32").reshape(-1), (w.shape[axis],))


_Condition = Callable[[Match], "Mapping[str, Any] | None"]
MOVES = (
    Rule("quantize(dequantize(x, s, z), s, z)", "x", _same_type),
    *(Rule(f"{f}(dequantize(x, s, z))", f"dequantize({f}(x), s, z)", _in_order) for f in MOVING),
    *(Rule(f"quantize({f}(x), s, z)", f"{f}(quantize(x, s, z))", _float) for f in MOVING),
    Rule("relu(dequantize(x, s, z))", "dequantize(maximum(x, z), s, z)", _in_order),
    Rule("constant_pad(dequantize(x, s, z))", "dequantize(constant_pad(x, value=z), s, z)", _zeros),
)
PRODUCTS = (
    Rule("product(dequantize(x, s, z), dequantize(w, t, u))", "made", _product),
)  # fmt: skip
