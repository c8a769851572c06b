"""Depthwise convolution becomes products with banded matrices by schedule, of tensor cores."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.articles import spills
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright.ir.errors import ScheduleError
from tilewright.runtime.sass import opcodes
from tilewright.topi import Conv
from tilewright.topi.declare import declare
from tilewright.topi.gpu.depthwise_toeplitz_rows import RowTile, declare_rows, schedule_rows
from tilewright.topi.sketches.banded import BandedTile, schedule_banded


def problem(batch: int, channels: int, image: int, taps: int, **more: Any) -> Conv:
    given: dict[str, Any] = {"padding": taps // 2, "dtype": "float16", "multiplier": 1} | more
    filter = (channels, given.pop("multiplier"), taps, taps)
    return Conv.parse((batch, channels, image, image), filter, **given)


@pytest.mark.parametrize(
    ("p", "tile"),
    [
        (problem(2, 1, 20, 5), BandedTile(1, 16, 1, 1)),  # tiles that stand out
        (problem(1, 1, 24, 7, dilation=2), BandedTile(1, 16, 2, 3)),
        (problem(1, 2, 17, 3, padding=0, dtype="bfloat16"), BandedTile(1, 16, 1, 2)),
        (problem(1, 1, 30, 5, padding=1, stride=(1, 2)), BandedTile(2, 16, 1, 2)),
        (problem(1, 1, 14, 15, epilogue="bias+relu"), BandedTile(1, 16, 1, 2)),  # whole rows
        (problem(1, 2, 9, 3, multiplier=2), BandedTile(1, 16, 1, 1)),
    ],
    ids=str,
)
def test_every_edge_is_right(p: Conv, tile: BandedTile) -> None:
    d = declare(p)
    kernel = tilewright.build(schedule_banded(d, tile), d.args, "sim")
    assert run(p, kernel) < TOLERANCE[p.dtype]


#: With the images' rows and columns in tiles that divide, and not.
SAME = [
    (problem(1, 64, 64, 9), BandedTile(1, 16, 2, 1)),
    (problem(1, 64, 32, 31), BandedTile(2, 32, 1, 2)),
    (problem(1, 384, 56, 13), BandedTile(2, 32, 1, 2)),
]


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("p", "tile"), SAME, ids=str)
def test_the_kernel_is_that_of_a_declaration_with_tiles(p: Conv, tile: BandedTile) -> None:
    """Of what multiplies and moves, as many instructions; as many registers, none spilled."""
    arch = "sm_80"
    d = declare(p)
    made = (schedule_banded(d, tile), d.args)
    rows = RowTile(tile.tiles, tile.columns, tile.groups, 1, tile.stages)
    cut = declare_rows(p, rows)
    by_hand = (schedule_rows(cut, rows), cut.args)
    found = []
    for schedule, args in (made, by_hand):
        kernel = tilewright.build(schedule, args, f"cuda -arch={arch}")
        count: Counter[str] = Counter()
        for name, n in opcodes(kernel.assembly).items():
            count[name.partition(".")[0]] += n
        (used,) = kernel.resources.values()
        found.append(
            [count[x] for x in ("HMMA", "LDS", "LDG", "STS", "STG", "PRMT", "BRA", "LDL", "STL")]
            + [used.registers, used.shared_memory, used.spills]
        )
    assert found[0] == found[1]
    assert found[0][0] > 0
    assert spills(*made, arch) == 0


def test_rows_that_lie_apart_are_refused() -> None:
    with pytest.raises(ScheduleError, match="does not follow from"):
        schedule_banded(declare(problem(1, 1, 16, 3, stride=2)), BandedTile())
