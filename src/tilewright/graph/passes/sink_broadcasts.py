"""What is repeated to a shape is so behind functions of elements, or where these repeat it."""

from __future__ import annotations

from tilewright.graph.builder import build
from tilewright.graph.graph import Graph
from tilewright.graph.value import Node, Operand, Value
from tilewright.topi.functions import FUNCTIONS


def sink_broadcasts(graph: Graph) -> Graph:
    """Compute functions of elements before what they are of is repeated; beside what has the shape
    of the result, nothing has to be.

    >>> from tilewright.graph.value import Input
    >>> x, y = Input("x", (8, 16, 4, 4), "float32"), Input("y", (8, 16, 1, 1), "float32")
    >>> wide = Node("divide", (Node("broadcast_to", (y,), {"shape": x.shape}), 16.0))
    >>> print(sink_broadcasts(Graph("g", (x, y), {"z": Node("add", (x, wide))})))
    g(x: float32[8x16x4x4], y: float32[8x16x1x1]):
      %0 = divide(y, 16.0)  # float32[8x16x1x1]
      z = add(x, %0)  # float32[8x16x4x4]

    Before layouts are chosen: the gradient of a mean over an image would be stored for each pixel.
    """

    def change(_: Node, now: Node) -> Value:
        function = FUNCTIONS.get(now.operator)
        if function is None or function.kind != "broadcast":
            return now
        given = tuple(map(_source, now.operands))
        if all(a is b for a, b in zip(given, now.operands, strict=True)):
            return now
        made = build(now.operator, *given, name=now.name, **now.attributes)
        if made.shape == now.shape:
            return made
        return build("broadcast_to", made, name=now.name, shape=now.shape)

    return graph.map(change)


def _source(x: Operand) -> Operand:
    """What is repeated, or an operand as it is."""
    if isinstance(x, Node) and x.operator == "broadcast_to":
        return x.inputs[0]
    return x
