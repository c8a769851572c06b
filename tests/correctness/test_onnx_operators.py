"""ONNX's operators that are made of others, on sizes and modes that its own cases leave out."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.models import node, onnx_model

import tilewright
from tilewright.graph import ModelError

pytestmark = [pytest.mark.needs_onnx, pytest.mark.usefixtures("plain_code")]
rng = np.random.default_rng(0)


def run(nodes, arrays, constants=None, outputs=("y",), opset=22):
    """What a model makes of arrays, and what ONNX's own evaluator does."""
    from onnx import helper, load_from_string
    from onnx.reference import ReferenceEvaluator

    proto = load_from_string(
        onnx_model(nodes, {n: list(a.shape) for n, a in arrays.items()}, list(outputs),
                   constants=constants, opset=opset)
    )  # fmt: skip
    for x in proto.graph.input:
        x.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(arrays[x.name].dtype)
    found = tilewright.load(proto.SerializeToString()).run(arrays)
    return list(found.values()), ReferenceEvaluator(proto).run(None, arrays)


def close(found, expected, tolerance=1e-5):
    for f, e in zip(found, expected, strict=True):
        assert (f.shape, f.dtype) == (e.shape, e.dtype)
        error = np.linalg.norm(f.astype("float64") - e)
        assert error <= tolerance * max(np.linalg.norm(e.astype("float64")), 1e-3)


def real(*shape):
    return rng.normal(size=shape).astype("float32")


