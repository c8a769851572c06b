"""Programs as TVM's users write them, under TVM's names, against NumPy.

On llvm they are as a tutorial for the CPU has them; on sim and OpenCL their axes are bound.
"""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import tvm
from tilewright.target.instructions import dot, dp4a
from tilewright.tvm import te, tir, topi

pytestmark = pytest.mark.usefixtures("plain_code")

OPENCL = pytest.param("opencl", marks=pytest.mark.needs_opencl)
GPUS = pytest.mark.parametrize("target", ["sim", OPENCL])
CPU_AND_SIM = pytest.mark.parametrize("target", ["llvm", "sim"])
EVERYWHERE = pytest.mark.parametrize("target", ["llvm", "sim", OPENCL])

rng = np.random.default_rng(0)


def reals(*shape):
    return rng.uniform(-1, 1, shape).astype("float32")


def block(dim="x", extent=None):
    return te.thread_axis(None if extent is None else (0, extent), f"blockIdx.{dim}")


def thread(dim="x", extent=None):
    return te.thread_axis(None if extent is None else (0, extent), f"threadIdx.{dim}")


def check(s, args, target, inputs, *expected, tolerance=1e-5):
    """Build for a target, run on arrays of its device, and compare every output."""
    target = tvm.target.Target(target, host="llvm")
    dev = tvm.device(target.kind.name, 0)
    func = tvm.build(s, args, target=target, name="program")
    outs = [tvm.nd.array(np.full(e.shape, 77, e.dtype), dev) for e in expected]
    func(*(tvm.nd.array(x, dev) for x in inputs), *outs)
    for out, e in zip(outs, expected, strict=True):
        tvm.testing.assert_allclose(out.numpy(), e, rtol=tolerance, atol=tolerance)


def over_threads(s, tensor, factor=32):
    """All axes of a stage over blocks of ``factor`` threads; the axis of the threads."""
    bx, tx = s[tensor].split(s[tensor].fuse(*s[tensor].op.axis), factor=factor)
    s[tensor].bind(bx, block())
    s[tensor].bind(tx, thread())
    return tx


# -- elementwise -------------------------------------------------------------------------------


@EVERYWHERE
def test_vectors_of_any_length_are_added(target):
    n = te.size_var("n")
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    if target == "llvm":
        outer, inner = s[C].split(C.op.axis[0], factor=32)
        s[C].parallel(outer)
        s[C].vectorize(inner)
    else:
        over_threads(s, C, 64)
    a, b = reals(1025), reals(1025)
    check(s, [A, B, C], target, [a, b], a + b)


def test_functions_under_their_names_of_tvm():
    A, B = te.placeholder((50,), name="A"), te.placeholder((50,), name="B")
    C = te.compute((50,), lambda i: tir.atan2(A[i], B[i]) + tir.hypot(A[i], B[i]), name="C")
    D = te.compute((50,), lambda i: te.asinh(A[i]) + te.atanh(B[i] * 0.5), name="D")
    E = te.compute((50,), lambda i: te.acosh(te.abs(A[i]) + 1.5), name="E")
    F = te.compute(
        (50,),
        lambda i: (
            tir.call_intrin("float32", "tir.exp", A[i])
            + tir.call_pure_extern("float32", "cosf", B[i])
        ),
        name="F",
    )
    G = te.compute(
        (50,),
        lambda i: tir.Select(tir.isfinite(A[i] / tir.max(B[i], 0.0)), te.const(1, "int32"), 0),
        name="G",
    )
    a, b = reals(50), reals(50)
    with np.errstate(divide="ignore"):
        finite = np.isfinite(a / np.maximum(b, 0)).astype("int32")
    check(
        te.create_schedule([t.op for t in (C, D, E, F, G)]),
        [A, B, C, D, E, F, G],
        "llvm",
        [a, b],
        np.arctan2(a, b) + np.hypot(a, b),
        np.arcsinh(a) + np.arctanh(b * np.float32(0.5)),
        np.arccosh(np.abs(a) + np.float32(1.5)),
        np.exp(a) + np.cos(b),
        finite,
    )


