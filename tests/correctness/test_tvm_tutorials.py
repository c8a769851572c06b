"""What TVM's tutorials teach runs under TVM's names: programs with the calls that they use.

Those for CUDA run on the simulator, and are lowered for the GPU.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tilewright import tvm
from tilewright.runtime.llvm_link import register_symbol
from tilewright.tvm import autotvm, te, topi
from tilewright.tvm.topi import testing as reference

pytestmark = pytest.mark.usefixtures("plain_code")

rng = np.random.default_rng(0)


def real(*shape):
    return rng.uniform(size=shape).astype("float32")


def run(func, arrays, *shapes, dtype="float32"):
    outs = [tvm.nd.array(np.full(shape, 77, dtype), tvm.cpu()) for shape in shapes]
    func(*(tvm.nd.array(a) for a in arrays), *outs)
    found = [o.numpy() for o in outs]
    return found[0] if len(found) == 1 else found


def product(m, n, k):
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return A, B, r, C


def test_tensor_expressions_to_get_started():
    n = te.var("n")
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=8)
    s[C].parallel(outer)
    s[C].vectorize(inner)
    func = tvm.build(s, [A, B, C], tvm.target.Target("llvm", host="llvm"), name="add")
    a, b = real(100), real(100)
    tvm.testing.assert_allclose(run(func, [a, b], 100), a + b)
    assert func.time_evaluator(func.entry_name, tvm.cpu(), number=2)(a, b, real(100)).mean > 0


def test_schedule_primitives_print_their_loops():
    A = te.placeholder((16, 16), name="A")
    B = te.compute((16, 16), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((16, 16), lambda i, j: B[i, j] + 1, name="C")
    s = te.create_schedule(C.op)
    xo, yo, xi, yi = s[C].tile(C.op.axis[0], C.op.axis[1], x_factor=4, y_factor=5)
    s[C].reorder(xi, yo, xo, yi)
    s[B].compute_at(s[C], xi)
    text = str(tvm.lower(s, [A, C], simple_mode=True))
    assert text.count("for ") == 3
    fused = s[C].fuse(xo, yi)
    assert tvm.lower(s, [A, B, C], simple_mode=True)["main"].params[1].name == "B"
    assert fused in s[C].leaf_iter_vars
    s[B].compute_inline()
    s[B].compute_root()
    a = real(16, 16)
    tvm.testing.assert_allclose(run(tvm.build(s, [A, C], "llvm"), [a], (16, 16)), a * 2 + 1)


def test_reductions_by_parts_and_across_threads():
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    xo, xi = s[B].split(s[B].op.axis[0], factor=32)
    s[B].bind(xo, te.thread_axis("blockIdx.x"))
    s[B].bind(xi, te.thread_axis("threadIdx.y"))
    tx = te.thread_axis("threadIdx.x")
    s[B].bind(s[B].op.reduce_axis[0], tx)
    s[BF].compute_at(s[B], s[B].op.reduce_axis[0])
    s[B].set_store_predicate(tx.var.equal(0))
    a = real(40, 50)
    tvm.testing.assert_allclose(run(tvm.build(s, [A, B], "sim"), [a], 40), a.sum(1), rtol=1e-4)
    product_of = te.comm_reducer(lambda x, y: x * y, lambda t: tvm.tir.const(1, dtype=t), "product")
    C = te.compute((n,), lambda i: product_of(A[i, k], axis=k), name="C")
    func = tvm.build(te.create_schedule(C.op), [A, C], "llvm")
    tvm.testing.assert_allclose(run(func, [a + 0.5], 40), (a + 0.5).prod(1), rtol=1e-4)


@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_a_scan_of_several_stages_and_states(target):
    m, n = te.var("m", least=1), te.var("n")
    X = te.placeholder((m, n), name="X")
    states = te.placeholder((m, n)), te.placeholder((m, n))
    firsts = [te.compute((1, n), lambda _, i: X[0, i], name=f"first{k}") for k in range(2)]
    twice = te.compute((m, n), lambda t, i: states[0][t - 1, i] * 0.5, name="twice")
    steps = (
        te.compute((m, n), lambda t, i: twice[t, i] + X[t, i], name="step0"),
        te.compute((m, n), lambda t, i: states[0][t - 1, i] + states[1][t - 1, i], name="step1"),
    )
    s1, s2 = te.scan(firsts, steps, states, inputs=[X])
    s = te.create_schedule(s1.op)
    s[twice].compute_inline()
    if target == "sim":
        for stage in (*firsts, *steps):
            xo, xi = s[stage].split(stage.op.axis[1], factor=32)
            s[stage].bind(xo, te.thread_axis("blockIdx.x"))
            s[stage].bind(xi, te.thread_axis("threadIdx.x"))
    x = real(9, 40)
    one, two = run(tvm.build(s, [X, s1, s2], target), [x], (9, 40), (9, 40))
    a, b = x[0].copy(), x[0].copy()
    for t in range(1, 9):
        a, b = a * np.float32(0.5) + x[t], a + b
        tvm.testing.assert_allclose(one[t], a, rtol=1e-5)
        tvm.testing.assert_allclose(two[t], b, rtol=1e-5)


def test_a_scan_of_states_of_different_shapes():
    m, n, size = te.var("m"), te.var("n", least=1), te.var("l")
    X = te.placeholder((m, n), name="X")
    states = te.placeholder((m, n)), te.placeholder((m, size))
    firsts = te.compute((1, n), lambda _, i: X[0, i]), te.compute((1, size), lambda _, i: 0.0)
    steps = (
        te.compute((m, n), lambda t, i: states[0][t - 1, i] + X[t, i]),
        te.compute((m, size), lambda t, i: states[1][t - 1, i] + states[0][t - 1, 0]),
    )
    one, two = te.scan(list(firsts), list(steps), list(states), inputs=[X])
    x = real(9, 13)
    func = tvm.build(te.create_schedule(one.op), [X, one, two], "llvm")
    sums, rest = run(func, [x], (9, 13), (9, 5))
    tvm.testing.assert_allclose(sums, x.cumsum(0), rtol=1e-5)
    firsts = np.concatenate([[0], x.cumsum(0).cumsum(0)[:-1, 0]])
    tvm.testing.assert_allclose(rest, np.repeat(firsts[:, None], 5, 1), rtol=1e-5)


def gemv(m, length, adds=True):
    """An instruction for ``length`` elements of ``m`` rows, by a C function."""
    a, b = te.placeholder((length,), name="a"), te.placeholder((m, length), name="b")
    k = te.reduce_axis((0, length), name="k")
    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    Ab = tvm.tir.decl_buffer(a.shape, a.dtype, name="A", offset_factor=1, strides=[1])
    Bb = tvm.tir.decl_buffer(b.shape, b.dtype, name="B", strides=[te.var("s1"), 1])
    Cb = tvm.tir.decl_buffer(c.shape, c.dtype, name="C", offset_factor=1, strides=[1])

    def intrin_func(ins, outs):
        def body(name):
            ib = tvm.tir.ir_builder.create()
            pointers = outs[0].access_ptr("w"), ins[0].access_ptr("r"), ins[1].access_ptr("r")
            ib.emit(tvm.tir.call_extern("int32", name, *pointers, m, length, ins[1].strides[0]))
            return ib.get()

        return (body("test_gemv"), None, body("test_gemv")) if adds else body("test_gemv")

    return te.decl_tensor_intrin(c.op, intrin_func, binds={a: Ab, b: Bb, c: Cb})


@ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3, *[ctypes.c_int32] * 3)
def c_gemv(c, a, b, m, length, stride):
    def at(pointer, count):
        return np.frombuffer((ctypes.c_float * count).from_address(pointer), "float32")

    rows = np.stack([at(b + 4 * stride * i, length) for i in range(m)])
    at(c, m)[:] += rows @ at(a, length)
    return 0


def test_loops_become_a_call_that_is_declared():
    register_symbol("test_gemv", c_gemv)
    A, B, k, _ = product(1, 1, 32)
    A, B = te.placeholder((6, 32), name="A"), te.placeholder((8, 32), name="B")
    C = te.compute((6, 8), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    x, y = C.op.axis
    yo, yi = s[C].split(y, factor=4)
    ko, ki = s[C].split(k, factor=16)
    s[C].reorder(x, yo, ko, yi, ki)
    s[C].tensorize(yi, gemv(4, 16))
    a, b = real(6, 32), real(8, 32)
    func = tvm.build(s, [A, B, C], "llvm")
    assert "test_gemv" in func.get_source()
    tvm.testing.assert_allclose(run(func, [a, b], (6, 8)), a @ b.T, rtol=1e-4)
    tvm.testing.assert_allclose(run(tvm.build(s, [A, B, C], "c"), [a, b], (6, 8)), a @ b.T, 1e-4)


def test_an_instruction_that_does_not_add_takes_whole_sums():
    A, B = te.placeholder((6, 32), name="A"), te.placeholder((8, 32), name="B")
    k = te.reduce_axis((0, 32), "k")
    C = te.compute((6, 8), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    yo, yi = s[C].split(C.op.axis[1], factor=4)
    ko, ki = s[C].split(k, factor=16)
    s[C].reorder(C.op.axis[0], yo, ko, yi, ki)
    s[C].tensorize(yi, gemv(4, 16, adds=False))
    with pytest.raises(tvm.TVMError, match="the third of its statements"):
        tvm.lower(s, [A, B, C])


def test_python_functions_are_called_by_name():
    @tvm.register_func("test.addone", override=True)
    def addone(x, y, by):
        tvm.nd.array(x.numpy() + by).copyto(y)

    A, B = te.placeholder((6, 5), name="A"), te.placeholder((5, 4), name="B")
    C = tvm.contrib.cblas.matmul(A, B)
    D = te.extern(
        C.shape, [C], lambda i, o: tvm.tir.call_packed("test.addone", i[0], o[0], 2), name="D"
    )
    s = te.create_schedule(D.op)
    a, b = real(6, 5), real(5, 4)
    func = tvm.build(s, [A, B, D], "llvm")
    tvm.testing.assert_allclose(run(func, [a, b], (6, 4)), a @ b + 2, rtol=1e-5)
    assert tvm.get_global_func("test.addone") is addone
    tvm.register_func("test.addone", lambda *_: 1 // 0, override=True)
    with pytest.raises(ZeroDivisionError):
        run(func, [a, b], (6, 4))
    with pytest.raises(tvm.TVMError, match="registered already"):
        tvm.register_func("test.addone", addone)


def test_a_body_is_written_with_the_builder():
    A = te.placeholder((4, 6), name="A")

    def body(ins, outs):
        ib = tvm.tir.ir_builder.create()
        src, dst = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        total = ib.allocate("float32", (1,), name="total", scope="local")
        total[0] = tvm.tir.const(0.0, "float32")
        with ib.for_range(0, 24, name="i") as i:
            with ib.if_scope(i % 2 == 0):
                total[0] = total[0] + src[i]
            with ib.else_scope():
                total[0] = total[0] - src[i]
            dst[i] = total[0]
        return ib.get()

    B = te.extern((24,), [A], body, name="B")
    a = real(4, 6)
    found = run(tvm.build(te.create_schedule(B.op), [A, B], "llvm"), [a], 24)
    sign = np.where(np.arange(24) % 2, -1, 1)
    tvm.testing.assert_allclose(found, (a.reshape(-1) * sign).cumsum(), rtol=1e-4, atol=1e-5)


def test_several_results_of_one_stage():
    A0, A1 = te.placeholder((4, 5), name="A0"), te.placeholder((4, 5), name="A1")
    B0, _B1 = te.compute((4, 5), lambda i, j: (A0[i, j] + 2, A1[i, j] * 3), name="B")
    C = te.compute((4, 5), lambda i, j: A1[i, j] + B0[i, j], name="C")
    s = te.create_schedule(C.op)
    s[B0].compute_at(s[C], C.op.axis[0])
    a, b = real(4, 5), real(4, 5)
    tvm.testing.assert_allclose(run(tvm.build(s, [A0, A1, C], "llvm"), [a, b], (4, 5)), b + a + 2)


def test_operators_of_topi_fuse_and_take_a_schedule():
    a, b = te.placeholder((20, 10, 10), name="a"), te.placeholder((10, 10), name="b")
    c, d = a + b, a * b
    g = topi.sum(topi.elemwise_sum([c, d]) / 2.0)
    with tvm.target.Target("sim"):
        sg = topi.cuda.schedule_reduce(g)
        assert "T_sum" in str(tvm.lower(sg, [a, b], simple_mode=True))
        func = tvm.build(sg, [a, b, g])
    x, y = real(20, 10, 10), real(10, 10)
    tvm.testing.assert_allclose(run(func, [x, y], ()), ((x + y + x * y) / 2).sum(), rtol=1e-4)
    t = te.placeholder((64, 64), name="t")
    with tvm.target.Target("cuda -arch=sm_80"):
        out = topi.nn.softmax(t)
        assert "T_softmax_norm" in str(tvm.lower(topi.cuda.schedule_softmax(out), [t]))
        conv = topi.cuda.conv2d_nchw(
            te.placeholder((1, 3, 8, 8)), te.placeholder((4, 3, 5, 5)), 1, 2, 1
        )
        assert tvm.lower(topi.cuda.schedule_conv2d_nchw([topi.nn.relu(conv)]), [])


def test_a_product_of_matrices_by_blocks_packing_and_a_cache():
    M = N = K = 64
    A, B, _, _ = product(M, N, K)
    k = te.reduce_axis((0, K), "k")
    packed = te.compute(
        (N / 16, K, 16), lambda bigN, k, littleN: B[k, bigN * 16 + littleN], "packed"
    )
    C = te.compute(
        (M, N),
        lambda m, n: te.sum(A[m, k] * packed[n // 16, k, tvm.tir.indexmod(n, 16)], axis=k),
        name="C",
    )
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    mo, no, _mi, _ni = s[C].tile(C.op.axis[0], C.op.axis[1], 16, 16)
    s[CC].compute_at(s[C], no)
    mc, nc = s[CC].op.axis
    ko, ki = s[CC].split(s[CC].op.reduce_axis[0], factor=4)
    s[CC].reorder(ko, mc, ki, nc)
    s[CC].vectorize(nc)
    s[CC].unroll(ki)
    s[C].parallel(mo)
    bigN, _, littleN = s[packed].op.axis
    s[packed].vectorize(littleN)
    s[packed].parallel(bigN)
    a, b = real(M, K), real(K, N)
    tvm.testing.assert_allclose(run(tvm.build(s, [A, B, C], "llvm"), [a, b], (M, N)), a @ b, 1e-4)


def test_a_convolution_for_a_gpu_in_shared_memory_and_virtual_threads():
    batch, channels, out_channels, size = 8, 8, 8, 6
    A = te.placeholder((size, size, channels, batch), name="A")
    W = te.placeholder((3, 3, channels, out_channels), name="W")
    padded = te.compute(
        (size + 2, size + 2, channels, batch),
        lambda y, x, c, n: tvm.tir.if_then_else(
            tvm.tir.all(y >= 1, y - 1 < size, x >= 1, x - 1 < size),
            A[y - 1, x - 1, c, n], tvm.tir.const(0.0, "float32"),
        ),
        name="padded",
    )  # fmt: skip
    rc, ry, rx = (
        te.reduce_axis((0, e), name=n) for e, n in ((channels, "rc"), (3, "ry"), (3, "rx"))
    )
    B = te.compute(
        (size, size, out_channels, batch),
        lambda y, x, f, n: te.sum(
            padded[y + ry, x + rx, rc, n] * W[ry, rx, rc, f], axis=[ry, rx, rc]
        ),
        name="B",
    )
    s = te.create_schedule(B.op)
    s[padded].compute_inline()
    AA, WW = s.cache_read(padded, "shared", [B]), s.cache_read(W, "shared", [B])
    AL, WL = s.cache_read(AA, "local", [B]), s.cache_read(WW, "local", [B])
    BL = s.cache_write(B, "local")
    hi, wi, fi, ni = s[B].op.axis
    s[B].bind(s[B].fuse(hi, wi), te.thread_axis("blockIdx.z"))
    tyz, fi = s[B].split(fi, nparts=2)
    txz, ni = s[B].split(ni, nparts=2)
    ty, fi = s[B].split(fi, nparts=2)
    tx, ni = s[B].split(ni, nparts=2)
    s[B].reorder(tyz, txz, ty, tx, fi, ni)
    threads = te.thread_axis((0, 2), "threadIdx.y"), te.thread_axis((0, 2), "threadIdx.x")
    for axis, at in zip((tyz, txz), ("vy", "vx"), strict=True):
        s[B].bind(axis, te.thread_axis((0, 2), "vthread", name=at))
    s[B].bind(ty, threads[0])
    s[B].bind(tx, threads[1])
    s[BL].compute_at(s[B], tx)
    _yi, _xi, fi, ni = s[BL].op.axis
    ry, rx, rc = s[BL].op.reduce_axis
    rco, rci = s[BL].split(rc, factor=4)
    s[BL].reorder(rco, ry, rx, rci, fi, ni)
    for stage in (AA, WW):
        s[stage].compute_at(s[BL], rx)
        _, _, ci, last = s[stage].op.axis
        ty, ci = s[stage].split(ci, nparts=2)
        tx, last = s[stage].split(last, nparts=2)
        s[stage].bind(ty, threads[0])
        s[stage].bind(tx, threads[1])
    for stage in (AL, WL):
        s[stage].compute_at(s[BL], rci)
    a, w = real(size, size, channels, batch), real(3, 3, channels, out_channels)
    found = run(tvm.build(s, [A, W, B], "sim"), [a, w], (size, size, out_channels, batch))
    tvm.testing.assert_allclose(found, reference.conv2d_hwcn_python(
        a.transpose(0, 1, 2, 3), w, 1, 1), rtol=1e-4)  # fmt: skip
    assert "vthread" not in str(tvm.lower(s, [A, W, B]))


@autotvm.template
def tutorial_matmul(n, m, k):
    A, B, r, C = product(n, m, k)
    s = te.create_schedule(C.op)
    y, x = s[C].op.axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    yo, yi = cfg["tile_y"].apply(s, C, y)
    xo, xi = cfg["tile_x"].apply(s, C, x)
    s[C].reorder(yo, xo, r, yi, xi)
    return s, [A, B, C]


def test_a_template_without_a_name_is_a_task(tmp_path):
    task = autotvm.task.create(
        tutorial_matmul, args=(16, 16, 16), target="llvm", template_key="direct"
    )
    assert task.name == "tutorial_matmul"
    assert len(task.config_space) == 25
    inp = autotvm.MeasureInput(task, task.config_space.get(7))
    log = tmp_path / "matmul.log"
    for costs in ((3e-3,), (1e-3,)):
        result = autotvm.MeasureResult(costs, autotvm.MeasureErrorNo.NO_ERROR, 0.1, 1.0)
        autotvm.callback.log_to_file(str(log))(None, [inp], [result])
    autotvm.record.pick_best(log, tmp_path / "best.log")
    assert len((tmp_path / "best.log").read_text().splitlines()) == 1
    with autotvm.apply_history_best(str(tmp_path / "best.log")), tvm.target.Target("llvm"):
        s, args = tutorial_matmul(16, 16, 16)
        func = tvm.build(s, args)
    a, b = real(16, 16), real(16, 16)
    tvm.testing.assert_allclose(run(func, [a, b], (16, 16)), a @ b, rtol=1e-4)


@autotvm.template("tutorial/conv2d_no_batching")
def conv2d_no_batching(n, height, width, co, ci, kh, kw, stride, padding):
    data = te.placeholder((n, ci, height, width), name="data")
    kernel = te.placeholder((co, ci, kh, kw), name="kernel")
    conv = topi.nn.conv2d_nchw(data, kernel, stride, padding, dilation=1, out_dtype="float32")
    s = te.create_schedule([conv.op])
    _, f, y, x = s[conv].op.axis
    rc, ry, rx = s[conv].op.reduce_axis
    cfg = autotvm.get_config()
    for name, axis in (("tile_f", f), ("tile_y", y), ("tile_x", x)):
        cfg.define_split(name, axis, num_outputs=4)
    cfg.define_split("tile_rc", rc, num_outputs=2)
    cfg.define_knob("auto_unroll_max_step", [0, 512, 1500])
    padded = s[conv].op.input_tensors[0]
    s[padded].compute_inline()
    OL = s.cache_write(conv, "local")
    AA, WW = (s.cache_read(t, "shared", [OL]) for t in (padded, kernel))
    n, f, y, x = s[conv].op.axis
    bound = {}
    for name, axis, dim in (("tile_f", f, "z"), ("tile_y", y, "y"), ("tile_x", x, "x")):
        block, virtual, thread, inner = cfg[name].apply(s, conv, axis)
        bound[dim] = block, virtual, thread, inner
        s[conv].bind(block, te.thread_axis(f"blockIdx.{dim}"))
        s[conv].bind(virtual, te.thread_axis("vthread"))
        s[conv].bind(thread, te.thread_axis(f"threadIdx.{dim}"))
    s[conv].reorder(n, *(bound[d][k] for k in range(4) for d in "zyx"))
    s[OL].compute_at(s[conv], bound["x"][2])
    n, f, y, x = s[OL].op.axis
    rc, ry, rx = s[OL].op.reduce_axis
    rco, rci = cfg["tile_rc"].apply(s, OL, rc)
    s[OL].reorder(rco, ry, rx, rci, n, f, y, x)
    for load in (AA, WW):
        s[load].compute_at(s[OL], rx)
        fused = s[load].fuse(*s[load].op.axis)
        for name, dim in (("tile_f", "z"), ("tile_y", "y"), ("tile_x", "x")):
            own, fused = s[load].split(fused, nparts=cfg[name].size[2])
            s[load].bind(own, te.thread_axis(f"threadIdx.{dim}"))
    s[conv].pragma(s[conv].op.axis[0], "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    return s, [data, kernel, conv]


def test_a_convolution_is_tuned_for_a_gpu():
    args = (1, 6, 6, 4, 4, 3, 3, (1, 1), (1, 1))
    task = autotvm.task.create("tutorial/conv2d_no_batching", args=args, target="sim")
    with tvm.target.Target("sim"):
        s, bufs = task.instantiate(task.config_space.get(len(task.config_space) // 7))
        func = tvm.build(s, bufs)
    a, w = real(1, 4, 6, 6), real(4, 4, 3, 3)
    wanted = reference.conv2d_nchw_python(a, w, (1, 1), (1, 1))
    tvm.testing.assert_allclose(run(func, [a, w], wanted.shape), wanted, rtol=1e-4)


def test_a_real_scalar_is_an_argument():
    bias = te.var("bias", "float32")
    A, B = te.placeholder((3, 4), name="A"), te.placeholder((4, 5), name="B")
    C = tvm.contrib.cblas.matmul(A, B)
    D = te.compute(C.shape, lambda i, j: C[i, j] + bias, name="D")
    func = tvm.build(te.create_schedule(D.op), [A, B, D, bias], "llvm")
    a, b, d = real(3, 4), real(4, 5), tvm.nd.empty((3, 5))
    for number in (10.0, np.float32(0.5), 3):
        func(tvm.nd.array(a), tvm.nd.array(b), d, number)
        np.testing.assert_allclose(d.numpy(), a @ b + number, rtol=1e-5)


def test_what_is_inlined_may_be_listed_to_look_at():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[i] * 2, name="C")
    s = te.create_schedule(C.op)
    s[B].compute_inline()
    assert "B" not in {p.name for p in tvm.lower(s, [A, B, C])["main"].params}
    with pytest.raises(tvm.TVMError, match="'B' is not computed by this schedule, or inlined"):
        tvm.build(s, [A, B, C], "llvm")


def test_a_scan_of_any_length_has_its_first_row():
    m, n = te.var("m"), te.var("n")
    X, state = te.placeholder((m, n), name="X"), te.placeholder((m, n), name="state")
    first = te.compute((1, n), lambda _, i: X[0, i], name="first")
    step = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i], name="step")
    total = te.scan(first, step, state, inputs=[X])
    func = tvm.build(te.create_schedule(total.op), [X, total], "llvm")
    x = real(5, 3)
    np.testing.assert_allclose(run(func, [x], (5, 3)), np.cumsum(x, 0), rtol=1e-5)
    with pytest.raises(tvm.TVMError, match="at least 1"):
        func(tvm.nd.array(real(0, 3)), tvm.nd.array(real(0, 3)))


def test_a_saved_kernel_is_made_a_library(tmp_path):
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1, name="B")
    func = tvm.build(te.create_schedule(B.op), [A, B], "llvm")
    func.save(str(tmp_path / "add.o"))
    tvm.contrib.cc.create_shared(str(tmp_path / "add.so"), [str(tmp_path / "add.o")])
    x = real(4)
    found = run(tvm.runtime.load_module(str(tmp_path / "add.so")), [x], (4,))
    np.testing.assert_allclose(found, x + 1)
    with pytest.raises(tvm.TVMError, match="clang"):
        tvm.contrib.clang.create_llvm("int f;", cc=str(tmp_path / "no clang"))
