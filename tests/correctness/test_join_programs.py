"""Convolutions and programs of their results become one node, and compute what they did."""

from __future__ import annotations

import pytest
from tests.support.passes import known, same

from tilewright.graph import Graph, Input, Node
from tilewright.graph.passes.join_pools import join_pools
from tilewright.target import Target

HOPPER, LLVM = Target.parse("cuda -arch=sm_90a"), Target.parse("llvm")
#: Windows side by side of images of 10 by 12 pixels.
SIDE = {
    "size": (2, 2), "strides": (2, 2), "padding": (0, 0), "dilation": (1, 1), "out": (5, 6),
    "last": True,
}  # fmt: skip


def pooling(more=(), dtype="float16", **changes):
    """A graph of a convolution, whose result is pooled, and read by ``more`` outputs."""
    x = Input("x", (2, 10, 12, 64), dtype)
    given = {"groups": 1, "padding": 1, "layout": "NHWC", "epilogue": ("bias", "relu")}
    conv = Node("conv2d", (x, known(64, 3, 3, 64, dtype=dtype), known(64, dtype=dtype)), given)
    y = Node("max_pool", (conv,), {**SIDE, **changes})
    return Graph("g", (x,), {"y": y, **({"conv": conv} if more else {})})


def test_windows_side_by_side_are_pooled_with_the_convolution():
    graph = pooling()
    made = join_pools(HOPPER)(graph)
    assert [n.operator for n in made.nodes] == ["program_of_conv2d"]
    same(graph, made)


@pytest.mark.parametrize(
    "graph",
    [
        pooling(more=["conv"]),
        pooling(size=(3, 3), padding=(1, 1)),
        pooling(strides=(1, 1), out=(9, 11)),
        pooling(out=(4, 6)),
        pooling(dtype="float32"),
    ],
    ids=["read by others", "windows overlap", "of each pixel", "some of them", "in float32"],
)
def test_other_windows_are_pooled_by_themselves(graph):
    assert [n.operator for n in join_pools(HOPPER)(graph).nodes] == ["conv2d", "max_pool"]


def test_targets_without_a_kernel_for_both_pool_by_themselves():
    nodes = join_pools(Target.parse("cuda -arch=sm_80"))(pooling()).nodes
    assert [n.operator for n in nodes] == ["conv2d", "max_pool"]
