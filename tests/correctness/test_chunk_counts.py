"""The work of gradients by filters is divided so that no SM waits for others."""

from __future__ import annotations

import pytest

from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.gpu.machine import MACHINE
from tilewright.topi.gpu.reductions import busiest, evenly
from tilewright.topi.pieces.reduction_tiles import ReductionTile
from tilewright.topi.templates import TEMPLATES

SM_90A = Target.parse("cuda -arch=sm_90a")
PLANES = TEMPLATES["gpu.reduction_planes"]


def gradient(channels: int, size: int, kernel: int) -> Conv:
    return Conv.parse(
        f"64x{channels}x{size}x{size}", f"{channels}x1x{kernel}x{kernel}",
        padding=kernel // 2, pass_="wgrad",
    )  # fmt: skip


@pytest.mark.parametrize("most", [1, 2, 5, 13, 64, 200])
@pytest.mark.parametrize(("blocks", "turns"), [(48, 98), (1, 1), (7, 3), (133, 40), (1, 64)])
def test_no_other_number_of_chunks_leaves_the_busiest_sm_less(blocks, turns, most):
    chosen, most = evenly(blocks, turns, most), min(most, turns)
    assert most / 2 < chosen <= most
    fewest = min(busiest(blocks, turns, n) for n in range(most // 2 + 1, most + 1))
    assert busiest(blocks, turns, chosen) == fewest


@pytest.mark.parametrize(
    "p", [gradient(192, 28, 5), gradient(144, 56, 5), gradient(32, 112, 5), gradient(96, 56, 7)],
    ids=str,
)  # fmt: skip
def test_the_first_tile_divides_a_gradient_among_sms_within_a_tenth(p):
    tile: ReductionTile = PLANES.candidates(p, SM_90A)[0]
    blocks = -(-p.out_channels // tile.threads) * -(-p.kernel_h // tile.taps)
    turns = p.batch * -(-p.height // tile.rows) * -(-p.width // tile.columns) / tile.lanes
    ideal = turns * blocks / MACHINE.sms
    assert busiest(blocks, -int(-turns // 1), tile.chunks) <= 1.1 * ideal
