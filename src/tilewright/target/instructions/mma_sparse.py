"""Products with diagonals by a warp: mma.sp of NVIDIA's tensor cores (PTX ISA, "mma.sp").

Tensor cores skip half of the products where, of four neighbours in a row of A, two are zero and it
is told which. Of a diagonal three are, so that a row of eight channels at four taps,
``C[o, c, j] += A[o, c, t] * B[t, c, j]`` for two outputs ``o`` and eight ``j``, is one instruction.
Threads that hold a row hold both halves of its channels: A is declared with the ``half`` that an
element is of, and its elements of the other half are zeros like any others. What is not finite in B
spreads to the neighbour of its channel, which is multiplied with the second of the two, and to the
same two channels of the other half.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.instructions._contract import contract

#: How PTX calls a type.
_TYPES = {"float16": "f16", "bfloat16": "bf16"}
#: The channel, in halves and quarters of one: the row of a matrix.
_HIGH, _LOW = ("lane 4",), ("lane 2", "lane 3")

#: The earlier or the later of a register's two taps, where their channel stands among the two that
#: a register of A has of four neighbours: the first of two neighbours is even.
_PLACED = (
    "threadIdx.x & 4 ? 0x1044u : 0x4410u",
    "threadIdx.x & 4 ? 0x3244u : 0x4432u",
)
#: Which two of four neighbours a register of A has, of all rows of a thread.
_KEPT = "threadIdx.x & 8 ? 0xeeeeeeeeu : 0x44444444u"


def _mma_diagonal(element: str) -> Instruction:
    name = _TYPES[element]
    opcode = f"mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.{name}.{name}.f32"

    def cuda(pointers: Sequence[str], slots: Sequence[Sequence[str]]) -> str:
        c = [f"({pointers[0]})[{slot}]" for slot in slots[0]]
        word = "*reinterpret_cast<const unsigned *>({} + {})".format
        rows = [word(pointers[1], slot) for slot in slots[1][::2]]  # taps t and t + 2 of an output
        a = [f"__byte_perm({row}, 0, {of})" for of in _PLACED for row in rows]
        b = [word(pointers[2], slot) for slot in slots[2][::2]]
        numbers = [f"%{k}" for k in range(12)]
        parts = (numbers[:4], numbers[4:8], numbers[8:], numbers[:4])
        operands = ", ".join("{" + ", ".join(part) + "}" for part in parts)
        outs = ", ".join(f'"+f"({x})' for x in c)
        ins = ", ".join(f'"r"({x})' for x in (*a, *b))
        return f'asm("{opcode} {operands}, %12, 0x0;"\n    : {outs}\n    : {ins}, "r"({_KEPT}));'

    return decl_instruction(
        f"mma_diagonal_{name}",
        axes=(
            Axis("o", 2), Axis("high", 2), Axis("low", 4), Axis("j", 8),
            Axis("t", 4, reduce=True), Axis("half", 2, reduce=True),
        ),
        operands=(
            Argument(
                "C", ("o", "high", "low", "j"), "float32", align=4, scopes=("fragment",),
                fragment=(("slot 1",), _HIGH, _LOW, ("slot 0", "lane 0", "lane 1")),
            ),
            Argument(
                "A", ("o", "high", "low", "t", "half"), element, align=4, scopes=("fragment",),
                fragment=(("slot 1",), _HIGH, _LOW, ("lane 1", "slot 0"), ("lane 0",)),
            ),
            Argument(
                "B", ("t", "half", "low", "j"), element, align=4, scopes=("fragment",),
                fragment=(
                    ("slot 1", "slot 2"), ("lane 1",), ("slot 0", "lane 0"),
                    ("lane 2", "lane 3", "lane 4"),
                ),
            ),
        ),
        body=lambda c, a, b: c + a.astype(c.dtype) * b.astype(c.dtype),
        emissions={"cuda": cuda},
        cuda_arch=80,
        simulate=contract,
    )  # fmt: skip


#: ``C[o, c, j] += A[o, c, t, half] * B[t, half, c % 4, j]`` for 2 o, 8 c, 8 j, 4 t and 2 halves,
#: of float16 into float32, from sm_80 on. ``A[o, c, t, half]`` must be zero where ``half`` is not
#: ``c // 4``.
mma_diagonal_f16 = _mma_diagonal("float16")

#: The same of bfloat16.
mma_diagonal_bf16 = _mma_diagonal("bfloat16")
