"""Copies of operands that boxes cannot bring as they lie: how threads read them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.runtime.sass import opcodes
from tilewright.topi import Conv
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.templates import TEMPLATES


@pytest.mark.parametrize(("precision", "stride"), [("tf32", 1), ("tf32", 2), ("tf32x3", 1)])
def test_filters_are_turned_by_threads_that_read_side_by_side(precision: str, stride: int) -> None:
    p = Conv.parse((1, 64, 8, 8), (64, 64, 3, 3), 1, padding=1, stride=stride, pass_="dgrad",
                   dtype="float32", precision=precision, layout="NHWC")  # fmt: skip
    schedule, args = TEMPLATES["gpu.box_products"].scheduled(p, BoxProductTile(1, 8, 8, 64))
    kernel = tilewright.build(schedule, args, "sim")
    shapes = [tuple(int(e) for e in t.shape) for t in args]
    report = kernel.simulate(*(np.ones(shape, "float32") for shape in shapes))
    read = [a for a in report.accesses if a.buffer == "filter"]
    assert read
    assert all(a.transactions == a.ideal for a in read)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("dtype", "channels", "load"), [
    ("int8", 24, "LDG.E.64.CONSTANT"), ("int8", 20, "LDG.E.CONSTANT"),
    ("float16", 20, "LDG.E.64.CONSTANT"),
])  # fmt: skip
def test_pixels_that_are_filled_up_are_read_in_vectors(
    dtype: str, channels: int, load: str
) -> None:
    p = Conv.parse((1, channels, 16, 16), (64, channels, 1, 1), 1, dtype=dtype, layout="NHWC")
    schedule, args = TEMPLATES["gpu.box_products"].scheduled(p, BoxProductTile(64, 1, 1, 64))
    found = opcodes(tilewright.build(schedule, args, "cuda -arch=sm_90a").assembly)
    assert found[load] == 2  # of the image, and of the filter
    assert not any(name.startswith("LDG.E.U") for name in found)
