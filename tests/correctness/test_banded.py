"""Depthwise convolution becomes products with banded matrices by schedule, of tensor cores."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.articles import spills
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright.ir.errors import LoweringError
from tilewright.runtime.sass import opcodes
from tilewright.topi import Conv
from tilewright.topi.declare import declare
from tilewright.topi.pieces.band_tiles import (
    BandTile,
    GradientTile,
    RowTile,
    ToeplitzTile,
    WarpTile,
)
from tilewright.topi.sketches.banded import schedule_banded
from tilewright.topi.sketches.banded_gradient import schedule_banded_gradient
from tilewright.topi.templates import TEMPLATES


def problem(batch: int, channels: int, image: int, taps: int, **more: Any) -> Conv:
    given: dict[str, Any] = {"padding": taps // 2, "dtype": "float16", "multiplier": 1} | more
    filter = (channels, given.pop("multiplier"), taps, taps)
    return Conv.parse((batch, channels, image, image), filter, **given)


@pytest.mark.parametrize(
    ("p", "tile"),
    [
        (problem(2, 1, 20, 5), RowTile(1, 16, 1, 1, 1)),  # tiles that stand out
        (problem(3, 1, 24, 7, dilation=2), RowTile(1, 16, 2, 2, 3)),
        (problem(1, 2, 17, 3, padding=0, dtype="bfloat16"), RowTile(1, 16, 1, 1, 2)),
        (problem(1, 1, 30, 5, padding=1, stride=(1, 2)), RowTile(2, 16, 1, 1, 2)),
        (problem(1, 1, 30, 5, padding=1, stride=2), RowTile(1, 16, 1, 1, 2)),
        (problem(1, 1, 14, 15, epilogue="bias+relu"), RowTile(1, 16, 1, 1, 2)),  # whole rows
        (problem(1, 2, 9, 3, multiplier=2), RowTile(1, 16, 1, 1, 1)),
        (problem(1, 2, 18, 5, pass_="dgrad"), RowTile(1, 16, 1, 1, 2)),
        (problem(20, 2, 9, 9, pass_="dgrad", dtype="bfloat16"), WarpTile(4, 16, 1, 2, 2, 2, 3)),
        (problem(3, 1, 15, 3, stride=2), WarpTile(1, 16, 1, 1, 1, 5)),
        (problem(33, 1, 12, 3, dilation=(2, 3)), WarpTile(2, 16, 2, 1, 1, 3, 1)),
        (problem(3, 2, 11, 5, stride=(3, 1), multiplier=2), ToeplitzTile(2, 16, 2, 1, 2)),
        (problem(70, 1, 9, 7, padding=(3, 2, 2, 1)), ToeplitzTile(4, 8, 2, 1)),
    ],
    ids=str,
)
def test_every_edge_is_right(p: Conv, tile: BandTile) -> None:
    d = declare(p)
    kernel = tilewright.build(schedule_banded(d, tile), d.args, "sim")
    assert run(p, kernel) < TOLERANCE[p.dtype]


@pytest.mark.parametrize(
    ("p", "tile"),
    [
        (problem(5, 2, 12, 7, pass_="wgrad"), GradientTile(1, 16, 2, 2, 2)),
        (
            problem(3, 2, 19, 9, pass_="wgrad", stride=2, dtype="bfloat16"),
            GradientTile(1, 16, 4, 1),
        ),
        (problem(4, 1, 11, 4, pass_="wgrad", dilation=(1, 2)), GradientTile(1, 16, 4, 4, 2)),
        (problem(1, 3, 16, 7, pass_="wgrad"), GradientTile(1, 16, 1, 1, 2)),
        (problem(3, 1, 34, 19, pass_="wgrad", multiplier=2), GradientTile(2, 32, 1, 2, 1)),
    ],
    ids=str,
)
def test_every_edge_of_a_gradient_is_right(p: Conv, tile: GradientTile) -> None:
    d = declare(p)
    kernel = tilewright.build(schedule_banded_gradient(d, tile), d.args, "sim")
    assert run(p, kernel) < TOLERANCE[p.dtype]


#: With the images' rows and columns in tiles that divide, and not.
SAME = [
    ("gpu.toeplitz_rows", problem(1, 64, 64, 9), RowTile(1, 16, 2, 1, 1)),
    ("gpu.toeplitz_rows", problem(1, 64, 32, 31, pass_="dgrad"), RowTile(2, 32, 1, 1, 2)),
    ("gpu.toeplitz_rows", problem(1, 384, 56, 13), RowTile(2, 32, 1, 1, 2)),
    ("gpu.toeplitz_warps", problem(64, 64, 48, 13), WarpTile(2, 16, 2, 4, 2, 6)),
    ("gpu.toeplitz", problem(64, 64, 32, 13), ToeplitzTile(4, 32, 2, 4)),
    ("gpu.toeplitz_wgrad", problem(64, 64, 32, 13, pass_="wgrad"), GradientTile(1, 16, 16, 4)),
    ("gpu.toeplitz_wgrad", problem(1, 64, 32, 31, pass_="wgrad"), GradientTile(2, 32, 1, 1)),
]


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("name", "p", "tile"), SAME, ids=str)
def test_the_kernel_is_that_of_a_declaration_with_tiles(name: str, p: Conv, tile: BandTile) -> None:
    """Of what multiplies and moves, as many instructions; as many registers, none spilled."""
    arch = "sm_90a"
    d, template = declare(p), TEMPLATES[name]
    scheduled = schedule_banded_gradient if p.pass_ == "wgrad" else schedule_banded
    made = (scheduled(d, tile), d.args)
    config = template.parse(dict(vars(tile)))
    cut = template.declare(p, config)
    by_hand = (template.schedule(cut, config), cut.args)
    kinds = ("HMMA", "HGMMA", "LDSM", "LDS", "LDG", "STS", "STG", "PRMT", "BRA", "LDL", "STL")
    found = []
    for schedule, args in (made, by_hand):
        kernel = tilewright.build(schedule, args, f"cuda -arch={arch}")
        count: Counter[str] = Counter()
        for opcode, n in opcodes(kernel.assembly).items():
            count[opcode.partition(".")[0]] += n
        used = next(iter(kernel.resources.values()))
        found.append([count[x] for x in kinds] + [used.registers, used.shared_memory, used.spills])
    assert found[0] == found[1]
    assert found[0][0] + found[0][1] > 0
    assert spills(*made, arch) == 0


def test_rows_that_do_not_lie_as_instructions_read_them_are_refused() -> None:
    d = declare(problem(1, 1, 16, 3, stride=3))
    with pytest.raises(LoweringError, match="is not one bit of one index"):
        tilewright.lower(schedule_banded(d, RowTile()), d.args, "sim")
