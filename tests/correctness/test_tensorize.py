"""Loops that compute what an instruction declares become it, on targets that have it or not."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.support.interpreter import interpret

from tilewright.ir import Buffer, Func
from tilewright.ir.buffer import Layout
from tilewright.ir.errors import LanguageError, LoweringError
from tilewright.ir.expr import Expr
from tilewright.ir.ops import cast, const, if_then_else
from tilewright.ir.stmt import For, Instr, Produce, Stmt, Store, Tensorize
from tilewright.ir.visit import walk
from tilewright.lower.build.tensorize import tensorize
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store, when
from tilewright.lower.loops.split_kernels import split_kernels
from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction, views
from tilewright.target.instructions import dot, dp4a, gemm, instruction_named, vnni
from tilewright.target.matching import match_instruction


def marked(instruction: Instruction, nest: For) -> Tensorize:
    return Tensorize(instruction, "", nest)


def wide(e: Expr) -> Expr:
    return cast("int32", e)


def tiled_gemm(m: int, n: int, k: int, transposed: bool = False) -> Func:
    """C = A B over 2 x 2 x 2 tiles of m x n x k, each tile's loops marked."""
    io, jo, ko, i, j, kk, i2, j2 = axes("io jo ko i j k i2 j2")
    a = buffer("A", 2 * k, 2 * m) if transposed else buffer("A", 2 * m, 2 * k)
    b, c = buffer("B", 2 * k, 2 * n), buffer("C", 2 * m, 2 * n)
    y, x, z = io * m + i, jo * n + j, ko * k + kk
    product = (a[z, y] if transposed else a[y, z]) * b[z, x]
    step = store(c[y, x], product + c[y, x])
    tile = marked(gemm(m, n, k), loop(i, m, loop(kk, k, loop(j, n, step))))
    fill = loop(i2, m, loop(j2, n, store(c[io * m + i2, jo * n + j2], 0.0)))
    return func(loop(io, 2, loop(jo, 2, fill, loop(ko, 2, tile))))


def instrs(s: Stmt) -> list[Instr]:
    return [x for x in walk(s) if isinstance(x, Instr)]


@pytest.mark.parametrize("transposed", [False, True])
def test_a_tile_of_a_matrix_product_is_a_micro_kernel(transposed: bool) -> None:
    before = tiled_gemm(2, 4, 3, transposed)
    after = tensorize(before)
    (found,) = instrs(after.body)
    assert found.instruction is gemm(2, 4, 3)
    assert [o.buffer.name for o in found.operands] == ["C", "A", "B"]
    strides = [[int(s) for s in v.strides] for v in views(found)]
    assert strides == [[8, 1, 0], [1, 0, 4] if transposed else [6, 0, 1], [0, 1, 8]]
    rng = np.random.default_rng(0)
    arrays = {
        p.name: rng.integers(-4, 5, p.constant_shape).astype("float32")
        for p in before.params
        if isinstance(p, Buffer)
    }
    assert (interpret(after, arrays)["C"] == interpret(before, arrays)["C"]).all()


def test_an_initialisation_inside_the_marked_loops_is_moved_in_front() -> None:
    i, k = axes("i k")
    a, b, c = (
        buffer("A", 4, type="uint8"),
        buffer("B", 16, 4, type="int8"),
        buffer("C", 16, type="int32"),
    )
    update = store(c[i], c[i] + wide(a[k]) * wide(b[i, k]))
    before = func(marked(vnni, loop(i, 16, store(c[i], 0), loop(k, 4, update))))
    after = tensorize(before)
    (found,) = instrs(after.body)
    assert isinstance(after.body.stmts[0], For)
    bound = [s.var for s in walk(after.body) if isinstance(s, For)]
    assert len(bound) == len(set(bound))
    rng = np.random.default_rng(0)
    arrays = {
        "A": rng.integers(0, 255, 4).astype("uint8"),
        "B": rng.integers(-128, 127, (16, 4)).astype("int8"),
        "C": np.zeros(16, "int32"),
    }
    want = arrays["B"].astype("int32") @ arrays["A"].astype("int32")
    assert (interpret(after, arrays)["C"] == want).all()
    assert found.instruction.accumulates


def dp4a_nest(**change: object) -> Stmt:
    """A dot product of four bytes that dp4a does, but for ``change``."""
    i, k = axes("i k")
    kinds = {
        "type": "int8",
        "extent": 4,
        "step": 1,
        "shift": 0,
        "guard": False,
        "scale": 1,
        **change,
    }
    a, b = (buffer(n, 64, type=str(kinds["type"])) for n in "AB")
    c = buffer("C", 8, type="int32")
    place = i * 4 + k * int(kinds["step"]) + int(kinds["shift"])
    product = wide(a[place]) * wide(b[i * 4 + k])
    if kinds["scale"] != 1:
        product = product * 2
    made: Stmt = store(c[i], c[i] + product)
    if kinds["guard"]:
        made = when(i * 4 + k < 30, made)
    return loop(k, int(kinds["extent"]), made)


