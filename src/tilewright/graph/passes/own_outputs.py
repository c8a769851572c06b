"""Every output is memory of its own."""

from __future__ import annotations

import math
from collections.abc import Collection

from tilewright.graph.graph import Graph
from tilewright.graph.value import Input, Node, Value


def own_outputs(graph: Graph, parts: Collection[str] = ()) -> Graph:
    """Copy what is an output, and an input or another output, too, or a part of either.

    A reshaped value shares the memory of what it is made of. Outputs that are named ``parts`` may
    be such of what is no input and no other output.

    >>> x = Input("x", (2, 3), "float32")
    >>> y = Node("relu", (x,))
    >>> g = Graph("g", (x,), {"y": y, "z": Node("reshape", (y,), {"newshape": (6,)})})
    >>> print(g)
    g(x: float32[2x3]):
      y = relu(x)  # float32[2x3]
      z = reshape(y, newshape=(6,))  # float32[6]
    >>> print(own_outputs(g))
    g(x: float32[2x3]):
      y = relu(x)  # float32[2x3]
      %0 = reshape(y, newshape=(6,))  # float32[6]
      z = identity(%0)  # float32[6]

    Last, since whatever replaces a node may make two outputs one.
    """
    taken = {owner(x) for x in graph.outputs.values() if not is_part(x)}
    outputs: dict[str, Value] = {}
    seen: set[Value] = set()
    apart: dict[Value, list[range]] = {}
    for name, value in graph.outputs.items():
        memory = owner(value)
        if is_part(value):
            own, others = _place(value), apart.setdefault(memory, [])
            again = memory in taken or name not in parts
            again |= any(own.start < x.stop and x.start < own.stop for x in others)
            others.append(own)
        else:
            again = memory in seen
        if isinstance(memory, Input) or again:
            value = memory = Node("identity", (value,), name=name)
        if not is_part(value):
            seen.add(memory)
        outputs[name] = value
    return Graph(graph.name, graph.inputs, outputs)


def owner(value: Value) -> Value:
    """The value whose memory another one is, or is a part of."""
    while isinstance(value, Node) and value.operator in ("reshape", "slice_view"):
        value = value.inputs[0]
    return value


def is_part(value: Value) -> bool:
    """Whether a value is a part of the memory of another one."""
    while isinstance(value, Node) and value.operator == "reshape":
        value = value.inputs[0]
    return isinstance(value, Node) and value.operator == "slice_view"


def _place(value: Value) -> range:
    """The elements of the memory of another value that a part is."""
    count, begin = math.prod(value.shape), 0
    while isinstance(value, Node) and value.operator in ("reshape", "slice_view"):
        if value.operator == "slice_view":
            shape = value.inputs[0].shape
            for d, first in enumerate(value.attributes["begin"]):
                begin += first * math.prod(shape[d + 1 :])
        value = value.inputs[0]
    return range(begin, begin + count)
