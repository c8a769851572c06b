"""Names that TVM's users wrote until 2020 run as they are, and choose what they chose."""

from __future__ import annotations

import numpy as np
import pytest
from tilewright.tvm.topi.cuda.tensor_intrin import dp4a

from tilewright import tvm
from tilewright.tvm import rules, te, tir, topi

pytestmark = pytest.mark.usefixtures("plain_code")

rng = np.random.default_rng(0)


def computed(tensor, *arrays, target="llvm", inputs=None):
    s = te.create_schedule(tensor.op)
    out = tvm.nd.empty([int(d) for d in tensor.shape], str(tensor.dtype))
    args = [*(inputs or tensor.op.input_tensors), tensor]
    tvm.build(s, args, target)(*map(tvm.nd.array, arrays), out)
    return out.numpy()


def own_dp4a():
    """The intrinsic as TVM's programs declare it: four bytes as a vector, and a C function."""
    x, y = (te.placeholder((4,), "int8", name=name) for name in "xy")
    k = te.reduce_axis((0, 4), name="k")
    z = te.compute((1,), lambda i: te.sum(x[k].astype("int32") * y[k].astype("int32"), axis=[k]))

    def part(ins, outs, number):
        if number == 1:
            return outs[0].vstore(0, tir.const(0, "int32"))
        before = 0 if number == 0 else outs[0].vload(0)
        a, b = (v.vload(0, dtype="int8x4") for v in ins)
        return outs[0].vstore(0, tir.call_pure_extern("int32", "__dp4a", a, b, before))

    binds = {t: tir.decl_buffer(t.shape, t.dtype, t.op.name, scope="local") for t in (x, y, z)}
    return te.decl_tensor_intrin(
        z.op, lambda ins, outs: [part(ins, outs, n) for n in range(3)], binds=binds
    )


@pytest.mark.parametrize("intrinsic", [own_dp4a, dp4a])
def test_products_of_bytes_are_the_machines_instruction(intrinsic):
    A, B = (te.placeholder((8, 16), "int8", name=name) for name in "AB")
    k = te.reduce_axis((0, 16), name="k")
    C = te.compute(
        (8, 8), lambda i, j: te.sum(A[i, k].astype("int32") * B[j, k].astype("int32"), axis=k)
    )
    s = te.create_schedule(C.op)
    _, inner = s[C].split(k, 4)
    for axis, thread in zip(C.op.axis, ("blockIdx.x", "threadIdx.x"), strict=True):
        s[C].bind(axis, te.thread_axis(thread))
    s[C].tensorize(inner, intrinsic())
    assert "dp4a" in str(tvm.lower(s, [A, B, C]))
    a, b = (rng.integers(-9, 9, (8, 16)).astype("int8") for _ in "ab")
    c = tvm.nd.empty((8, 8), "int32")
    tvm.build(s, [A, B, C], "sim")(tvm.nd.array(a), tvm.nd.array(b), c)
    assert (c.numpy() == a.astype(int) @ b.T.astype(int)).all()


def test_statements_load_and_store_vectors():
    def body(ins, outs):
        ib = tir.ir_builder.create()
        with ib.for_range(0, 3, "i") as i:
            doubled = ins[0].vload((i, 0), "float32x4") * tir.const(2.0, "float32x4")
            ib.emit(outs[0].vstore((i, 0), doubled))
            ib.emit(outs[0].vstore((i, 4), ins[0].vload((i, 4))))
        return ib.get()

    A = te.placeholder((3, 5), name="A")
    C = te.extern((3, 5), [A], body, dtype="float32")
    a = rng.random((3, 5), "float32")
    assert (computed(C, a) == a * [2, 2, 2, 2, 1]).all()


def test_kinds_of_gpus_are_opencl():
    assert tvm.target.create("opencl -device=mali").kind == "opencl"
    assert tvm.target.create("llvm -device=arm_cpu").kind == "llvm"


def test_two_variables_of_one_name_are_two():
    n, m = te.var("n"), te.var("n")
    A = te.placeholder((n, m), name="A")
    B = te.compute((m, n), lambda i, j: A[j, i], name="B")
    s = te.create_schedule(B.op)
    a, out = rng.random((3, 4), "float32"), tvm.nd.empty((4, 3))
    tvm.build(s, [A, B])(tvm.nd.array(a), out)
    assert (out.numpy() == a.T).all()
    out = tvm.nd.empty((4, 3))
    tvm.build(s, [m, A, n, B])(4, tvm.nd.array(a), 3, out)
    assert (out.numpy() == a.T).all()


def test_inputs_are_in_the_order_in_which_they_are_read():
    x, indptr = te.placeholder((9, 4), name="x"), te.placeholder((6,), "int32", name="indptr")
    indices, values = te.placeholder((20,), "int32"), te.placeholder((20,))

    def row(i, j):
        k = te.reduce_axis((0, indptr[i + 1] - indptr[i]))
        at = indptr[i] + k
        return te.sum(values[at] * x[indices[at], j], axis=k)

    product = te.compute((5, 4), row)
    assert product.op.input_tensors == [indptr, values, indices, x]
    shown = tvm.lower(te.create_schedule(product.op), [x, indptr, indices, values, product])
    assert shown.astext(show_meta_data=False) == str(shown)


