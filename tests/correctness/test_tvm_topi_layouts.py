"""topi's functions in layouts and under names that stand for others, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.support.tvm_operators import close, compute, real, run
from tilewright.tvm.contrib import sparse as csr

from tilewright.tvm import te, topi
from tilewright.tvm.topi import testing as ref

pytestmark = pytest.mark.usefixtures("plain_code")

LINE, IMAGE, BOX = real(1, 4, 9), real(1, 4, 6, 6), real(1, 4, 4, 5, 6)
LAST = IMAGE.transpose(0, 2, 3, 1)
PARTS = IMAGE.reshape(1, 2, 2, 6, 6).transpose(0, 1, 3, 4, 2)
ROWS = real(3, 8)
SPARSE = csr.array(real(6, 8) * (np.arange(48).reshape(6, 8) % 3 == 0))
WEIGHTS = [t.numpy() for t in (SPARSE.data, SPARSE.indices, SPARSE.indptr)]
SOFT = ref.softmax_python(ROWS, 1)
C, M = real(4), real(4, 1, 3, 3)


def back(x, w, groups, more=0, stride=2, padding=1):
    return ref.conv_transpose_python(x, w, stride, padding, more, groups)


def scaled(x, channels):
    return x * C.reshape(channels) + C.reshape(channels) * 2


def upsampled(x):
    for d in (2, 3, 4):
        x = x.repeat(2, d)
    return x


#: By name: what is called, with which arrays, and what comes out.
CASES = {
    "dynamic_strided_slice": (
        lambda x, b, e, s: topi.dynamic_strided_slice(x, b, e, s, (2, 3)),
        [ROWS, *(np.array(v, "int32") for v in ((0, 1), (3, 7), (2, 2)))], ROWS[0:3:2, 1:7:2]),
    "fast_erf": (lambda x: topi.fast_erf(x), [ROWS],
                 np.vectorize(math.erf)(ROWS)),
    "fixed_point_multiply": (
        lambda x: topi.fixed_point_multiply(x, 1 << 30, 1), [np.arange(-4, 4, dtype="int32")],
        np.arange(-4, 4)),
    "adaptive_pool1d": (lambda x: topi.nn.adaptive_pool1d(x, 4, "avg"), [LINE],
                        ref.adaptive_pool(LINE, 4, "avg", "NCW")),
    "adaptive_pool3d": (lambda x: topi.nn.adaptive_pool3d(x, (2, 2, 3), "max"), [BOX],
                        ref.adaptive_pool(BOX, (2, 2, 3), "max", "NCDHW")),
    "conv1d_ncw": (lambda x, w: topi.nn.conv1d_ncw(x, w, 2, 1, 1), [LINE, real(3, 4, 3)], None),
    "group_conv1d_nwc": (
        lambda x, w: topi.nn.group_conv1d_nwc(x, w, 1, 1, 1, 2),
        [LINE.transpose(0, 2, 1), real(3, 2, 6)], None),
    "group_conv2d_nhwc": (
        lambda x, w: topi.nn.group_conv2d_nhwc(x, w, 1, 1, 1, 2), [LAST, real(3, 3, 2, 6)], None),
    "conv2d_winograd_nhwc": (
        lambda x, w: topi.nn.conv2d_winograd_nhwc(x, w, 1, 1, 1), [LAST, real(3, 3, 4, 5)], None),
    "group_conv1d_transpose_ncw": (
        lambda x, w: topi.nn.group_conv1d_transpose_ncw(x, w, 2, 1, "float32", 1, 2),
        [LINE, real(4, 3, 3)], None),
    "group_conv3d_transpose_ncdhw": (
        lambda x, w: topi.nn.group_conv3d_transpose_ncdhw(x, w, 2, 1, "float32", 0, 2),
        [BOX, real(4, 2, 3, 3, 3)], None),
    "declaration_conv2d_transpose_impl": (
        lambda x, w: topi.nn.declaration_conv2d_transpose_impl(x, w, 2, 1, "float32", 0),
        [IMAGE, real(4, 2, 3, 3)], None),
    "declaration_conv3d_transpose_impl": (
        lambda x, w: topi.nn.declaration_conv3d_transpose_impl(x, w, 2, 1, "float32", 0),
        [BOX, real(4, 2, 3, 3, 3)], None),
    "depthwise_conv2d_NCHWc": (
        lambda x, w: topi.nn.depthwise_conv2d_NCHWc(x, w, 1, 1, 1, "NCHW2c", "NCHW2c"),
        [PARTS, M.reshape(2, 2, 1, 3, 3, 1).transpose(0, 2, 3, 4, 5, 1)], None),
    "fast_softmax": (lambda x: topi.nn.fast_softmax(x), [ROWS], SOFT),
    "softmax_common": (lambda x: topi.nn.softmax_common(x, -1, False), [ROWS], SOFT),
    "scale_shift_nchw": (lambda x, s, t: topi.nn.scale_shift_nchw(x, s, t), [IMAGE, C, C * 2],
                         scaled(IMAGE, (1, 4, 1, 1))),
    "scale_shift_nchwc": (
        lambda x, s, t: topi.nn.scale_shift_nchwc(x, s, t),
        [PARTS, C.reshape(2, 2), C.reshape(2, 2) * 2], scaled(PARTS, (1, 2, 1, 1, 2))),
    "simulated_quantize": (
        lambda x, s, z: topi.nn.simulated_quantize(x, "int8", s, z, 1),
        [ROWS * 9, np.full(8, 0.03, "float32"), np.arange(8, dtype="int32")],
        np.clip(np.floor(ROWS * 9 / np.float32(0.03) + 0.5) + np.arange(8), -128, 127)),
    "simulated_dequantize": (
        lambda x, s, z: topi.nn.simulated_dequantize(x, "int8", s, z, 1),
        [ROWS, np.full(8, 0.5, "float32"), np.arange(8, dtype="int32")],
        (ROWS - np.arange(8)) * 0.5),
    "sparse_dense_sp_rhs": (lambda x, *w: topi.nn.sparse_dense_sp_rhs(x, *w), [ROWS, *WEIGHTS],
                            ROWS @ SPARSE.numpy().T),
    "sparse_dense_sp_lhs": (lambda x, *w: topi.nn.sparse_dense_sp_lhs(*w, x), [ROWS, *WEIGHTS],
                            SPARSE.numpy() @ ROWS.T),
    "unpack_NCHWc_to_nchw": (lambda x: topi.nn.unpack_NCHWc_to_nchw(x, "float32"), [PARTS], IMAGE),
    "upsampling3d": (
        lambda x: topi.nn.upsampling3d(x, 2, 2, 2, coordinate_transformation_mode="asymmetric"),
        [BOX], upsampled(BOX)),
    "resize3d": (
        lambda x: topi.image.resize3d(x, None, (8, 3, 9)), [BOX],
        ref.resize3d_python(BOX, (2.0, 0.6, 1.5), "NCDHW", "linear", "half_pixel")),
    "dilation2d_nhwc": (
        lambda x, w: topi.image.dilation2d_nhwc(x, w, 1, 0, 1),
        [LAST, np.zeros((2, 2, 4), "float32")],
        np.lib.stride_tricks.sliding_window_view(LAST, (2, 2), (1, 2)).max((4, 5))),
}  # fmt: skip


def _late(name, arrays):
    """Convolutions, whose references are called with the same arrays."""
    x, w = arrays
    if name == "conv1d_ncw":
        return ref.conv1d_ncw_python(x, w, 2, 1, 1)
    if name == "group_conv1d_nwc":
        made = ref.group_conv1d_ncw_python(x.transpose(0, 2, 1), w.transpose(2, 1, 0), 1, 1, 1, 2)
        return made.transpose(0, 2, 1)
    if name.endswith("nhwc"):
        return ref.conv2d_nhwc_python(x, w, 1, 1, 2 if "group" in name else 1)
    if name == "depthwise_conv2d_NCHWc":
        return ref.depthwise_conv2d_python_nchwc(x, w, 1, 1)
    return back(x, w, 2 if "group" in name else 1, int("1d" in name))


@pytest.mark.parametrize("name", CASES)
def test_a_function_in_a_layout(name):
    function, arrays, expected = CASES[name]
    found = compute(function, *arrays)[0]
    close(found, _late(name, arrays) if expected is None else expected)


def test_paddings_are_those_before_and_behind_each_dimension():
    nn = topi.nn
    assert nn.get_pad_tuple("SAME", (3, 4)) == (1, 1, 1, 2)
    assert nn.get_pad_tuple((1, 2), (3, 3)) == nn.get_pad_tuple_generic((1, 2, 1, 2), (3, 3))
    assert nn.get_pad_tuple1d(1, (3,)) == (1, 1)
    assert nn.get_pad_tuple3d("VALID", (3, 3, 3)) == (0,) * 6


def test_a_slice_by_tensors_has_an_extent_of_any_length():
    x = real(6, 5)
    tensors = [te.placeholder(x.shape, name="x"),
               *(te.placeholder((2,), "int32", n) for n in "bes")]  # fmt: skip
    made = topi.strided_slice(*tensors)
    ends = [np.array(v, "int32") for v in ((1, 0), (5, 5), (2, 2))]
    found = run(made, tensors, [x, *ends], shapes=[(2, 3)])
    np.testing.assert_array_equal(found[0], x[1:5:2, 0:5:2])