def test_dp4a_matches_its_dot_product_in_any_order() -> None:
    assert isinstance(match_instruction(dp4a_nest(), dp4a), Instr)
    i, k = axes("i k")
    a, b, c = (
        buffer("A", 8, 4, type="int8"),
        buffer("B", 4, type="int8"),
        buffer("C", 8, type="int32"),
    )
    turned = loop(k, 4, store(c[i], wide(b[k]) * wide(a[i, k]) + c[i]), min=0)
    assert isinstance(match_instruction(turned, dp4a), Instr)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"type": "uint8"}, r"operand [AB] cannot be .*uint8, not int8"),
        ({"extent": 8}, r"its loops are k of 8, the instruction's axes are k of 4"),
        ({"step": 2}, r"operand A .*stride along k is 2, not 1"),
        ({"shift": 2}, r"operand A .*not known to be a multiple of 4 bytes"),
        ({"guard": True}, r"runs only where .*split by factors that divide"),
        ({"scale": 2}, r"it declares .*the loops have"),
    ],
)
def test_what_does_not_match_is_explained(change: dict[str, object], reason: str) -> None:
    found = match_instruction(dp4a_nest(**change), dp4a)
    assert isinstance(found, str)
    assert re.search(reason, found), found


def test_more_reasons() -> None:
    i, k = axes("i k")
    a, b, c = buffer("A", 8, 4), buffer("B", 4), buffer("C", 8)
    sums = store(c[i], c[i] + a[i, k] * b[k])
    assert "more than one statement" in str(match_instruction(loop(k, 4, sums, sums), dot(4)))
    assert "thread and must be serial" in str(
        match_instruction(loop(k, 4, sums, tag="threadIdx.x"), dot(4))
    )
    other = store(c[i], a[i, k] * b[k] + c[k])
    assert "is both C[i] and C[k]" in str(match_instruction(loop(k, 4, other), dot(4)))
    crooked = store(c[i], c[i] + a[i, (k * k) % 4] * b[k])
    assert "not affine" in str(match_instruction(loop(k, 4, crooked), dot(4)))
    padded = store(c[i], c[i] + if_then_else(k < 3, a[i, k], const(0.0)) * b[k])
    assert "is an operand, the loops have" in str(match_instruction(loop(k, 4, padded), dot(4)))
    own = store(c[i], c[i] + c[k] * b[k])
    assert "is also an input" in str(match_instruction(loop(k, 4, own), dot(4)))
    swizzled = Buffer("S", a.shape, a.dtype, "shared", Layout(a.strides, const(0), (1, 0, 2)))
    odd = store(c[i], c[i] + swizzled[i, k] * b[k])
    assert "not affine" in str(match_instruction(loop(k, 4, odd), dot(4)))


def test_the_error_names_stage_axis_and_instruction() -> None:

    i, k = axes("i k")
    a, c = buffer("A", 8, 4), buffer("C", 8)
    nest = marked(dot(4), loop(k, 4, store(c[i], c[i] + a[i, k])))
    with pytest.raises(
        LoweringError, match=r"cannot be tensorized with dot_f32_4.*stage 'C', axis 'k'"
    ):
        tensorize(func(loop(i, 8, Produce("C", nest))))


def test_axes_of_extent_one_need_no_loop() -> None:
    j, k = axes("j k")
    a, b, c = buffer("A", 3), buffer("B", 3, 4), buffer("C", 4)
    nest = loop(j, 4, loop(k, 3, store(c[j], c[j] + a[k] * b[k, j])))
    found = match_instruction(nest, gemm(1, 4, 3))
    assert isinstance(found, Instr)
    assert len(found.axes) == 3