@CPU_AND_SIM
def test_rows_of_a_table_by_their_number(target):
    table, rows = te.placeholder((50, 16), name="table"), te.placeholder((12,), "int64", "rows")
    out = te.compute(
        (12, 16), lambda i, j: table[tir.min(tir.max(rows[i], 0), 49), j], name="embedding"
    )
    s = te.create_schedule(out.op)
    if target != "llvm":
        over_threads(s, out)
    t, r = reals(50, 16), rng.integers(0, 50, 12)
    check(s, [table, rows, out], target, [t, r], t[r])


@GPUS
def test_a_transpose_through_padded_shared_memory(target):
    A = te.placeholder((70, 50), name="A")
    B = te.compute((50, 70), lambda i, j: A[j, i], name="B")
    s = te.create_schedule(B.op)
    shared = s.cache_read(A, "shared", [B])
    by, bx, ty, tx = s[B].tile(*B.op.axis, x_factor=16, y_factor=16)
    threads = thread("y", 16), thread("x", 16)
    for axis, at in zip((by, bx, ty, tx), (block("y"), block("x"), *threads), strict=True):
        s[B].bind(axis, at)
    s[shared].compute_at(s[B], bx)
    for axis, at in zip(s[shared].op.axis, threads, strict=True):
        s[shared].bind(axis, at)
    s[shared].storage_align(s[shared].op.axis[0], 16, 1)
    a = reals(70, 50)
    check(s, [A, B], target, [a], np.ascontiguousarray(a.T))


# -- reductions --------------------------------------------------------------------------------


@GPUS
@pytest.mark.parametrize("by", ["thread", "axis"])
def test_a_sum_across_threads_is_stored_once(target, by):
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    xo, xi = s[B].split(s[B].op.axis[0], factor=32)
    s[B].bind(xo, block())
    s[B].bind(xi, thread("y"))
    tx, (last,) = thread(), s[B].op.reduce_axis
    s[B].bind(last, tx)
    s[BF].compute_at(s[B], last)
    s[B].set_store_predicate((tx if by == "thread" else last).var.equal(0))
    a = reals(100, 77)
    check(s, [A, B], target, [a], a.sum(1))


@EVERYWHERE
def test_the_place_of_the_largest_by_a_reducer_of_tuples(target):
    argmax = te.comm_reducer(
        lambda x, y: (
            tir.Select(x[1] >= y[1], x[0], y[0]),
            tir.Select(x[1] >= y[1], x[1], y[1]),
        ),
        lambda t0, t1: (tir.const(-1, dtype=t0), te.min_value(t1)),
        name="argmax",
    )
    at, value = te.placeholder((8, 70), "int32", "at"), te.placeholder((8, 70), name="value")
    k = te.reduce_axis((0, 70), name="k")
    T0, T1 = te.compute((8,), lambda i: argmax((at[i, k], value[i, k]), axis=k), name="T")
    s = te.create_schedule(T0.op)
    _, ki = s[T0].split(k, factor=16)
    F0, _ = s.rfactor(T0, ki)
    if target != "llvm":
        s[T0].bind(s[T0].op.axis[0], block())
        s[T0].bind(s[T0].op.reduce_axis[0], thread())
        s[F0.op].compute_at(s[T0], s[T0].op.reduce_axis[0])
    v = reals(8, 70)
    places = np.tile(np.arange(70, dtype="int32"), (8, 1))
    check(s, [at, value, T0, T1], target, [places, v], v.argmax(1).astype("int32"), v.max(1))


@EVERYWHERE
def test_a_layer_norm(target):
    m, n = 6, 40
    x = te.placeholder((m, n), name="x")
    g, b = te.placeholder((n,), name="g"), te.placeholder((n,), name="b")
    k1, k2 = te.reduce_axis((0, n), name="k1"), te.reduce_axis((0, n), name="k2")
    mean = te.compute((m,), lambda i: te.sum(x[i, k1] / n, axis=k1), name="mean")
    var = te.compute(
        (m,), lambda i: te.sum(te.power(x[i, k2] - mean[i], 2.0) / n, axis=k2), name="var"
    )
    y = te.compute(
        (m, n), lambda i, j: (x[i, j] - mean[i]) * te.rsqrt(var[i] + 1e-5) * g[j] + b[j], name="y"
    )
    s = te.create_schedule(y.op)
    row, column = y.op.axis
    if target == "llvm":
        s[y].parallel(row)
    else:
        s[y].bind(row, block())
        s[y].bind(column, thread())
    for stage in (s[mean], s[var]):
        if target != "llvm":
            stage.set_scope("shared")
        stage.compute_at(s[y], row)
    a, scale, shift = reals(m, n), reals(n), reals(n)
    normal = (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5)
    check(s, [x, g, b, y], target, [a, scale, shift], normal * scale + shift, tolerance=1e-4)


