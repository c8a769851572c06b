"""The instructions that come with Tilewright; more are declared with ``decl_instruction``."""

import re

from tilewright.target.instruction import INSTRUCTIONS, Instruction
from tilewright.target.instructions.copy_async import copy_async
from tilewright.target.instructions.dot import dp4a, dp4a_u8, vnni
from tilewright.target.instructions.ldmatrix import (
    ldmatrix_a_bf16,
    ldmatrix_a_f16,
    ldmatrix_a_trans_bf16,
    ldmatrix_a_trans_f16,
    ldmatrix_b_bf16,
    ldmatrix_b_blocks_bf16,
    ldmatrix_b_blocks_f16,
    ldmatrix_b_f16,
    ldmatrix_b_trans_bf16,
    ldmatrix_b_trans_f16,
)
from tilewright.target.instructions.micro_kernel import dot, gemm
from tilewright.target.instructions.mma import mma_bf16, mma_f16, mma_s8, mma_tf32, mma_u8
from tilewright.target.instructions.wgmma import orders_of, wgmma

__all__ = [
    "copy_async",
    "dot",
    "dp4a",
    "dp4a_u8",
    "gemm",
    "instruction_named",
    "ldmatrix_a_bf16",
    "ldmatrix_a_f16",
    "ldmatrix_a_trans_bf16",
    "ldmatrix_a_trans_f16",
    "ldmatrix_b_bf16",
    "ldmatrix_b_blocks_bf16",
    "ldmatrix_b_blocks_f16",
    "ldmatrix_b_f16",
    "ldmatrix_b_trans_bf16",
    "ldmatrix_b_trans_f16",
    "mma_bf16",
    "mma_f16",
    "mma_s8",
    "mma_tf32",
    "mma_u8",
    "vnni",
    "wgmma",
]


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
        if sized := re.fullmatch(r"wgmma_m64n(\d+)k16_(b?)f16((?:_[rki][kj])?)", name):
            element = "bfloat16" if sized[2] else "float16"
            return wgmma(int(sized[1]), element, *orders_of(sized[3]))
        if sized := re.fullmatch(r"copy_async_(\w+)_(\d+)", name):
            return copy_async(int(sized[2]), sized[1])
    return INSTRUCTIONS.get(name)
