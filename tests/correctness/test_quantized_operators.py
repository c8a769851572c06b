"""Operators of ONNX Runtime's own domain give what ONNX Runtime gives."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.graph import ModelError

pytestmark = [
    pytest.mark.needs_onnx, pytest.mark.needs_onnxruntime, pytest.mark.usefixtures("plain_code"),
]  # fmt: skip

A, B, R = ("a", "a_scale", "a_zero"), ("b", "b_scale", "b_zero"), ("r_scale", "r_zero")
#: By name: the operator, its operands, their shapes, and its attributes.
CASES = {
    "sum": ("QLinearAdd", (*A, *B, *R), {"a": (2, 3, 4), "b": (3, 1)}, {}),
    "product": ("QLinearMul", (*A, *B, *R), {"a": (2, 3, 4), "b": (2, 3, 4)}, {}),
    "sigmoid": ("QLinearSigmoid", (*A, *R), {"a": (2, 30)}, {}),
    "leaky": ("QLinearLeakyRelu", (*A, *R), {"a": (2, 30)}, {"alpha": 0.2}),
    "softmax": ("QLinearSoftmax", (*A, *R), {"a": (2, 5, 6)}, {"axis": 1, "opset": 13}),
    "means": ("QLinearGlobalAveragePool", (*A, *R), {"a": (2, 3, 7, 5)}, {}),
    "windows": (
        "QLinearAveragePool", (*A, *R), {"a": (2, 3, 7, 5)},
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
    ),
    "joined": ("QLinearConcat", (*R, *A, *B), {"a": (2, 3), "b": (4, 3)}, {"axis": 0}),
    "matrices": ("QGemm", (*A, *B, "", *R), {"a": (4, 6), "b": (6, 5)}, {}),
    "matrices and a bias": (
        "QGemm", (*A, "w", "w_scale", "w_zero", "bias", *R), {"a": (4, 6)}, {"transB": 1},
    ),
    "matrices in float": ("QGemm", (*A, *B), {"a": (6, 4), "b": (6, 5)}, {"transA": 1}),
}  # fmt: skip


def one_node(kind, operands, shapes, attributes):
    """A model of a node, whose weights have a scale for each row."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(7)
    constants = {
        "a_scale": np.float32(0.02), "a_zero": np.uint8(120), "b_scale": np.float32(0.03),
        "b_zero": np.uint8(130), "r_scale": np.float32(0.04), "r_zero": np.uint8(128),
        # Where a CPU lacks VNNI, ONNX Runtime adds two products in 16 bits.
        "w": rng.integers(-63, 64, (5, 6)).astype("int8"), "w_zero": np.zeros(5, "int8"),
        "w_scale": rng.uniform(0.01, 0.03, 5).astype("float32"),
        "bias": rng.integers(-9999, 9999, 5).astype("int32"),
    }  # fmt: skip
    byte, given = TensorProto.UINT8, dict.fromkeys(operands)
    result = byte if "r_scale" in given else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(kind, operands, ["y"], domain="com.microsoft", **attributes)], "g",
        [helper.make_tensor_value_info(n, byte, shape) for n, shape in shapes.items()],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(np.asarray(x), n) for n, x in constants.items() if n in given],
    )  # fmt: skip
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=8, opset_imports=domains)


@pytest.mark.parametrize("name", CASES)
def test_a_quantised_operator_gives_what_onnxruntime_gives(name):
    import onnxruntime

    model, rng = one_node(*CASES[name]), np.random.default_rng(1)
    x = {n: rng.integers(0, 256, s).astype("uint8") for n, s in CASES[name][2].items()}
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (wanted,) = session.run(None, x)
    found = tilewright.load(model).run(x)["y"]
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if found.dtype == "uint8":  # next to a tie either may be rounded
        assert abs(found.astype(int) - wanted).max() <= 1
        assert (found == wanted).mean() >= 0.9
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "attributes"), [
    ("means", {"channels_last": 1}), ("softmax", {"axis": 1, "opset": 11}),
    ("matrices", {"alpha": 2.0}),
])  # fmt: skip
def test_what_onnx_computes_otherwise_is_refused_by_its_name(name, attributes):
    kind, operands, shapes, _ = CASES[name]
    with pytest.raises(ModelError, match=f"not supported: com.microsoft.{kind}"):
        tilewright.load(one_node(kind, operands, shapes, attributes))


def test_what_an_optimizer_fused_is_refused_with_the_remedy():
    with pytest.raises(ModelError, match="FusedConv; .* give the model as it was before"):
        tilewright.load(one_node("FusedConv", ("a", "b"), {"a": (1, 2, 3, 3)}, {}))


def test_a_function_of_the_model_comes_first():
    from onnx import helper

    model = one_node(*CASES["sigmoid"])
    node = helper.make_node("Identity", ["x"], ["y"])
    model.functions.append(helper.make_function(
        "com.microsoft", "QLinearSigmoid", ["x", "s", "z", "t", "u"], ["y"], [node],
        [helper.make_opsetid("", 17)],
    ))  # fmt: skip
    x = np.arange(60, dtype="uint8").reshape(2, 30)
    assert (tilewright.load(model).run({"a": x})["y"] == x).all()
