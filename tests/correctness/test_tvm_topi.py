"""topi under TVM's names: every operator against NumPy, on small shapes."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import tvm
from tilewright.ir.errors import LanguageError
from tilewright.tvm import te, topi
from tilewright.tvm.topi import testing as ref

pytestmark = pytest.mark.usefixtures("plain_code")

rng = np.random.default_rng(0)


def real(*shape):
    return rng.uniform(0.1, 0.9, shape).astype("float32")


def ints(high, *shape, type="int32"):
    return rng.integers(0, high, shape).astype(type)


def run(function, arrays, target="llvm"):
    """What an operator makes of arrays, by the schedule that TVM's programs ask for by name."""
    tensors = [te.placeholder(a.shape, a.dtype, f"in{k}") for k, a in enumerate(arrays)]
    made = function(*tensors)
    outs = [t for t in (made if isinstance(made, (list, tuple)) else [made]) if t not in tensors]
    with tvm.target.Target(target):
        s = topi.generic.schedule_injective(outs)
        kernel = tvm.build(s, [*tensors, *outs])
    found = [tvm.nd.empty(topi.utils.get_const_tuple(t.shape), t.dtype) for t in outs]
    kernel(*map(tvm.nd.array, arrays), *found)
    return [f.numpy() for f in found]


def check(function, arrays, expected):
    found = run(function, arrays)
    for f, e in zip(found, expected if isinstance(expected, list) else [expected], strict=False):
        e = np.asarray(e)
        assert f.shape == e.shape
        np.testing.assert_allclose(f.astype("float64"), e.astype("float64"), rtol=2e-4, atol=2e-5)


X, Y = real(3, 4), real(3, 4)
I, J = ints(9, 3, 4), ints(9, 3, 4) + 1
IMAGE, KERNEL = real(1, 4, 6, 6), real(4, 4, 3, 3)
ROWS = np.array([[2, 0, 1, 3], [1, 3, 0, 2], [0, 1, 3, 2]], "int32")

ONE = {
    **{n: getattr(np, n) for n in (
        "abs ceil cos cosh exp floor log log10 log2 negative sign sin sinh sqrt tan tanh trunc "
        "isnan isinf isfinite"
    ).split()},
    "acos": np.arccos, "asin": np.arcsin, "atan": np.arctan, "asinh": np.arcsinh,
    "atanh": np.arctanh, "identity": lambda x: x, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "fast_exp": np.exp,
    "fast_tanh": np.tanh,
}  # fmt: skip
TWO = {
    **{n: getattr(np, n) for n in (
        "add subtract multiply divide maximum minimum power equal not_equal less less_equal "
        "greater greater_equal"
    ).split()},
}  # fmt: skip
TWO_INTEGERS = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift, "right_shift": np.right_shift, "floor_divide": np.floor_divide,
    "floor_mod": np.mod, "mod": np.fmod,
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_a_function_of_elements(name):
    check(getattr(topi, name), [X], ONE[name](X))


@pytest.mark.parametrize("name", TWO)
def test_a_function_of_two_elements(name):
    check(getattr(topi, name), [X, Y[:1]], TWO[name](X, Y[:1]))


@pytest.mark.parametrize("name", TWO_INTEGERS)
def test_a_function_of_two_integers(name):
    check(getattr(topi, name), [I, J], TWO_INTEGERS[name](I, J))


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "argmax", "argmin"])
@pytest.mark.parametrize(("axis", "keepdims"), [(None, False), (1, True)])
def test_a_reduction(name, axis, keepdims):
    wanted = getattr(np, name)(X, axis=axis, keepdims=keepdims)
    check(lambda x: getattr(topi, name)(x, axis=axis, keepdims=keepdims), [X], wanted)


def test_round_takes_halves_away_from_zero_and_clz_counts_all_zeros():
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.3], "float32")
    check(topi.round, [halves], np.array([-3, -2, -1, 1, 2, 3, 0], "float32"))
    numbers = np.array([0, 1, 5, 2**31 - 1, -1], "int32")
    wanted = np.array([32, 31, 29, 1, 0], "int32")
    check(lambda x: te.compute(x.shape, lambda i: tvm.tir.clz(x[i])), [numbers], wanted)


