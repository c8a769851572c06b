"""Programs become CUDA C++ that people can read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.gpu_programs import PROGRAMS, buffer, kernel, loop, ramp, store, vload

from tilewright import ir
from tilewright.codegen.cuda import generate
from tilewright.codegen.cuda_export import cuda_file, cuda_header
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.expr import Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Allocate, Evaluate, For, ForKind, Stmt, Store, Sync, seq
from tilewright.target import Target

Golden = Callable[..., None]


def body_text(body: Stmt, *params: ir.Buffer, tx: Var) -> str:
    """The text of a kernel of 32 threads."""
    return generate(kernel("k", params, body, threadIdx_x=(tx, 32))).text


@pytest.mark.parametrize(
    "name",
    ["depthwise", "shared_tile", "scale_shift", "scale_shift_half", "masked_tail", "integers"],
)
def test_program(name: str, golden: Golden) -> None:
    golden(generate(PROGRAMS[name]().module, "sm_90a").text, ".cu")


@pytest.mark.parametrize("name", ["two_kernels", "symbolic_batch"])
def test_exported(name: str, golden: Golden) -> None:
    module = PROGRAMS[name]().module
    text = cuda_file(module, Target.parse("cuda -arch=sm_90a"))
    golden(text + "\n" + cuda_header(module), ".cu")


def test_parameters_that_are_only_read_are_const() -> None:
    text = generate(PROGRAMS["two_kernels"]().module).text
    assert "const float* __restrict__ A,\n    float* __restrict__ total)" in text
    assert "const float* __restrict__ total,\n    float* __restrict__ B)" in text


def test_names_stay_close_to_the_users_and_apart() -> None:
    one, two = buffer("A.shared", (32,)), buffer("A_shared", (32,))
    third, tx = buffer("float", (32,)), Var.make("int")
    body = seq(store(one, tx, two[tx]), store(third, tx, 1.0))
    text = body_text(body, one, two, third, tx=tx)
    assert "A_shared[int_1] = A_shared_1[int_1];" in text
    assert "float_1[int_1] = 1.0f;" in text


def test_an_offset_that_is_not_a_multiple_of_the_lanes_is_loaded_lane_by_lane() -> None:
    a, b, tx = buffer("A", (130,)), buffer("B", (130,)), Var.make("tx")
    text = body_text(
        Store(b, (ramp(tx * 4 + 2, 4),), vload(a, ramp(tx * 4 + 1, 4)), None), a, b, tx=tx
    )
    assert "*(float2*)&B[" in text  # 8 bytes are aligned, 16 are not
    assert "*(const float" not in text
    assert "float4" not in text


def test_without_aligned_arguments_no_access_is_wide() -> None:
    made = generate(PROGRAMS["scale_shift"]().module, aligned=False)
    assert not made.aligned
    assert "float4" not in made.text
    assert generate(PROGRAMS["scale_shift"]().module).aligned


def test_a_strided_vector_is_scalars() -> None:
    a, b, tx = buffer("A", (256,)), buffer("B", (256,)), Var.make("tx")
    text = body_text(Store(b, (ramp(tx, 4, 32),), vload(a, ramp(tx * 2, 4, 64)), None), a, b, tx=tx)
    assert "B[tx + 96] = A[tx * 2 + 192];" in text


def test_a_vector_read_under_a_condition_is_not_read_otherwise() -> None:
    a, b, tx = buffer("A", (128,)), buffer("B", (128,)), Var.make("tx")
    at = ramp(tx * 4, 4)
    there = vload(a, ramp(tx * 4 - 4, 4))
    chosen = ops.if_then_else(tx > 0, there + there, const(1.0, "float32x4"))
    text = body_text(Store(b, (at,), chosen, None), a, b, tx=tx)
    load = text.index("*(const float4*)&A[")
    assert text.index("if (tx > 0) {") < load < text.index("} else {")


def test_a_constant_stands_for_a_vector_that_is_not_read() -> None:
    a, b, tx = buffer("A", (128,)), buffer("B", (128,)), Var.make("tx")
    there, at = vload(a, ramp(tx * 4 - 4, 4)), ramp(tx * 4, 4)
    chosen = ops.if_then_else(tx > 0, there, const(-1.0, "float32x4"))
    text = body_text(Store(b, (at,), chosen, None), a, b, tx=tx)
    assert "= load_where_or<float4, float4>(tx > 0, &A[cse_v0 - 4], make_float4(" in text
    assert "else" not in text


def test_a_reversal_in_place_reads_all_before_it_writes() -> None:
    acc = buffer("acc", (4,), "float32", "local")
    b, tx = buffer("B", (128,)), Var.make("tx")
    turned = Store(acc, (ramp(0, 4),), vload(acc, ramp(3, 4, -1)), None)
    body = Allocate(acc, seq(turned, Store(b, (ramp(tx * 4, 4),), vload(acc, ramp(0, 4)), None)))
    lines = body_text(body, b, tx=tx).splitlines()
    reads = [n for n, line in enumerate(lines) if "= acc[" in line and "const float" in line]
    writes = [n for n, line in enumerate(lines) if line.strip().startswith("acc[")]
    assert len(reads) == len(writes) == 4
    assert max(reads) < min(writes)


def test_shared_memory_beyond_48_KiB_is_asked_for_at_the_launch() -> None:
    tx = Var.make("tx")
    one, two = (buffer(n, (8192,), "float32", "shared") for n in ("one", "two"))
    b = buffer("B", (32,))
    body = seq(store(one, tx, 1.0), store(two, tx, 2.0), Sync("shared"))
    body = Allocate(one, Allocate(two, seq(body, store(b, tx, one[31 - tx] + two[31 - tx]))))
    made = generate(kernel("k", (b,), body, threadIdx_x=(tx, 32)))
    assert made.kernels[0].dynamic_shared == 65536
    assert "extern __shared__ __align__(16) unsigned char shared_memory[];" in made.text
    assert "float* const two = (float*)(shared_memory + 32768);" in made.text


def test_memory_of_a_warp_is_shared_memory_of_its_own() -> None:
    tx, ty = Var.make("tx"), Var.make("ty")
    mine, b = buffer("mine", (32,), "float32", "warp"), buffer("B", (4, 32))
    body = Allocate(mine, seq(store(mine, tx, 1.0), Sync("warp"), store(b, ty, tx, mine[31 - tx])))
    text = generate(kernel("k", (b,), body, threadIdx_x=(tx, 32), threadIdx_y=(ty, 4))).text
    assert "__shared__ __align__(16) float mine_all[128];" in text
    assert "__syncwarp();" in text


def unrolled(explicit: bool) -> str:
    a, b, tx, i = buffer("A", (32,)), buffer("B", (4, 32)), Var.make("tx"), Var.make("i")
    notes = (("unroll_explicit", True),) if explicit else ()
    nest = For(i, const(0), const(4), ForKind.UNROLLED, store(b, i, tx, a[tx] * 2.0), "", notes)
    return body_text(nest, a, b, tx=tx)


def test_an_unrolled_loop_is_a_pragma_or_written_out() -> None:
    assert "#pragma unroll\n  for (int i = 0; i < 4; ++i) {" in unrolled(explicit=False)
    assert "for" not in unrolled(explicit=True)
    assert "B[96 + tx] = A[tx] * 2.0f;" in unrolled(explicit=True)


def test_a_loop_that_indexes_registers_is_unrolled() -> None:
    acc, tx, i = buffer("acc", (8,), "float32", "local"), Var.make("tx"), Var.make("i")
    b = buffer("B", (8, 32))
    body = Allocate(acc, seq(loop(i, 8, store(acc, i, 0.0)), loop(i, 8, store(b, i, tx, acc[i]))))
    assert body_text(body, b, tx=tx).count("#pragma unroll") == 2


def test_offsets_of_64_bits_stay_so() -> None:
    a, b = buffer("A", (2**20, 2**12)), buffer("B", (2**20, 2**12))
    tx, bx = Var.make("tx"), Var.make("bx")
    row = ops.cast("int64", bx)
    body = store(b, row, ops.cast("int64", tx), a[row, ops.cast("int64", tx)])
    text = generate(kernel("k", (a, b), body, blockIdx_x=(bx, 2**20), threadIdx_x=(tx, 32))).text
    assert "B[(long long)bx * 4096LL + (long long)tx]" in text


def test_constants() -> None:
    b, tx = buffer("B", (8,)), Var.make("tx")
    d, i = buffer("D", (2,), "float64"), buffer("I", (2,), "int64")
    body = seq(
        store(b, 0, 0.1), store(b, 1, float("inf")), store(b, 2, -3.4028234663852886e38),
        store(b, 3, 1e-45), store(d, 0, const(0.1, "float64")),
        store(i, 0, const(-(2**63), "int64")), store(i, 1, const(2**40, "int64")),
    )  # fmt: skip
    text = body_text(body, b, d, i, tx=tx)
    for line in (
        "B[0] = 0.1f;", "B[1] = __int_as_float(0x7f800000);", "B[2] = -3.4028235e38f;",
        "B[3] = 1.0e-45f;", "D[0] = 0.1;", "I[0] = -9223372036854775807LL - 1;",
        "I[1] = 1099511627776LL;",
    ):  # fmt: skip
        assert line in text


def test_what_may_not_be_evaluated_is_not_taken_out_of_its_condition() -> None:
    a, b, tx, v = buffer("A", (32,)), buffer("B", (32,)), Var.make("tx"), Var.make("v", "float32")
    guarded = E.LetExpr(v, a[tx - 1], v * v)
    text = body_text(store(b, tx, ops.if_then_else(tx > 0, guarded, 0.0)), a, b, tx=tx)
    assert "B[tx] = tx > 0 ? A[tx - 1] * A[tx - 1] : 0.0f;" in text


def test_a_call_of_a_C_function_takes_pointers() -> None:
    a, tx = buffer("A", (64,)), Var.make("tx")
    address = E.Call(ir.dtype("handle"), "address_of", (a[tx + 32],))
    added = E.Call(ir.dtype("float32"), "extern:atomicAdd", (address, const(1.0)))
    text = body_text(Evaluate(added), a, tx=tx)
    assert "atomicAdd(&A[tx + 32], 1.0f);" in text
    assert "(float* __restrict__ A)" in text
