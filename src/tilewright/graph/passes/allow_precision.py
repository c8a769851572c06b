"""Convolutions in fewer products: the user's choice of a precision."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graph.graph import Graph
from tilewright.graph.value import Node, Value
from tilewright.topi.operators.conv import Conv

#: What may be allowed to convolutions of a model.
ALLOWED = ("winograd",)


def allow_precision(precision: str) -> Callable[[Graph], Graph]:
    """A pass: convolutions for which a precision allows more are allowed it.

    >>> from tilewright.graph.value import Input
    >>> x, w = Input("x", (1, 4, 6, 6), "float32"), Input("w", (4, 4, 3, 3), "float32")
    >>> y = Node("conv2d", (Node("conv2d", (x, w)), w), {"stride": 2})
    >>> print(allow_precision("winograd")(Graph("g", (x, w), {"y": y})))
    g(x: float32[1x4x6x6], w: float32[4x4x3x3]):
      %0 = conv2d(x, w, precision='winograd')  # float32[1x4x4x4]
      y = conv2d(%0, w, stride=2)  # float32[1x4x1x1]

    Others stay what they are, so that they have the kernels of models that allow nothing. Behind
    all that changes types and layouts, on which it depends.
    """

    def change(old: Node, now: Node) -> Value:
        p = now.problem
        if not isinstance(p, Conv) or not p.replace(precision=precision).is_winograd:
            return now
        attributes = {**now.attributes, "precision": precision}
        return Node(now.operator, now.operands, attributes, now.name)

    def run(graph: Graph) -> Graph:
        return graph.map(change)

    run.__name__ = "allow_precision"
    return run