#: By name: the call on tensors, the arrays, and what NumPy makes of them.
OPERATORS = {
    "acosh": (topi.acosh, [X + 1], np.arccosh(X + 1)),
    "all": (lambda x: topi.all(x, 1), [I > 2], (I > 2).all(1)),
    "any": (lambda x: topi.any(x, 1), [I > 7], (I > 7).any(1)),
    "bitwise_not": (topi.bitwise_not, [I], ~I),
    "reinterpret": (lambda x: topi.reinterpret(x, "int32"), [X], X.view("int32")),
    "cast": (lambda x: topi.cast(x, "int32"), [X * 9], (X * 9).astype("int32")),
    "ceil_log2": (topi.ceil_log2, [J], np.ceil(np.log2(J))),
    "clip": (lambda x: topi.clip(x, 0.3, 0.6), [X], X.clip(0.3, 0.6)),
    "erf": (topi.erf, [np.array([0.0, 0.5], "float32")], np.array([0, 0.5204999])),
    "logical": (
        lambda x, y: [topi.logical_and(x, y), topi.logical_or(x, y), topi.logical_xor(x, y),
                      topi.logical_not(x)],
        [I > 3, J > 4], [(I > 3) & (J > 4), (I > 3) | (J > 4), (I > 3) ^ (J > 4), ~(I > 3)],
    ),
    "where": (topi.where, [I > 3, X, Y], np.where(I > 3, X, Y)),
    "cumsum": (lambda x: topi.cumsum(x, 1), [X], X.cumsum(1)),
    "cumsum flat": (topi.cumsum, [X], X.cumsum()),
    "cumprod": (lambda x: topi.cumprod(x, 0, exclusive=True), [X],
                np.concatenate([np.ones((1, 4)), X.cumprod(0)[:-1]])),
    "expand_dims": (lambda x: topi.expand_dims(x, 1, 2), [X], X[:, None, None]),
    "expand_like": (lambda x, y: topi.expand_like(x, y, [1]), [X[:, 0], X], np.tile(X[:, :1], 4)),
    "squeeze": (lambda x: topi.squeeze(x, 0), [X[None]], X),
    "transpose": (topi.transpose, [X], X.T),
    "reshape": (lambda x: topi.reshape(x, (2, -1)), [X], X.reshape(2, 6)),
    "broadcast_to": (lambda x: topi.broadcast_to(x, (2, 3, 4)), [X], np.stack([X, X])),
    "flip": (lambda x: topi.flip(x, 1), [X], X[:, ::-1]),
    "reverse_sequence": (lambda x, n: topi.reverse_sequence(x, n, 1, 0),
                         [X, np.array([2, 4, 1], "int32")],
                         ref.reverse_sequence(X, [2, 4, 1], 1, 0)),
    "strided_slice": (lambda x: topi.strided_slice(x, [0, -1], [3, -4], [2, -1]), [X],
                      X[0:3:2, -1:-4:-1]),
    "strided_slice axes": (lambda x: topi.strided_slice(x, [1], [2], axes=[1], slice_mode="size"),
                           [X], X[:, 1:3]),
    "strided_set": (lambda x, v: topi.strided_set(x, v, [0, 1], [3, 4], [2, 2]),
                    [X, Y[:2, :2]], ref.strided_set_python(X, Y[:2, :2], [0, 1], [3, 4], [2, 2])),
    "concatenate": (lambda x, y: topi.concatenate([x, y, x], 1), [X, Y],
                    np.concatenate([X, Y, X], 1)),
    "stack": (lambda x, y: topi.stack([x, y], 1), [X, Y], np.stack([X, Y], 1)),
    "split": (lambda x: topi.split(x, (1, 3), 1), [X], np.split(X, [1, 3], 1)),
    "repeat": (lambda x: topi.repeat(x, 2, 1), [X], X.repeat(2, 1)),
    "tile": (lambda x: topi.tile(x, (2, 1, 3)), [X], np.tile(X, (2, 1, 3))),
    "layout_transform": (lambda x: topi.layout_transform(x, "NCHW", "NCHW2c"), [IMAGE],
                         IMAGE.reshape(1, 2, 2, 6, 6).transpose(0, 1, 3, 4, 2)),
    "take": (lambda x, i: topi.take(x, i, 1), [X, ROWS], X[:, ROWS]),
    "take flat": (lambda x, i: topi.take(x, i, mode="wrap"), [X, I + 9],
                  X.reshape(-1).take(I + 9, mode="wrap")),
    "gather": (lambda x, i: topi.gather(x, 1, i), [X, ROWS], np.take_along_axis(X, ROWS, 1)),
    "gather_nd": (topi.gather_nd, [X, np.array([[0, 2], [1, 3]])], X[[0, 2], [1, 3]]),
    "one_hot": (lambda i: topi.one_hot(i, 2, 1, 4, -1, "int32"), [ROWS],
                np.eye(4, dtype="int32")[ROWS] + 1),
    "sequence_mask": (lambda x, n: topi.sequence_mask(x, n, 7.0, 1),
                      [X, np.array([2, 4, 1], "int32")],
                      np.where(np.arange(4)[None] < [[2], [4], [1]], X, 7)),
    "adv_index": (lambda x, i, j: topi.adv_index(x, [i, j]),
                  [X, np.array([[0], [2]]), np.array([1, 3])], X[[[0], [2]], [1, 3]]),
    "scatter_elements": (lambda x, i, u: topi.scatter_elements(x, i, u, 1, "add"), [X, ROWS, Y],
                         X + np.take_along_axis(Y, ROWS.argsort(1), 1)),
    "scatter_nd": (lambda x, i, u: topi.scatter_nd(x, i, u, "update"),
                   [X, np.array([[0, 0], [1, 1]]), Y[0, :2]],
                   np.where(np.arange(12).reshape(3, 4) == 1, Y[0, 1], X)),
    "sparse_to_dense": (lambda i, v: topi.sparse_to_dense(i, (3, 4), v, 0.5),
                        [np.array([[0, 1], [2, 3]]), Y[0, :2]],
                        np.array([[.5, Y[0, 0], .5, .5], [.5] * 4, [.5, .5, .5, Y[0, 1]]])),
    "unravel_index": (lambda i: topi.unravel_index(i, (3, 4)), [np.arange(12)],
                      np.stack(np.unravel_index(np.arange(12), (3, 4)))),
    "invert_permutation": (topi.invert_permutation, [ROWS[0]], np.argsort(ROWS[0])),
    "argsort": (lambda x: topi.argsort(x, axis=1, dtype="int32"), [X], X.argsort(1)),
    "sort": (lambda x: topi.sort(x, axis=0, is_ascend=0), [X], -np.sort(-X, 0)),
    "topk": (lambda x: topi.topk(x, 2, 1), [X], [-np.sort(-X, 1)[:, :2], (-X).argsort(1)[:, :2]]),
    "searchsorted": (topi.searchsorted, [np.sort(X[0]), Y], np.searchsorted(np.sort(X[0]), Y)),
    "full": (lambda x: [topi.full((2, 2), "int32", 3), topi.full_like(x, 2.0)], [X],
             [np.full((2, 2), 3), np.full_like(X, 2)]),
    "arange": (lambda: topi.arange(1, 8, 2, "int32"), [], np.arange(1, 8, 2)),
    "eye": (lambda: topi.eye(3, 4, 1), [], np.eye(3, 4, 1)),
    "meshgrid": (lambda x, y: topi.meshgrid([x, y], "xy"), [X[0], Y[0, :3]],
                 list(np.meshgrid(X[0], Y[0, :3]))),
    "shape": (lambda x: [topi.shape(x), topi.ndarray_size(x)], [X], [[3, 4], 12]),
    "trilu": (lambda x: topi.trilu(x, 1, True), [X], np.triu(X, 1)),
    "matrix_set_diag": (lambda x, d: topi.matrix_set_diag(x, d, 1), [X, Y[0, :3]],
                        ref.matrix_set_diag(X, Y[0, :3], 1)),
    "matrix_set_diags": (lambda x, d: topi.matrix_set_diag(x, d, (-1, 0)), [X, Y[:2, :3]],
                         ref.matrix_set_diag(X, Y[:2, :3], (-1, 0))),
    "sliding_window": (lambda x: topi.sliding_window(x, 0, (2, 2), (1, 2)), [X],
                       np.lib.stride_tricks.sliding_window_view(X, (2, 2))[:, ::2]),
    "const_vector": (lambda: topi.const_vector(ROWS[0]), [], ROWS[0]),
    "matmul": (lambda a, b: topi.matmul(a, b, True), [X, Y], X.T @ Y),
    "tensordot": (lambda a, b: topi.tensordot(a, b, ((0, 1), (0, 1))), [X, Y], (X * Y).sum()),
    "einsum": (lambda a, b: topi.einsum("ij,kj->ik", a, b), [X, Y], X @ Y.T),
    "elemwise_sum": (lambda a, b: topi.elemwise_sum([a, b, a]), [X, Y], X + Y + X),
    "collapse_sum": (lambda x: topi.collapse_sum(x, (1, 4)), [X], X.sum(0, keepdims=True)),
    "dft": (lambda a, b: topi.dft(a, b, False), [X, Y],
            [np.fft.fft(X + 1j * Y).real, np.fft.fft(X + 1j * Y).imag]),
}  # fmt: skip


