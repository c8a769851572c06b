"""Every output is memory of its own."""

from __future__ import annotations

from tilewright.graph.graph import Graph
from tilewright.graph.value import Input, Node, Value


def own_outputs(graph: Graph) -> Graph:
    """Copy what is an output, and an input or another output, too.

    A reshaped value shares the memory of what it is made of.

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
    taken: set[Value] = set()
    outputs: dict[str, Value] = {}
    for name, value in graph.outputs.items():
        memory = owner(value)
        if isinstance(memory, Input) or memory in taken:
            value = memory = Node("identity", (value,), name=name)
        taken.add(memory)
        outputs[name] = value
    return Graph(graph.name, graph.inputs, outputs)


def owner(value: Value) -> Value:
    """The value whose memory another one is."""
    while isinstance(value, Node) and value.operator == "reshape":
        value = value.inputs[0]
    return value
