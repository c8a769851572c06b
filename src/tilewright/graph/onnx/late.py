"""Models that end in operators whose results are as large as their data says: in two halves.

Detectors choose boxes by their scores: how many there are, no kernel can know ahead. What is before
such an operator is a model like others. What depends on it is few operators over few numbers, and
is computed by NumPy in each call, as constants are folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graph.errors import NeedsData
from tilewright.graph.evaluate import evaluate
from tilewright.graph.graph import Graph
from tilewright.graph.onnx.convert import Conversion, convert
from tilewright.graph.signature import Parameter
from tilewright.graph.value import Constant, Value

#: Operators that are too much work for NumPy.
_HEAVY = frozenset(
    {"Attention", "Conv", "ConvInteger", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM",
     "MatMul", "MatMulInteger", "QLinearConv", "QLinearMatMul", "RNN", "RoiAlign"}
)  # fmt: skip


class Head:
    """The first half, a source of models: what the second one reads, and outputs of its own."""

    def __init__(self, source: Any, graph: Any) -> None:
        self._source, self.graph_proto = source, graph
        self.name, self.inputs = source.name, tuple[Parameter, ...](source.inputs)
        self.outputs = tuple(x.name for x in graph.output)

    def graph(self, inputs: Iterable[Value]) -> Graph:
        """The graph of inputs whose shapes are known."""
        return convert(self.graph_proto, self._source.opset, self._source.constants, inputs)


class Tail:
    """The second half: what is computed of arrays, in NumPy."""

    def __init__(self, source: Any, graph: Any) -> None:
        self._source, self.graph_proto = source, graph
        self.inputs = tuple(x.name for x in graph.input)

    def run(self, given: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs by name; raises :class:`ModelError` for data that an operator refuses."""
        values = [Constant(given[name], name) for name in self.inputs]
        graph = convert(self.graph_proto, self._source.opset, self._source.constants, values)
        graph = graph.map(lambda _, now: Constant(evaluate(now), now.name))
        return {name: _array(value) for name, value in graph.outputs.items()}


def _array(value: Value) -> np.ndarray[Any, Any]:
    assert isinstance(value, Constant)
    return value.array.copy()  # which may be a weight, and the caller's to write into


def halves(source: Any, inputs: Sequence[Value]) -> tuple[Head, Tail] | None:
    """A model that cannot be converted without its data in two; None where it can, or where what
    depends on that data is work for kernels."""
    import onnx.helper as h

    late = _late_nodes(source, inputs)
    if not late or any(kind in _HEAVY for node in late for kind in _kinds(node)):
        return None
    whole, of_late = source.graph_proto, {name for node in late for name in node.output if name}
    read = dict.fromkeys(name for node in late for name in _reads(node) if name not in of_late)
    # What is known of shapes alone crosses, too: other shapes have other numbers.
    border = [name for name in read if name not in source.constants]
    own = [name for name in source.outputs if name not in of_late]
    skipped = {id(node) for node in late}
    given = [x for x in whole.input if x.name not in source.constants]
    head = h.make_graph(
        [node for node in whole.node if id(node) not in skipped], whole.name, given,
        [h.make_empty_tensor_value_info(name) for name in dict.fromkeys([*border, *own])],
    )  # fmt: skip
    tail = h.make_graph(
        late, whole.name, [h.make_empty_tensor_value_info(name) for name in border],
        [h.make_empty_tensor_value_info(name) for name in source.outputs if name in of_late],
    )  # fmt: skip
    return Head(source, head), Tail(source, tail)


def _late_nodes(source: Any, inputs: Sequence[Value]) -> list[Any]:
    """The nodes that need data, and all that read what these make."""
    graph = source.graph_proto
    conversion = Conversion.of(graph, source.opset, source.constants)
    known: dict[str, Value | None] = {"": None, **source.constants, **{x.name: x for x in inputs}}
    late, unknown = list[Any](), set[str]()
    for node in graph.node:
        needed = not unknown.isdisjoint(_reads(node))
        if not needed:
            try:
                conversion.step(node, known)
            except NeedsData:
                needed = True
        if needed:
            late.append(node)
            unknown |= {x for x in node.output if x}
    return late


def _reads(node: Any) -> Iterator[str]:
    """The values that a node reads, and graphs inside of it from outside of them."""
    yield from (x for x in node.input if x)
    for inner in _inner(node):
        made = {x.name for x in (*inner.input, *inner.initializer)}
        for x in inner.node:
            yield from (name for name in _reads(x) if name not in made)
            made |= set(x.output)
        yield from (x.name for x in inner.output if x.name not in made)


def _kinds(node: Any) -> Iterator[str]:
    yield node.op_type
    for inner in _inner(node):
        for x in inner.node:
            yield from _kinds(x)


def _inner(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
