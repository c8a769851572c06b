"""The templates for GPUs, of any language or of CUDA alone."""

from __future__ import annotations

from tilewright.topi.gpu import candidates as gpu
from tilewright.topi.gpu.depthwise_channel_pairs import (
    PairTile,
    SparsePairTile,
    declare_channel_pairs,
    schedule_channel_pairs,
)
from tilewright.topi.gpu.depthwise_pixel_tiles import (
    BoxTile,
    declare_boxes,
    schedule_boxes,
    suits_boxes,
)
from tilewright.topi.gpu.depthwise_plane_bands import (
    PlaneBandTile,
    declare_plane_bands,
    schedule_plane_bands,
)
from tilewright.topi.gpu.depthwise_plane_gradient import (
    PlaneGradientTile,
    declare_plane_gradient,
    plane_gradient_tiles,
    schedule_plane_gradient,
    suits_plane_gradient,
)
from tilewright.topi.gpu.depthwise_plane_products import (
    PlaneProductTile,
    declare_plane_products,
    plane_product_tiles,
    schedule_plane_products,
    suits_plane_products,
)
from tilewright.topi.gpu.depthwise_plane_tiles import (
    PlaneBoxTile,
    declare_plane_tiles,
    schedule_plane_tiles,
)
from tilewright.topi.gpu.depthwise_row_products import (
    RowProductTile,
    declare_row_products,
    row_product_tiles,
    schedule_row_products,
    suits_row_products,
)
from tilewright.topi.gpu.depthwise_toeplitz import (
    ToeplitzTile,
    declare_toeplitz,
    schedule_toeplitz,
    suits_toeplitz,
    toeplitz_tiles,
)
from tilewright.topi.gpu.depthwise_toeplitz_rows import (
    RowTile,
    declare_rows,
    row_tiles,
    schedule_rows,
    suits_rows,
)
from tilewright.topi.gpu.depthwise_toeplitz_staged import (
    StagedTile,
    declare_staged,
    schedule_staged,
    staged_tiles,
    suits_staged,
)
from tilewright.topi.gpu.depthwise_toeplitz_tf32 import (
    SplitTile,
    declare_split,
    schedule_split,
    split_tiles,
    suits_split,
)
from tilewright.topi.gpu.depthwise_toeplitz_tf32_rows import (
    SplitRowTile,
    declare_split_rows,
    schedule_split_rows,
    split_row_tiles,
    suits_split_rows,
)
from tilewright.topi.gpu.depthwise_toeplitz_tf32_wgrad import (
    SplitGradientTile,
    declare_split_gradient,
    schedule_split_gradient,
    split_gradient_tiles,
    suits_split_gradient,
)
from tilewright.topi.gpu.depthwise_toeplitz_warps import (
    WarpTile,
    declare_warps,
    schedule_warps,
    suits_warps,
    warp_tiles,
)
from tilewright.topi.gpu.depthwise_toeplitz_wgrad import (
    GradientTile,
    declare_gradient,
    gradient_tiles,
    schedule_gradient,
    suits_gradient,
)
from tilewright.topi.gpu.depthwise_wgrad_bands import BandTile, declare_bands, schedule_bands
from tilewright.topi.gpu.gradient_band_tiles import gradient_band_tiles, suits_bands
from tilewright.topi.gpu.gradient_pixel_tiles import gradient_pixel_tiles, suits_pixel_sums
from tilewright.topi.gpu.pair_tiles import (
    pair_tiles,
    sparse_pair_tiles,
    suits_pairs,
    suits_sparse_pairs,
)
from tilewright.topi.gpu.pixel_tiles import box_tiles
from tilewright.topi.gpu.plane_band_tiles import plane_band_tiles, suits_plane_bands
from tilewright.topi.gpu.plane_box_tiles import plane_box_tiles, suits_plane_boxes
from tilewright.topi.gpu.reductions import reduction_tiles
from tilewright.topi.opencl import candidates as opencl
from tilewright.topi.pieces.reduction_tiles import GradientPixelTile, ReductionTile
from tilewright.topi.pieces.register_tiles import PixelTile, PlaneTile, StripTile
from tilewright.topi.pieces.tile_sums import declare_tile_sums
from tilewright.topi.pieces.windows import form
from tilewright.topi.sketches.planes import plane_counts, schedule_planes
from tilewright.topi.sketches.reductions import reduction_counts, schedule_reductions
from tilewright.topi.sketches.registers import register_counts, schedule_registers
from tilewright.topi.sketches.tile_sums import schedule_tile_sums, tile_counts
from tilewright.topi.template import Template

