"""A model in float that computes what it would in 8 bits, whichever of its products are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graph.builder import build
from tilewright.graph.executor import Executor
from tilewright.graph.graph import Graph
from tilewright.graph.passes.quantize_products import (
    MOST,
    Quantization,
    Quantizing,
    activations,
    candidates,
    keys,
    quantized_weights,
)
from tilewright.graph.pipeline import optimized
from tilewright.graph.rewrite import PRODUCTS
from tilewright.graph.value import Input, Node, Operand, Value
from tilewright.target import Target

#: Of names of inputs that say what is quantised, which no input of a model begins with.
_STEP, _WHOLE = "\0step ", "\0whole "


class Rehearsal:
    """A prepared graph, compiled once, in which each rounding to integers may happen or not.

    Products go back to float one set after another until a model is within its budget: a graph for
    each set would be compiled for each, for minutes. Here every value has a step, 0 where it is
    not rounded, and every product a number that says which weights it has. Sums are of floats,
    and so differ from those of integers by their rounding.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self._graph, names = graph, keys(graph)
        self._products = {names[n]: n for n in candidates(graph)}
        rounded = activations(graph, set(self._products.values()))
        self._steps = {x: Input(_STEP + names[x], (1,), "float32") for x in rounded}
        self._flags = {
            n: Input(_WHOLE + name, (1,), "float32") for name, n in self._products.items()
        }
        whole = self._rewritten()
        self._executor = Executor(optimized(whole, target=target), target, capture=False)

    @property
    def names(self) -> list[str]:
        """Of the products that may be in 8 bits."""
        return list(self._products)

    def run(self, given: Mapping[str, Any], known: Quantization | None) -> dict[str, Any]:
        """The outputs, in 8 bits where it is ``known`` how; in float without."""
        scales, products = dict[Value, float](), set[Node]()
        if known is not None:
            made = Quantizing(self._graph, known)
            scales, products = made.scales, made.products
        numbers = {s.name: _one(scales.get(x, 0.0)) for x, s in self._steps.items()}
        numbers |= {f.name: _one(n in products) for n, f in self._flags.items()}
        return self._executor.run({**given, **numbers})

    def _rewritten(self) -> Graph:
        made: dict[Value, Value] = {}
        rounded: dict[Value, Value] = {}

        def near(x: Value) -> Value:
            if x not in self._steps:
                return made[x]
            if x not in rounded:
                rounded[x] = _rounded(made[x], self._steps[x])
            return rounded[x]

        def operands(node: Node) -> list[Operand]:
            flag = self._flags.get(node)
            if flag is None:
                take = made.__getitem__ if node.operator in PRODUCTS else near
                return [take(x) if isinstance(x, Value) else x for x in node.operands]
            x, w = node.inputs
            weights, scale = quantized_weights(node)
            found = build("dequantize", weights, scale, 0)
            on = build("greater", flag, 0.0)
            return [build("where", on, near(x), made[x]), build("where", on, found, w)]

        for x in self._graph.values:
            made[x] = x
            if isinstance(x, Node):
                made[x] = Node(x.operator, tuple(operands(x)), x.attributes, x.name)
        inputs = (*self._graph.inputs, *self._steps.values(), *self._flags.values())
        outputs = {name: made[x] for name, x in self._graph.outputs.items()}
        return Graph(self._graph.name, inputs, outputs)


def _rounded(x: Value, step: Value) -> Value:
    """To multiples of a step, where that is above 0."""
    on = build("greater", step, 0.0)
    by = build("where", on, step, build("add", step, 1.0))
    whole = build("round", build("divide", x, by))
    whole = build("minimum", build("maximum", whole, -MOST - 1.0), float(MOST))
    return build("where", on, build("multiply", whole, by), x)


def _one(x: float) -> np.ndarray[Any, Any]:
    return np.full(1, x, "float32")


def relative(found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> float:
    """The relative error of all outputs of all samples: a norm by a norm."""
    apart = size = 0.0
    for made, outputs in zip(found, wanted, strict=True):
        for name, x in made.items():
            a, b = x.astype("float64"), outputs[name].astype("float64")
            apart += float(((a - b) ** 2).sum())
            size += float((b**2).sum())
    return float((apart / (size or 1.0)) ** 0.5)
