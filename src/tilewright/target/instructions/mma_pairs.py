"""Products of pairs of channels by a warp: mma.sp of NVIDIA's tensor cores (PTX ISA, "mma.sp").

Tensor cores skip half of the products where, of four neighbours in a row of A, two are zero and an
operand says which. Rows are outputs of two channels, and neighbours two pixels of both: the zeros
are those of the other channel. So ``C[n, o, c] += A[o, c, q] * B[n, q, c]``, for eight outputs
``o`` at eight places ``n`` that see sixteen pixels ``q`` each, is one instruction, in which A has
the taps of its channel only. What is not finite in B spreads to all outputs of its place and
channel.
"""

from __future__ import annotations

from tilewright.target.instruction import Argument, Axis, Instruction, decl_instruction
from tilewright.target.instructions._contract import contract
from tilewright.target.instructions.mma import product

#: How PTX calls a type.
_TYPES = {"float16": "f16", "bfloat16": "bf16"}
#: Which two of four neighbours are kept: in the lower half of a word, of the eight rows of the
#: first channel, numbers 0 and 2; in the upper half, of the second channel, 1 and 3.
_KEPT = "0xdddd8888u"


def _mma_pairs(element: str) -> Instruction:
    name = _TYPES[element]
    opcode = f"mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.{name}.{name}.f32"

    outputs, pixels = ("lane 2", "lane 3", "lane 4"), ("slot 0", "lane 0", "lane 1")
    return decl_instruction(
        f"mma_pairs_{name}",
        axes=(Axis("n", 8), Axis("o", 8), Axis("c", 2), Axis("q", 16, reduce=True)),
        operands=(
            Argument(
                "C", ("n", "o", "c"), "float32", align=4, scopes=("fragment",),
                fragment=(pixels, outputs, ("slot 1",)),
            ),
            Argument(
                "A", ("o", "c", "q"), element, align=4, scopes=("fragment",),
                fragment=(outputs, ("slot 1",), (*pixels, "slot 2")),
            ),
            Argument(
                "B", ("n", "q", "c"), element, align=4, scopes=("fragment",),
                fragment=(outputs, ("lane 0", "lane 1", "slot 1", "slot 2"), ("slot 0",)),
            ),
        ),
        body=lambda c, a, b: c + a.astype(c.dtype) * b.astype(c.dtype),
        emissions={"cuda": lambda pointers, slots: product(opcode, pointers, slots, 2, kept=_KEPT)},
        cuda_arch=80,
        simulate=contract,
    )  # fmt: skip


#: ``C[n, o, c] += A[o, c, q] * B[n, q, c]`` for 8 n, 8 o, 2 c and 16 q, of float16 into float32,
#: from sm_80 on.
mma_pairs_f16 = _mma_pairs("float16")

#: The same of bfloat16.
mma_pairs_bf16 = _mma_pairs("bfloat16")
