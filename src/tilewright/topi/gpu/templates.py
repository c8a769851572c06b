"""The templates for GPUs, of any language or of CUDA alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from tilewright.target.target import Target
from tilewright.topi.gpu import banded_tiles as banded
from tilewright.topi.gpu import candidates as gpu
from tilewright.topi.gpu import depthwise_plane_products as plane_products
from tilewright.topi.gpu import gradient_band_tiles as band_sums
from tilewright.topi.gpu import gradient_pixel_tiles as pixel_sums
from tilewright.topi.gpu import pair_tiles as pairs
from tilewright.topi.gpu import pixel_tiles as pixels
from tilewright.topi.gpu import plane_band_tiles as plane_bands
from tilewright.topi.gpu import plane_box_tiles as plane_boxes
from tilewright.topi.gpu import plane_gradient_tiles as plane_gradient
from tilewright.topi.gpu import staged_tiles as staged
from tilewright.topi.gpu.reductions import reduction_tiles
from tilewright.topi.gpu.row_product_tiles import row_product_tiles, suits_row_products
from tilewright.topi.opencl import candidates as opencl
from tilewright.topi.pieces.band_counts import banded_counts, banded_gradient_counts
from tilewright.topi.pieces.band_tiles import (
    GradientTile,
    RowTile,
    StagedTile,
    ToeplitzTile,
    WarpTile,
)
from tilewright.topi.pieces.pixel_boxes import BoxTile
from tilewright.topi.pieces.pixel_boxes import form as box_form
from tilewright.topi.pieces.plane_gradients import PlaneGradientTile
from tilewright.topi.pieces.plane_tiles import PlaneBoxTile
from tilewright.topi.pieces.reduction_tiles import GradientPixelTile, ReductionTile
from tilewright.topi.pieces.register_tiles import PixelTile, PlaneTile, StripTile
from tilewright.topi.pieces.row_band_cuts import RowBandTile
from tilewright.topi.pieces.row_product_cuts import RowProductTile
from tilewright.topi.pieces.strip_tiles import PairTile, PlaneBandTile, SparsePairTile
from tilewright.topi.pieces.windows import form
from tilewright.topi.sketches.banded import schedule_banded
from tilewright.topi.sketches.boxes import schedule_boxes
from tilewright.topi.sketches.plane_gradient import schedule_plane_gradient
from tilewright.topi.sketches.planes import plane_counts, schedule_planes
from tilewright.topi.sketches.reductions import reduction_counts, schedule_reductions
from tilewright.topi.sketches.registers import register_counts, schedule_registers
from tilewright.topi.sketches.row_bands import schedule_row_bands
from tilewright.topi.sketches.row_products import schedule_row_products
from tilewright.topi.sketches.strips import schedule_strips
from tilewright.topi.sketches.tile_sums import schedule_tile_sums, tile_counts
from tilewright.topi.template import ANY_DEPTHWISE, Template

#: A function that a template has; :class:`Template` says of what.
Make: TypeAlias = Callable[..., Any]
#: Passes whose results are images, and those whose is a filter.
_IMAGES, _WGRAD = ("forward", "dgrad"), ("wgrad",)
#: Types of which TF32 multiplies parts.
_TF32 = ("float32",)
#: Types of sums; those of bytes are summed as floats, where that is exact.
_FLOATS_AND_BYTES = ("float", "bfloat", "int32")


def _cuda(
    name: str, config: type[Any], schedule: Make, tiles: Make, where: Make,
    passes: tuple[str, ...] = _IMAGES, last: bool = False, **more: Any,
) -> Template:  # fmt: skip
    """A template with the instructions of CUDA's GPUs, those of tensor cores unless ``more`` says
    otherwise, from Ampere on."""
    others: dict[str, Any] = {"matrices": True} | more
    if "arch" not in more:
        others.setdefault("least", 80)
    return Template(
        name, config, schedule, passes, last, True, tiles, ("cuda", "sim"), shared=True,
        where=where, **others,
    )  # fmt: skip


def _ranked(
    name: str, config: type[Any], schedule: Make, tiles: Make, suits: Make, **more: Any
) -> Template:
    """The same, of a problem that ``suits`` and of which there are ``tiles`` on any GPU, the best
    guess first."""

    def where(p: Any) -> bool:
        return suits(p) and len(tiles(p)) > 0

    return _cuda(name, config, schedule, lambda p, target: tiles(p), where, **more)


def _guessed(
    name: str, config: type[Any], schedule: Make, guesses: Make, suits: Make, **more: Any
) -> Template:
    """The same, of a problem that ``suits`` and for which there are ``guesses``: tiles, with how
    slow they are predicted to be."""

    def tiles(p: Any, target: Target) -> list[Any]:
        return [tile for _, tile in sorted(guesses(p), key=lambda pair: pair[0])]

    def where(p: Any) -> bool:
        return suits(p) and next(guesses(p), None) is not None

    return _cuda(name, config, schedule, tiles, where, **more)


def _is_depthwise(p: Any) -> bool:
    return bool(p.is_depthwise)


#: In the order in which they are tried.
GPU = (
    Template("gpu.strips", StripTile, schedule_registers, _IMAGES, False, True, opencl.short_strips,
             form=form, counts=register_counts, operators=ANY_DEPTHWISE, where=_is_depthwise),
    Template("gpu.planes", PlaneTile, schedule_planes, _IMAGES, False, True, gpu.small_plane_tiles,
             shared=True, where=gpu.has_small_planes, form=form, counts=plane_counts),
    _ranked("gpu.plane_tiles", PlaneBoxTile, schedule_boxes, plane_boxes.plane_box_tiles,
          plane_boxes.suits_plane_boxes, least=90, matrices=False, work=plane_boxes.work),
    _ranked("gpu.plane_bands", PlaneBandTile, schedule_strips, plane_bands.plane_band_tiles,
          plane_bands.suits_plane_bands, least=90, work=plane_bands.work),
    _guessed("gpu.toeplitz", ToeplitzTile, schedule_banded, banded.toeplitz_guesses,
             banded.suits, arch="sm_90a", counts=banded_counts),
    _ranked("gpu.toeplitz_staged", StagedTile, schedule_banded, staged.staged_tiles,
          staged.suits_staged, arch="sm_90a"),
    _cuda("gpu.toeplitz_warps", WarpTile, schedule_banded, banded.warp_tiles,
          banded.suits_warps, counts=banded_counts),
    _guessed("gpu.toeplitz_rows", RowTile, schedule_banded, banded.row_guesses,
             banded.suits_rows, counts=banded_counts),
    _guessed("gpu.plane_products", plane_products.PlaneProductTile,
             plane_products.schedule_plane_products, plane_products.guesses,
             plane_products.suits_plane_products,
             declares=plane_products.declare_plane_products),
    _guessed("gpu.toeplitz_tf32", WarpTile, schedule_banded, banded.part_guesses,
             partial(banded.suits, types=_TF32)),
    _guessed("gpu.toeplitz_tf32_rows", RowTile, schedule_banded, banded.row_guesses,
             partial(banded.suits_rows, types=_TF32)),
    Template("gpu.pixels", PixelTile, schedule_registers, _IMAGES, True, True, gpu.pixel_tiles,
             shared=True, form=form, counts=register_counts, types=_FLOATS_AND_BYTES,
             operators=ANY_DEPTHWISE, where=_is_depthwise),
    _ranked("gpu.pixel_tiles", BoxTile, schedule_boxes, pixels.box_tiles, pixels.suits_boxes,
          last=True, least=90, matrices=False, types=_FLOATS_AND_BYTES, form=box_form,
          work=pixels.work),
    _ranked("gpu.channel_pairs", PairTile, schedule_strips, pairs.pair_tiles, pairs.suits_pairs,
          last=True, least=90, work=pairs.work),
    _ranked("gpu.sparse_pairs", SparsePairTile, schedule_strips, pairs.sparse_pair_tiles,
          pairs.suits_sparse_pairs, last=True, least=90, work=pairs.work),
    Template("gpu.reduction_planes", ReductionTile, schedule_reductions, _WGRAD, False, True,
             reduction_tiles, shared=True, counts=reduction_counts, form="windows",
             operators=ANY_DEPTHWISE, where=_is_depthwise),
    _guessed("gpu.toeplitz_wgrad", GradientTile, schedule_banded,
             banded.gradient_guesses, banded.suits_gradient, passes=_WGRAD,
             counts=banded_gradient_counts),
    _ranked("gpu.row_products", RowProductTile, schedule_row_products, row_product_tiles,
          suits_row_products, passes=_WGRAD, arch="sm_90a"),
    _guessed("gpu.plane_gradient", PlaneGradientTile, schedule_plane_gradient,
             plane_gradient.guesses, plane_gradient.suits_plane_gradient, passes=_WGRAD),
    _ranked("gpu.band_gradient", RowBandTile, schedule_row_bands, band_sums.gradient_band_tiles,
          band_sums.suits_bands, passes=_WGRAD, work=band_sums.work),
    _guessed("gpu.toeplitz_tf32_wgrad", GradientTile, schedule_banded,
             banded.gradient_guesses, partial(banded.suits_gradient, types=_TF32), passes=_WGRAD),
    Template("gpu.reduction_pixels", ReductionTile, schedule_reductions, _WGRAD, True, True,
             reduction_tiles, shared=True, counts=reduction_counts, form="windows",
             operators=ANY_DEPTHWISE, where=_is_depthwise),
    _ranked("gpu.reduction_pixel_tiles", GradientPixelTile, schedule_tile_sums,
          pixel_sums.gradient_pixel_tiles, pixel_sums.suits_pixel_sums, passes=_WGRAD, last=True,
          least=90, counts=tile_counts, matrices=False, work=pixel_sums.work),
)  # fmt: skip
