"""Transposed convolutions whose windows do not overlap are products of single pixels on a CPU."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.models import node, onnx_model, relative

import tilewright
from tilewright.graph.pipeline import optimized
from tilewright.target import Target

pytestmark = [pytest.mark.needs_onnx, pytest.mark.usefixtures("plain_code")]


def model(image, filter, more=(), **attributes):
    """The model, its arrays, and what the convolution computes: ``image`` by ``filter``."""
    rng = np.random.default_rng(len(image))
    x, w = (rng.standard_normal(s).astype("float32") for s in (image, filter))
    nodes = [node("ConvTranspose", "x w", "c" if more else "y", **attributes), *more]
    data = onnx_model(nodes, {"x": list(image)}, constants={"w": w})
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
    image, filter = (1, 16, 6, 6), (16, 8, 2, 2)
    behind = [node("Relu", "c", "r"), node("Add", "r r")]
    made, x, wanted = model(image, filter, behind, strides=(2, 2))
    assert relative(made.run({"x": x})["y"], 2 * np.maximum(wanted, 0)) < 1e-5
    graph = optimized(made.graph({"x": x}), target=Target.parse("llvm"))
    # The image and the result are turned, beside them are the products and one move.
    assert sum(v.operator != "reshape" for v in graph.nodes) <= 4, graph


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
