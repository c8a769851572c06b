"""Schedules of products of boxes, in order of preference where prices do not decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from tilewright.schedule import Schedule
from tilewright.topi.gpu.box_cluster_tiles import cluster_times
from tilewright.topi.gpu.box_gradient_tiles import gradient_times
from tilewright.topi.gpu.box_products import is_sooner, product_times, row_form, row_times
from tilewright.topi.gpu.byte_product_tiles import byte_product_times, suits_byte_products
from tilewright.topi.gpu.copied_gradient_tiles import copied_gradient_times
from tilewright.topi.gpu.held_product_tiles import held_form, held_times
from tilewright.topi.gpu.merged_phase_tiles import merged_times
from tilewright.topi.gpu.pooled_tiles import OPERATORS, pooled_times
from tilewright.topi.gpu.stream_tiles import stream_times
from tilewright.topi.gpu.tap_gradient_tiles import tap_times
from tilewright.topi.gpu.turned_gradient_tiles import turned_gradient_times
from tilewright.topi.gpu.warp_box_tiles import warp_form, warp_times
from tilewright.topi.gpu.warp_product_tiles import warp_product_times
from tilewright.topi.gpu.whole_boxes import whole_times
from tilewright.topi.pieces.box_tiles import BoxGradientTile, BoxProductTile
from tilewright.topi.pieces.tap_tiles import TapGradientTile, WarpBoxTile
from tilewright.topi.pieces.warp_tiles import WarpProductTile
from tilewright.topi.sketches.box_clusters import schedule_box_clusters
from tilewright.topi.sketches.box_gradient import schedule_box_gradient
from tilewright.topi.sketches.box_products import schedule_box_products
from tilewright.topi.sketches.box_splits import schedule_box_splits
from tilewright.topi.sketches.byte_products import form as byte_form
from tilewright.topi.sketches.byte_products import schedule_byte_products
from tilewright.topi.sketches.copied_gradient import schedule_copied_gradient
from tilewright.topi.sketches.held_products import schedule_held_products
from tilewright.topi.sketches.merged_phases import schedule_merged_phases
from tilewright.topi.sketches.streamed_products import StreamTile, schedule_streamed
from tilewright.topi.sketches.tap_gradient import schedule_tap_gradient
from tilewright.topi.sketches.turned_gradient import schedule_turned_gradient
from tilewright.topi.sketches.warp_boxes import schedule_warp_boxes
from tilewright.topi.sketches.warp_products import schedule_warp_products
from tilewright.topi.sketches.whole_boxes import schedule_whole_boxes
from tilewright.topi.template import Template

#: How many tiles are worth trying.
_MOST = 40

_Times: TypeAlias = Callable[[Any], Mapping[Any, float]]
_Schedules: TypeAlias = Callable[[Any, Any], Schedule]


def hopper(
    name: str, config: type[Any], schedule: _Schedules, times: _Times, form: Any = "",
    special: bool = False, **more: Any,
) -> Template:  # fmt: skip
    """A template, with Hopper's instructions unless ``more`` says otherwise, for problems that have
    ``times``: microseconds that tiles are predicted to take; or if it is ``special``, less than
    tiles that have nothing special (:func:`~tilewright.topi.gpu.box_products.product_times`)."""

    def suits(p: Any) -> bool:
        return is_sooner(times(p), p) if special else bool(times(p))

    others: dict[str, Any] = {
        "passes": (), "channels_last": None, "kinds": ("cuda", "sim"), "shared": True,
        "arch": "sm_90a", "matrices": True, "operators": (),
    }  # fmt: skip
    return Template(
        name, config, schedule, gpu=True, tiles=lambda p, target: times(p), where=suits, form=form,
        priced=True, most=_MOST, **others | more,
    )  # fmt: skip


def _boxes(
    name: str, schedule: _Schedules, times: _Times, form: Any = "boxes", special: bool = True
) -> Template:
    return hopper(name, BoxProductTile, schedule, times, form, special, types=("float", "int"))


def _gradient(name: str, form: str, **of: bool) -> Template:
    times: _Times = partial(gradient_times, **of)
    return hopper(name, BoxGradientTile, schedule_box_gradient, times, form)


def _pooled(name: str, schedule: _Schedules, form: str, **of: bool) -> Template:
    """The same schedule where its results are pooled."""
    times: _Times = partial(pooled_times, **of)
    return hopper(
        f"gpu.pooled_{name}", BoxProductTile, schedule, times, f"pooled {form}", channels_last=True,
        operators=OPERATORS,
    )  # fmt: skip


BOXES = (
    _boxes("gpu.box_clusters", schedule_box_clusters, cluster_times),
    _boxes("gpu.window_splits", schedule_box_splits,
           partial(product_times, split=True, windows=True), "pixels"),
    _boxes("gpu.box_splits", schedule_box_splits, partial(product_times, split=True)),
    hopper("gpu.warp_boxes", WarpBoxTile, schedule_warp_boxes, warp_times, warp_form),
    _boxes("gpu.whole_boxes", schedule_whole_boxes, whole_times, "whole boxes"),
    hopper("gpu.merged_phases", BoxProductTile, schedule_merged_phases, merged_times,
           "merged phases"),
    hopper("gpu.held_products", BoxProductTile, schedule_held_products, held_times, held_form),
    _boxes("gpu.window_products", schedule_box_products, partial(product_times, windows=True),
           "pixels"),
    _boxes("gpu.block_rows", schedule_box_products, row_times, row_form),
    _boxes("gpu.box_products", schedule_box_products, product_times, special=False),
    hopper("gpu.warp_products", WarpBoxTile, schedule_warp_products, warp_product_times,
           "undivided"),
    Template("gpu.byte_products", WarpProductTile, schedule_byte_products, (), None, True,
             byte_product_times, ("cuda", "sim"), shared=True, where=suits_byte_products, least=80,
             matrices=True, form=byte_form, operators=(), types=("int",), most=_MOST),
    hopper("gpu.streamed_products", StreamTile, schedule_streamed, stream_times, arch="", least=80,
           types=("float32", "int32")),
    hopper("gpu.tap_gradient", TapGradientTile, schedule_tap_gradient, tap_times, "shared taps"),
    _gradient("gpu.whole_gradient", "whole boxes", whole=True),
    _gradient("gpu.window_gradient", "pixels", windows=True),
    _gradient("gpu.box_gradient", "boxes"),
    hopper("gpu.turned_gradient", BoxGradientTile, schedule_turned_gradient,
           turned_gradient_times, "pixels"),
    hopper("gpu.copied_gradient", BoxGradientTile, schedule_copied_gradient,
           copied_gradient_times, "turned"),
    _pooled("whole_boxes", schedule_whole_boxes, "whole boxes", whole=True),
    _pooled("box_products", schedule_box_products, "boxes"),
    _pooled("box_splits", schedule_box_splits, "boxes", split=True),
    _pooled("window_splits", schedule_box_splits, "pixels", split=True, windows=True),
)  # fmt: skip
