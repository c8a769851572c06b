"""Micro-kernels: small tiles of a matrix product, written out for the registers of a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.instructions._llvm import address, intrinsic, read, splat, write


@cache
def gemm(m: int, n: int, k: int) -> Instruction:
    """``C[i, j] += sum over k of A[i, k] * B[k, j]`` for an m x n tile of float32.

    The tile of C is held in m x n / lanes vector registers while k outer products are added to
    it. Rows of C and B are contiguous; A may have any strides, so that it serves transposed too.
    On x86 with AVX-512, 4 to 14 by 16 to 32 keeps the tile in its 32 registers.
    """

    def c_text(p: Sequence[str], s: Sequence[Sequence[str]]) -> str:
        (c, a, b), (ci, ai, ak, bk) = p, (s[0][0], s[1][0], s[1][2], s[2][2])
        return f"""{{
  float acc[{m}][{n}];
  for (int i = 0; i < {m}; ++i)
    for (int j = 0; j < {n}; ++j) acc[i][j] = ({c})[i * ({ci}) + j];
  for (int k = 0; k < {k}; ++k)
    for (int i = 0; i < {m}; ++i) {{
      const float x = ({a})[i * ({ai}) + k * ({ak})];
      for (int j = 0; j < {n}; ++j) acc[i][j] += x * ({b})[k * ({bk}) + j];
    }}
  for (int i = 0; i < {m}; ++i)
    for (int j = 0; j < {n}; ++j) ({c})[i * ({ci}) + j] = acc[i][j];
}}"""

    def llvm(builder: Any, pointers: Sequence[Any], strides: Sequence[Sequence[Any]]) -> None:
        from llvmlite import ir

        f32 = ir.FloatType()
        row = ir.VectorType(f32, n)
        c, a, b = pointers
        (ci, _, _), (ai, _, ak), (_, _, bk) = strides
        rows = [address(builder, c, f32, (ci, i)) for i in range(m)]
        total = [read(builder, place, row, 4) for place in rows]
        for step in range(k):
            right = read(builder, address(builder, b, f32, (bk, step)), row, 4)
            for i in range(m):
                place = address(builder, a, f32, (ai, i), (ak, step))
                left = splat(builder, read(builder, place, f32, 4), n)
                name = f"llvm.fmuladd.v{n}f32"
                total[i] = intrinsic(builder, name, row, [left, right, total[i]])
        for place, value in zip(rows, total, strict=True):
            write(builder, value, place, 4)

    return decl_instruction(
        f"gemm_f32_{m}x{n}x{k}",
        axes=(Axis("i", m), Axis("j", n), Axis("k", k, reduce=True)),
        operands=(
            Argument("C", ("i", "j"), "float32", strides=(None, 1)),
            Argument("A", ("i", "k"), "float32"),
            Argument("B", ("k", "j"), "float32", strides=(None, 1)),
        ),
        body=lambda c, a, b: c + a * b,
        emissions=dict.fromkeys(("c", "cuda", "opencl"), c_text),
        llvm=llvm,
    )


@cache
def dot(k: int) -> Instruction:
    """``C += sum over k of A[k] * B[k]`` of float32, both contiguous.

    On a CPU the products are added lane by lane and the lanes at the end, so the order of the sum
    differs from that of the loop.
    """

    def c_text(p: Sequence[str], _: Sequence[Sequence[str]]) -> str:
        return f"""{{
  float acc = 0.0f;
  for (int k = 0; k < {k}; ++k) acc += ({p[1]})[k] * ({p[2]})[k];
  *({p[0]}) += acc;
}}"""

    def llvm(builder: Any, pointers: Sequence[Any], _: Sequence[Sequence[Any]]) -> None:
        from llvmlite import ir

        f32 = ir.FloatType()
        vector = ir.VectorType(f32, k)
        c, a, b = pointers
        left, right = (read(builder, p, vector, 4) for p in (a, b))
        products = builder.fmul(left, right)
        name = f"llvm.vector.reduce.fadd.v{k}f32"
        total = ir.Constant(f32, -0.0)
        # Reassociation lets LLVM add in a tree of vectors, where it would add one by one.
        reduced = intrinsic(builder, name, f32, [total, products])
        reduced.fastmath.add("reassoc")
        before = read(builder, c, f32, 4)
        write(builder, builder.fadd(before, reduced), c, 4)

    return decl_instruction(
        f"dot_f32_{k}",
        axes=(Axis("k", k, reduce=True),),
        operands=(
            Argument("C", (), "float32"),
            Argument("A", ("k",), "float32", strides=(1,)),
            Argument("B", ("k",), "float32", strides=(1,)),
        ),
        body=lambda c, a, b: c + a * b,
        emissions=dict.fromkeys(("c", "cuda", "opencl"), c_text),
        llvm=llvm,
    )
