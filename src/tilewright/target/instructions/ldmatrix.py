"""Tiles of 16-bit elements from shared memory into fragments: ldmatrix (PTX ISA, "ldmatrix").

Each thread of a warp gives the address of one row of eight elements, and gets two neighbours of
each of four 8 by 8 matrices; transposed, two neighbours of a column. Of bytes a row has sixteen,
and a thread gets four neighbours. In terms of a product
``C[i, j] += A[i, k] * B[k, j]`` there is one instruction for each operand and each order in which
it may lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.dtype import dtype
from tilewright.ir.swizzle import WIDTHS
from tilewright.target.instruction import Argument, Axis, Emission, Instruction, decl_instruction
from tilewright.target.instructions._shared import shared_address

_EIGHT: tuple[str, ...] = ("lane 2", "lane 3", "lane 4")
_PAIRS: tuple[str, ...] = ("slot 0", "lane 0", "lane 1")
_FOURS: tuple[str, ...] = ("slot 0", "slot 1", "lane 0", "lane 1")


def _ldmatrix(
    name: str, axes: tuple[str, str], low: str, reduced: str, rows: str, element: str
) -> Instruction:
    """A tile of 16 by 16, or of bytes by 32.

    ``reduced`` is the axis of which a thread holds neighbours; the second register has the upper
    half along ``low``, the third and fourth those along the other. ``rows`` is the axis from one
    row of shared memory to the next.
    """
    other, wide = next(a for a in axes if a != low), 2 // dtype(element).bytes
    held = _PAIRS if wide == 1 else _FOURS
    first = sum(bit.startswith("slot") for bit in held)  # of the bits that tell registers apart
    bits = {a: (held if a == reduced else _EIGHT) for a in axes}
    bits[low] += (f"slot {first}",)
    bits[other] += (f"slot {first + 1}",)
    row = axes.index(rows)
    # A thread's row is one of matrix (thread / 8), whose bits are those of the registers.
    halves = {low: "(threadIdx.x & 8)", other: "(threadIdx.x >> 4 & 1) * 8"}
    across = next(a for a in axes if a != rows)
    halves[across] += f" * {wide}" if wide > 1 else ""
    flip = ".trans" if rows == reduced else ""

    def cuda(pointers: Sequence[str], places: Sequence[Sequence[str]]) -> str:
        number = f"((threadIdx.x & 7) + {halves[rows]})"
        row_at = f"{number} * {places[1][row]} + {halves[across]}"
        return _load(pointers, places[0][:: 2 * wide], row_at, flip)

    emission: Emission = cuda
    return decl_instruction(
        name,
        axes=tuple(Axis(a, 16 * wide if a == reduced else 16) for a in axes),
        operands=(
            Argument(
                "D", axes, element, align=4, scopes=("fragment",),
                fragment=tuple(bits[a] for a in axes),
            ),
            Argument(
                "S", axes, element, align=16, scopes=("shared",),
                strides=tuple(None if a == rows else 1 for a in axes), swizzles=(0, *WIDTHS),
            ),
        ),
        body=lambda d, s: s,
        emissions={"cuda": emission},
        cuda_arch=75,
        simulate=_copy,
    )  # fmt: skip


def _blocks(operand: str, element: str, suffix: str, flip: bool = False) -> Instruction:
    """A tile of 16 by 16 as blocks of 8 by 8, of which each row, of k, is contiguous, or, with
    ``flip``, each column."""
    across = "i" if operand == "a" else "j"
    axes = (f"{across}o", f"{across}i", "ko", "ki")
    # The second register of A has the lower rows, that of B the later k.
    slots = (1, 2) if operand == "a" else (2, 1)
    halves = {1: "(threadIdx.x >> 3 & 1)", 2: "(threadIdx.x >> 4 & 1)"}

    def cuda(pointers: Sequence[str], places: Sequence[Sequence[str]]) -> str:
        block, row, deep, column = places[1]
        near, far = (halves[slot] for slot in slots)
        inner = column if flip else row
        row_at = f"{near} * {block} + (threadIdx.x & 7) * {inner} + {far} * {deep}"
        return _load(pointers, places[0][::2], row_at, ".trans" if flip else "")

    return decl_instruction(
        f"ldmatrix_{operand}_{'trans_' if flip else ''}blocks_{suffix}",
        axes=tuple(Axis(a, 2 if a.endswith("o") else 8) for a in axes),
        operands=(
            Argument(
                "D", axes, element, align=4, scopes=("fragment",),
                fragment=((f"slot {slots[0]}",), _EIGHT, (f"slot {slots[1]}",), _PAIRS),
            ),
            Argument(
                "S", axes, element, align=16, scopes=("shared",),
                strides=(None, 1, None, None) if flip else (None, None, None, 1),
                swizzles=(0, *WIDTHS),
            ),
        ),
        body=lambda d, s: s,
        emissions={"cuda": cuda},
        cuda_arch=75,
        simulate=_copy,
    )  # fmt: skip


def _quads(element: str, suffix: str) -> Instruction:
    """Four blocks of 8 by 8, one behind the other along the reduction of a product."""

    def cuda(pointers: Sequence[str], places: Sequence[Sequence[str]]) -> str:
        block, row, _ = places[1]
        row_at = f"(threadIdx.x >> 3 & 3) * {block} + (threadIdx.x & 7) * {row}"
        return _load(pointers, places[0][::2], row_at, "")

    axes = ("t", "j", "c")
    return decl_instruction(
        f"ldmatrix_b_quads_{suffix}",
        axes=(Axis("t", 4), Axis("j", 8), Axis("c", 8)),
        operands=(
            Argument(
                "D", axes, element, align=4, scopes=("fragment",),
                fragment=(("slot 1", "slot 2"), _EIGHT, _PAIRS),
            ),
            Argument(
                "S", axes, element, align=16, scopes=("shared",), strides=(None, None, 1),
                swizzles=(0, *WIDTHS),
            ),
        ),
        body=lambda d, s: s,
        emissions={"cuda": cuda},
        cuda_arch=75,
        simulate=_copy,
    )  # fmt: skip


def _load(pointers: Sequence[str], slots: Sequence[str], row: str, flip: str) -> str:
    """The instruction; ``slots`` are the first of each register, and ``row`` is how far a thread's
    row lies from the first element."""
    registers = [f"*reinterpret_cast<unsigned *>({pointers[0]} + {slot})" for slot in slots]
    outs = ", ".join(f'"=r"({x})' for x in registers)
    return (
        f'asm volatile("ldmatrix.sync.aligned.m8n8.x4{flip}.shared.b16 '
        '{%0, %1, %2, %3}, [%4];"\n'
        f"    : {outs}\n"
        f'    : "r"({shared_address(pointers[1], row)})\n'
        '    : "memory");'
    )


def _copy(view: Any) -> None:
    view.write_block(0, view.read_block(1))


def _all(element: str, suffix: str) -> tuple[Instruction, Instruction, Instruction, Instruction]:
    return (
        _ldmatrix(f"ldmatrix_a_{suffix}", ("i", "k"), "i", "k", "i", element),
        _ldmatrix(f"ldmatrix_a_trans_{suffix}", ("i", "k"), "i", "k", "k", element),
        _ldmatrix(f"ldmatrix_b_{suffix}", ("k", "j"), "k", "k", "j", element),
        _ldmatrix(f"ldmatrix_b_trans_{suffix}", ("k", "j"), "k", "k", "k", element),
    )


#: A of a product from rows of k; from rows of i, transposed; B from rows of k (of its columns);
#: from rows of j, transposed. Of float16, from sm_75 on.
ldmatrix_a_f16, ldmatrix_a_trans_f16, ldmatrix_b_f16, ldmatrix_b_trans_f16 = _all("float16", "f16")

#: The same of bfloat16.
ldmatrix_a_bf16, ldmatrix_a_trans_bf16, ldmatrix_b_bf16, ldmatrix_b_trans_bf16 = _all(
    "bfloat16", "bf16"
)

#: A and B of a product of bytes from rows of k, 16 by 32, from sm_75 on.
ldmatrix_a_s8, ldmatrix_a_u8 = (
    _ldmatrix(f"ldmatrix_a_{name}", ("i", "k"), "i", "k", "i", kind)
    for name, kind in (("s8", "int8"), ("u8", "uint8"))
)
ldmatrix_b_s8 = _ldmatrix("ldmatrix_b_s8", ("k", "j"), "k", "k", "j", "int8")

#: A and B of a product from blocks of 8 i, or j, by 8 k, each row of which is contiguous: two
#: blocks along ``io`` or ``jo`` and two along ``ko``.
ldmatrix_a_blocks_f16, ldmatrix_b_blocks_f16 = (
    _blocks("a", "float16", "f16"), _blocks("b", "float16", "f16"),
)  # fmt: skip
ldmatrix_a_blocks_bf16, ldmatrix_b_blocks_bf16 = (
    _blocks("a", "bfloat16", "bf16"), _blocks("b", "bfloat16", "bf16"),
)  # fmt: skip

#: The same of blocks of 8 k by 8 i, or j, transposed.
ldmatrix_a_trans_blocks_f16, ldmatrix_b_trans_blocks_f16 = (
    _blocks("a", "float16", "f16", True), _blocks("b", "float16", "f16", True),
)  # fmt: skip
ldmatrix_a_trans_blocks_bf16, ldmatrix_b_trans_blocks_bf16 = (
    _blocks("a", "bfloat16", "bf16", True), _blocks("b", "bfloat16", "bf16", True),
)  # fmt: skip

#: B of a product from four blocks of 8 j by 8 channels, one behind the other.
ldmatrix_b_quads_f16, ldmatrix_b_quads_bf16 = (
    _quads("float16", "f16"), _quads("bfloat16", "bf16"),
)  # fmt: skip
