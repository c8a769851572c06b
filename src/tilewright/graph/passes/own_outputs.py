"""Every output is memory of its own."""

from __future__ import annotations

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
    for name, value in graph.outputs.items():
        memory, part = owner(value), is_part(value)
        again = (memory in taken or name not in parts) if part else memory in seen
        if isinstance(memory, Input) or again:
            value = memory = Node("identity", (value,), name=name)
        if not part:
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
