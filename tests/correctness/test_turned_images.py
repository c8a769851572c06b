"""Convolutions of images of few channels, which have them first, whose results have them last."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.depthwise import relative_error
from tests.support.passes import known, same

from tilewright.graph import Constant, Graph, Input, Node
from tilewright.graph.check import check
from tilewright.graph.executor import Executor
from tilewright.graph.passes.own_outputs import own_outputs
from tilewright.graph.passes.read_turned import read_turned
from tilewright.select.remembered import chosen_kernel
from tilewright.target import Target
from tilewright.topi import Conv

HOPPER, LLVM = Target.parse("cuda -arch=sm_90a"), Target.parse("llvm")


#: Stems of networks: convolutions of images with channels first whose results have them last.
TURNED = [
    ("2x3x22x26", "64x3x7x7", {"stride": 2, "padding": 3}),
    ("1x3x20x24", "32x3x3x3", {"stride": 2, "padding": 1}),
    ("2x4x18x18", "24x4x3x3", {"padding": 1}),
    ("1x3x16x16", "96x3x4x4", {"stride": 4}),
    ("1x8x9x10", "16x8x1x1", {}),
]


@pytest.mark.needs_torch
@pytest.mark.parametrize(("image", "filter", "values"), TURNED, ids=str)
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_results_lie_otherwise_than_images_of_few_channels(image, filter, values, target):
    import torch

    p = Conv.parse(
        image, filter, groups=1, layout="NCHW", out_layout="NHWC", dtype="float16",
        epilogue="bias+relu", **values,
    )  # fmt: skip
    rng = np.random.default_rng(2)
    x, w, b = (rng.integers(-3, 4, t.shape).astype(t.dtype) for t in p.inputs().values())
    y = np.full(p.result.shape, np.nan, "float16")
    chosen_kernel(p, Target.parse(target))(x, w, b, y)
    given = (torch.from_numpy(a.astype("float64")) for a in (x, w, b))
    found = torch.nn.functional.conv2d(*given, p.stride, p.padding[:2]).relu()
    assert relative_error(y, found.permute(0, 2, 3, 1).numpy()) == 0


def stem(channels=3, dtype="float16", axes=(0, 2, 3, 1)):
    """A graph of an image with channels first, and a convolution that has them last."""
    shape = [0] * 4
    for k, extent in zip(axes, (2, 32, 32, channels), strict=True):
        shape[k] = extent
    x = Input("x", tuple(shape), dtype)
    image = Node("transpose", (x,), {"axes": axes})
    given = {"groups": 1, "padding": 3, "stride": 2, "layout": "NHWC", "epilogue": ("bias",)}
    w, b = known(64, 7, 7, channels, dtype=dtype), known(64, dtype=dtype)
    return Graph("g", (x,), {"y": Node("conv2d", (image, w, b), given)})


@pytest.mark.parametrize("channels", [3, 4])
def test_an_image_that_is_copied_is_not_turned_before(channels):
    graph = stem(channels)
    made = read_turned(HOPPER)(graph)
    assert [n.operator for n in made.nodes] == ["conv2d"]
    same(graph, made)


@pytest.mark.parametrize(
    "graph",
    [stem(64), stem(dtype="float32"), stem(axes=(0, 3, 2, 1))],
    ids=["many channels", "float32", "rows are columns"],
)
def test_other_images_are_turned(graph):
    assert [n.operator for n in read_turned(HOPPER)(graph).nodes] == ["transpose", "conv2d"]


def test_integers_that_are_copied_are_not_turned_before():
    rng = np.random.default_rng(4)
    x = Input("x", (2, 3, 16, 16), "int8")
    w = Constant(rng.integers(-9, 9, (32, 3, 3, 3)).astype("int8"))
    scale = Constant(rng.random(32).astype("float32"))
    given = {"groups": 1, "padding": 1, "stride": 2, "layout": "NHWC", "epilogue": ("dequantize",)}
    y = Node("conv2d", (Node("transpose", (x,), {"axes": (0, 2, 3, 1)}), w, scale), given)
    graph = Graph("g", (x,), {"y": y})
    made = check(read_turned(HOPPER)(graph))
    assert [n.operator for n in made.nodes] == ["conv2d"]
    image = {"x": rng.integers(-9, 9, x.shape).astype("int8")}
    wanted, found = (Executor(own_outputs(g), LLVM).run(image)["y"] for g in (graph, made))
    assert np.array_equal(found, wanted)
