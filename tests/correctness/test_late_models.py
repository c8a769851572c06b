"""Models that end in operators whose shapes depend on data: NumPy computes that end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.models import node, onnx_model

import tilewright
from tilewright.graph import ModelError
from tilewright.graph.onnx.selected import _kept

pytestmark = pytest.mark.needs_onnx

RNG = np.random.default_rng(0)
W = RNG.standard_normal((5, 3, 3, 3)).astype("float32")


def detector(*more: Any) -> bytes:
    """Boxes and scores by a convolution, of which those above a threshold that overlap no better
    one are the outputs "y", beside all scores "s"."""
    nodes = [
        node("Conv", "x w", "c", kernel_shape=[3, 3]), node("Reshape", "c shape", "r"),
        node("Transpose", "r", "t", perm=[0, 2, 1]), node("Split", "t parts", "b q", axis=2),
        node("Transpose", "q", "s", perm=[0, 2, 1]),
        node("NonMaxSuppression", "b s most overlap least", "k"),
        node("Gather", "k two", "places", axis=1), node("Reshape", "places row", "p"),
        node("Reshape", "b rows", "all"), node("Gather", "all p", "y", axis=0), *more,
    ]  # fmt: skip
    constants = {
        "w": W, "shape": np.array([1, 5, -1]), "parts": np.array([4, 1]), "row": np.array([-1]),
        "rows": np.array([-1, 4]), "most": np.array([10000]), "overlap": np.float32([0.3]),
        "least": np.float32([0.5]), "two": np.array([2]),
    }  # fmt: skip
    return onnx_model(nodes, {"x": ["N", 3, "H", "W"]}, constants=constants, outputs=("y", "s"))


def image(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 3, size, size)).astype("float32")


@pytest.mark.needs_onnxruntime
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_as_many_boxes_are_chosen_as_the_data_says(target: str) -> None:
    import onnxruntime

    data = detector()
    model, other = tilewright.load(data, target=target), onnxruntime.InferenceSession(data)
    counts = set()
    for size, seed in ((40, 0), (40, 1), (45, 0)):
        x = image(size, seed)
        found, wanted = model.run({"x": x}), other.run(["y", "s"], {"x": x})
        for name, array in zip(("y", "s"), wanted, strict=True):
            assert found[name].dtype == array.dtype
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
        counts.add(len(wanted[0]))
    assert len(counts) > 1


def test_a_call_after_another_one_compiles_nothing() -> None:
    """Data decides shapes in NumPy alone."""
    model = tilewright.load(detector())
    model.run({"x": image(40)})
    before = len(model.kernels())
    lengths = {len(model.run({"x": image(40, seed)})["y"]) for seed in range(6)}
    assert len(lengths) > 1
    assert len(model.kernels()) == before > 0


def test_clones_and_saved_models_are_in_halves_too(tmp_path: Path) -> None:
    model, x = tilewright.load(detector()), image(40)
    wanted = model.run({"x": x})
    model.save(tmp_path / "m.tw")
    for other in (model.clone(), tilewright.load(tmp_path / "m.tw")):
        found = other.run({"x": x})
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)


def test_outputs_have_places_where_their_shapes_fit() -> None:
    model, x = tilewright.load(detector()), image(40)
    wanted = model.run({"x": x})
    place = np.full_like(wanted["y"], np.nan)
    found = model.run({"x": x}, {"y": place})
    assert found["y"] is place
    np.testing.assert_array_equal(place, wanted["y"])
    with pytest.raises(ModelError, match="the output y is .* this time, as the data says"):
        model.run({"x": x}, {"y": np.empty((1000, 4), "float32")})


def test_what_is_work_for_kernels_is_not_left_to_numpy() -> None:
    nodes = [node("NonZero", "x", "k"), node("Cast", "k", "f", to=1), node("MatMul", "f g")]
    data = onnx_model(nodes, {"x": [70, 70], "g": ["K", 5]})
    with pytest.raises(ModelError, match="NonZero k: its shape depends on the data"):
        tilewright.load(data).run({"x": np.eye(70, dtype="float32"), "g": image(5)[0, 0]})


def test_branches_and_loops_behind_data_are_computed() -> None:
    """What they read from outside of them crosses, too."""
    from onnx import TensorProto, helper

    def branch(name: str, other: str) -> Any:
        made = helper.make_node(name, ["found", other], [name])
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([made], name, [], [value])

    nodes = [
        node("Relu", "x", "r"), node("Add", "r r", "twice"), node("NonZero", "r", "k"),
        node("Shape", "k", "shape"), node("Gather", "shape one", "n", axis=0),
        node("Cast", "n", "found", to=1), node("Greater", "n ten", "many"),
        node("If", "many", then_branch=branch("Add", "twice"), else_branch=branch("Mul", "x")),
    ]  # fmt: skip
    constants = {"one": np.array(1), "ten": np.array(10)}
    model = tilewright.load(onnx_model(nodes, {"x": [70, 70]}, constants=constants))
    for few in (3, 20):
        x = np.zeros((70, 70), "float32")
        x[:few, 0] = RNG.random(few) + 0.5
        np.testing.assert_allclose(model(x), few + 2 * x if few > 10 else few * x, rtol=1e-6)


def test_an_output_that_is_a_weight_is_the_callers_to_write_into() -> None:
    from onnx import TensorProto, helper

    def branch(name: str) -> Any:
        made = helper.make_node("Identity", [name], [f"of_{name}"])
        value = helper.make_tensor_value_info(f"of_{name}", TensorProto.FLOAT, None)
        return helper.make_graph([made], name, [], [value])

    nodes = [
        node("NonZero", "x", "k"), node("Shape", "k", "shape"), node("Gather", "shape one", "n"),
        node("Greater", "n ten", "many"),
        node("If", "many", then_branch=branch("a"), else_branch=branch("b")),
    ]  # fmt: skip
    constants = {"one": np.array(1), "ten": np.array(10)}
    constants |= {name: np.ones(3, "float32") for name in "ab"}
    model = tilewright.load(onnx_model(nodes, {"x": [70, 70]}, constants=constants))
    for _ in range(2):
        y = model(np.eye(70, dtype="float32"))
        np.testing.assert_array_equal(y, [1, 1, 1])
        y[:] = 7


def greedy(boxes: np.ndarray, scores: np.ndarray, most: int, limit: float) -> list[int]:
    """Boxes by their scores, each compared with all that were kept."""
    found: list[int] = []
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for k in np.argsort(-scores, kind="stable"):
        common = [
            max(0.0, min(boxes[k, 2], boxes[j, 2]) - max(boxes[k, 0], boxes[j, 0]))
            * max(0.0, min(boxes[k, 3], boxes[j, 3]) - max(boxes[k, 1], boxes[j, 1]))
            for j in found
        ]
        if all(c <= limit * (area[j] + area[k] - c) for j, c in zip(found, common, strict=True)):
            found.append(int(k))
    return found[:most]


@pytest.mark.parametrize("spread", [1.0, 6.0, 60.0])
@pytest.mark.parametrize("most", [3, 1000])
def test_boxes_that_are_apart_are_chosen_apart(spread: float, most: int) -> None:
    rng = np.random.default_rng(int(spread))
    low = rng.random((150, 2)) * spread
    boxes = np.concatenate([low, low + rng.random((150, 2))], 1)
    scores = np.round(rng.random(150), 2)  # some are equal
    for limit in (0.0, 0.4, 1.0):
        assert _kept(boxes, scores, most, limit, False) == greedy(boxes, scores, most, limit)