def test_indices_of_split_axes_fold_before_they_are_matched() -> None:
    i, ko, ki = axes("i ko ki")
    a, b = buffer("A", 8, type="uint8"), buffer("B", 2, 16, 4, type="int8")
    c = buffer("C", 16, type="int32")
    k = ko * 4 + ki
    update = store(c[i], c[i] + wide(a[k]) * wide(b[k // 4, i, k % 4]))
    body = loop(ko, 2, marked(vnni, loop(i, 16, loop(ki, 4, update))))
    (found,) = instrs(tensorize(func(body)).body)
    assert [int(s) for s in views(found)[2].strides] == [4, 1]


def test_loops_may_begin_anywhere() -> None:
    (k,) = axes("k")
    a, b, c = buffer("A", 16), buffer("B", 16), buffer("C", 1)
    found = match_instruction(loop(k, 4, store(c[0], c[0] + a[k] * b[k]), min=8), dot(4))
    assert isinstance(found, Instr)
    assert [int(v.indices[0]) for v in views(found)] == [0, 8, 8]


def test_buffers_of_the_program_become_as_aligned_as_needed() -> None:
    i, k, l = axes("i k l")
    a, b, c = (
        buffer("A", 8, 4, type="int8"),
        buffer("B", 4, type="int8"),
        buffer("C", 8, type="int32"),
    )
    s = buffer("S", 4, type="int8", scope="local")
    copy = loop(l, 4, store(s[l], a[i, l]))
    nest = marked(dp4a, loop(k, 4, store(c[i], c[i] + wide(s[k]) * wide(b[k]))))
    after = tensorize(func(loop(i, 8, allocate(s, copy, nest))))
    (found,) = instrs(after.body)
    assert found.operands[1].buffer.align == 4
    assert {
        x.buffer for x in walk(after.body) if isinstance(x, Store) and x.buffer.name == "S"
    } == {found.operands[1].buffer}


def test_an_instruction_says_what_a_target_lacks() -> None:
    assert dp4a.lacks("cuda", "sm_80") == ""
    assert "sm_61" in dp4a.lacks("cuda", "sm_50")
    assert "opencl" in dp4a.lacks("opencl")
    assert "avx512vnni" in vnni.lacks("llvm", features={"avx512f"})
    assert vnni.lacks("llvm", features={"avx512f", "avx512vnni"}) == ""
    assert instruction_named("gemm_f32_2x4x3") is gemm(2, 4, 3)
    assert instruction_named("dot_f32_4") is dot(4)
    assert instruction_named("nothing") is None


def test_declarations_that_make_no_sense() -> None:
    with pytest.raises(LanguageError, match="declared already"):
        decl_instruction("dp4a", (), (Argument("C", (), "int32"),), lambda c: c)
    with pytest.raises(LanguageError, match="operand 'A' has axes"):
        decl_instruction(
            "bad_axes", (Axis("i", 4),), (Argument("A", ("j",), "int32"),), lambda a: a
        )
    with pytest.raises(LanguageError, match="body is of float32"):
        decl_instruction(
            "bad_type", (Axis("i", 4),), (Argument("A", ("i",), "int32"),),
            lambda a: a.astype("float32"),
        )  # fmt: skip


@pytest.mark.parametrize("shape", [(2, 4, 3), (4, 16, 8)])
def test_on_a_cpu_the_micro_kernel_computes_what_its_loops_do(shape: tuple[int, int, int]) -> None:
    from tilewright.runtime.compile import build

    before = tiled_gemm(*shape)
    module = split_kernels(tensorize(before))
    kernel = build(module, module.target)
    rng = np.random.default_rng(0)
    arrays = {
        p.name: rng.integers(-4, 5, p.constant_shape).astype("float32")
        for p in module.params
        if isinstance(p, Buffer)
    }
    kernel(*(arrays[p.name] for p in module.params))
    assert (arrays["C"] == arrays["A"] @ arrays["B"]).all()
    assert "fmuladd" in kernel.source or "fma" in kernel.source


def test_on_a_cpu_dot_products_of_floats_and_bytes() -> None:
    from tilewright.runtime.compile import build

    i, j, k, l = axes("i j k l")
    a, b, c = (
        buffer("A", 4, type="uint8"),
        buffer("B", 2, 16, 4, type="int8"),
        buffer("C", 2, 16, type="int32"),
    )
    x, y, z = buffer("X", 8), buffer("Y", 8), buffer("Z", 1)
    update = store(c[j, i], c[j, i] + wide(a[k]) * wide(b[j, i, k]))
    bytes_ = loop(j, 2, marked(vnni, loop(i, 16, loop(k, 4, update))))
    floats = marked(dot(8), loop(l, 8, store(z[0], z[0] + x[l] * y[l])))
    module = split_kernels(tensorize(func(bytes_, floats)))
    kernel = build(module, module.target)
    rng = np.random.default_rng(0)
    arrays = {
        "A": rng.integers(0, 255, 4).astype("uint8"),
        "B": rng.integers(-128, 127, (2, 16, 4)).astype("int8"),
        "C": np.ones((2, 16), "int32"),
        "X": rng.integers(-9, 9, 8).astype("float32"),
        "Y": rng.integers(-9, 9, 8).astype("float32"),
        "Z": np.ones(1, "float32"),
    }
    kernel(*(arrays[p.name] for p in module.params))
    assert (arrays["C"] == 1 + arrays["B"].astype("int32") @ arrays["A"].astype("int32")).all()
    assert arrays["Z"] == [1 + arrays["X"] @ arrays["Y"]]


def test_in_c_the_forms_are_statements() -> None:
    text = gemm(2, 4, 3).emit(
        "c", ["C", "A", "B"], [["8", "1", "0"], ["6", "0", "1"], ["0", "1", "8"]]
    )
    assert text is not None
    assert text.count("{") == text.count("}")
    assert "(A)[i * (6) + k * (1)]" in text
    cuda = dp4a.emit("cuda", ["C + 1", "A", "B"], [["0"], ["1"], ["1"]])
    assert cuda == (
        "*(C + 1) = __dp4a(*reinterpret_cast<const int *>(A), "
        "*reinterpret_cast<const int *>(B), *(C + 1));"
    )
    assert dp4a.emit("opencl", [], []) is None
