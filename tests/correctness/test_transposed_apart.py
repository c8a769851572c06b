"""Transposed convolutions whose windows do not overlap are products of single pixels on a CPU."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.models import node, onnx_model, relative

import tilewright
from tilewright.graph import Graph, Input, Node
from tilewright.graph.passes.transposed_apart import transposed_apart
from tilewright.graph.pipeline import optimized
from tilewright.target import Target

pytestmark = [pytest.mark.needs_onnx, pytest.mark.usefixtures("plain_code")]

#: The filter of a convolution behind one that is transposed.
BEHIND = np.random.default_rng(5).standard_normal((4, 8, 1, 1)).astype("float32")


def model(image, filter, more=(), **attributes):
    """The model, its arrays, and what the convolution computes: ``image`` by ``filter``."""
    rng = np.random.default_rng(len(image))
    x, w = (rng.standard_normal(s).astype("float32") for s in (image, filter))
    nodes = [node("ConvTranspose", "x w", "c" if more else "y", **attributes), *more]
    constants = {"w": w, "v": BEHIND} if more else {"w": w}
    data = onnx_model(nodes, {"x": list(image)}, constants=constants)
    taps, rank = filter[2:], len(image) - 2
    products = np.einsum("nkp,kcq->ncpq", x.reshape(*x.shape[:2], -1), w.reshape(*w.shape[:2], -1))
    parts = products.reshape(image[0], filter[1], *image[2:], *taps)
    order = [2 + d + k * rank for d in range(rank) for k in (0, 1)]
    extents = [e * t for e, t in zip(image[2:], taps, strict=True)]
    wanted = parts.transpose(0, 1, *order).reshape(image[0], filter[1], *extents)
    return tilewright.load(data), x, wanted


@pytest.mark.parametrize(
    ("image", "filter"),
    [
        ((2, 3, 7), (3, 5, 4)), ((1, 24, 6, 5), (24, 1, 2, 2)), ((2, 8, 3, 4), (8, 20, 3, 2)),
        ((1, 4, 2, 3, 4), (4, 3, 2, 2, 3)),
    ],
)  # fmt: skip
def test_they_are_right_in_any_number_of_dimensions(image, filter):
    made, x, wanted = model(image, filter, strides=filter[2:])
    assert relative(made.run({"x": x})["y"], wanted) < 1e-5
    graph = optimized(made.graph({"x": x}), target=Target.parse("llvm"))
    assert all(v.attributes.get("pass_") != "dgrad" for v in graph.nodes)


def test_what_follows_is_part_of_the_move():
    behind = [node("Relu", "c", "r"), node("Conv", "r v")]
    made, x, wanted = model((1, 16, 6, 6), (16, 8, 2, 2), behind, strides=(2, 2))
    wanted = np.einsum("nchw,kc->nkhw", np.maximum(wanted, 0), BEHIND[:, :, 0, 0])
    assert relative(made.run({"x": x})["y"], wanted) < 1e-5
    graph = optimized(made.graph({"x": x}), target=Target.parse("llvm"))
    bodies = [str(v.attributes["body"]) for v in graph.nodes if v.operator == "program"]
    assert any("transpose" in body and "relu" in body for body in bodies), graph


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": (2, 2), "dilations": (2, 1)}, {"strides": (1, 2)}, {"strides": (3, 2)},
        {"strides": (2, 2), "group": 2},
    ],
)  # fmt: skip
def test_others_stay(attributes):
    made, x, _ = model((1, 4, 5, 5), (4, 6, 2, 2), **attributes)
    graph = optimized(made.graph({"x": x}), target=Target.parse("llvm"))
    assert any(v.attributes.get("pass_") == "dgrad" for v in graph.nodes)


def test_those_of_gpus_stay():
    made, x, _ = model((1, 4, 5, 5), (4, 6, 2, 2), strides=(2, 2))
    on_gpu = optimized(made.graph({"x": x}), target=Target.parse("cuda -arch=sm_90a"))
    assert any(v.attributes.get("pass_") == "dgrad" for v in on_gpu.nodes)


def test_depthwise_filters_in_their_own_layout_stay():
    x, w = Input("x", (1, 5, 5, 3), "float32"), Input("w", (1, 3, 2, 2), "float32")
    more = {"pass_": "dgrad", "stride": 2, "layout": "NHWC", "groups": None}
    graph = Graph("g", (x, w), {"y": Node("depthwise_conv2d", (x, w), more)})
    assert str(transposed_apart(graph)) == str(graph)