def windows(pool, **more):
    shape = {"kernel": (2, 3), "stride": (2, 1), "dilation": (1, 1), "padding": (1, 0, 0, 1)} | more
    return lambda x: topi.nn.pool2d(x, pool_type=pool, **shape)


def pooled(pool, **more):
    return ref.poolnd_python(IMAGE, (2, 3), (2, 1), (1, 1), (1, 0), (0, 1), pool, **more)


def nhwc(x):
    return x.transpose(0, 2, 3, 1)


def convolved(*args, **more):
    return ref.convolved(*args, **more)


LINE, TAPS = real(2, 4, 9), real(6, 2, 3)
CUBE, CUBE_TAPS = real(1, 2, 4, 4, 4), real(2, 2, 2, 2, 2)
BACK = real(4, 2, 3, 3)
GAMMA, BETA = real(4), real(4)

NETWORKS = {
    "conv1d": (lambda x, w: topi.nn.group_conv1d_ncw(x, w, 2, 1, 1, 2), [LINE, TAPS],
               convolved(LINE, TAPS, 2, 1, 2)),
    "conv1d_nwc": (lambda x, w: topi.nn.conv1d_nwc(x, w, 1, "SAME"),
                   [LINE.transpose(0, 2, 1), TAPS.transpose(2, 1, 0)[:, [0, 1, 0, 1]]],
                   convolved(LINE, TAPS[:, [0, 1, 0, 1]], 1, 1).transpose(0, 2, 1)),
    "conv2d_nchw": (lambda x, w: topi.nn.conv2d_nchw(x, w, 2, (1, 0, 1, 2), 1), [IMAGE, KERNEL],
                    convolved(IMAGE, KERNEL, 2, (1, 0, 1, 2))),
    "conv2d_nhwc": (lambda x, w: topi.nn.conv2d_nhwc(x, w, 1, 2, 2),
                    [nhwc(IMAGE), KERNEL.transpose(2, 3, 1, 0)],
                    nhwc(convolved(IMAGE, KERNEL, 1, 2, 1, 2))),
    "conv2d_hwcn": (lambda x, w: topi.nn.conv2d_hwcn(x, w, 1, 1, 1),
                    [IMAGE.transpose(2, 3, 1, 0), KERNEL.transpose(2, 3, 1, 0)],
                    convolved(IMAGE, KERNEL, 1, 1).transpose(2, 3, 1, 0)),
    "conv2d": (lambda x, w: topi.nn.conv2d(x, w, 1, "VALID", 1, data_layout="NCHW"),
               [IMAGE, KERNEL], convolved(IMAGE, KERNEL, 1, 0)),
    "conv2d_winograd_nchw": (lambda x, w: topi.nn.conv2d_winograd_nchw(x, w, 1, 1, 1, "float32"),
                             [IMAGE, KERNEL], convolved(IMAGE, KERNEL, 1, 1)),
    "group_conv2d_nchw": (lambda x, w: topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 2),
                          [IMAGE, KERNEL[:, :2]], convolved(IMAGE, KERNEL[:, :2], 1, 1, 2)),
    "conv2d_NCHWc": (
        lambda x, w: topi.nn.conv2d_NCHWc(x, w, 1, 1, 1, "NCHW2c", "NCHW2c"),
        [IMAGE.reshape(1, 2, 2, 6, 6).transpose(0, 1, 3, 4, 2),
         KERNEL.reshape(2, 2, 2, 2, 3, 3).transpose(0, 2, 4, 5, 3, 1)],
        convolved(IMAGE, KERNEL, 1, 1).reshape(1, 2, 2, 6, 6).transpose(0, 1, 3, 4, 2),
    ),
    "conv3d_ncdhw": (lambda x, w: topi.nn.conv3d_ncdhw(x, w, 1, 1, 1, 1), [CUBE, CUBE_TAPS],
                     convolved(CUBE, CUBE_TAPS, 1, 1)),
    "conv3d_ndhwc": (lambda x, w: topi.nn.conv3d_ndhwc(x, w, 1, 0, 1, 1),
                     [CUBE.transpose(0, 2, 3, 4, 1), CUBE_TAPS.transpose(2, 3, 4, 1, 0)],
                     convolved(CUBE, CUBE_TAPS, 1, 0).transpose(0, 2, 3, 4, 1)),
    "depthwise_conv2d_nchw": (lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1),
                              [IMAGE, KERNEL[:, :2]],
                              ref.depthwise_conv2d_python_nchw(IMAGE, KERNEL[:, :2], 1, 1)),
    "depthwise_conv2d_nhwc": (lambda x, w: topi.nn.depthwise_conv2d_nhwc(x, w, 2, 1, 1),
                              [nhwc(IMAGE), KERNEL[:, :2].transpose(2, 3, 0, 1)],
                              nhwc(ref.depthwise_conv2d_python_nchw(IMAGE, KERNEL[:, :2], 2, 1))),
    "conv1d_transpose_ncw": (
        lambda x, w: topi.nn.conv1d_transpose_ncw(x, w, (2,), (1, 1), "float32", (1,)),
        [LINE, TAPS[:4]], ref.conv_transpose_python(LINE, TAPS[:4], 2, 1, 1)),
    "conv2d_transpose_nchw": (
        lambda x, w: topi.nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1), "float32", (0, 1)),
        [IMAGE, BACK], ref.conv_transpose_python(IMAGE, BACK, 2, 1, (0, 1))),
    "group_conv2d_transpose_nchw": (
        lambda x, w: topi.nn.group_conv2d_transpose_nchw(x, w, (1, 1), 0, "float32", (0, 0), 2),
        [IMAGE, BACK], ref.conv_transpose_python(IMAGE, BACK, 1, 0, 0, 2)),
    "conv3d_transpose_ncdhw": (
        lambda x, w: topi.nn.conv3d_transpose_ncdhw(x, w, 1, 0, "float32", 0),
        [CUBE, CUBE_TAPS], ref.conv_transpose_python(CUBE, CUBE_TAPS, 1, 0)),
    "dense": (lambda a, b, c: topi.nn.dense(a, b, c), [X, Y, real(3)], None),
    "nn.matmul": (lambda a, b: topi.nn.matmul(a, b, transpose_a=True), [X, Y], X.T @ Y),
    "batch_matmul": (topi.nn.batch_matmul, [X[None], real(2, 5, 4)], None),
    "sparse_dense": (
        lambda x, d, i, p: topi.nn.sparse_dense(x, d, i, p),
        [X, Y[0, :3], np.array([1, 3, 0], "int32"), np.array([0, 2, 3], "int32")],
        X @ np.array([[0, Y[0, 0], 0, Y[0, 1]], [Y[0, 2], 0, 0, 0]]).T),
    "pool max": (windows("max"), [IMAGE], pooled("max")),
    "pool avg": (windows("avg"), [IMAGE], pooled("avg")),
    "pool avg inside": (windows("avg", count_include_pad=False), [IMAGE],
                        pooled("avg", count_include_pad=False)),
    "pool ceil": (windows("max", ceil_mode=True), [IMAGE], pooled("max", ceil_mode=True)),
    "pool1d": (lambda x: topi.nn.pool1d(x, [2], [2], [1], [0, 1], "max"), [LINE],
               ref.poolnd_python(LINE, [2], [2], [1], [0], [1], "max", layout="NCW")),
    "pool3d": (lambda x: topi.nn.pool3d(x, 2, 2, 1, 0, "avg", layout="NDHWC"),
               [CUBE.transpose(0, 2, 3, 4, 1)],
               CUBE.reshape(1, 2, 2, 2, 2, 2, 2, 2).mean((3, 5, 7)).transpose(0, 2, 3, 4, 1)),
    "global_pool": (lambda x: topi.nn.global_pool(x, "avg"), [IMAGE],
                    IMAGE.mean((2, 3), keepdims=True)),
    "adaptive_pool": (lambda x: topi.nn.adaptive_pool(x, (4, 5), "avg"), [IMAGE],
                      ref.adaptive_pool(IMAGE, (4, 5), "avg", "NCHW")),
    "batch_norm": (lambda x, g, b, m, v: topi.nn.batch_norm(x, g, b, m, v)[0],
                   [IMAGE, GAMMA, BETA, BETA, GAMMA],
                   ref.batch_norm(
                       IMAGE, GAMMA, BETA, BETA, GAMMA, 1, 1e-5, True, True, False, 0)[0]),
    "batch_norm training": (
        lambda x, g, b, m, v: topi.nn.batch_norm(x, g, b, m, v, 1, training=True, momentum=0.2),
        [IMAGE, GAMMA, BETA, BETA, GAMMA],
        ref.batch_norm(IMAGE, GAMMA, BETA, BETA, GAMMA, 1, 1e-5, True, True, True, 0.2)),
    "layer_norm": (lambda x, g, b: topi.nn.layer_norm(x, g, b, [-1]), [X, GAMMA, BETA],
                   ref.layer_norm_python(X, GAMMA, BETA, (-1,))),
    "rms_norm": (lambda x, g: topi.nn.rms_norm(x, g, [1]), [X, GAMMA],
                 ref.rms_norm_python(X, GAMMA, (1,))),
    "instance_norm": (lambda x, g, b: topi.nn.instance_norm(x, g, b, [2, 3]), [IMAGE, GAMMA, BETA],
                      ref.instance_norm_python(IMAGE, GAMMA, BETA, (2, 3))),
    "group_norm": (lambda x, g, b: topi.nn.group_norm(x, g, b, 2, 1, [2, 3]), [IMAGE, GAMMA, BETA],
                   ref.group_norm_python(IMAGE, GAMMA, BETA, 2, 1, (2, 3))),
    "softmax": (lambda x: topi.nn.softmax(x, 0), [X], ref.softmax_python(X, 0)),
    "log_softmax": (topi.nn.log_softmax, [X], ref.log_softmax_python(X)),
    "lrn": (lambda x: topi.nn.lrn(x, 3, 1, 0.1, 0.5, 1), [IMAGE],
            ref.lrn_python(IMAGE, 3, 1, 1, 0.1, 0.5)),
    "relu": (topi.nn.relu, [X - 0.5], np.maximum(X - np.float32(0.5), 0)),
    "leaky_relu": (lambda x: topi.nn.leaky_relu(x, 0.1), [X - 0.5],
                   np.where(X > 0.5, X - 0.5, (X - 0.5) * 0.1)),
    "prelu": (topi.nn.prelu, [X - 0.5, BETA], np.where(X > 0.5, X - 0.5, (X - 0.5) * BETA)),
    "bias_add": (topi.nn.bias_add, [X, BETA], X + BETA),
    "scale_shift_nhwc": (topi.nn.scale_shift_nhwc, [nhwc(IMAGE), GAMMA, BETA],
                         nhwc(IMAGE) * GAMMA + BETA),
    "pad": (lambda x: topi.nn.pad(x, (1, 0), (0, 2), 5.0), [X],
            np.pad(X, [(1, 0), (0, 2)], constant_values=5)),
    "mirror_pad": (lambda x: topi.nn.mirror_pad(x, (1, 1), (2, 0)), [X],
                   np.pad(X, [(1, 2), (1, 0)], "symmetric")),
    "dilate": (lambda x: topi.nn.dilate(x, (2, 3), 1.0), [X], ref.dilate_python(X, (2, 3), 1)),
    "flatten": (topi.nn.flatten, [IMAGE], IMAGE.reshape(1, -1)),
    "depth_to_space": (lambda x: topi.nn.depth_to_space(x, 2, mode="CRD"), [IMAGE],
                       ref.depth_to_space_python(IMAGE, 2, "CRD")),
    "space_to_depth": (lambda x: topi.nn.space_to_depth(x, 2), [IMAGE],
                       ref.space_to_depth_python(IMAGE, 2)),
    "space_to_batch_nd": (lambda x: topi.nn.space_to_batch_nd(x, [2, 3], [0, 1], [1, 1]),
                          [X[None]], ref.space_to_batch_nd_python(X[None], [2, 3], [0, 1], [1, 1])),
    "batch_to_space_nd": (lambda x: topi.nn.batch_to_space_nd(x, [2, 2], [0, 1], [1, 0]),
                          [real(4, 3, 3)], None),
    "fifo_buffer": (lambda x, b: topi.nn.fifo_buffer(x, b, 1), [X[:, :1], Y],
                    np.concatenate([Y[:, 1:], X[:, :1]], 1)),
    "nll_loss": (lambda p, t, w: topi.nn.nll_loss(p, t, w, "mean", -100),
                 [X, np.array([1, 0, 3], "int32"), GAMMA],
                 -(X[[0, 1, 2], [1, 0, 3]] * GAMMA[[1, 0, 3]]).sum() / GAMMA[[1, 0, 3]].sum()),
    "upsampling": (lambda x: topi.nn.upsampling(x, 2, 2), [IMAGE],
                   IMAGE.repeat(2, 2).repeat(2, 3)),
    "resize2d linear": (
        lambda x: topi.image.resize2d(x, None, (3, 3), coordinate_transformation_mode="half_pixel"),
        [IMAGE], IMAGE.reshape(1, 4, 3, 2, 3, 2).mean((3, 5))),
    "resize1d nearest": (
        lambda x: topi.image.resize1d(x, None, (3,), method="nearest_neighbor",
                                      coordinate_transformation_mode="asymmetric"),
        [LINE], LINE[:, :, ::3]),
    "resize2d cubic": (
        lambda x: topi.image.resize2d(x, None, (6, 6), method="cubic"), [IMAGE], IMAGE),
    "affine_grid then grid_sample": (
        lambda x, m: topi.image.grid_sample(x, topi.image.affine_grid(m, (6, 6))),
        [IMAGE, np.array([[[1, 0, 0], [0, 1, 0]]], "float32")], IMAGE),
    "crop_and_resize": (
        lambda x, b, i: topi.image.crop_and_resize(x, b, i, (6, 6)),
        [IMAGE, np.array([[0, 0, 1, 1]], "float32"), np.zeros(1, "int32")], IMAGE),
    "dilation2d_nchw": (lambda x, w: topi.image.dilation2d_nchw(x, w, 1, 0, 1),
                        [IMAGE, np.zeros((4, 2, 2), "float32")],
                        np.lib.stride_tricks.sliding_window_view(
                            IMAGE, (2, 2), (2, 3)).max((4, 5))),
}  # fmt: skip


