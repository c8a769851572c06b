"""The instructions that come with Tilewright; more are declared with ``decl_instruction``."""

import re

from tilewright.target.instruction import INSTRUCTIONS, Instruction
from tilewright.target.instructions.amx import (
    amx_bf16,
    amx_load_bf16,
    amx_load_f32,
    amx_load_s8,
    amx_load_s32,
    amx_load_u8,
    amx_s8,
    amx_store_f32,
    amx_store_s32,
    amx_u8_s8,
    amx_zero_f32,
    amx_zero_s32,
)
from tilewright.target.instructions.copy_async import copy_async
from tilewright.target.instructions.dot import (
    dot_bf16,
    dp4a,
    dp4a_u8,
    dp4a_u8_s8,
    pairs_bf16,
    rows_of_bytes,
    turned_bytes,
    turned_words,
    vnni,
    vnni_lanes,
)
from tilewright.target.instructions.ldmatrix import (
    ldmatrix_a_bf16,
    ldmatrix_a_blocks_bf16,
    ldmatrix_a_blocks_f16,
    ldmatrix_a_f16,
    ldmatrix_a_s8,
    ldmatrix_a_trans_bf16,
    ldmatrix_a_trans_blocks_bf16,
    ldmatrix_a_trans_blocks_f16,
    ldmatrix_a_trans_f16,
    ldmatrix_a_u8,
    ldmatrix_b_bf16,
    ldmatrix_b_blocks_bf16,
    ldmatrix_b_blocks_f16,
    ldmatrix_b_f16,
    ldmatrix_b_quads_bf16,
    ldmatrix_b_quads_f16,
    ldmatrix_b_s8,
    ldmatrix_b_trans_bf16,
    ldmatrix_b_trans_blocks_bf16,
    ldmatrix_b_trans_blocks_f16,
    ldmatrix_b_trans_f16,
)
from tilewright.target.instructions.micro_kernel import dot, gemm
from tilewright.target.instructions.mma import (
    mma_bf16,
    mma_bf16_8,
    mma_f16,
    mma_f16_8,
    mma_s8,
    mma_tf32,
    mma_u8,
    mma_u8_s8,
    wmma,
)
from tilewright.target.instructions.mma import named as mma_named
from tilewright.target.instructions.mma_pairs import mma_pairs_bf16, mma_pairs_f16
from tilewright.target.instructions.pair_loads import load_pairs
from tilewright.target.instructions.tma_load import named as tma_load_named
from tilewright.target.instructions.tma_load import tma_load
from tilewright.target.instructions.tma_store import named as tma_store_named
from tilewright.target.instructions.tma_store import tma_store
from tilewright.target.instructions.turned_pairs import turned_pairs_bf16
from tilewright.target.instructions.wgmma import named as wgmma_named
from tilewright.target.instructions.wgmma import wgmma

__all__ = [
    "amx_bf16",
    "amx_load_bf16",
    "amx_load_f32",
    "amx_load_s8",
    "amx_load_s32",
    "amx_load_u8",
    "amx_s8",
    "amx_store_f32",
    "amx_store_s32",
    "amx_u8_s8",
    "amx_zero_f32",
    "amx_zero_s32",
    "copy_async",
    "dot",
    "dot_bf16",
    "dp4a",
    "dp4a_u8",
    "dp4a_u8_s8",
    "gemm",
    "instruction_named",
    "ldmatrix_a_bf16",
    "ldmatrix_a_blocks_bf16",
    "ldmatrix_a_blocks_f16",
    "ldmatrix_a_f16",
    "ldmatrix_a_s8",
    "ldmatrix_a_trans_bf16",
    "ldmatrix_a_trans_blocks_bf16",
    "ldmatrix_a_trans_blocks_f16",
    "ldmatrix_a_trans_f16",
    "ldmatrix_a_u8",
    "ldmatrix_b_bf16",
    "ldmatrix_b_blocks_bf16",
    "ldmatrix_b_blocks_f16",
    "ldmatrix_b_f16",
    "ldmatrix_b_quads_bf16",
    "ldmatrix_b_quads_f16",
    "ldmatrix_b_s8",
    "ldmatrix_b_trans_bf16",
    "ldmatrix_b_trans_blocks_bf16",
    "ldmatrix_b_trans_blocks_f16",
    "ldmatrix_b_trans_f16",
    "load_pairs",
    "mma_bf16",
    "mma_bf16_8",
    "mma_f16",
    "mma_f16_8",
    "mma_pairs_bf16",
    "mma_pairs_f16",
    "mma_s8",
    "mma_tf32",
    "mma_u8",
    "mma_u8_s8",
    "pairs_bf16",
    "rows_of_bytes",
    "tma_load",
    "tma_store",
    "turned_bytes",
    "turned_pairs_bf16",
    "turned_words",
    "vnni",
    "vnni_lanes",
    "wgmma",
    "wmma",
]

_MMA = r"mma_m(\d+)n(\d+)k(\d+)_(b?f16|[su]8)((?:_float16)?)"
_WGMMA = (
    r"wgmma_m64n(\d+)k(?:8|16|32)_(b?f16|tf32|e4m3|e5m2|s8|u8_s8)((?:_[rki][kj])?)((?:_s\d+_\d+)?)"
)
_TMA_STORE = r"tma_store_([a-z0-9]+)_([\dx]+)((?:_s\d+)?)"
_TMA_LOAD = r"tma_load_([a-z0-9]+)_([\dx]+)((?:_s\d+)?)(_w|)((?:_c\d)?)(_late|)"


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
        if sized := re.fullmatch(_WGMMA, name):
            return wgmma_named(*sized.groups())
        if sized := re.fullmatch(_MMA, name):
            return mma_named(*sized.groups())
        if sized := re.fullmatch(r"copy_async_(\w+)_(\d+)", name):
            return copy_async(int(sized[2]), sized[1])
        if sized := re.fullmatch(r"load_pairs_(b?float16)_(\d+)x(\d+)x(\d+)_(\d+)_(\d)", name):
            *rows, places, pairs = map(int, sized.groups()[1:])
            return load_pairs(rows, places, pairs, sized[1])
        if sized := re.fullmatch(_TMA_STORE, name):
            return tma_store_named(*sized.groups())
        if sized := re.fullmatch(_TMA_LOAD, name):
            return tma_load_named(*sized.groups())
    return INSTRUCTIONS.get(name)
