"""From an ONNX model to a graph, once the shapes of its inputs are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graph.errors import ModelError
from tilewright.graph.graph import Graph
from tilewright.graph.onnx import (
    displaced,
    einsum,
    elementwise,
    fourier,
    normalization,
    products,
    quantization,
    recurrent,
    reduction,
    regions,
    resize,
    scatter,
    selected,
    shapes,
    training,
    windows,
)
from tilewright.graph.onnx.control import CONTROL, inner_graph
from tilewright.graph.onnx.narrow import NARROW, Narrow, carried, result_of
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.onnx.schema import check_node
from tilewright.graph.onnx.types import dtype_of
from tilewright.graph.value import Constant, Input, Value

#: How each operator is converted, by ONNX's name.
CONVERTERS = {
    **elementwise.CONVERTERS, **reduction.CONVERTERS, **shapes.CONVERTERS,
    **windows.CONVERTERS, **products.CONVERTERS, **normalization.CONVERTERS,
    **resize.CONVERTERS, **quantization.CONVERTERS, **einsum.CONVERTERS,
    **recurrent.CONVERTERS, **scatter.CONVERTERS, **displaced.CONVERTERS,
    **selected.CONVERTERS, **fourier.CONVERTERS, **training.CONVERTERS,
    **regions.CONVERTERS,
}  # fmt: skip
#: Nodes of a model, at most, those of loops as often as they run.
MOST = 1 << 14
#: Bytes of constants made of others, beside eight times those of the model's own.
MOST_MADE = 1 << 30
#: What a converter may raise for a node that no check has found to be wrong.
_MALFORMED = (ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError)
_DOMAINS = ("", "ai.onnx")


def unsupported(graph: Any) -> list[str]:
    """The operators of an ONNX graph, and of graphs inside of it, that are not converted."""
    found: dict[str, None] = {}
    for node in graph.node:
        kind = _kind_of(node)
        if kind not in CONVERTERS and kind not in CONTROL:
            found[kind] = None
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                found |= dict.fromkeys(unsupported(inner))
    return sorted(found)


def _kind_of(node: Any) -> str:
    """The name of an operator, behind that of its domain where that is not ONNX's main one."""
    return str(node.op_type if node.domain in _DOMAINS else f"{node.domain}.{node.op_type}")


def convert(
    graph: Any,
    opset: int,
    initializers: Mapping[str, Constant],
    inputs: Iterable[Value],
) -> Graph:
    """The graph of an ONNX graph; ``inputs`` are its own in order, of known shapes, or constants
    where their data is needed."""
    given = list(inputs)
    known: dict[str, Value | None] = {"": None, **initializers}
    known |= {x.name: x for x in given}
    Conversion.of(graph, opset, initializers).run(graph, known)
    outputs: dict[str, Value] = {}
    for x in graph.output:
        found = known.get(x.name)
        if found is None:
            raise ModelError(f"nothing makes the output {x.name}")
        outputs[x.name] = found
    return Graph(graph.name or "model", tuple(x for x in given if isinstance(x, Input)), outputs)


