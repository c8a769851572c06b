"""Gradients by the input in TF32 whose filter threads hold in registers: on sim and on Hopper
GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.tiles import TARGETS, built, check_tile

from tilewright.topi import Conv, Gemm
from tilewright.topi.gpu.held_product_tiles import held_times
from tilewright.topi.pieces.box_tiles import BoxProductTile

_NAME = "gpu.held_products"


def _conv(input: tuple[int, ...], filter: tuple[int, ...], **values: Any) -> Conv:
    kind = {"layout": "NHWC", "dtype": "float32", "precision": "tf32", "pass_": "dgrad"}
    return Conv.parse(input, filter, 1, **kind | values)


def _tile(*box: int, channels: int = 64, stages: int = 3, boxes: int = 1, staged: int = 1) -> Any:
    return BoxProductTile.of(box, channels, stages, boxes=boxes, turned=1, staged=staged)


#: Pixels that fill no tile, channels that fill none, steps of fewer channels; boxes of a block, and
#: no producer; strides, of which phases see different taps or none; products of matrices.
_CASES = (
    (_conv((4, 64, 6, 5), (96, 64, 1, 1)), _tile(64, 1, 1, boxes=2)),
    (_conv((2, 76, 6, 5), (48, 76, 1, 1)), _tile(72, 1, 1, channels=128, staged=0)),
    (_conv((3, 40, 6, 5), (32, 40, 3, 3), padding=1), _tile(64, 1, 1, boxes=2)),
    (_conv((3, 32, 6, 5), (40, 32, 1, 1)), _tile(64, 1, 1)),
    (_conv((3, 64, 6, 6), (40, 64, 3, 3), padding=1, stride=2), _tile(64, 1, 1)),
    (_conv((3, 64, 6, 6), (64, 64, 3, 3), padding=1, stride=2), _tile(4, 4, 4)),
    (_conv((3, 64, 6, 6), (32, 64, 1, 1), stride=2), _tile(64, 1, 1)),
    (Gemm(m=150, n=128, k=96, dtype="float32", precision="tf32"), _tile(64, 1, 1, boxes=2)),
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("p", "tile"), _CASES, ids=str)
def test_a_filter_is_read_as_it_lies(p: Any, tile: BoxProductTile, target: str) -> None:
    kernel = check_tile(_NAME, p, tile, target)
    assert "k8_tf32_s0" in kernel.ir


def test_no_bank_is_met_twice() -> None:
    p, tile = _CASES[0]
    dy, w = (np.ones(shape, "float32") for shape in (p.output_shape, p.filter_shape))
    report = built(_NAME, p, tile, "sim").simulate(dy, w, np.zeros(p.input_shape, "float32"))
    assert report.ok
    assert not report.conflicts()


def test_they_are_for_what_tma_can_bring_as_it_lies() -> None:
    p = _CASES[0][0]
    assert held_times(p)
    for others in (
        p.replace(precision="tf32x3"), p.replace(pass_="wgrad"), p.replace(multiplier=24),
        _conv((4, 62, 6, 5), (96, 62, 1, 1)), p.replace(dtype="float16", precision="exact"),
        _conv((2, 132, 5, 5), (96, 132, 2, 3), stride=(3, 2)),
    ):  # fmt: skip
        assert not held_times(others)
