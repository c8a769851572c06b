"""Schedules on tensor cores as TVM's users wrote them: scopes ``wmma.*``, intrinsics over them."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import tvm
from tilewright.tvm import te

rng = np.random.default_rng(0)


def call(name, *args):
    return tvm.tir.call_intrin("handle", f"tir.{name}", *args)


def statement(name, *args):
    ib = tvm.tir.ir_builder.create()
    ib.emit(call(name, *args))
    return ib.get()


def buffer(t, scope, name):
    return tvm.tir.decl_buffer(
        t.shape, t.dtype, name, scope=scope, data_alignment=32, offset_factor=256
    )


def load(shape, scope, dtype, layout="row_major", source="shared"):
    """A tile from memory into a fragment."""
    A = te.placeholder(shape, dtype, name="A")
    C = te.compute(shape, lambda *i: A(*i), name="C")

    def written(ins, outs):
        place = outs[0].elem_offset // 256
        return statement(
            "tvm_load_matrix_sync", outs[0].data, 16, 16, 16, place, ins[0].access_ptr("r"), 16,
            layout,
        )  # fmt: skip

    return te.decl_tensor_intrin(
        C.op, written, binds={A: buffer(A, source, "A"), C: buffer(C, scope, "C")}
    )


def store(shape, dtype, target="global"):
    """A tile from a fragment into memory."""
    A = te.placeholder(shape, dtype, name="A")
    C = te.compute(shape, lambda *i: A(*i), name="C")

    def written(ins, outs):
        place = ins[0].elem_offset // 256
        return statement(
            "tvm_store_matrix_sync", ins[0].data, 16, 16, 16, place, outs[0].access_ptr("w"), 16,
            "row_major",
        )  # fmt: skip

    return te.decl_tensor_intrin(
        C.op, written, binds={A: buffer(A, "wmma.accumulator", "A"), C: buffer(C, target, "C")}
    )


def gemm(m, n, k, dtype, result, turned=False):
    """A product of tiles; ``turned``: the second has its columns first."""
    A = te.placeholder((m, k), dtype, name="A")
    B = te.placeholder((n, k) if turned else (k, n), dtype, name="B")
    r = te.reduce_axis((0, k), name="r")
    right = (lambda j: B[j, r]) if turned else (lambda j: B[r, j])
    C = te.compute(
        (m, n),
        lambda i, j: te.sum(A[i, r].astype(result) * right(j).astype(result), axis=r),
        name="C",
    )

    def written(ins, outs):
        c = outs[0].data, outs[0].elem_offset // 256
        a, b = ((x.data, x.elem_offset // 256) for x in ins)
        update = statement("tvm_mma_sync", *c, *a, *b, *c)
        return update, statement("tvm_fill_fragment", c[0], m, n, k, c[1], 0.0), update

    scopes = {A: "wmma.matrix_a", B: "wmma.matrix_b", C: "wmma.accumulator"}
    binds = {t: buffer(t, scope, t.op.name) for t, scope in scopes.items()}
    return te.decl_tensor_intrin(C.op, written, binds=binds)


def scheduled(m, n, k, dtype="float16", result="float32", turned=False, staged=True):
    """Tiles of m by n by k, two by two of them a block of two warps, along 3 * k."""
    A = te.placeholder((4, 3, m, k), dtype, name="A")
    B = te.placeholder((3, 4, n, k) if turned else (3, 4, k, n), dtype, name="B")
    ko, ki = te.reduce_axis((0, 3), name="ko"), te.reduce_axis((0, k), name="ki")
    right = (lambda j, jj: B[ko, j, jj, ki]) if turned else (lambda j, jj: B[ko, j, ki, jj])
    C = te.compute(
        (4, 4, m, n),
        lambda i, j, ii, jj: te.sum(
            A[i, ko, ii, ki].astype(result) * right(j, jj).astype(result), axis=[ko, ki]
        ),
        name="C",
    )
    s = te.create_schedule(C.op)
    sources = [s.cache_read(x, "shared", [C]) for x in (A, B)] if staged else [A, B]
    AF = s.cache_read(sources[0], "wmma.matrix_a", [C])
    BF = s.cache_read(sources[1], "wmma.matrix_b", [C])
    CF = s.cache_write(C, "wmma.accumulator")
    i, j, ii, jj = s[C].op.axis
    block_i, i = s[C].split(i, factor=2)
    block_j, j = s[C].split(j, factor=2)
    s[C].reorder(block_i, block_j, i, j, ii, jj)
    s[C].bind(block_i, te.thread_axis("blockIdx.x"))
    s[C].bind(block_j, te.thread_axis("blockIdx.y"))
    s[C].bind(i, te.thread_axis("threadIdx.y"))
    s[CF].compute_at(s[C], i)
    oi, oj, ii_f, jj_f = s[CF].op.axis
    s[CF].reorder(ko, oi, oj, ii_f, jj_f, ki)
    for copy in (AF, BF):
        s[copy].compute_at(s[CF], ko)
    if staged:
        for copy in sources:
            s[copy].compute_at(s[CF], ko)
            fused = s[copy].fuse(*s[copy].op.axis)
            fused, lane = s[copy].split(fused, factor=32)
            _, warp = s[copy].split(fused, factor=2)
            s[copy].bind(lane, te.thread_axis("threadIdx.x"))
            s[copy].bind(warp, te.thread_axis("threadIdx.y"))
    where = "shared" if staged else "global"
    right_layout = "col_major" if turned else "row_major"
    s[AF].tensorize(AF.op.axis[-2], load((m, k), "wmma.matrix_a", dtype, source=where))
    shape = (n, k) if turned else (k, n)
    s[BF].tensorize(BF.op.axis[-2], load(shape, "wmma.matrix_b", dtype, right_layout, where))
    s[CF].tensorize(ii_f, gemm(m, n, k, dtype, result, turned))
    s[C].tensorize(ii, store((m, n), result))
    return s, [A, B, C]


def product_of(a, b, turned):
    letters = "imak,mjbk->ijab" if turned else "imak,mjkb->ijab"
    return np.einsum(letters, a.astype("float64"), b.astype("float64"))


CASES = [
    ((16, 16, 16), {}),
    ((16, 16, 16), {"turned": True}),
    ((32, 8, 16), {}),
    ((8, 32, 16), {}),
    ((8, 32, 16), {"turned": True, "staged": False}),
    ((16, 16, 16), {"dtype": "float16", "result": "float16"}),
    ((16, 16, 16), {"dtype": "bfloat16"}),
    ((16, 16, 16), {"dtype": "int8", "result": "int32"}),
    ((16, 16, 16), {"dtype": "uint8", "result": "int32", "turned": True}),
]


def check(func, args, turned, device):
    if args[0].dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    low = 0 if args[0].dtype == "uint8" else -3
    arrays = [
        tvm.nd.array(rng.integers(low, 4, [int(d) for d in t.shape]), device, str(t.dtype))
        for t in args[:2]
    ]
    c = tvm.nd.empty([int(d) for d in args[2].shape], args[2].dtype, device)
    func(*arrays, c)
    a, b = (x.numpy() for x in arrays)
    assert (c.numpy() == product_of(a, b, turned)).all()


@pytest.mark.parametrize(("tile", "options"), CASES, ids=str)
def test_products_of_fragments_on_the_simulator(tile, options):
    s, args = scheduled(*tile, **options)
    check(tvm.build(s, args, "sim"), args, options.get("turned", False), tvm.cpu())


@pytest.mark.needs_cuda
@pytest.mark.parametrize(("tile", "options"), CASES, ids=str)
def test_products_of_fragments_on_a_gpu(tile, options):
    s, args = scheduled(*tile, **options)
    check(tvm.build(s, args, "cuda"), args, options.get("turned", False), tvm.cuda(0))


@pytest.mark.needs_nvrtc
def test_tiles_from_shared_memory_are_filled_by_ldmatrix():
    s, args = scheduled(16, 16, 16)
    source = tvm.build(s, args, "cuda -arch=sm_80").get_source()
    assert source.count("ldmatrix.sync.aligned.m8n8.x4.shared") == 1  # A
    assert source.count("ldmatrix.sync.aligned.m8n8.x4.trans.shared") == 1  # B
    assert source.count("mma.sync.aligned.m16n8k16") == 2  # halves of the columns


def test_a_schedule_is_shown_before_its_fragments_have_instructions():
    A = te.placeholder((16, 16), name="A", dtype="float16")
    B = te.compute((16, 16), lambda i, j: A[i, j] + te.const(1, "float16"), name="B")
    s = te.create_schedule(B.op)
    copy = s.cache_read(A, "wmma.matrix_a", [B])
    s[copy].compute_at(s[B], B.op.axis[0])
    s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
    assert '"fragment"' in str(tvm.lower(s, [A, B]))
    with pytest.raises(tvm.TVMError, match="no instruction says which thread holds what"):
        tvm.build(s, [A, B], "sim")


def test_what_a_gpu_can_do_follows_from_its_compute_version():
    nvcc = tvm.contrib.nvcc
    assert [nvcc.have_tensorcore(v) for v in ("7.5", "8.0")] == [False, True]
    assert [nvcc.have_fp8(v) for v in ("8.6", "8.9")] == [False, True]
    assert nvcc.parse_compute_version("7.5") == (7, 5)
    with tvm.target.Target("cuda -arch=sm_86"):
        assert nvcc.get_target_compute_version() == "8.6"
    assert tvm.cpu().compute_version is None
    with pytest.raises(tvm.TVMError, match="'nine' is no compute version"):
        nvcc.parse_compute_version("nine")


@pytest.mark.parametrize(
    ("shape", "dtype", "result", "match"),
    [
        ((16, 16, 8), "float32", "float32", "no tensor core multiplies 16 x 16 x 8 of float32"),
        ((8, 8, 16), "float16", "float32", "rows are a multiple of 16"),
        ((16, 16, 16), "int8", "float32", "of int8 into float32"),
    ],
)
def test_products_that_tensor_cores_do_not_have(shape, dtype, result, match):
    with pytest.raises(tvm.TVMError, match=match):
        gemm(*shape, dtype, result)


def test_a_product_over_fragments_by_another_call_is_refused():
    A = te.placeholder((16, 16), "float16", name="A")
    C = te.compute((16, 16), lambda i, j: A[i, j], name="C")
    binds = {A: buffer(A, "shared", "A"), C: buffer(C, "wmma.matrix_a", "C")}
    with pytest.raises(tvm.TVMError, match="by none of tvm_load_matrix_sync"):
        te.decl_tensor_intrin(C.op, lambda *_: tvm.tir.call_extern("int32", "f"), binds=binds)


def test_a_sum_that_is_no_product_is_refused():
    A = te.placeholder((16, 16), "float16", name="A")
    r = te.reduce_axis((0, 16), name="r")
    call_of = lambda *_: call("tvm_mma_sync")  # noqa: E731
    for value in (lambda i, j: A[i, r], lambda i, j: tvm.tir.const(1.0, "float16")):
        C = te.compute((16, 16), lambda *i, v=value: te.sum(v(*i), axis=r), name="C")
        binds = {C: buffer(C, "wmma.accumulator", "C")}
        with pytest.raises(tvm.TVMError, match="C is no product of two tiles"):
            te.decl_tensor_intrin(C.op, call_of, binds=binds)