@CPU_AND_SIM
def test_ranks_as_rows_of_zeros_and_a_one(target):
    n = 12
    A = te.placeholder((n,), "int32", name="A")
    k = te.reduce_axis((0, n), name="k")
    rank = te.compute(
        (n,),
        lambda i: te.sum(
            tir.Select(tir.any(A[k] < A[i], tir.all(A[k].equal(A[i]), k < i)), 1, 0), axis=k
        ),
        name="rank",
    )
    hot = te.compute(
        (n, n), lambda i, j: tir.Select(rank[i].equal(j), tir.const(1.0), tir.const(0.0)), "hot"
    )
    s = te.create_schedule(hot.op)
    s[rank].compute_at(s[hot], hot.op.axis[0])
    if target != "llvm":
        s[rank].set_scope("local")
        s[hot].bind(hot.op.axis[0], thread())
    a = rng.integers(0, 5, n).astype("int32")
    order = np.argsort(np.argsort(a, kind="stable"), kind="stable")
    check(s, [A, hot], target, [a], np.eye(n, dtype="float32")[order])


# -- products of matrices ----------------------------------------------------------------------


@GPUS
def test_a_product_with_shared_tiles_in_two_buffers_and_virtual_threads(target):
    M = N = 64
    K, nt = 32, 4
    A, B = te.placeholder((K, M), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[k, i] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    AA, BB = s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])
    AL, BL = s.cache_read(AA, "local", [C]), s.cache_read(BB, "local", [C])
    CC = s.cache_write(C, "local")
    tx, ty = thread("x", nt), thread("y", nt)
    by, yi = s[C].split(C.op.axis[0], factor=16)
    bx, xi = s[C].split(C.op.axis[1], factor=16)
    vy, yi = s[C].split(yi, nparts=2)
    y, yi = s[C].split(yi, nparts=nt)
    vx, xi = s[C].split(xi, nparts=2)
    x, xi = s[C].split(xi, nparts=nt)
    s[C].reorder(by, bx, vy, vx, y, x, yi, xi)
    s[C].bind(by, block("y"))
    s[C].bind(bx, block("x"))
    s[C].bind(vy, te.thread_axis((0, 2), "vthread", name="vy"))
    s[C].bind(vx, te.thread_axis((0, 2), "vthread", name="vx"))
    s[C].bind(y, ty)
    s[C].bind(x, tx)
    s[CC].compute_at(s[C], x)
    yo, xo = CC.op.axis
    ko, ki = s[CC].split(k, factor=8)
    s[CC].reorder(ko, ki, yo, xo)
    for local in (AL, BL):
        s[local].compute_at(s[CC], ki)
    for shared in (AA, BB):
        s[shared].compute_at(s[CC], ko)
        row, _ = s[shared].split(s[shared].op.axis[0], nparts=nt)
        _, column = s[shared].split(s[shared].op.axis[1], factor=nt * 4)
        column, lane = s[shared].split(column, nparts=nt)
        s[shared].bind(row, ty)
        s[shared].bind(column, tx)
        s[shared].vectorize(lane)
        s[shared].double_buffer()
    a, b = reals(K, M), reals(K, N)
    check(s, [A, B, C], target, [a, b], a.T @ b)


@CPU_AND_SIM
def test_products_of_bytes_by_a_declared_instruction(target):
    M, N, K = 8, 16, 32
    A, B = te.placeholder((M, K), "int8", "A"), te.placeholder((N, K), "int8", "B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute(
        (M, N),
        lambda i, j: te.sum(A[i, k].astype("int32") * B[j, k].astype("int32"), axis=k),
        name="C",
    )
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(i, j, ko, ki)
    s[C].tensorize(ki, dp4a)
    if target != "llvm":
        s[C].bind(i, block())
        s[C].bind(j, thread())
    a, b = (rng.integers(-128, 128, (n, K)).astype("int8") for n in (M, N))
    check(s, [A, B, C], target, [a, b], a.astype("int32") @ b.astype("int32").T)