#: In the order in which they are tried.
GPU = (
    Template("gpu.strips", StripTile, schedule_registers, ("forward", "dgrad"), False, True,
             opencl.short_strips, form=form, counts=register_counts),
    Template("gpu.planes", PlaneTile, schedule_planes, ("forward", "dgrad"), False, True,
             gpu.small_plane_tiles, shared=True, where=gpu.has_small_planes,
             form=form, counts=plane_counts),
    Template("gpu.plane_tiles", PlaneBoxTile, schedule_plane_tiles, ("forward", "dgrad"), False,
             True, plane_box_tiles, ("cuda", "sim"), shared=True, where=suits_plane_boxes,
             least=90, declares=declare_plane_tiles),
    Template("gpu.plane_bands", PlaneBandTile, schedule_plane_bands, ("forward", "dgrad"), False,
             True, plane_band_tiles, ("cuda", "sim"), shared=True, where=suits_plane_bands,
             least=90, declares=declare_plane_bands, matrices=True),
    Template("gpu.toeplitz", ToeplitzTile, schedule_toeplitz, ("forward", "dgrad"), False, True,
             toeplitz_tiles, ("cuda", "sim"), shared=True, where=suits_toeplitz, arch="sm_90a",
             declares=declare_toeplitz, matrices=True),
    Template("gpu.toeplitz_staged", StagedTile, schedule_staged, ("forward", "dgrad"), False,
             True, staged_tiles, ("cuda", "sim"), shared=True, where=suits_staged,
             arch="sm_90a", declares=declare_staged, matrices=True),
    Template("gpu.toeplitz_warps", WarpTile, schedule_warps, ("forward", "dgrad"), False, True,
             warp_tiles, ("cuda", "sim"), shared=True, where=suits_warps, least=80,
             declares=declare_warps, matrices=True),
    Template("gpu.toeplitz_rows", RowTile, schedule_rows, ("forward", "dgrad"), False, True,
             row_tiles, ("cuda", "sim"), shared=True, where=suits_rows, least=80,
             declares=declare_rows, matrices=True),
    Template("gpu.plane_products", PlaneProductTile, schedule_plane_products,
             ("forward", "dgrad"), False, True, plane_product_tiles, ("cuda", "sim"),
             shared=True, where=suits_plane_products, least=80,
             declares=declare_plane_products, matrices=True),
    Template("gpu.toeplitz_tf32", SplitTile, schedule_split, ("forward", "dgrad"), False, True,
             split_tiles, ("cuda", "sim"), shared=True, where=suits_split, least=80,
             declares=declare_split, matrices=True),
    Template("gpu.toeplitz_tf32_rows", SplitRowTile, schedule_split_rows, ("forward", "dgrad"),
             False, True, split_row_tiles, ("cuda", "sim"), shared=True,
             where=suits_split_rows, least=80, declares=declare_split_rows, matrices=True),
    Template("gpu.pixels", PixelTile, schedule_registers, ("forward", "dgrad"), True, True,
             gpu.pixel_tiles, shared=True, form=form, counts=register_counts),
    Template("gpu.pixel_tiles", BoxTile, schedule_boxes, ("forward", "dgrad"), True, True,
             box_tiles, ("cuda", "sim"), shared=True, where=suits_boxes, least=90,
             declares=declare_boxes),
    Template("gpu.channel_pairs", PairTile, schedule_channel_pairs, ("forward", "dgrad"), True,
             True, pair_tiles, ("cuda", "sim"), shared=True, where=suits_pairs, least=90,
             declares=declare_channel_pairs, matrices=True),
    Template("gpu.sparse_pairs", SparsePairTile, schedule_channel_pairs, ("forward", "dgrad"),
             True, True, sparse_pair_tiles, ("cuda", "sim"), shared=True,
             where=suits_sparse_pairs, least=90, declares=declare_channel_pairs, matrices=True),
    Template("gpu.reduction_planes", ReductionTile, schedule_reductions, ("wgrad",),
             False, True, reduction_tiles, shared=True, counts=reduction_counts),
    Template("gpu.toeplitz_wgrad", GradientTile, schedule_gradient, ("wgrad",), False, True,
             gradient_tiles, ("cuda", "sim"), shared=True, where=suits_gradient, least=80,
             declares=declare_gradient, matrices=True),
    Template("gpu.row_products", RowProductTile, schedule_row_products, ("wgrad",), False, True,
             row_product_tiles, ("cuda", "sim"), shared=True, where=suits_row_products,
             arch="sm_90a", declares=declare_row_products, matrices=True),
    Template("gpu.plane_gradient", PlaneGradientTile, schedule_plane_gradient, ("wgrad",),
             False, True, plane_gradient_tiles, ("cuda", "sim"), shared=True,
             where=suits_plane_gradient, least=80, declares=declare_plane_gradient,
             matrices=True),
    Template("gpu.band_gradient", BandTile, schedule_bands, ("wgrad",), False, True,
             gradient_band_tiles, ("cuda", "sim"), shared=True, where=suits_bands, least=80,
             declares=declare_bands, matrices=True),
    Template("gpu.toeplitz_tf32_wgrad", SplitGradientTile, schedule_split_gradient, ("wgrad",),
             False, True, split_gradient_tiles, ("cuda", "sim"), shared=True,
             where=suits_split_gradient, least=80, declares=declare_split_gradient,
             matrices=True),
    Template("gpu.reduction_pixels", ReductionTile, schedule_reductions, ("wgrad",),
             True, True, reduction_tiles, shared=True, counts=reduction_counts),
    Template("gpu.reduction_pixel_tiles", GradientPixelTile, schedule_tile_sums, ("wgrad",),
             True, True, gradient_pixel_tiles, ("cuda", "sim"), shared=True,
             where=suits_pixel_sums, least=90, declares=declare_tile_sums, counts=tile_counts),
)  # fmt: skip
