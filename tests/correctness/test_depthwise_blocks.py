"""Channel blocks on a CPU: one vector of channels after another, without padding."""

from __future__ import annotations

import re

import pytest
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright.ir.expr import Cast, Select
from tilewright.ir.stmt import For, If, Produce, Store
from tilewright.ir.visit import walk
from tilewright.select.registry import find
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.cpu.depthwise_blocks import BlockTile, schedule_blocks
from tilewright.topi.declare import declare
from tilewright.topi.templates import TEMPLATES, candidates

LARGE = Conv.parse("1x32x16x16", "32x1x15x15", padding=7, layout="NHWC")
BLOCKS = TEMPLATES["cpu.blocks"]

PROBLEMS = [
    LARGE,
    LARGE.replace(channels=20, padding=(3, 9, 11, 2), dtype="float16"),
    LARGE.replace(
        stride=(2, 1), dilation=(1, 2), padding=(7, 14, 7, 14), epilogue=["bias", "relu"]
    ),
    LARGE.replace(height=40, width=13, stride=(3, 2), channels=3),
    Conv.parse("2x17x9x31", "17x1x7x5", padding=(0, 2, 3, 1), layout="NHWC"),
    Conv.parse("2x20x90", "20x1x31", padding="CAUSAL", layout="NWC"),
]
TILES = [BlockTile(4, 4), BlockTile(1, 5, 8, 3, 2, 0), BlockTile(2, 3, 16, 2, 1, 1, 2)]


@pytest.mark.spread
@pytest.mark.parametrize(
    ("tile", "target"),
    list(zip(TILES, ["llvm", "llvm -arch=avx2", "llvm -threads=2"], strict=True)),
    ids=str,
)
@pytest.mark.parametrize("p", PROBLEMS, ids=str)
def test_every_tile_computes_a_convolution(p: Conv, tile: BlockTile, target: str) -> None:
    found = declare(p)
    kernel = tilewright.build(schedule_blocks(found, tile), found.args, target)
    assert run(p, kernel) < TOLERANCE[p.dtype]


def test_every_tile_computes_a_gradient() -> None:
    p = LARGE.replace(pass_="dgrad", kernel_w=5, padding=(7, 3, 7, 1))
    for tile in TILES[:2]:
        found = declare(p)
        kernel = tilewright.build(schedule_blocks(found, tile), found.args)
        assert run(p, kernel) < TOLERANCE[p.dtype]


def test_sums_in_the_interior_know_no_edges() -> None:
    """Of each reduction loop a part is free of conditions; nowhere are vectors masked."""
    found = declare(LARGE)
    module = tilewright.lower(schedule_blocks(found, BlockTile(4, 4)), found.args)
    nodes = list(walk(module.funcs[0].body))
    assert not any(isinstance(e, Select) and e.dtype.lanes > 1 for e in nodes)
    columns = [s for s in nodes if isinstance(s, For) and s.var.name == "dj"]
    sums = [s for s in columns if any(isinstance(x, Store) for x in walk(s))]
    assert any(not any(isinstance(x, If) for x in walk(s)) for s in sums)
    assert any(any(isinstance(x, If) for x in walk(s)) for s in sums)


@pytest.mark.parametrize("p", PROBLEMS[:2], ids=str)
def test_16_bits_are_converted_once_for_all_their_products(p: Conv) -> None:
    p, tile = p.replace(dtype="bfloat16"), BlockTile(2, 4)
    found = BLOCKS.declare(p, tile)
    schedule = BLOCKS.schedule(found, tile)
    module = tilewright.lower(schedule, found.args)
    produced = {s.stage: s for s in walk(module.funcs[0].body) if isinstance(s, Produce)}
    (sums,) = (s for name, s in produced.items() if name == found.sum.name)
    assert not any(isinstance(e, Cast) for e in walk(sums))
    assert run(p, tilewright.build(schedule, found.args)) < TOLERANCE[p.dtype]


def test_sums_stay_in_registers_beside_large_copies() -> None:
    p = LARGE.replace(height=32, width=32, kernel_h=31, kernel_w=31, padding=(15, 15, 15, 15))
    found = declare(p)
    kernel = tilewright.build(schedule_blocks(found, BlockTile(2, 4)), found.args)
    loops = re.split(r"^\.L\w+:", kernel.assembly, flags=re.MULTILINE)
    fused = [re.findall(r"vfmadd", text) for text in loops]
    if not any(fused):
        pytest.skip("this processor has no fused multiply-add")
    if "%zmm" not in kernel.assembly:
        pytest.skip("this processor has no AVX-512: its 16 registers do not hold these sums")
    busiest = max(loops, key=lambda text: len(re.findall(r"vfmadd", text)))
    assert not re.search(r"vmovu?a?ps\s+%[xyz]mm\d+, ", busiest)  # no sum is stored in it


def test_blocks_come_first_where_each_channel_has_one_filter() -> None:
    machine = Target.parse("llvm")
    assert next(candidates(LARGE, "llvm"))[0] is BLOCKS
    algorithm = find("cpu.blocks")
    assert algorithm is not None
    assert algorithm.can(LARGE, machine) == ""
    assert "other problems" in algorithm.can(LARGE.replace(multiplier=2), machine)
    assert "other problems" in algorithm.can(LARGE.replace(pass_="dgrad", stride=2), machine)
    assert "channels last" in algorithm.can(LARGE.replace(layout="NCHW"), machine)


def test_few_channels_are_divided_into_bands() -> None:
    target = Target.parse("llvm -arch=avx512")
    for tile in BLOCKS.candidates(LARGE.replace(channels=16, height=64), target):
        assert -(-64 // tile.rows) / tile.band > 4
    many = LARGE.replace(channels=16, batch=8)
    assert all(tile.band == 0 for tile in BLOCKS.candidates(many, target))