def _late(name, arrays):
    """What is easier to say with the arrays at hand."""
    if name == "dense":
        return arrays[0] @ arrays[1].T + arrays[2]
    if name == "batch_matmul":
        return np.matmul(arrays[0], arrays[1].transpose(0, 2, 1))
    return ref.batch_to_space_nd_python(arrays[0], [2, 2], [0, 1], [1, 0])


@pytest.mark.parametrize("name", [*OPERATORS, *NETWORKS])
def test_an_operator(name):
    function, arrays, expected = (OPERATORS | NETWORKS)[name]
    if expected is None:
        expected = _late(name, arrays)
    check(function, arrays, expected)


def test_a_schedule_by_name_takes_the_target_of_the_context():
    found = run(
        lambda x, w: topi.nn.relu(topi.nn.conv2d_nchw(x, w, 1, 1, 1)), [IMAGE, KERNEL], "sim"
    )
    np.testing.assert_allclose(found[0], ref.conv2d_nchw_python(IMAGE, KERNEL, 1, 1), rtol=1e-4)
    for kind in (topi.x86, topi.cuda, topi.mali):
        assert kind.schedule_conv2d_nchw is topi.generic.schedule_injective


def test_operators_of_expressions_are_expressions():
    x = te.var("x", "float32")
    assert repr(topi.add(x, 1.0)) == repr(x + 1.0)
    assert repr(topi.exp(x)) == repr(te.exp(x))


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda x: topi.split(x, 5, 1), "do not split into 5"),
        (lambda x: topi.einsum("ij,jk", x), "does not say the axes"),
        (lambda x: topi.nn.pool2d(x, 2, 2, 1, 0, "sum", layout="HW"), "'max' or 'avg'"),
        (lambda x: topi.image.resize1d(x, None, (3,), "NW", method="spline"), "no method 'spline'"),
        (lambda x: topi.scatter_nd(x, x, x, "div"), "none of update"),
        (lambda x: topi.nn.conv2d(x, x, 1, 1, 1, "NCXY"), "letters NCHW, as 'NCHW'"),
        (lambda x: topi.nn.pool2d(x, 2, 2, 1, 0, "max", layout="XY"), "no layout 'XY'"),
        (lambda x: topi.layout_transform(x, "HW", "WC"), "have other dimensions"),
        (lambda x: topi.nn.softmax(x, "x"), "an axis is an integer"),
        (lambda x: topi.nn.conv2d_nchw(x), "needs Filter"),
        (lambda x: topi.nn.scale_shift_nhwc(x, 3, 3), "does not take .Tensor.x, shape"),
    ],
)
def test_what_an_operator_cannot_do_is_said(use, said):
    with pytest.raises(LanguageError, match=said):
        use(te.placeholder((3, 4), name="x"))


