"""Convolutions and products of matrices in 8 bits, by ranges that were measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.graph.graph import Graph
from tilewright.graph.passes.fold_epilogues import chains
from tilewright.graph.passes.integer_products import weights_axis
from tilewright.graph.passes.one_type import MOVING
from tilewright.graph.rewrite import PRODUCTS
from tilewright.graph.value import Constant, Node, Operand, Value

#: The largest integer: both signs have as many.
MOST = 127
#: Of ranges that are smaller all is 0.
_LEAST = 1e-30
_PRODUCTS = PRODUCTS | {"reshape"}


@dataclass(frozen=True)
class Quantization:
    """What is known of a model's activations.

    Attributes
    ----------
    ranges : by :func:`keys`, the largest size of what a value has on the samples.
    kept : by :func:`keys`, why a product stays in float.
    error : of the outputs on the samples, relative to those in float; NaN where nobody asked.
    """

    ranges: Mapping[str, float]
    kept: Mapping[str, str] = field(default_factory=dict)
    error: float = math.nan

    def __str__(self) -> str:
        lines = [f"{name} stays in float: {why}" for name, why in self.kept.items()]
        lines += (
            [] if math.isnan(self.error) else [f"relative error on the samples {self.error:.2g}"]
        )
        return "\n".join(lines or ["all products are in int8"])


def quantize_products(known: Quantization) -> Callable[[Graph], Graph]:
    """A pass: what products read, and what lies between them, is quantised and dequantised.

    >>> from tilewright.graph.value import Input
    >>> x, w = Input("x", (2, 4), "float32"), Constant(np.ones((4, 8), "float32"), "w")
    >>> g = Graph("g", (x,), {"y": Node("gemm", (x, w))})
    >>> print(quantize_products(Quantization({"x": 254.0}))(g))
    g(x: float32[2x4]):
      %0 = quantize(x, 2.0, 0, dtype='int8')  # int8[2x4]
      %1 = dequantize(%0, 2.0, 0)  # float32[2x4]
      %2 = dequantize(w: int8[4x8], scale: float32[1x8], 0)  # float32[4x8]
      y = gemm(%1, %2)  # float32[2x8]

    Before :func:`integer_products`, which makes products of integers of it, and behind what changes
    weights. Activations have one scale each, weights one a channel of the result.
    """

    def run(graph: Graph) -> Graph:
        return Quantizing(graph, known).graph()

    run.__name__ = "quantize_products"
    return run


def keys(graph: Graph) -> dict[Value, str]:
    """Names of values that tell them apart, the same for all shapes that a model is called with."""
    found: dict[Value, str] = {}
    count: dict[str, int] = {}
    for x in graph.values:
        if isinstance(x, Constant):
            continue
        name = x.name or (x.operator if isinstance(x, Node) else "")
        number = count.get(name, 0)
        count[name] = number + 1
        found[x] = f"{name}:{number}" if number else name
    return found


def candidates(graph: Graph) -> Iterator[Node]:
    """The products whose weights are known floats."""
    for node in graph.nodes:
        if node.operator in PRODUCTS and node.dtype == "float32" and len(node.inputs) == 2:
            forward = node.attributes.get("pass_", "forward") == "forward"
            if forward and isinstance(node.inputs[1], Constant):
                yield node


def activations(graph: Graph, products: Collection[Node]) -> dict[Value, set[Value]]:
    """What is quantised for these products, each with those that have the same scale: images, what
    is added to their sums, and results that others than products read."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for x in node.inputs:
            readers.setdefault(x, []).append(node)
    found: dict[Value, set[Value]] = {}
    for chain in chains(graph):
        node, end = chain[0], chain[-1]
        if node not in products:
            continue
        added = [x for step in chain[1:] for x in step.inputs if x not in chain]
        read = [node.inputs[0], *(x for x in added if x.shape == end.shape)]
        if node.operator != "gemm" and not _PRODUCTS.issuperset(_operators(readers.get(end, []))):
            read.append(end)
        found |= {source(x): set() for x in read if not isinstance(x, Constant)}
    for x in list(found):
        if isinstance(x, Node) and x.operator == "concatenate":
            group = {x, *(v for v in map(source, x.inputs) if v in found)}
            for v in group:
                found[v] |= group
    return found


def _operators(nodes: Sequence[Node]) -> set[str]:
    return {n.operator for n in nodes}


def source(x: Value) -> Value:
    """What values are of that are only moved, or picked."""
    while isinstance(x, Node) and x.operator in MOVING and len(x.inputs) == 1:
        x = x.inputs[0]
    return x


def quantized_weights(node: Node) -> tuple[Constant, Constant]:
    """The weights of a product in int8, and their scales, in a shape that is broadcast to them."""
    w = node.inputs[1]
    assert isinstance(w, Constant)
    axis = weights_axis(node, w.rank)
    others = tuple(d for d in range(w.rank) if d != axis)
    size = np.abs(w.array).max(axis=others, initial=0, keepdims=True)
    scale = np.where(size > _LEAST, size / MOST, 1).astype("float32")
    return Constant(_whole(w.array / scale), w.name), Constant(scale, "scale")


def scale_of(largest: float) -> float:
    """The scale of values up to a size."""
    return float(np.float32(largest / MOST)) if largest > _LEAST else 1.0


def _whole(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.clip(np.rint(x), -MOST, MOST).astype("int8")
    return found


class Quantizing:
    """Each value of a graph as it was, and dequantised where it is quantised: which ``products``
    are in 8 bits, and by which ``scales`` values are rounded for them."""

    def __init__(self, graph: Graph, known: Quantization) -> None:
        self._graph = graph
        names = keys(graph)
        self.products = {
            n for n in candidates(graph)
            if names[n] not in known.kept and names.get(source(n.inputs[0])) in known.ranges
        }  # fmt: skip
        self.scales: dict[Value, float] = {}
        for x, group in activations(graph, self.products).items():
            largest = max(known.ranges.get(names[v], 0.0) for v in (x, *group))
            if names[x] in known.ranges:
                self.scales[x] = scale_of(largest)
        self._made: dict[Value, Value] = {}
        self._rounded: dict[Value, Value] = {}

    def graph(self) -> Graph:
        """With all of them."""
        for x in self._graph.values:
            self._made[x] = self._add(x) if isinstance(x, Node) else x
        outputs = {name: self._made[x] for name, x in self._graph.outputs.items()}
        return Graph(self._graph.name, self._graph.inputs, outputs)

    def _add(self, node: Node) -> Node:
        whole = node in self.products
        take = self._made.__getitem__ if node.operator in PRODUCTS and not whole else self._read
        operands: list[Operand] = [take(x) if isinstance(x, Value) else x for x in node.operands]
        if whole:
            weights, scale = quantized_weights(node)
            operands[1] = Node("dequantize", (weights, scale, 0), name=weights.name)
        if all(a is b for a, b in zip(operands, node.operands, strict=True)):
            return node
        return Node(node.operator, tuple(operands), node.attributes, node.name)

    def _read(self, x: Value) -> Value:
        if x not in self.scales:
            return self._made[x]
        if x not in self._rounded:
            numbers = self.scales[x], 0
            q = Node("quantize", (self._made[x], *numbers), {"dtype": "int8"}, x.name)
            self._rounded[x] = Node("dequantize", (q, *numbers), name=x.name)
        return self._rounded[x]
