"""ONNX's operators on images without pixels, sequences without steps, and numbers alone."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.models import node, onnx_model

import tilewright
from tilewright.graph import ModelError

pytestmark = [pytest.mark.needs_onnx, pytest.mark.usefixtures("plain_code")]


def drawn(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


@pytest.mark.parametrize("shape", [(0, 2, 3, 3), (1, 0, 3, 3), (2, 2, 0, 3)])
def test_images_without_elements_are_resized(shape):
    from onnx import helper

    constants = {"s": np.array([1, 1, 2, 2], "float32"), "z": np.array([6, 6]),
                 "i": np.array([0]), "j": np.array([2])}  # fmt: skip
    by_scale, by_size = (
        tilewright.load(onnx_model(nodes, {"x": list(shape)}, ["y"], constants))
        for nodes in (
            [helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")],
            [node("Shape", "x", "e"), node("Slice", "e i j", "f"),
             node("Concat", "f z", "g", axis=0),
             helper.make_node("Resize", ["x", "", "", "g"], ["y"], mode="cubic")],
        )
    )  # fmt: skip
    x = np.zeros(shape, "float32")
    assert by_scale(x).shape == (*shape[:2], 2 * shape[2], 6)
    if shape[2]:
        assert by_size(x).shape == (*shape[:2], 6, 6)


def test_nothing_is_made_of_images_without_pixels():
    from onnx import helper

    nodes = [helper.make_node("Resize", ["x", "", "", "z"], ["y"])]
    sizes = {"z": np.array([1, 2, 6, 6])}
    model = tilewright.load(onnx_model(nodes, {"x": [1, 2, 0, 3]}, ["y"], sizes))
    with pytest.raises(ModelError, match="would make 6 of 0 elements"):
        model(np.zeros((1, 2, 0, 3), "float32"))


@pytest.mark.parametrize("shape", [(0, 2, 3), (4, 0, 3)])
@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("layout", [0, 1])
def test_sequences_without_steps_or_none_leave_the_state(kind, gates, shape, layout):
    w, r = drawn(2, gates * 5, 3), drawn(2, gates * 5, 5)
    nodes = [node(kind, "x w r", "y h", hidden_size=5, direction="bidirectional", layout=layout)]
    given = (shape[1], shape[0], 3) if layout else shape
    model = tilewright.load(onnx_model(nodes, {"x": list(given)}, ["y", "h"], {"w": w, "r": r}))
    found = model.run({"x": np.zeros(given, "float32")})
    count, batch, _ = shape
    assert found["y"].shape == ((batch, count, 2, 5) if layout else (count, 2, batch, 5))
    assert found["h"].shape == ((batch, 2, 5) if layout else (2, batch, 5))
    assert not found["h"].any()


@pytest.mark.parametrize(("number", "count"), [(0.0, 0), (2.0, 1)])
def test_a_number_alone_is_at_one_place(number, count):
    model = tilewright.load(onnx_model([node("NonZero", "x")], {"x": []}))
    found = model(np.array(number, "float32"))
    assert found.shape == (1, count)
    assert not found.any()
