"""Pairs of neighbours, the last pair first: rows of a Toeplitz matrix as products of pairs read it.

A matrix with the element ``f[2 * s + k - step * i]`` at row ``2 * s + k`` and column i has in two
rows, side by side, the pair that begins at ``f[2 * s - step * i]`` for one i after the other. From
one s to the next the pairs are the same, ``2 // step`` columns further on: they are stored once,
and matrices are views of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.instructions._llvm import address, read, write


def _turned(step: int) -> Instruction:
    """``T[i, k] = M[k - step * i]`` for 16 i and 2 k."""

    def llvm(builder: Any, pointers: Sequence[Any], _: Sequence[Sequence[Any]]) -> None:
        from llvmlite import ir

        half, i32 = ir.IntType(16), ir.IntType(32)
        row = ir.VectorType(half, 16)
        t, m = pointers
        # Two loads that together are of what is declared and no more: of step 1 that is 17.
        last = address(builder, m, half, (-step, 15))
        first = address(builder, m, half, (1, -14))
        low, high = (read(builder, place, row, 2) for place in (last, first))
        offset = 15 * step - 14  # of the second from the first
        turns = []
        for k in range(32):
            at = 15 * step + k % 2 - k // 2 * step
            turns.append(at if at < 16 else 16 + at - offset)
        mask = ir.Constant(ir.VectorType(i32, 32), turns)
        write(builder, builder.shuffle_vector(low, high, mask), t, 2)

    return decl_instruction(
        f"turned_pairs_bf16_{step}",
        axes=(Axis("i", 16), Axis("k", 2)),
        operands=(
            Argument("T", ("i", "k"), "bfloat16", strides=(2, 1)),
            Argument("M", ("i", "k"), "bfloat16", strides=(-step, 1)),
        ),
        body=lambda _, value: value,
        llvm=llvm,
    )


#: ``T[i, k] = M[k - step * i]`` by ``step``, for 16 i and 2 k of bfloat16.
turned_pairs_bf16 = {step: _turned(step) for step in (1, 2)}