class Conversion:
    """The nodes of a model while they are converted; ``left`` is how many there may still be, and
    ``capacity`` the bytes of constants that they may still make."""

    def __init__(self, opset: int, capacity: int) -> None:
        self.opset, self.left, self.capacity = opset, MOST, capacity
        self.narrow: dict[str, Narrow] = {}  # by the names of values

    @staticmethod
    def of(graph: Any, opset: int, initializers: Mapping[str, Constant]) -> Conversion:
        """That of a whole model."""
        capacity = MOST_MADE + 8 * sum(x.array.nbytes for x in initializers.values())
        found = Conversion(opset, capacity)
        found.learn(graph)
        return found

    def learn(self, graph: Any) -> None:
        """The types of the inputs and initializers of a graph, as far as they are narrow."""
        given = {x.name: x.type.tensor_type.elem_type for x in graph.input}
        given |= {x.name: x.data_type for x in graph.initializer}
        self.narrow |= {name: NARROW[t] for name, t in given.items() if t in NARROW}

    def run(self, graph: Any, known: dict[str, Value | None]) -> None:
        """Convert the nodes of a graph, adding what they make to what is ``known``."""
        made_here = {x.name for x in (*graph.initializer, *graph.input)}
        for node in graph.node:
            name = next((x for x in node.output if x), node.name)
            missing = [x for x in node.input if x not in known]
            if missing:
                raise ModelError(
                    f"{node.op_type} {node.name or name} reads {', '.join(missing)}, which nothing "
                    "before it makes: the nodes form a cycle, or one is missing"
                )
            if twice := made_here.intersection(node.output):
                raise ModelError(f"{node.op_type} {name}: {', '.join(twice)} is made twice")
            made_here |= {x for x in node.output if x}
            self.step(node, known)

    def step(self, node: Any, known: dict[str, Value | None]) -> None:
        """Convert a node whose operands are known, adding what it makes."""
        name = next((x for x in node.output if x), node.name)
        made = self._convert(node, name, known)
        known |= {k: v for k, v in zip(node.output, made, strict=False) if k}

    def _convert(self, node: Any, name: str, known: Mapping[str, Value | None]) -> Sequence[Value]:
        operands = tuple(known[x] for x in node.input)
        narrow = tuple(self.narrow.get(x) for x in node.input)
        check_node(node, name, self.opset, operands, narrow)
        result = result_of(node, narrow)
        self.left -= 1
        if self.left < 0:
            raise ModelError(f"{node.op_type} {name}: loops make more than {MOST} nodes")
        count = max((k + 1 for k, x in enumerate(node.output) if x), default=1)
        attributes = {a.name: attribute(a) for a in node.attribute}
        n = Operation(node.op_type, name, self.opset, operands, attributes, count, narrow, result)
        if result is not None:
            self.narrow |= dict.fromkeys(filter(None, node.output), result)

        def inner(graph: Any, given: Mapping[str, Value | None]) -> list[Value]:
            constants = {t.name: constant_of(t) for t in graph.initializer}
            self.learn(graph)
            seen = {**known, **constants, **given}
            self.run(graph, seen)
            return inner_graph(graph, n, seen)

        try:
            kind = _kind_of(node)
            found: Any = CONTROL[kind](n, inner) if kind in CONTROL else CONVERTERS[kind](n)
        except ModelError:
            raise
        except _MALFORMED as error:
            raise n.error(f"it is malformed ({type(error).__name__}: {error})") from error
        made: Sequence[Value] = (found,) if isinstance(found, Value) else found
        self._weigh(n, made)
        if count > len(made):
            raise n.error(f"its output {len(made)} is not supported")
        return made

    def _weigh(self, n: Operation, made: Sequence[Value]) -> None:
        """Count the memory of constants that are made of others."""
        given = [x.array for x in n.operands if isinstance(x, Constant)]
        for x in made:
            if isinstance(x, Constant) and not any(np.may_share_memory(x.array, g) for g in given):
                self.capacity -= x.array.nbytes
        if self.capacity < 0:
            raise n.error("constants that are made of others take more memory than models need")


def attribute(a: Any) -> Any:
    """An attribute in Python's types; tensors as arrays."""
    from onnx import helper

    value = helper.get_attribute_value(a)
    return array_of(value, a.name) if a.type == a.TENSOR else value


def array_of(tensor: Any, name: str) -> np.ndarray[Any, Any]:
    """A tensor as an array; raises :class:`ModelError` for a type that there is no arithmetic
    for, and for data that does not fit its shape."""
    from onnx import numpy_helper

    dtype_of(tensor.data_type, name)
    try:
        return carried(np.asarray(numpy_helper.to_array(tensor)), tensor.data_type)
    except Exception as error:
        raise ModelError(f"the tensor {name} is damaged: {error}") from None


def constant_of(tensor: Any) -> Constant:
    """An initializer as a constant."""
    return Constant(array_of(tensor, tensor.name), tensor.name)
