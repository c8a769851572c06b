"""The templates whose schedules are :mod:`~tilewright.topi.sketches`, in order of preference."""

from __future__ import annotations

from typing import Any

from tilewright.topi.cpu.attention_tiles import attention_times
from tilewright.topi.cpu.attention_tiles import suits as is_attention
from tilewright.topi.cpu.byte_tiles import byte_times
from tilewright.topi.cpu.byte_tiles import suits as is_bytes
from tilewright.topi.cpu.conv2d_im2col import ColumnTile
from tilewright.topi.cpu.flat_tiles import flat_times, suits
from tilewright.topi.cpu.group_tiles import group_times, suits_words
from tilewright.topi.cpu.group_tiles import suits as is_groups
from tilewright.topi.cpu.matrix_tiles import band_times
from tilewright.topi.cpu.matrix_tiles import suits as is_matrix_tiles
from tilewright.topi.cpu.vector_row_tiles import suits as is_rows
from tilewright.topi.cpu.vector_row_tiles import vector_row_tiles
from tilewright.topi.cpu.winograd_tiles import suits as is_winograd
from tilewright.topi.cpu.winograd_tiles import winograd_times
from tilewright.topi.gpu import programs
from tilewright.topi.gpu.attention_tiles import (
    attention_group_times,
    attention_mma_times,
    suits_groups,
)
from tilewright.topi.gpu.attention_tiles import suits as suits_attention
from tilewright.topi.gpu.conv2d_lanes import LaneTile
from tilewright.topi.gpu.conv2d_mma import MmaTile
from tilewright.topi.gpu.mlp_tiles import few_row_times, mlp_times
from tilewright.topi.opencl import packing_tiles as packing
from tilewright.topi.opencl import product_tiles as items
from tilewright.topi.pieces.attention import (
    AttentionGroupTile,
    AttentionMmaTile,
    AttentionTile,
    declare_mma,
    declare_vectors,
    declare_wgmma,
)
from tilewright.topi.pieces.mlp import MlpTile, declare_groups
from tilewright.topi.pieces.tiling import Tiling
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.attention import schedule_attention
from tilewright.topi.sketches.attention_mma import schedule_attention_mma
from tilewright.topi.sketches.attention_wgmma import schedule_attention_wgmma
from tilewright.topi.sketches.box_templates import BOXES, hopper
from tilewright.topi.sketches.byte_dots import ByteTile, schedule_bytes
from tilewright.topi.sketches.column_sums import ColumnSumTile, schedule_column_sums
from tilewright.topi.sketches.dots import DotTile, dot_tiles, schedule_dots, schedule_item_dots
from tilewright.topi.sketches.few_rows import FewRowTile, schedule_few_rows
from tilewright.topi.sketches.flat_windows import FlatTile, form, schedule_flat
from tilewright.topi.sketches.group_windows import GroupTile, schedule_groups
from tilewright.topi.sketches.item_products import ItemTile, schedule_item_products
from tilewright.topi.sketches.loops import counts, schedule_cpu, schedule_gpu, tilings
from tilewright.topi.sketches.matrix_tiles import BandTile, schedule_matrix_tiles
from tilewright.topi.sketches.mlp import schedule_mlp
from tilewright.topi.sketches.packing import PackTile, schedule_packing
from tilewright.topi.sketches.products import (
    column_tiles,
    is_dots,
    is_mma_product,
    is_product,
    lane_counts,
    lane_tiles,
    mma_counts,
    mma_tiles,
    schedule_columns,
    schedule_lanes,
    schedule_mma,
)
from tilewright.topi.sketches.rows import RowTile, schedule_rows
from tilewright.topi.sketches.turned import TurnTile, schedule_turned
from tilewright.topi.sketches.vector_rows import VectorRowTile, schedule_vector_rows
from tilewright.topi.sketches.winograd import WinogradTile, schedule_winograd
from tilewright.topi.sketches.winograd import form as winograd_form
from tilewright.topi.template import DEPTHWISE, Template

#: Any type of sums.
_ANY = ("",)
#: What templates of any operator with the instructions of CUDA's tensor cores say.
_CUDA: Any = {"kinds": ("cuda", "sim"), "shared": True, "matrices": True, "operators": ()}


def _is_other(p: Problem) -> bool:
    """Whether an operator has no schedules of its own for all of its problems."""
    return p.operator not in DEPTHWISE or p.is_8bit


