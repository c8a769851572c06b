"""A convolution that copies its image reads it as it lies, not from another copy that is turned."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graph.builder import build
from tilewright.graph.errors import ModelError
from tilewright.graph.graph import Graph
from tilewright.graph.passes.join_products import apart_takes, bytes_of
from tilewright.graph.value import Constant, Node, Value
from tilewright.select.remembered import predicted
from tilewright.target import Target
from tilewright.topi.batch import expected_of
from tilewright.topi.operators.conv import Conv

#: The order of the dimensions of images with channels last, among those of images that have them
#: first, and of such filters.
_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def read_turned(target: Target) -> Callable[[Graph], Graph]:
    """A pass: a convolution with channels last of few channels takes an image that has them first.

    >>> import numpy as np
    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (8, 3, 224, 224), "float16")
    >>> w = Constant(np.ones((64, 7, 7, 3), "float16"), "w")
    >>> y = Node("conv2d", (Node("transpose", (x,), {"axes": (0, 2, 3, 1)}), w),
    ...          {"groups": 1, "stride": 2, "padding": 3, "layout": "NHWC"})
    >>> graph = read_turned(Target.parse("cuda -arch=sm_90a"))(Graph("g", (x,), {"y": y}))
    >>> (conv,) = graph.nodes
    >>> conv.shape, conv.attributes["layout"], conv.attributes["out_layout"]
    ((8, 112, 112, 64), 'NCHW', 'NHWC')

    Kernels for such images copy them so that TMA can bring what windows see, whatever the order in
    which they lie. Behind :func:`windows_apart`, whose program moves other images.
    """

    def change(_: Node, now: Node) -> Value:
        return _turned(now, target) or now

    def run(graph: Graph) -> Graph:
        return graph.map(change)

    run.__name__ = "read_turned"
    return run


def _turned(node: Node, target: Target) -> Node | None:
    """The convolution of the image that was turned for it; None of others."""
    if node.operator != "conv2d" or node.attributes.get("layout") != "NHWC":
        return None
    image, filter, *rest = node.inputs
    if not isinstance(image, Node) or image.operator != "transpose":
        return None
    if image.attributes["axes"] != _LAST or not isinstance(filter, Constant):
        return None
    given = {**node.attributes, "layout": "NCHW", "out_layout": "NHWC"}
    weights = build("transpose", filter, axes=_FIRST, name=filter.name)
    try:
        made = Node("conv2d", (*image.inputs, weights, *rest), given, node.name)
    except ModelError:  # of more channels, or types that have it not
        return None
    # Batches that have tiles in common have the same graph, whose kernels they share.
    apart, alone = node.problem, made.problem
    assert isinstance(apart, Conv)
    images = expected_of(apart.batch)
    moved = 2 * bytes_of(image) * images // apart.batch
    takes = predicted(apart.replace(batch=images), target) + apart_takes(moved)
    return made if predicted(alone.replace(batch=images), target) < takes else None
