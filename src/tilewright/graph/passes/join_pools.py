"""A convolution and the windows of its results are one kernel, where a target has a fast one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.graph.errors import ModelError
from tilewright.graph.graph import Graph
from tilewright.graph.passes.join_products import apart_takes, bytes_of
from tilewright.graph.value import Node, Value
from tilewright.select.remembered import predicted
from tilewright.target import Target
from tilewright.topi.operators.conv_program import pooled_window


def join_pools(target: Target) -> Callable[[Graph], Graph]:
    """A pass: a convolution with channels last whose result is read by ``max_pool`` alone, of
    windows that lie side by side, becomes one ``program_of_conv2d`` with that.

    >>> import numpy as np
    >>> from tilewright.graph.value import Constant, Input
    >>> x = Input("x", (64, 112, 112, 64), "float16")
    >>> w = Constant(np.ones((64, 3, 3, 64), "float16"), "w")
    >>> y = Node("conv2d", (x, w), {"groups": 1, "padding": 1, "layout": "NHWC"})
    >>> size = {"size": (2, 2), "strides": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
    >>> y = Node("max_pool", (y,), {**size, "out": (56, 56), "last": True})
    >>> joined = join_pools(Target.parse("cuda -arch=sm_90a"))(Graph("g", (x,), {"y": y}))
    >>> [node.operator for node in joined.nodes], joined.outputs["y"].shape
    (['program_of_conv2d'], (64, 56, 56, 64))

    What is not pooled is never stored. Where two kernels are predicted to take less, as of tiles
    whose results follow one another over the ends of rows, they stay apart. Behind what makes
    epilogues.
    """

    def run(graph: Graph) -> Graph:
        return graph.exchange(lambda node, uses: _joined(node, uses, target))

    run.__name__ = "join_pools"
    return run


def _joined(pool: Node, uses: Mapping[Value, int], target: Target) -> Node | None:
    """The convolution of a pooling with it; None where there is none, or they are better apart."""
    if pool.operator != "max_pool" or not pool.attributes.get("last"):
        return None
    (conv,) = pool.inputs
    if not isinstance(conv, Node) or conv.operator != "conv2d" or uses.get(conv, 1) > 1:
        return None
    try:
        attributes = {**conv.attributes, "body": (pool.call,)}
        made = Node("program_of_conv2d", conv.operands, attributes, pool.name)
    except ModelError:  # of types or layouts that it has not
        return None
    if not pooled_window(made.problem):
        return None
    apart = predicted(conv.problem, target) + apart_takes(bytes_of(conv) + bytes_of(pool))
    return made if predicted(made.problem, target) < apart else None
