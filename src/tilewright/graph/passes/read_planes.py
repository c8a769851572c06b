"""Images of few channels are read as they lie by a convolution whose channels are last."""

from __future__ import annotations

from tilewright.graph.graph import Graph
from tilewright.graph.value import Node, Value
from tilewright.topi.operators.convolution import Convolution

#: Channels, of which a task copies the rows that it reads plane by plane.
_FEW = 4
_LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}


def read_planes(graph: Graph) -> Graph:
    """A network's first convolution reads a view of its images, which are not turned.

    >>> import numpy as np
    >>> from tilewright.graph.value import Constant, Input
    >>> x, w = Input("x", (1, 3, 8, 8), "float32"), np.ones((16, 3, 3, 3), "float32")
    >>> last = Node("transpose", (x,), {"axes": (0, 2, 3, 1)})
    >>> y = Node("conv2d", (last, Constant(w, "w")), {"layout": "NHWC"})
    >>> print(read_planes(Graph("g", (x,), {"y": y})))
    g(x: float32[1x3x8x8]):
      %0 = transpose_view(x, axes=(0, 2, 3, 1))  # float32[1x8x8x3]
      y = conv2d(%0, w: float32[16x3x3x3], layout='NHWC')  # float32[1x6x6x16]

    On a CPU, behind layouts, which turn images. The rows that a task sees are copied once, with
    what pads them, and then they lie in planes as well as by pixels.
    """

    def change(_: Node, now: Node) -> Value:
        image = now.inputs[0] if now.inputs else None
        if not isinstance(image, Node) or image.operator != "transpose" or not _copies(now):
            return now
        if tuple(image.attributes["axes"]) != _LAST.get(image.rank):
            return now
        view = Node("transpose_view", image.operands, image.attributes, image.name)
        return Node(now.operator, (view, *now.operands[1:]), now.attributes, now.name)

    return graph.map(change)


def _copies(node: Node) -> bool:
    """Whether a convolution copies the rows that it reads: of few channels, and several taps."""
    p = node.problem if node.operator.startswith("conv") else None
    if not isinstance(p, Convolution) or p.pass_ != "forward" or p.dtype != "float32":
        return False
    return p.groups == 1 and p.channels <= _FEW and p.kernel[-1] > 1 and bool(p.channels_last)
