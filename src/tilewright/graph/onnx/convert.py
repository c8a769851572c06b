"""From an ONNX model to a graph, once the shapes of its inputs are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tilewright.graph.errors import ModelError
from tilewright.graph.graph import Graph
from tilewright.graph.onnx import (
    elementwise,
    normalization,
    products,
    quantization,
    reduction,
    resize,
    shapes,
    windows,
)
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.onnx.types import dtype_of
from tilewright.graph.value import Constant, Input, Value

#: How each operator is converted, by ONNX's name.
CONVERTERS = {
    **elementwise.CONVERTERS, **reduction.CONVERTERS, **shapes.CONVERTERS,
    **windows.CONVERTERS, **products.CONVERTERS, **normalization.CONVERTERS,
    **resize.CONVERTERS, **quantization.CONVERTERS,
}  # fmt: skip
#: Operators whose branches are chosen while they are converted.
_BRANCHES = ("If",)
_DOMAINS = ("", "ai.onnx")


def unsupported(graph: Any) -> list[str]:
    """The operators of an ONNX graph, and of graphs inside of it, that are not converted."""
    found: dict[str, None] = {}
    for node in graph.node:
        known = node.domain in _DOMAINS and (
            node.op_type in CONVERTERS or node.op_type in _BRANCHES
        )
        if not known:
            found[f"{node.domain}.{node.op_type}" if node.domain else node.op_type] = None
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                found |= dict.fromkeys(unsupported(inner))
    return sorted(found)


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
    run(graph, opset, known)
    outputs: dict[str, Value] = {}
    for x in graph.output:
        found = known.get(x.name)
        if found is None:
            raise ModelError(f"nothing makes the output {x.name}")
        outputs[x.name] = found
    return Graph(graph.name or "model", tuple(x for x in given if isinstance(x, Input)), outputs)


def run(graph: Any, opset: int, known: dict[str, Value | None]) -> None:
    """Convert the nodes, adding what they make to what is ``known``."""
    for node in graph.node:
        missing = [name for name in node.input if name not in known]
        if missing:
            raise ModelError(
                f"{node.op_type} {node.name or node.output[0]} reads {', '.join(missing)}, which "
                "nothing before it makes: the nodes form a cycle, or one is missing"
            )
        if node.op_type == "If":
            made = _branch(node, opset, known)
        else:
            made = _convert(node, opset, known)
        known |= {k: v for k, v in zip(node.output, made, strict=False) if k}


def _convert(node: Any, opset: int, known: Mapping[str, Value | None]) -> tuple[Value, ...]:
    attributes = {a.name: attribute(a) for a in node.attribute}
    name = next((x for x in node.output if x), node.name)
    operands = tuple(known[x] for x in node.input)
    count = max((k + 1 for k, x in enumerate(node.output) if x), default=1)
    n = Operation(node.op_type, name, opset, operands, attributes, count)
    try:
        found = CONVERTERS[node.op_type](n)
    except ModelError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise n.error(f"it is malformed ({type(error).__name__}: {error})") from error
    made: tuple[Value, ...] = found if isinstance(found, tuple) else (found,)
    if count > len(made):
        raise n.error(f"its output {len(made)} is not supported")
    return made


def _branch(node: Any, opset: int, known: Mapping[str, Value | None]) -> tuple[Value, ...]:
    condition = known[node.input[0]]
    n = Operation("If", node.output[0], opset, (condition,), {})
    chosen = bool(n.array(0, "condition").reshape(-1)[0])
    (body,) = (
        a.g for a in node.attribute if a.name == ("then_branch" if chosen else "else_branch")
    )
    inner = dict(known)
    for tensor in body.initializer:
        inner[tensor.name] = constant_of(tensor)
    run(body, opset, inner)
    found = [inner[x.name] for x in body.output]
    if any(x is None for x in found):
        raise n.error("a branch gives nothing")
    return tuple(x for x in found if x is not None)


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
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:
        raise ModelError(f"the tensor {name} is damaged: {error}") from None


def constant_of(tensor: Any) -> Constant:
    """An initializer as a constant."""
    return Constant(array_of(tensor, tensor.name), tensor.name)
