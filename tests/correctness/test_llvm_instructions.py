"""Declared instructions on the CPU: written in LLVM IR where there is a form, else as loops."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.support.cpu import kernel
from tests.support.kernels import buffer, loop

from tilewright.ir import Buffer
from tilewright.ir import stmt as S
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import const
from tilewright.ir.visit import loads, substitute
from tilewright.runtime.llvm_host import host_features
from tilewright.target.instruction import Instruction
from tilewright.target.instructions import dot, gemm, vnni


def applied(instruction: Instruction, places: dict[str, tuple[Buffer, tuple[Expr, ...]]]) -> S.Stmt:
    """The instruction on tiles of buffers: where the tile of each operand begins."""
    update = instruction.update
    element = {}
    for load in [*loads(update.value)]:
        element[load] = _element(load.buffer.name, load.indices, places)
    c = _element(update.buffer.name, update.indices, places)
    body: S.Stmt = S.Store(c.buffer, c.indices, substitute(update.value, element))
    for var, axis in reversed(list(zip(instruction.vars, instruction.axes, strict=True))):
        body = S.For(var, const(0), const(axis.extent), S.ForKind.SERIAL, body)
    operands = []
    for operand in instruction.buffers:
        indices = next(
            (x.indices for x in loads(update.value) if x.buffer is operand), update.indices
        )
        found = _element(operand.name, indices, places)
        operands.append(S.Access(found.buffer, found.indices))
    return S.Instr(instruction, instruction.vars, tuple(operands), body)


def _element(
    name: str, indices: tuple[Expr, ...], places: dict[str, tuple[Buffer, tuple[Expr, ...]]]
) -> object:
    target, first = places[name]
    moved = list(first)
    for axis, index in enumerate(reversed(indices)):
        moved[-1 - axis] = moved[-1 - axis] + index
    return target[tuple(moved)]


@pytest.mark.parametrize("target", ["llvm", "llvm -arch=avx2", "llvm -threads=2"])
def test_a_micro_kernel_of_a_matrix_product(target: str) -> None:
    m, n, k = 8, 32, 12
    tile = gemm(4, 16, 6)
    a, b, c = buffer("a", (m, k)), buffer("b", (k, n)), buffer("c", (m, n))

    def at(i: Var, j: Var, p: Var) -> S.Stmt:
        return applied(tile, {"C": (c, (i * 4, j * 16)), "A": (a, (i * 4, p * 6)),
                              "B": (b, (p * 6, j * 16))})  # fmt: skip

    kind = S.ForKind.PARALLEL
    body = loop(
        "i", 2, lambda i: loop("j", 2, lambda j: loop("p", 2, lambda p: at(i, j, p))), kind=kind
    )
    run = kernel([a, b, c], body, target)
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (m, k)).astype(np.float32)
    y = rng.integers(-3, 4, (k, n)).astype(np.float32)
    found = np.ones((m, n), np.float32)
    run(x, y, found)
    np.testing.assert_array_equal(found, 1 + x @ y)
    assert "alwaysinline" in run.source
    assert "call void @instruction" in run.source


def test_a_symbolic_stride_is_passed_to_the_instruction() -> None:
    from tilewright.ir import Func, Module
    from tilewright.runtime import build
    from tilewright.target import Target

    n = Var.make("n")
    a, b, c = buffer("a", (4, n)), buffer("b", (6, n)), buffer("c", (4, n))
    body = applied(gemm(4, 16, 6), {name: (x, (const(0), const(1)))
                                    for name, x in (("C", c), ("A", a), ("B", b))})  # fmt: skip
    run = build(Module("f", (a, b, c), (Func("f", (a, b, c, n), body),)), Target.parse("llvm"))
    rng = np.random.default_rng(0)
    x, y, z = (rng.integers(-3, 4, (r, 20)).astype(np.float32) for r in (4, 6, 4))
    expected = z.copy()
    expected[:, 1:17] += x[:, 1:7] @ y[:, 1:17]
    run(x, y, z)
    np.testing.assert_array_equal(z, expected)


def test_a_dot_product() -> None:
    a, b, c = buffer("a", (64,)), buffer("b", (64,)), buffer("c", (1,))
    body = loop("i", 4, lambda i: applied(
        dot(16), {"C": (c, (const(0),)), "A": (a, (i * 16,)), "B": (b, (i * 16,))}
    ))  # fmt: skip
    x, y, z = np.arange(64, dtype=np.float32), np.ones(64, np.float32), np.ones(1, np.float32)
    kernel([a, b, c], body)(x, y, z)
    assert z[0] == 1 + x.sum()


@pytest.mark.parametrize("target", ["llvm", "llvm -arch=baseline"])
def test_vnni_where_the_processor_has_it_and_loops_elsewhere(target: str) -> None:
    a, b = buffer("a", (4,), type="uint8"), buffer("b", (16, 4), type="int8")
    c = buffer("c", (16,), type="int32")
    zero = const(0)
    body = applied(vnni, {"C": (c, (zero,)), "A": (a, (zero,)), "B": (b, (zero, zero))})
    run = kernel([a, b, c], body, target)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, 4).astype(np.uint8)
    y = rng.integers(-128, 128, (16, 4)).astype(np.int8)
    z = rng.integers(-99, 99, 16).astype(np.int32)
    expected = z + y.astype(np.int32) @ x.astype(np.int32)
    run(x, y, z)
    np.testing.assert_array_equal(z, expected)
    uses = "vpdpbusd" in run.assembly
    assert uses == (target == "llvm" and {"avx512f", "avx512vnni"} <= host_features())


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_exported_c_has_its_own_form(tmp_path: Path) -> None:
    a, b, c = buffer("a", (4, 6)), buffer("b", (6, 16)), buffer("c", (4, 16))
    zero = (const(0), const(0))
    run = kernel(
        [a, b, c], applied(gemm(4, 16, 6), {"C": (c, zero), "A": (a, zero), "B": (b, zero)})
    )
    run.export_c(tmp_path / "k.c")
    subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Werror", "-shared", "-fPIC", "k.c", "-o", "k.so"],
        cwd=tmp_path, check=True,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, s).astype(np.float32) for s in ((4, 6), (6, 16)))
    z = np.ones((4, 16), np.float32)
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    library.test(*(ctypes.c_void_p(v.ctypes.data) for v in (x, y, z)))
    np.testing.assert_array_equal(z, 1 + x @ y)