@pytest.mark.parametrize(
    ("begin", "end", "strides", "axes"),
    [
        ([2], [6], [1], [1]),
        ([1, 2], [3, 6], [], None),
        ([0, 2], [2**31 - 1, 6], [2, 2], None),
        ([-2, 2], [2**31 - 1, 6], [1, 1], None),
        ([2**31 - 1, 2], [0, 6], [-1, 1], None),
        ([-1, 7], [-4, 0], [-2, -3], None),
        ([3], [100], [3], [0]),
        ([None, 1], [None, -1], [-1, 1], None),
    ],
)
def test_slices_of_symbolic_shapes_are_those_of_numpy(begin, end, strides, axes):
    n = te.var("n")
    A = te.placeholder((n, 8), name="A")
    B = topi.strided_slice(A, begin, end, strides, axes)
    func = tvm.build(te.create_schedule(B.op), [A, B], "llvm")
    parts = [slice(None)] * 2
    for d, part in zip(
        axes or (0, 1), zip(begin, end, strides or (1, 1), strict=False), strict=False
    ):
        parts[d] = slice(*part)
    for rows in (10, 3, 1):
        x = np.arange(8.0 * rows, dtype="float32").reshape(rows, 8)
        expected = x[tuple(parts)]
        out = tvm.nd.array(np.full(expected.shape, 77, "float32"))
        func(tvm.nd.array(x), out)
        np.testing.assert_array_equal(out.numpy(), expected)


def test_nan_is_the_largest_in_order_and_comes_first_of_extremes():
    nan = np.float32("nan")
    x = np.array([[1, nan, 3, nan], [0, -1, 2, -np.inf]], "float32")
    check(lambda x: [topi.sort(x, 1), topi.argsort(x, None, 1)], [x],
          [np.sort(x, 1), np.argsort(x, 1, "stable")])  # fmt: skip
    check(lambda x: topi.sort(x, 1, 0), [x], np.array([[nan, nan, 3, 1], [2, 0, -1, -np.inf]]))
    check(lambda x: [topi.argmax(x, 1), topi.argmin(x, 1)], [x], [x.argmax(1), x.argmin(1)])
