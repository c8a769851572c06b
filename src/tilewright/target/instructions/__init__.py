"""The instructions that come with Tilewright; more are declared with ``decl_instruction``."""

import re

from tilewright.target.instruction import INSTRUCTIONS, Instruction
from tilewright.target.instructions.dot import dp4a, dp4a_u8, vnni
from tilewright.target.instructions.micro_kernel import dot, gemm

__all__ = ["dot", "dp4a", "dp4a_u8", "gemm", "instruction_named", "vnni"]


def instruction_named(name: str) -> Instruction | None:
    """The instruction of that name, also one that is made to a size; None where there is none.

    >>> instruction_named("gemm_f32_4x16x8")
    Instruction('gemm_f32_4x16x8')
    """
    if name not in INSTRUCTIONS:
        if sized := re.fullmatch(r"gemm_f32_(\d+)x(\d+)x(\d+)", name):
            return gemm(*map(int, sized.groups()))
        if sized := re.fullmatch(r"dot_f32_(\d+)", name):
            return dot(int(sized[1]))
    return INSTRUCTIONS.get(name)
