"""Models of quantised numbers run in integers of 8 bits, and are what their operators say."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.models import NETWORKS, node, onnx_model, relative
from tests.support.quantized_models import QdqModel, in_float64

import tilewright
from tilewright.graph import ModelError
from tilewright.graph.calibrate import calibrated
from tilewright.graph.passes.quantize_products import Quantization
from tilewright.graph.pipeline import optimized, prepared
from tilewright.graph.rehearsal import Rehearsal

pytestmark = [pytest.mark.needs_onnx, pytest.mark.usefixtures("plain_code")]


def kernels(model, x):
    """The operators of a model's kernels, with the types that they give."""
    graph = optimized(model.graph({"x": x}), target=model.target, quantization=model.quantization)
    return [(n.operator, n.dtype) for n in graph.nodes if n.operator != "reshape"]


def drawn(shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


#: By name: the weights, groups, strides, paddings, and the zero point of the image.
CONVOLUTIONS = {
    "plain": ((6, 8, 3, 3), 1, (1, 1), (1, 1, 1, 1), 0),
    "padded by a zero point": ((6, 8, 3, 3), 1, (2, 1), (0, 1, 2, 1), 7),
    "groups": ((8, 4, 3, 2), 2, (1, 2), (1, 0, 1, 1), 3),
    "depthwise": ((8, 1, 3, 3), 8, (2, 2), (1, 1, 0, 1), 9),
    "single pixels": ((5, 8, 1, 1), 1, (1, 1), (0, 0, 0, 0), 100),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_one_kernel_and_within_one_of_its_exact_result(name, dtype):
    shape, groups, strides, pads, zero = CONVOLUTIONS[name]
    m = QdqModel(len(name), dtype)
    bias = m.constant(m.random.standard_normal(shape[0]).astype("float32"))
    x = m.rounded("x", 0.02, zero - 12 * (dtype == "int8"))
    y = m.add("Conv", x, m.weights(*shape), bias, group=groups, strides=strides, pads=pads)
    m.quantize(m.add("Relu", y), 0.03, 5)
    data, image = m.model((2, 8, 9, 7)), drawn((2, 8, 9, 7))
    model = tilewright.load(data)
    assert abs(model(image).astype(int) - in_float64(data, image)).max() <= 1
    found = kernels(model, image)
    assert [k for k in found if k[0] not in ("program", "transpose")] == [("conv2d", dtype)]
    assert not [t for _, t in found if t == "float32"]


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("zero", [0, 128])
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_matrices_are_of_integers(each, zero, turned):
    m = QdqModel(3, "uint8")
    shape = (6, 32) if turned else (32, 6)
    w = m.weights(*shape, axis=0 if turned else 1, each=each, zero=zero)
    bias = m.constant(m.random.standard_normal(6).astype("float32"))
    x = m.rounded("x", 0.02, 120)
    y = m.add("Gemm", x, w, bias, transB=1) if turned else m.add("Add", m.add("MatMul", x, w), bias)
    m.quantize(y, 0.05, 130)
    data, rows = m.model((5, 32)), drawn((5, 32))
    model = tilewright.load(data)
    assert abs(model(rows).astype(int) - in_float64(data, rows)).max() <= 1
    assert ("gemm", "uint8") in kernels(model, rows)


def test_a_residual_block_has_a_kernel_for_each_convolution():
    m = QdqModel(5, "uint8")
    x = m.rounded("x", 0.02, 100)
    a = m.rounded(m.add("Relu", m.add("Conv", x, m.weights(8, 8, 3, 3), pads=[1] * 4)), 0.02, 0)
    b = m.rounded(m.add("Conv", a, m.weights(8, 8, 3, 3), pads=[1] * 4), 0.03, 128)
    side = m.rounded(m.add("Conv", x, m.weights(8, 8, 1, 1)), 0.025, 120)
    total = m.rounded(m.add("Relu", m.add("Add", b, side)), 0.03, 0)
    pooled = m.rounded(m.add("MaxPool", total, kernel_shape=[2, 2], strides=[2, 2]), 0.03, 0)
    mean = m.rounded(m.add("GlobalAveragePool", pooled), 0.02, 0)
    m.quantize(m.add("Conv", mean, m.weights(4, 8, 1, 1)), 0.05, 128)
    data, image = m.model((1, 8, 8, 8)), drawn((1, 8, 8, 8))
    model = tilewright.load(data)
    assert abs(model(image).astype(int) - in_float64(data, image)).max() <= 2  # of three roundings
    found = kernels(model, image)
    assert {t for _, t in found} == {"uint8"}
    assert sum(k == "conv2d" for k, _ in found) + sum(k == "gemm" for k, _ in found) == 4


#: Operators of integers with their constants; the input is quantised by 0.02 and 7.
INTEGERS = {
    "QLinearConv": (
        "q s z w ws wz ys yz b",
        (2, 8, 9, 7),
        (6, 4, 3, 3),
        {"group": 2, "pads": [1, 0, 1, 2]},
    ),
    "QLinearMatMul": ("q s z w ws0 wz0 ys yz", (5, 32), (32, 6), {}),
    "ConvInteger": ("q w z wz", (2, 8, 9, 7), (6, 8, 3, 3), {"strides": [2, 1]}),
    "MatMulInteger": ("q w z wz0", (3, 5, 32), (32, 6), {}),
}


@pytest.mark.needs_onnxruntime
@pytest.mark.parametrize("name", INTEGERS)
def test_an_operator_of_integers_is_one_product_of_them(name):
    import onnxruntime

    inputs, shape, weights, attributes = INTEGERS[name]
    random = np.random.default_rng(2)
    constants = {
        "s": np.float32(0.02), "z": np.uint8(7), "ys": np.float32(0.06), "yz": np.uint8(90),
        "w": random.integers(0, 250, weights).astype("uint8"),
        "ws": np.full(weights[0], 0.005, "float32"), "wz": np.full(weights[0], 125, "uint8"),
        "ws0": np.float32(0.005), "wz0": np.uint8(125),
        "b": random.integers(-2000, 2000, weights[0]).astype("int32"),
    }  # fmt: skip
    constants["wz"] = np.uint8(125) if name == "ConvInteger" else constants["wz"]
    nodes = [node("QuantizeLinear", "x s z", "q"), node(name, inputs, "i", **attributes)]
    nodes.append(node("Cast", "i", to=1))
    data = onnx_model(nodes, {"x": list(shape)}, constants=constants)
    model, x = tilewright.load(data), drawn(shape)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    found, (wanted,) = model(x), session.run(None, {"x": x})
    if name.startswith("QLinear"):
        assert abs(found - wanted).max() <= 1
    else:
        assert (found == wanted).all()
    _, kind = next(k for k in kernels(model, x) if k[0] in ("conv2d", "gemm"))
    assert kind == ("uint8" if name.startswith("QLinear") else "int32")


@pytest.mark.needs_onnxruntime
@pytest.mark.parametrize(("name", "dtype"), [("resnet", "uint8"), ("mobilenet", "int8")])
def test_what_onnx_runtime_quantises_is_what_it_computes(name, dtype, tmp_path):
    from tests.support.quantized_models import quantized_by_onnxruntime

    x = [drawn((1, 3, 16, 16), k) for k in range(4)]
    data, wanted = quantized_by_onnxruntime(NETWORKS[name](16).model(), x, dtype, tmp_path)
    model = tilewright.load(data)
    for image, y in zip(x, wanted, strict=True):
        exact = in_float64(data, image)
        assert relative(model(image), exact) < 0.01
        assert relative(y, exact) < 0.1  # sums that saturate, as AVX2 has them
    floats = [k for k in kernels(model, x[0]) if k[1] == "float32"]
    assert len(floats) <= 1  # the output
    count = [k for k, _ in kernels(model, x[0])]
    plain = tilewright.load(NETWORKS[name](16).model())
    products = [k for k, _ in kernels(plain, x[0]) if k in ("conv2d", "gemm")]
    assert sum(k in ("conv2d", "gemm") for k in count) == len(products)


def test_a_network_is_quantised_in_one_call():
    x = [drawn((2, 3, 16, 16), k) for k in range(3)]
    data = NETWORKS["resnet"](16).model("N")
    plain, model = tilewright.load(data), tilewright.load(data, dtype="int8", calibration=x)
    assert relative(model(x[0]), plain(x[0])) < 0.05
    assert relative(model(x[0][:1]), plain(x[0][:1])) < 0.05  # of another batch
    assert all(t == "int8" for k, t in kernels(model, x[0])[:-1] if k in ("conv2d", "gemm"))
    assert str(model.quantization) == "all products are in int8"


def test_branches_that_are_joined_are_quantised():
    nodes = [
        node("Conv", "x u", "a"), node("Conv", "x v", "b", pads=[1] * 4),
        node("Concat", "a b", "c", axis=1), node("Conv", "c w", "y"),
    ]  # fmt: skip
    shapes = {"u": (8, 3, 1, 1), "v": (4, 3, 3, 3), "w": (5, 12, 1, 1)}
    constants = {name: drawn(shape) for name, shape in shapes.items()}
    data, x = onnx_model(nodes, {"x": [1, 3, 9, 9]}, constants=constants), drawn((1, 3, 9, 9))
    plain, model = tilewright.load(data), tilewright.load(data, dtype="int8", calibration=[x])
    assert relative(model(x), plain(x)) < 0.05
    products = [t for k, t in kernels(model, x) if k in ("conv2d", "gemm")]
    assert sorted(products) == ["float32", "int8", "int8"]  # the first is the result


def test_a_budget_keeps_the_worst_products_in_float():
    x = [drawn((1, 3, 16, 16), k) for k in range(3)]
    data = NETWORKS["resnet"](16).model()
    plain = tilewright.load(data)
    rough = tilewright.load(data, dtype="int8", calibration=[{"x": v} for v in x], budget=0.5)
    assert not rough.quantization.kept
    error = rough.quantization.error
    fine = tilewright.load(data, dtype="int8", calibration=x, budget=error / 2)
    assert fine.quantization.error <= error / 2
    assert 0 < len(fine.quantization.kept) < 8
    assert "stays in float: by itself it changes the outputs by" in str(fine.quantization)
    none = tilewright.load(data, dtype="int8", calibration=x, budget=1e-6)
    assert relative(none(x[0]), plain(x[0])) < 1e-5


def test_what_is_rehearsed_is_what_runs_in_8_bits():
    """Of no product, of some and of all: sums of floats beside those of integers."""
    x = {"x": drawn((2, 3, 16, 16), 1)}
    model = tilewright.load(NETWORKS["resnet"](16).model("N"))
    known = calibrated(model, [x], None)
    rehearsal = Rehearsal(prepared(model.graph(x)), model.target)
    names = rehearsal.names
    for kept in ([], names[::2], names[1::2], names):
        trial = Quantization(known.ranges, dict.fromkeys(kept, "it is asked for"))
        found, wanted = rehearsal.run(x, trial), model.quantized(trial).run(x)
        assert relative(found["y"], wanted["y"]) < 1e-5
    assert relative(rehearsal.run(x, None)["y"], model.run(x)["y"]) < 1e-6
    assert relative(rehearsal.run(x, known)["y"], model.run(x)["y"]) > 1e-3


def test_ranges_of_a_percentile_clip_outliers():
    """One number of a thousand is a hundred times as large, and the rest of the model's results
    do not depend on it."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 32)).astype("float32")
    x[0, 0] = 100 * np.abs(x).max()
    w = rng.standard_normal((32, 16)).astype("float32")
    data = onnx_model([node("MatMul", "x w", "y")], {"x": list(x.shape)}, constants={"w": w})
    whole, clipped = (
        tilewright.load(data, dtype="int8", calibration=[x], percentile=p) for p in (100, 99.9)
    )
    wanted = (x @ w)[1:]
    assert relative(clipped(x)[1:], wanted) < 0.02 < 0.2 < relative(whole(x)[1:], wanted)
    assert np.abs(clipped(x)[0]).max() < 0.1 * np.abs((x @ w)[0]).max()


def test_integers_of_8_bits_need_samples_that_fit():
    data = NETWORKS["resnet"](16).model()
    x = drawn((1, 3, 16, 16))
    with pytest.raises(ModelError, match="needs samples"):
        tilewright.load(data, dtype="int8")
    with pytest.raises(ModelError, match="needs samples"):
        tilewright.load(data, dtype="int8", calibration=[])
    with pytest.raises(ModelError, match='for dtype="int8"'):
        tilewright.load(data, calibration=[x])
    with pytest.raises(ModelError, match="there is no input z"):
        tilewright.load(data, dtype="int8", calibration=[{"z": x}])
    with pytest.raises(ModelError, match='for dtype="int8"'):
        tilewright.load(data, percentile=99.9)
    with pytest.raises(ModelError, match="from 50 to 100"):
        tilewright.load(data, dtype="int8", calibration=[x], percentile=0.999)
    with pytest.raises(ModelError, match="above 0"):
        tilewright.load(data, dtype="int8", calibration=[x], budget=0.0)
    with pytest.raises(ModelError, match="no range"):
        tilewright.load(data, dtype="int8", calibration=[x * np.float32(np.nan)])