def test_a_matrix_times_vectors_by_a_micro_kernel():
    N, M, L = 32, 16, 64
    A, B = te.placeholder((N, L), name="A"), te.placeholder((M, L), name="B")
    k = te.reduce_axis((0, L), name="k")
    C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    (z,) = C.op.reduce_axis
    yo, yi = s[C].split(y, factor=16)
    zo, zi = s[C].split(z, factor=16)
    s[C].reorder(x, yo, yi, zo, zi)
    s[C].tensorize(zi, dot(16))
    a, b = reals(N, L), reals(M, L)
    check(s, [A, B, C], "llvm", [a, b], a @ b.T)


@CPU_AND_SIM
def test_a_step_of_a_recurrence(target):
    N, H = 4, 32
    x, h = te.placeholder((N, H), name="x"), te.placeholder((N, H), name="h")
    Wx, Wh = te.placeholder((H, H), name="Wx"), te.placeholder((H, H), name="Wh")
    k1, k2 = te.reduce_axis((0, H), name="k1"), te.reduce_axis((0, H), name="k2")
    of_input = te.compute((N, H), lambda b, i: te.sum(x[b, k1] * Wx[i, k1], axis=k1), "of_input")
    of_state = te.compute((N, H), lambda b, i: te.sum(h[b, k2] * Wh[i, k2], axis=k2), "of_state")
    new = te.compute(of_input.shape, lambda *i: te.tanh(of_input(*i) + of_state(*i)), "new")
    s = te.create_schedule(new.op)
    b, i = new.op.axis
    if target != "llvm":
        s[new].bind(b, block())
        s[new].bind(i, thread())
        s[of_input].set_scope("local")
        s[of_state].set_scope("local")
    s[of_input].compute_at(s[new], i)
    s[of_state].compute_at(s[new], i)
    arrays = [reals(N, H), reals(N, H), reals(H, H), reals(H, H)]
    xs, hs, wx, wh = arrays
    check(s, [x, h, Wx, Wh, new], target, arrays, np.tanh(xs @ wx.T + hs @ wh.T))


# -- convolutions ------------------------------------------------------------------------------