@pytest.mark.parametrize(
    ("shape", "groups"),
    [((4, 1, 2, 2), 1), ((5, 1, 1, 5), 1), ((6, 1, 3, 2), 3), ((6, 1, 3, 3), 6), ((4, 3, 2, 3), 2)],
)
def test_filters_of_transposed_convolutions_are_constants(shape, groups):
    """Also where each channel of the result has filters of its own, as one channel always has."""
    x, w = real(2, shape[0], 5, 4), real(*shape)
    nodes = [node("ConvTranspose", "x w", group=groups, strides=[2, 1])]
    model = tilewright.load(onnx_model(nodes, {"x": list(x.shape)}, constants={"w": w}))
    own, made = shape[0] // groups, shape[1]
    expected = np.zeros((2, groups * made, 8 + shape[2], 3 + shape[3]))
    for c, i, j in np.ndindex(shape[0], *shape[2:]):
        for o in range(made):
            out = expected[:, c // own * made + o, i : i + 9 : 2, j : j + 4]
            out += x[:, c].astype("float64") * w[c, o, i, j]
    close([model(x)], [expected.astype("float32")])


WIDE_SUMS = {
    "GlobalAveragePool": {}, "ReduceMean": {"axes": [2, 3]}, "ReduceL2": {"axes": [2]},
    "ReduceLogSumExp": {"axes": [2]}, "LpNormalization": {"axis": 2, "p": 2},
    "GlobalLpPool": {"p": 2}, "LpPool": {"kernel_shape": [40, 40]},
    "LRN": {"size": 3}, "MeanVarianceNormalization": {},
}  # fmt: skip


def ours(operator, x):
    from onnx import helper, load_from_string

    nodes = [node(operator, "x", **WIDE_SUMS[operator])]
    proto = load_from_string(onnx_model(nodes, {"x": list(x.shape)}, opset=17))
    proto.graph.input[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(x.dtype)
    return tilewright.load(proto.SerializeToString())(x)


def test_infinite_sums_of_exponentials_are_infinite():
    x = np.array([[1, np.inf], [-np.inf, -np.inf], [2, -np.inf]], "float32")[None, :, :]
    np.testing.assert_array_equal(ours("ReduceLogSumExp", x), [[[np.inf], [-np.inf], [2]]])


@pytest.mark.parametrize("operator", WIDE_SUMS)
def test_sums_of_16_bits_are_wide(operator):
    """Sums of squares, and of an image, are more than a float16 holds; what is made of them is
    not."""
    x = (rng.normal(size=(1, 2, 40, 40)) * 40 + 300).astype("float16")
    found, expected = (ours(operator, a) for a in (x, x.astype("float64")))
    assert found.dtype == "float16"
    assert np.linalg.norm(found - expected) < 2e-3 * np.linalg.norm(expected)


def test_many_tensors_are_joined():
    """Each condition of a thousand is not within the one before."""
    x = real(2, 3)
    parts = [x + k for k in range(1000)]
    constants = {f"c{k}": p for k, p in enumerate(parts)}
    nodes = [node("Concat", " ".join(constants), "joined", axis=1), node("Mul", "x joined", "y")]
    model = tilewright.load(onnx_model(nodes, {"x": [2, 1]}, constants=constants))
    close([model(x[:, :1])], [x[:, :1] * np.concatenate(parts, 1)])


@pytest.mark.parametrize("length", [3, 7, 12])
@pytest.mark.parametrize("axis", [0, 2])
def test_transforms_are_cut_or_filled(length, axis):
    constants = {"n": np.array(length, "int64"), "a": np.array(axis, "int64")}
    whole = real(7, 5, 7, 2)
    for flags in ({}, {"inverse": 1}):
        close(*run([node("DFT", "x n a", "y", **flags)], {"x": whole}, constants))
    close(*run([node("DFT", "x n a", "y", onesided=1)], {"x": whole[..., :1]}, constants))


def test_a_onesided_transform_and_its_inverse_give_the_signal():
    for length in (8, 9):
        constants = {"n": np.array(length, "int64"), "a": np.array(1, "int64")}
        nodes = [node("DFT", "x n a", "f", onesided=1),
                 node("DFT", "f n a", "y", onesided=1, inverse=1)]  # fmt: skip
        x = real(3, length, 1)
        model = tilewright.load(onnx_model(nodes, {"x": [3, length, 1]}, ["y"], constants, 22))
        np.testing.assert_allclose(model(x), x, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_determinants_need_pivots(size):
    x = real(3, 2, size, size)
    x[0, 0, 0] = 0  # a matrix without an inverse
    x[1, 1, 0, 0] = 0
    close(*run([node("Det", "x", "y")], {"x": x}))


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("transform", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_regions_read_as_many_elements_as_they_have(mode, transform, ratio):
    rois = np.array([[0, 0, 9, 4], [-2, 1.5, 3, 8], [4, 4, 4.2, 4.1], [8, 2, 14, 9]], "float32")
    nodes = [
        node("RoiAlign", "x rois which", "y", mode=mode, output_height=3, output_width=2,
             coordinate_transformation_mode=transform, sampling_ratio=ratio, spatial_scale=0.7)
    ]  # fmt: skip
    constants = {"rois": rois, "which": np.array([0, 1, 1, 0], "int64")}
    close(*run(nodes, {"x": real(2, 3, 6, 8)}, constants))


@pytest.mark.parametrize("groups", [(1, 1), (2, 1), (1, 2), (2, 4)])
def test_windows_are_displaced_by_groups(groups):
    group, own = groups
    x, w = real(2, 4, 7, 6), real(6, 4 // group, 3, 2)
    nodes = [
        node("DeformConv", "x w far b mask", "y", group=group, offset_group=own, strides=[2, 1],
             pads=[1, 0, 2, 1], dilations=[1, 2])
    ]  # fmt: skip
    out = ((7 + 3 - 3) // 2 + 1, 6 + 1 - 2)
    far = real(2, own * 12, *out) * 2
    mask = real(2, own * 6, *out)
    given = {"x": x, "far": far, "mask": mask}
    close(*run(nodes, given, {"w": w, "b": real(6)}))


def test_sequences_are_turned_as_far_as_they_go():
    x, lengths = real(5, 7, 3), np.array([0, 1, 7, 4, 2], "int64")
    nodes = [node("ReverseSequence", "x n", "y", time_axis=1, batch_axis=0)]
    close(*run(nodes, {"x": x, "n": lengths}))


def test_what_has_no_elements_is_computed_of_none():
    from onnx import helper

    nodes = [helper.make_node("ConstantOfShape", ["none"], ["e"]), node("Exp", "e", "f"),
             node("Add", "f x", "y")]  # fmt: skip
    close(*run(nodes, {"x": real(4, 1, 3)}, {"none": np.array([4, 0, 3], "int64")}))


def test_what_is_chosen_of_data_that_a_node_makes_is_refused_where_shapes_are_fixed():
    nodes = [node("Relu", "x", "z"), node("Unique", "z", "y")]
    model, x = tilewright.load(onnx_model(nodes, {"x": [9000]}, ["y"])), real(9000)
    said = "Unique y: its data depends on the data.* Call model.run, .* or split the model here"
    with pytest.raises(ModelError, match=said):
        model.bind({"x": x}, {"y": np.empty(9000, "float32")})
    np.testing.assert_array_equal(model(x), np.unique(np.maximum(x, 0)))


def test_boxes_are_chosen_of_the_results_of_products():
    """As a detector whose boxes a network makes, of however small an image."""
    constants = {"w": real(4, 6), "s": rng.random((1, 1, 5), "float32"), "m": np.array([2])}
    nodes = [node("MatMul", "x w", "z"), node("Slice", "z i j k", "b"),
             node("NonMaxSuppression", "b s m", "y")]  # fmt: skip
    constants |= {"i": np.array([0]), "j": np.array([4]), "k": np.array([2])}
    model = tilewright.load(onnx_model(nodes, {"x": [1, 5, 4]}, ["y"], constants))
    assert model(real(1, 5, 4))[0].tolist() == [0, 0, constants["s"].argmax()]


@pytest.mark.parametrize(
    ("nodes", "shape", "constants", "said"),
    [
        ([node("Det", "x", "y")], [3, 4], {}, "determinants of"),
        ([node("DFT", "x", "y")], [2, 8, 3], {}, "a transform of 8 elements of"),
        ([node("GRU", "x w r", "y", hidden_size=1)], [20_000, 1, 1],
         {"w": np.ones((1, 3, 1), "float32"), "r": np.ones((1, 3, 1), "float32")}, "20000 steps"),
        ([node("STFT", "x s", "y")], [1, 8, 1], {"s": np.array(0, "int64")}, "windows of 8"),
        ([node("HannWindow", "n", "w"), node("Add", "x w", "y")], [1],
         {"n": np.array(1 << 40, "int64")}, "a window of"),
        ([node("MaxUnpool", "x i", "y", kernel_shape=[2, 2], strides=[2, 9000])], [1, 1, 2, 8000],
         {"i": np.zeros((1, 1, 2, 8000), "int64")}, "images of"),
        ([node("TensorScatter", "x z", "y")], [2, 3, 4], {"z": np.zeros((2, 5, 4), "float32")},
         "is not written into"),
        ([node("Col2Im", "x i b", "y")], [1, 5, 5],
         {"i": np.array([5, 5], "int64"), "b": np.array([1, 5], "int64")}, None),
        ([node("Col2Im", "x i b", "y")], [1, 4, 5],
         {"i": np.array([5, 5], "int64"), "b": np.array([1, 5], "int64")}, "is not of blocks"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_with_the_operator(nodes, shape, constants, said):
    model = tilewright.load(onnx_model(nodes, {"x": shape}, ["y"], constants, 24))
    if said is None:
        assert model(real(*shape)).shape == (1, 1, 5, 5)
        return
    with pytest.raises(ModelError, match=said):
        model(real(*shape))


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize(
    ("kind", "number"), [("float8_e4m3fn", 17), ("float8_e5m2", 19)], ids=["e4m3fn", "e5m2"]
)
@pytest.mark.parametrize("source", ["float32", "float16"])
def test_numbers_become_floats_of_8_bits(kind, number, saturate, source):
    """Up to the last that is rounded to the largest, and beyond."""
    import ml_dtypes

    small = getattr(ml_dtypes, kind)
    ends = np.array([448, 463.9, 464, 464.1, 480, 57344, 61439, 61440, 61441, 65504, np.inf, 1e-9])
    x = np.concatenate([ends, -ends, rng.normal(size=40) * 300]).astype(source)
    model = [node("Cast", "x", "z", to=number, saturate=saturate), node("Cast", "z", "y", to=1)]
    largest = float(ml_dtypes.finfo(small).max)
    given = np.clip(x, -largest, largest) if saturate else x  # ml_dtypes does not saturate
    if source == "float16":
        cast = node("Cast", "h", "z", to=number, saturate=saturate)
        model = [node("Cast", "x", "h", to=10), cast, model[1]]
    found = tilewright.load(onnx_model(model, {"x": [x.size]}, opset=22))(x.astype("float32"))
    np.testing.assert_array_equal(found, given.astype("float32").astype(small).astype("float32"))


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize(
    ("kind", "number"),
    [("float8_e4m3fnuz", 18), ("float8_e5m2fnuz", 20), ("float4_e2m1fn", 23)],
    ids=["e4m3fnuz", "e5m2fnuz", "e2m1"],
)
def test_numbers_become_floats_that_the_language_lacks(kind, number, saturate):
    """In float32, each the nearest, ties to even."""
    import ml_dtypes

    small = getattr(ml_dtypes, kind)
    every = np.arange(2 ** ml_dtypes.finfo(small).bits, dtype="uint8").view(small).astype("float32")
    known = np.unique(every[np.isfinite(every)])
    largest = float(known[-1])
    ties = (known[1:] + known[:-1]) / 2
    x = np.concatenate([known, ties, ties * (1 + 1e-6), ties * (1 - 1e-6), [np.inf, -np.inf, 1e-30],
                        largest * np.array([1.03, 1.07, 1.5, -1.2])]).astype("float32")  # fmt: skip
    if number == 23:
        saturate, x = 1, x[np.isfinite(x)]  # there is no other way
    attributes = {} if number == 23 else {"saturate": saturate}
    model = [node("Cast", "x", "z", to=number, **attributes), node("Cast", "z", "y", to=1)]
    found = tilewright.load(onnx_model(model, {"x": [x.size]}, opset=23))(x)
    given = np.clip(x, -largest, largest) if saturate else x
    np.testing.assert_array_equal(found, given.astype(small).astype("float32"))


@pytest.mark.parametrize("kind", ["int4", "uint4", "int2", "uint2"])
def test_weights_of_less_than_a_byte_are_unpacked(kind):
    import ml_dtypes

    low, high = ml_dtypes.iinfo(kind).min, ml_dtypes.iinfo(kind).max
    q = rng.integers(low, high + 1, (6, 5)).astype(kind)
    scale, zero = rng.uniform(0.1, 2, (3, 5)).astype("float32"), np.full((3, 5), 1, kind)
    model = [node("DequantizeLinear", "q s z", "w", axis=0, block_size=2), node("MatMul", "x w")]
    x = real(4, 6)
    data = onnx_model(model, {"x": [4, 6]}, constants={"q": q, "s": scale, "z": zero}, opset=25)
    wide = (q.astype("float64") - 1) * np.repeat(scale, 2, 0)
    np.testing.assert_allclose(tilewright.load(data)(x), x @ wide, rtol=1e-4, atol=1e-5)


def test_inputs_of_four_bits_are_arrays_of_either_type():
    from onnx import TensorProto, load_from_string

    proto = load_from_string(onnx_model([node("Cast", "x", "y", to=1)], {"x": [9]}, opset=23))
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT4
    model = tilewright.load(proto.SerializeToString())
    x = np.arange(-8, 1)
    for given in (x.astype("int4"), x.astype("int8")):
        np.testing.assert_array_equal(model(given), x)
    with pytest.raises(ModelError, match="x is uint8, and is to be int8"):
        model(x.astype("uint8"))


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_scales_become_powers_of_two(mode):
    x = np.array([0.3, 0.25, 0.375, 0.374, 1, 3e38, 1.5, 100, 2.0**-126], "float32")
    nodes = [node("Cast", "x", "z", to=24, round_mode=mode), node("Cast", "z", "y", to=1)]
    found = tilewright.load(onnx_model(nodes, {"x": [9]}, opset=25))(x)
    exponent = np.log2(x.astype("float64"))
    low = 2 ** np.floor(exponent)
    nearest = np.where(x - low >= low / 2, low * 2, low)
    expected = {"up": 2 ** np.ceil(exponent), "down": low, "nearest": nearest}[mode]
    np.testing.assert_array_equal(found, np.minimum(expected, 2.0**127))


@pytest.mark.parametrize("target", ["llvm", "sim"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_pads_may_be_no_finite_numbers(value, target):
    around = {"p": np.array([0, 1, 0, 1], "int64"), "v": np.array(value, "float32")}
    model = tilewright.load(onnx_model([node("Pad", "x p v")], {"x": [2, 3]}, ("y",), around),
                            target=target)  # fmt: skip
    x = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(model(x), np.pad(x, ((0, 0), (1, 1)), constant_values=value))


@pytest.mark.parametrize("kind", ["int64", "int32"])
def test_powers_of_integers_wrap_around_and_are_exact(kind):
    x = np.array([3037000499, -3037000498, 10**9 + 7, -46341, 2, 1, 0, -1]).astype(kind)
    for known in (0, 1, 2, 3, 5, 64):
        close(*run([node("Pow", "x p")], {"x": x}, {"p": np.array(known, kind)}), tolerance=0)
    powers = np.array([[0], [1], [2], [3], [13], [62], [64], [1001]], kind)
    close(*run([node("Pow", "x p")], {"x": x[4:], "p": powers}), tolerance=0)
    close(*run([node("Pow", "b p")], {"p": powers[:-1]}, {"b": np.array(-3, kind)}), tolerance=0)


def test_integers_to_powers_of_floats_are_cut_off():
    x, powers = np.array([[2], [3], [7], [-3]], "int64"), np.array([0.7, 0.5, 2, 3, 9], "float32")
    given, known = {"x": x[:3]}, {"p": powers}
    close(*run([node("Pow", "x p")], given, known), tolerance=0)
    close(*run([node("Pow", "x p")], {"x": x}, {"p": powers[2:]}), tolerance=0)


def test_integers_to_powers_below_zero_are_fractions_without_theirs():
    from onnx import TensorProto, load_from_string

    proto = load_from_string(onnx_model([node("Pow", "x p")], {"x": [4, 1], "p": [3]}))
    for x in proto.graph.input:
        x.type.tensor_type.elem_type = TensorProto.INT32
    x, p = np.array([[1], [-1], [2], [-5]], "int32"), np.array([-1, -2, -65], "int32")
    found = tilewright.load(proto.SerializeToString())(x, p)
    np.testing.assert_array_equal(found, [[1, 1, 1], [-1, 1, -1], [0, 0, 0], [0, 0, 0]])


def test_a_number_in_two_types_of_16_bits_is_rounded_to_each():
    nodes = [node("Cast", "x", "h", to=10), node("Cast", "x", "b", to=16), node("Cast", "b", to=1)]
    close(*run(nodes, {"x": np.array([3e4, 200.7], "float32")}, outputs=("h", "y")))


def resize(x, sizes=(), scales=(), roi=(), **attributes):
    constants = {
        "r": np.array(roi, "float32"), "s": np.array(scales, "float32"),
        "z": np.array(sizes, "int64"),
    }  # fmt: skip
    operands = "x r s z" if sizes else "x r s"
    return run([node("Resize", operands, **attributes)], {"x": x}, constants)


@pytest.mark.parametrize(
    ("start", "end", "step", "places"),
    [
        (-9, -9, -1, [0]),
        (-6, -(2**63), -1, [0]),
        (9, -(2**63), -2, [5, 3, 1]),
        (-1, -9, -(2**63), [5]),
        (1, 2**63 - 1, 2**63 - 1, [1]),
        (1, -(2**63), 1, []),
        (-9, 9, 4, [0, 4]),
    ],
)
def test_slices_begin_and_end_within_what_there_is(start, end, step, places):
    constants = {"s": np.array([start]), "e": np.array([end]), "t": np.array([step])}
    constants["d"] = np.array([1])
    x = np.arange(12, dtype="float32").reshape(2, 6)
    model = tilewright.load(
        onnx_model([node("Slice", "x s e d t")], {"x": [2, 6]}, ["y"], constants)
    )
    np.testing.assert_array_equal(model(x), x[:, np.array(places, int)])


@pytest.mark.parametrize("nearest", ["ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_places_of_a_region_are_those_of_its_type(nearest):
    x = np.repeat(np.arange(6, dtype="float32"), 7).reshape(1, 1, 6, 7)
    close(*resize(x, (1, 1, 9, 20), roi=(0, 0, 0.1, 0.2, 1, 1, 0.8, 1.3), nearest_mode=nearest,
                  coordinate_transformation_mode="tf_crop_and_resize"))  # fmt: skip
