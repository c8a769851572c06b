"""Schedules of products of boxes, in order of preference where prices do not decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.schedule import Schedule
from tilewright.topi.gpu import box_gradient_tiles as gradients
from tilewright.topi.gpu import box_products as boxes
from tilewright.topi.gpu import tap_gradient_tiles as taps
from tilewright.topi.gpu.box_cluster_tiles import cluster_price, cluster_tiles, suits_clusters
from tilewright.topi.gpu.byte_product_tiles import byte_product_tiles, suits_byte_products
from tilewright.topi.gpu.pooled_tiles import OPERATORS, Pooled
from tilewright.topi.gpu.turned_gradient_tiles import (
    suits_turned_gradient,
    turned_gradient_price,
    turned_gradient_tiles,
)
from tilewright.topi.gpu.warp_box_tiles import (
    suits_narrow,
    warp_box_tiles,
    warp_form,
    warp_price,
)
from tilewright.topi.gpu.whole_boxes import suits_whole, whole_price, whole_tiles
from tilewright.topi.nn.box_factors import BESIDE
from tilewright.topi.pieces.box_tiles import BoxGradientTile, BoxProductTile
from tilewright.topi.pieces.tap_tiles import TapGradientTile, WarpBoxTile
from tilewright.topi.pieces.warp_tiles import WarpProductTile
from tilewright.topi.sketches.box_clusters import schedule_box_clusters
from tilewright.topi.sketches.box_gradient import schedule_box_gradient
from tilewright.topi.sketches.box_products import schedule_box_products
from tilewright.topi.sketches.box_splits import schedule_box_splits
from tilewright.topi.sketches.byte_products import form as byte_form
from tilewright.topi.sketches.byte_products import schedule_byte_products
from tilewright.topi.sketches.tap_gradient import schedule_tap_gradient
from tilewright.topi.sketches.warp_boxes import schedule_warp_boxes
from tilewright.topi.sketches.whole_boxes import schedule_whole_boxes
from tilewright.topi.template import Template


def _pooled(name: str, schedule: Callable[[Any, Any], Schedule], form: str, **of: bool) -> Template:
    """The same schedule where its results are pooled."""
    found = Pooled(**of)
    return Template(
        f"gpu.pooled_{name}", BoxProductTile, schedule, (), True, True, found.tiles,
        ("cuda", "sim"), shared=True, where=found.suits, arch="sm_90a", matrices=True,
        form=f"pooled {form}",
        operators=OPERATORS, price=found.price,
    )  # fmt: skip


BOXES = (
    Template("gpu.box_clusters", BoxProductTile, schedule_box_clusters, (), None, True,
             cluster_tiles, ("cuda", "sim"), shared=True, where=suits_clusters,
             arch="sm_90a", matrices=True, form="boxes", operators=(), types=("float", "int"),
             price=cluster_price),
    Template("gpu.box_splits", BoxProductTile, schedule_box_splits, (), None, True,
             boxes.split_tiles, ("cuda", "sim"), shared=True, where=boxes.suits_splits,
             arch="sm_90a", matrices=True, form="boxes", operators=(), types=("float", "int"),
             price=boxes.price(split=True)),
    Template("gpu.window_splits", BoxProductTile, schedule_box_splits, (), None, True,
             boxes.window_split_tiles, ("cuda", "sim"), shared=True,
             where=boxes.suits_window_splits, arch="sm_90a", matrices=True, form="pixels",
             operators=(), types=("float", "int"), price=boxes.price(split=True, windows=True)),
    Template("gpu.warp_boxes", WarpBoxTile, schedule_warp_boxes, ("forward", "dgrad"), None, True,
             warp_box_tiles, ("cuda", "sim"), shared=True, where=suits_narrow, arch="sm_90a",
             matrices=True, form=warp_form, operators=(), price=warp_price),
    Template("gpu.whole_boxes", BoxProductTile, schedule_whole_boxes, (), None, True,
             whole_tiles, ("cuda", "sim"), shared=True, where=suits_whole,
             arch="sm_90a", matrices=True, form="whole boxes", operators=(),
             types=("float", "int"), price=whole_price),
    Template("gpu.window_products", BoxProductTile, schedule_box_products, (), None, True,
             boxes.window_tiles, ("cuda", "sim"), shared=True, where=boxes.suits_windows,
             arch="sm_90a", matrices=True, form="pixels", operators=(), types=("float", "int"),
             price=boxes.price(windows=True)),
    Template("gpu.block_rows", BoxProductTile, schedule_box_products, (), None, True,
             boxes.row_tiles, ("cuda", "sim"), shared=True, where=boxes.suits_rows, arch="sm_90a",
             matrices=True, form="block rows", operators=(), types=("int",),
             price=boxes.price(beside=BESIDE)),
    Template("gpu.box_products", BoxProductTile, schedule_box_products, (), None, True,
             boxes.product_tiles, ("cuda", "sim"), shared=True, where=boxes.suits_products,
             arch="sm_90a", matrices=True, form="boxes", operators=(), types=("float", "int"),
             price=boxes.price()),
    Template("gpu.byte_products", WarpProductTile, schedule_byte_products, (), None, True,
             byte_product_tiles, ("cuda", "sim"), shared=True, where=suits_byte_products, least=80,
             matrices=True, form=byte_form, operators=(), types=("int",)),
    Template("gpu.tap_gradient", TapGradientTile, schedule_tap_gradient, (), None, True,
             taps.tap_gradient_tiles, ("cuda", "sim"), shared=True, where=taps.suits_taps,
             arch="sm_90a", matrices=True, form="shared taps", operators=(),
             price=taps.tap_price),
    Template("gpu.whole_gradient", BoxGradientTile, schedule_box_gradient, (), None, True,
             gradients.whole_gradient_tiles, ("cuda", "sim"), shared=True,
             where=gradients.suits_whole_gradient, arch="sm_90a", matrices=True,
             form="whole boxes", operators=(), price=gradients.gradient_price(whole=True)),
    Template("gpu.window_gradient", BoxGradientTile, schedule_box_gradient, (), None, True,
             gradients.window_gradient_tiles, ("cuda", "sim"), shared=True,
             where=gradients.suits_window_gradient, arch="sm_90a", matrices=True, form="pixels",
             operators=(), price=gradients.gradient_price(windows=True)),
    Template("gpu.box_gradient", BoxGradientTile, schedule_box_gradient, (), None, True,
             gradients.gradient_tiles, ("cuda", "sim"), shared=True, where=gradients.suits_gradient,
             arch="sm_90a", matrices=True, form="boxes", operators=(),
             price=gradients.gradient_price()),
    Template("gpu.turned_gradient", BoxProductTile, schedule_box_splits, (), None, True,
             turned_gradient_tiles, ("cuda", "sim"), shared=True, where=suits_turned_gradient,
             arch="sm_90a", matrices=True, form="turned", operators=(),
             price=turned_gradient_price),
    _pooled("whole_boxes", schedule_whole_boxes, "whole boxes", whole=True),
    _pooled("box_products", schedule_box_products, "boxes"),
    _pooled("box_splits", schedule_box_splits, "boxes", split=True),
    _pooled("window_splits", schedule_box_splits, "pixels", split=True, windows=True),
)  # fmt: skip