def convolved(x, w, stride=1, dilation=1):
    """NumPy's convolution of NCHW and OIHW, without padding."""
    taps = w.shape[2]
    windows = np.lib.stride_tricks.sliding_window_view(x, (dilation * (taps - 1) + 1,) * 2, (2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    return np.einsum("ncijab,fcab->nfij", windows, w).astype("float32")


@CPU_AND_SIM
def test_a_transposed_convolution(target):
    C, H, F, taps, stride = 3, 5, 4, 3, 2
    x, w = te.placeholder((1, C, H, H), name="x"), te.placeholder((C, F, taps, taps), name="w")
    wide, border = (H - 1) * stride + 1, taps - 1
    dilated = te.compute(
        (1, C, wide, wide),
        lambda n, c, i, j: tir.if_then_else(
            tir.all(tir.indexmod(i, stride).equal(0), tir.indexmod(j, stride).equal(0)),
            x[n, c, tir.indexdiv(i, stride), tir.indexdiv(j, stride)],
            tir.const(0.0, x.dtype),
        ),
        name="dilated",
    )
    padded = topi.nn.pad(dilated, (0, 0, border, border), name="padded")
    rc = te.reduce_axis((0, C), name="rc")
    a, b = te.reduce_axis((0, taps), name="a"), te.reduce_axis((0, taps), name="b")
    size = wide + border
    out = te.compute(
        (1, F, size, size),
        lambda n, f, i, j: te.sum(
            padded[n, rc, i + a, j + b] * w[rc, f, taps - 1 - a, taps - 1 - b], axis=[rc, a, b]
        ),
        name="out",
    )
    s = te.create_schedule(out.op)
    te.schedule.AutoInlineInjective(s)
    if target == "llvm":
        s[out].vectorize(out.op.axis[3])
    else:
        over_threads(s, out)
    image, filters = reals(1, C, H, H), reals(C, F, taps, taps)
    expected = np.zeros((1, F, size, size), "float32")
    for i in range(H):
        for j in range(H):
            at = np.s_[:, :, i * stride : i * stride + taps, j * stride : j * stride + taps]
            expected[at] += np.einsum("nc,cfab->nfab", image[:, :, i, j], filters)
    check(s, [x, w, out], target, [image, filters], expected)


@GPUS
def test_a_blur_from_shared_memory_with_its_border(target):
    H, W = 30, 45
    A = te.placeholder((H, W), name="A")
    di, dj = te.reduce_axis((0, 3), name="di"), te.reduce_axis((0, 3), name="dj")
    padded = topi.nn.pad(A, (1, 1), name="padded")
    B = te.compute((H, W), lambda i, j: te.sum(padded[i + di, j + dj], axis=[di, dj]), name="B")
    s = te.create_schedule(B.op)
    s[padded].compute_inline()
    shared = s.cache_read(padded, "shared", [B])
    by, bx, ty, tx = s[B].tile(*B.op.axis, x_factor=8, y_factor=16)
    threads = thread("y", 8), thread("x", 16)
    for axis, at in zip((by, bx, ty, tx), (block("y"), block("x"), *threads), strict=True):
        s[B].bind(axis, at)
    s[shared].compute_at(s[B], bx)
    rest, x = s[shared].split(s[shared].fuse(*s[shared].op.axis), factor=16)
    _, y = s[shared].split(rest, factor=8)
    s[shared].bind(y, threads[0])
    s[shared].bind(x, threads[1])
    a = reals(H, W)
    expected = convolved(np.pad(a, 1)[None, None], np.ones((1, 1, 3, 3)))[0, 0]
    check(s, [A, B], target, [a], expected)


def test_a_convolution_in_blocks_of_channels():
    C, F, H, c = 8, 8, 6, 4
    x, w = te.placeholder((1, C, H, H), name="x"), te.placeholder((F, C, 3, 3), name="w")
    xp = te.compute((1, C // c, H, H, c), lambda n, o, i, j, q: x[n, o * c + q, i, j], name="xp")
    wp = te.compute(
        (F // c, C // c, 3, 3, c, c),
        lambda f, o, a, b, q, g: w[f * c + g, o * c + q, a, b],
        name="wp",
    )
    k = te.reduce_axis((0, C), name="k")
    a, b = te.reduce_axis((0, 3), name="a"), te.reduce_axis((0, 3), name="b")
    blocks = te.compute(
        (1, F // c, H - 2, H - 2, c),
        lambda n, f, i, j, g: te.sum(
            xp[n, tir.indexdiv(k, c), i + a, j + b, tir.indexmod(k, c)]
            * wp[f, tir.indexdiv(k, c), a, b, tir.indexmod(k, c), g],
            axis=[k, a, b],
        ),
        name="blocks",
    )
    out = te.compute(
        (1, F, H - 2, H - 2), lambda n, f, i, j: blocks[n, f // c, i, j, f % c], name="out"
    )
    s = te.create_schedule(out.op)
    n, f, i, j, g = s[blocks].op.axis
    ko, ki = s[blocks].split(k, factor=c)
    s[blocks].reorder(n, f, i, ko, a, b, ki, j, g)
    s[blocks].vectorize(g)
    s[blocks].parallel(s[blocks].fuse(n, f, i))
    image, filters = reals(1, C, H, H), reals(F, C, 3, 3)
    check(s, [x, w, out], "llvm", [image, filters], convolved(image, filters))


def test_a_convolution_by_winograds_transforms():
    C, F, H = 4, 6, 8
    half = H // 2

    def matrix(rows, name):
        """A constant matrix as a chain of selects, which unrolled loops choose from."""
        values = np.array(rows, "float32")

        def element(i, j):
            now = tir.const(0.0, "float32")
            for (row, column), value in np.ndenumerate(values):
                here = tir.all(i.equal(row), j.equal(column))
                now = tir.Select(here, tir.const(float(value), "float32"), now)
            return now

        return te.compute(values.shape, element, name=name, attrs={"const_matrix": True})

    g = matrix([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], "g")
    b = matrix([[1, 0, 0, 0], [0, 1, -1, 1], [-1, 1, 1, 0], [0, 0, 0, -1]], "b")
    a = matrix([[1, 0], [1, 1], [1, -1], [0, -1]], "a")
    x, w = te.placeholder((1, C, H, H), name="x"), te.placeholder((F, C, 3, 3), name="w")
    padded = topi.nn.pad(x, (0, 0, 1, 1), name="padded")
    r, t = te.reduce_axis((0, 3), name="r"), te.reduce_axis((0, 3), name="t")
    U = te.compute(
        (4, 4, F, C),
        lambda e, n, f, c: te.sum(w[f, c, r, t] * g[e, r] * g[n, t], axis=[r, t]),
        name="U",
    )
    tiles = te.compute(
        (C, half * half, 4, 4),
        lambda c, p, e, n: padded[0, c, p // half * 2 + e, p % half * 2 + n],
        name="tiles",
    )
    r1, t1 = te.reduce_axis((0, 4), name="r1"), te.reduce_axis((0, 4), name="t1")
    V = te.compute(
        (4, 4, C, half * half),
        lambda e, n, c, p: te.sum(tiles[c, p, r1, t1] * b[r1, e] * b[t1, n], axis=[r1, t1]),
        name="V",
    )
    k = te.reduce_axis((0, C), name="k")
    M = te.compute(
        (4, 4, F, half * half),
        lambda e, n, f, p: te.sum(U[e, n, f, k] * V[e, n, k, p], axis=k),
        name="M",
    )
    r2, t2 = te.reduce_axis((0, 4), name="r2"), te.reduce_axis((0, 4), name="t2")
    Y = te.compute(
        (F, half * half, 2, 2),
        lambda f, p, i, j: te.sum(M[r2, t2, f, p] * a[r2, i] * a[t2, j], axis=[r2, t2]),
        name="Y",
    )
    out = te.compute(
        (1, F, H, H), lambda n, f, i, j: Y[f, i // 2 * half + j // 2, i % 2, j % 2], name="out"
    )
    s = te.create_schedule(out.op)
    for stage in (s[g], s[b], s[a], s[padded]):
        stage.compute_inline()
    e, n, c, p = s[V].op.axis
    s[V].reorder(c, p, e, n, r1, t1)
    s[tiles].compute_at(s[V], p)
    for axis in (e, n, r1, t1):
        s[V].unroll(axis)
    for axis in (*Y.op.axis[2:], r2, t2):
        s[Y].unroll(axis)
    image, filters = reals(1, C, H, H), reals(F, C, 3, 3)
    expected = convolved(np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1))), filters)
    check(s, [x, w, out], "llvm", [image, filters], expected, tolerance=1e-4)


# -- a library ---------------------------------------------------------------------------------


def test_a_function_of_c_between_two_stages():
    A = te.placeholder((32,), name="A")
    B = te.compute((32,), lambda i: A[i] * 2, name="B")
    C = te.extern(
        (32,),
        [B],
        lambda ins, outs: tir.call_extern("int32", "memcpy", outs[0], ins[0], 32 * 4),
        name="C",
    )
    D = te.compute((32,), lambda i: C[i] + 1, name="D")
    a = reals(32)
    check(te.create_schedule(D.op), [A, D], "llvm", [a], a * 2 + 1)


# -- helpers of topi ---------------------------------------------------------------------------


def test_shapes_as_tuples_and_inlining_by_tag():
    n = te.var("n")
    A = te.placeholder((n, 8), name="A")
    B = te.compute((n, 8), lambda i, j: A[i, j] + 1.0, name="B", tag="elemwise")
    C = te.compute((n, 8), lambda i, j: B[i, j] * 2.0, name="C", tag="elemwise")
    assert topi.utils.get_const_tuple(A.shape) == (n, 8)
    assert topi.util.get_const_int(A.shape[1]) == 8
    s = te.create_schedule(C.op)
    met = []
    topi.utils.traverse_inline(s, C.op, lambda op: met.append(op.name))
    assert met == ["B", "C"]
    assert "B" not in str(tvm.lower(s, [A, C])).replace("T.Buffer", "")
    a = reals(3, 8)
    check(s, [A, C], "llvm", [a], (a + 1) * 2)


def test_targets_are_described_as_in_tvm():
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
    assert target.kind.name == "cuda"
    assert (target.max_num_threads, target.thread_warp_size) == (1024, 32)
    assert target.max_shared_memory_per_block == 163 * 1024
    assert "llvm" in [kind for kind, _ in tvm.testing.enabled_targets()]
    assert tvm.ir.Range.from_min_extent(2, 3).extent == 3