SKETCHES = (
    Template("gpu.dots", RowTile, schedule_rows, (), None, True, programs.dot_tiles,
             shared=True, where=programs.suits_dots, operators=(), types=_ANY),
    *BOXES,
    Template("gpu.attention_groups", AttentionGroupTile, schedule_attention_wgmma, (), None, True,
             attention_group_times, where=suits_groups, arch="sm_90a", declares=declare_wgmma,
             **_CUDA),
    Template("gpu.attention", AttentionMmaTile, schedule_attention_mma, (), None, True,
             attention_mma_times, where=suits_attention, least=80, declares=declare_mma, **_CUDA),
    hopper("gpu.mlp", MlpTile, schedule_mlp, mlp_times, declares=declare_groups),
    hopper("gpu.mlp_rows", FewRowTile, schedule_few_rows, few_row_times, kinds=(), arch="",
           matrices=False),
    Template("gpu.products_mma", MmaTile, schedule_mma, (), None, True, mma_tiles,
             where=is_mma_product, least=80, counts=mma_counts, **_CUDA),
    Template("gpu.products", LaneTile, schedule_lanes, (), None, True, lane_tiles, shared=True,
             where=is_product, least=80, operators=(), counts=lane_counts),
    Template("cpu.matrix_tiles", BandTile, schedule_matrix_tiles, ("forward", "dgrad"), None,
             False, band_times, where=is_matrix_tiles,
             features=("avx512f", "amx-tile", "amx-bf16", "amx-int8"), matrices=True,
             form="matrix tiles", operators=(), types=("float", "int"), priced=True,
             most=24),
    Template("cpu.group_words", GroupTile, schedule_groups, ("forward",), True, False, group_times,
             where=suits_words, features=("avx512f", "avx512vnni"), form="group words",
             operators=(), types=("int",)),
    Template("cpu.byte_dots", ByteTile, schedule_bytes, ("forward",), None, False, byte_times,
             where=is_bytes, features=("avx512f", "avx512vnni"), form="dots", operators=(),
             types=("int",), most=60),
    Template("cpu.flat", FlatTile, schedule_flat, ("forward", "dgrad"), None, False, flat_times,
             where=suits, form=form, operators=(), types=("float", "int"), priced=True),
    Template("cpu.groups", GroupTile, schedule_groups, ("forward",), True, False, group_times,
             where=is_groups, form="groups", operators=(), priced=True),
    Template("cpu.winograd", WinogradTile, schedule_winograd, ("forward",), None, False,
             winograd_times, where=is_winograd, form=winograd_form, operators=(), priced=True),
    Template("cpu.attention", AttentionTile, schedule_attention, (), None, False, attention_times,
             declares=declare_vectors, where=is_attention, operators=(), types=_ANY),
    Template("cpu.dots", DotTile, schedule_dots, (), None, False, dot_tiles, where=is_dots,
             operators=()),
    Template("cpu.products", ColumnTile, schedule_columns, (), None, False, column_tiles,
             where=is_product, operators=()),
    Template("opencl.packing", PackTile, schedule_packing, ("forward", "dgrad"), None, True,
             packing.packing_times, ("opencl", "sim"), where=packing.suits, form=packing.form,
             operators=(), most=24),
    Template("opencl.dots", DotTile, schedule_item_dots, (), None, True, items.item_dot_times,
             ("opencl", "sim"), where=is_dots, operators=()),
    Template("opencl.products", ItemTile, schedule_item_products, (), None, True,
             items.item_product_times, ("opencl", "sim"), where=items.suits, operators=(),
             most=24),
    Template("gpu.rows", RowTile, schedule_rows, (), None, True, programs.row_tiles,
             shared=programs.has_few_rows, where=programs.suits_rows, operators=(), types=_ANY),
    Template("gpu.column_sums", ColumnSumTile, schedule_column_sums, (), None, True,
             programs.column_sum_tiles, shared=True, where=programs.suits_columns, operators=(),
             types=_ANY),
    Template("gpu.turned", TurnTile, schedule_turned, (), None, True, programs.turn_tiles,
             ("cuda", "sim"), shared=True, where=programs.suits_turned, operators=(), types=_ANY),
    Template("cpu.rows", VectorRowTile, schedule_vector_rows, (), None, False, vector_row_tiles,
             where=is_rows, operators=()),
    Template("cpu.loops", Tiling, schedule_cpu, (), None, False, tilings, where=_is_other,
             operators=(), types=_ANY),
    Template("gpu.loops", Tiling, schedule_gpu, (), None, True, programs.loop_tiles,
             where=_is_other, operators=(), counts=counts, types=_ANY),
)  # fmt: skip