def test_a_context_leaves_the_proofs_out():
    x, at = te.placeholder((9,), name="x"), te.placeholder((4,), "int32", name="at")
    picked = te.compute((4,), lambda i: x[at[i]], name="picked")
    s = te.create_schedule(picked.op)
    with pytest.raises(tvm.TVMError, match="reads x within its shape"):
        tvm.build(s, [x, at, picked])
    with tvm.transform.PassContext(config={"tilewright.verify": False}):
        func = tvm.build(s, [x, at, picked])
    a, out = rng.random(9, "float32"), tvm.nd.empty((4,))
    func(tvm.nd.array(a), tvm.nd.array(np.array([8, 0, 3, 3], "int32")), out)
    assert (out.numpy() == a[[8, 0, 3, 3]]).all()


def test_of_two_loops_the_inner_may_be_fused_first():
    A = te.placeholder((5, 7), name="A")
    B = te.compute((5, 7), lambda i, j: A[i, j] + 1.0, name="B")
    s = te.create_schedule(B.op)
    i, j = B.op.axis
    fused = s[B].fuse(j, i)
    assert s[B].leaf_iter_vars == [fused]
    assert (fused.name, str(B.op.axis[0].name)) == ("i.j.fused", "i")
    a, out = rng.random((5, 7), "float32"), tvm.nd.empty((5, 7))
    tvm.build(s, [A, B])(tvm.nd.array(a), out)
    assert (out.numpy() == a + 1).all()


def test_functions_are_chosen_by_the_target():
    @tvm.target.generic_func
    def chosen(x):
        return x, "any"

    @chosen.register(["cuda", "gpu"])
    def _(x):
        return x, "gpu"

    assert chosen(1) == (1, "any")
    with tvm.target.Target("cuda -arch=sm_80"):
        assert chosen(2) == (2, "gpu")
    with tvm.target.Target("llvm"):
        assert chosen(3) == (3, "any")
    with pytest.raises(tvm.TVMError, match="has a function for 'gpu': give override=True"):
        chosen.register("gpu", lambda x: x)


def test_operations_get_rules_by_the_names_of_2019(monkeypatch):
    monkeypatch.setattr(rules, "_rules", {})
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: tvm.call_pure_intrin("float32", "half_of", A[i]), name="B")
    tvm.register_intrin_rule("llvm", "half_of", lambda op: op.args[0] * 0.5, override=True)
    a = rng.random(4, "float32")
    assert (computed(B, a) == a / 2).all()


def test_modules_of_files_are_the_names_they_have():
    from tilewright.tvm.contrib.util import tempdir
    from tilewright.tvm.runtime.module import load_module
    from tilewright.tvm.tir.expr import Cast, const

    assert isinstance(te.placeholder((4,))[0].astype("int32"), Cast)
    assert const(1, "int8").dtype == "int8"
    assert load_module is tvm.runtime.load_module
    assert tempdir().relpath("x").endswith("x")
    assert (tvm.float32, str(tvm.DataType("int8x4"))) == ("float32", "int8x4")
    assert str(tir.UIntImm("uint8", 3).dtype) == "uint8"
    assert tvm.ndarray is tvm.nd
    assert tir.ForKind.THREAD_BINDING is tir.ForKind.THREAD
    x = te.placeholder((4,), dtype="float")
    assert (x.dtype, x[0].astype("int").dtype) == ("float32", "int32")


def test_operators_of_2019():
    x = te.placeholder((1, 2, 4, 4), name="x")
    a = rng.random((1, 2, 4, 4), "float32")
    pooled = topi.nn.pool(x, [2, 2], [2, 2], [0, 0, 0, 0], "max")
    assert (computed(pooled, a, inputs=[x]) == a.reshape(1, 2, 2, 2, 2, 2).max((3, 5))).all()
    normal = topi.nn.l2_normalize(x, 1e-6, [1])
    wanted = a / np.sqrt((a * a).sum(1, keepdims=True))
    np.testing.assert_allclose(computed(normal, a, inputs=[x]), wanted, rtol=1e-5)
    for corners, mode in ((True, "align_corners"), (False, "asymmetric")):
        old = topi.image.resize(x, (6, 6), align_corners=corners)
        new = topi.image.resize2d(x, None, (6, 6), "NCHW", "linear", mode)
        assert (computed(old, a, inputs=[x]) == computed(new, a, inputs=[x])).all()
    w = te.placeholder((3, 2, 3, 3), name="w")
    k = rng.random((3, 2, 3, 3), "float32")
    for old, new in (
        (topi.nn.conv2d(x, w, 1, 1, 1, layout="NCHW"), topi.nn.conv2d_nchw(x, w, 1, 1, 1)),
        (
            topi.nn.conv2d_transpose_nchw(x, te.placeholder((2, 3, 3, 3)), 1, 1, "float32"),
            topi.nn.conv2d_transpose_nchw(x, te.placeholder((2, 3, 3, 3)), 1, 1, "float32", (0, 0)),
        ),
    ):
        assert [int(d) for d in old.shape] == [int(d) for d in new.shape] == [1, 3, 4, 4]
    assert computed(topi.nn.conv2d(x, w, 1, 1, 1, layout="NCHW"), a, k, inputs=[x, w]).any()
    assert (computed(topi.broadcast_mul(x, x), a, inputs=[x]) == a * a).all()
