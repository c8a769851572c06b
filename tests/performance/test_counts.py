"""What sketches count in closed form is what the lowered program does."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.depthwise import encode, random_inputs
from tests.support.walk import products

import tilewright
from tilewright.runtime.sim.report import SimReport, Traffic
from tilewright.target import Target
from tilewright.target.devices import WARP
from tilewright.topi import Conv, Conv3d, Gemm
from tilewright.topi.gpu.conv2d_lanes import LaneTile
from tilewright.topi.pieces.band_tiles import GradientTile, RowTile, ToeplitzTile, WarpTile
from tilewright.topi.problem import Problem
from tilewright.topi.template import Template
from tilewright.topi.templates import TEMPLATES

SIM = Target.parse("sim")


def simulated(p: Problem, template: Template, config: object) -> SimReport:
    """A run in sim."""
    kernel = tilewright.build(*template.scheduled(p, config), SIM)
    out = encode(np.zeros(p.result.shape), p.result.dtype)
    report = kernel.simulate(*random_inputs(p, p.shapes()).values(), out)
    assert report.ok, report
    return report


def played(p: Problem, template: Template, config: object) -> tuple[int, int, int, int]:
    """Blocks, products, elements copied to shared memory, and elements stored, of a run in sim."""
    report = simulated(p, template, config)
    found = {name: (t.loads, t.stores) for name, t in report.traffic.items()}
    read = sum(t[0] for name, t in found.items() if name in ("fragment", "local"))
    # An mma reads 512 elements for 2048 products, a product of lanes three for one; a result one.
    terms = read - math.prod(p.result.shape)
    multiplies = 4 * terms if "fragment" in found else terms // 3
    copied = found.get("shared", (0, 0))[1]
    return list(report.blocks.values())[-1], multiplies, copied, found["global"][1]


#: Several rows and columns each: of less than a thread's part of a tile, programs do less than
#: these say, or more.
PROBLEMS = [
    Gemm(m=40, n=50, k=33),
    Gemm(m=17, n=64, k=16, transpose_b=True, batch=2),
    Gemm(m=33, n=70, k=20, pass_="dgrad"),
    Conv.parse((2, 6, 7, 7), (10, 3, 3, 3), 2, padding=1),
    Conv.parse((1, 3, 12, 11), (20, 3, 3, 3), 1, stride=2, layout="NHWC"),
    Conv.parse((2, 4, 9, 8), (16, 4, 3, 3), 1, padding=1, pass_="dgrad"),
    Conv.parse((2, 8, 6, 8), (12, 8, 3, 3), 1, padding=1, pass_="wgrad"),
]


@pytest.mark.parametrize("name", ["gpu.products_mma", "gpu.products"])
@pytest.mark.parametrize("p", PROBLEMS, ids=str)
@settings(max_examples=2)
@given(data=st.data())
def test_products_are_counted(p, name, data):
    template = TEMPLATES[name]
    p = p.replace(dtype="float16") if template.matrices else p
    tiles = [t for t in template.candidates(p, SIM) if getattr(t, "chunks", 1) == 1]
    config = data.draw(st.sampled_from(tiles))
    assert template.counts is not None
    c = template.counts(p, config)
    assert (c.blocks, c.multiplies, c.copied, c.stored) == played(p, template, config)


@pytest.mark.parametrize("p", [p for p in PROBLEMS if p.dtype == "float32"], ids=str)
def test_chunks_of_products_are_counted(p):
    template = TEMPLATES["gpu.products"]
    config = LaneTile(8, 32, 4, 2, 8, chunks=3)
    if p.operator == "conv2d":  # rows of a group of five, or of one
        config = replace(config, rows=5 if p.groups > 1 else 4, down=1)
    c, report = template.counts(p, config), simulated(p, template, config)
    first, adder = tilewright.lower(*template.scheduled(p, config), SIM).funcs
    assert c.multiplies == products(first)
    assert products(adder) == 0
    assert c.blocks == report.blocks[first.name]
    assert c.copied == report.traffic["shared"].stores
    assert c.stored == report.traffic["global"].stores


def depthwise(channels: int, k: int, filters: int = 1, **more: object) -> list[Problem]:
    """In both layouts; windows see all of the image."""
    x, w = (2, channels, 8, 9), (filters * channels, 1, k, k)
    return [
        Conv.parse(x, w, channels, padding=k // 2, layout=layout, **more)
        for layout in ("NCHW", "NHWC")
    ]


DEPTHWISE = [
    *depthwise(8, 3), *depthwise(6, 5, stride=2), *depthwise(3, 3, 2),
    *depthwise(6, 2, pass_="dgrad"), *depthwise(8, 3, pass_="dgrad", stride=2),
    *depthwise(3, 3, 2, pass_="dgrad"), *depthwise(8, 3, pass_="wgrad"),
    *depthwise(8, 5, pass_="wgrad", stride=2), *depthwise(3, 3, 2, pass_="wgrad"),
    *(Conv.parse((3, 4, 16), (4, 1, 3), 4, padding=1, layout=layout, pass_=pass_)
      for layout in ("NCW", "NWC") for pass_ in ("forward", "dgrad", "wgrad")),
    *(Conv3d.parse((2, 4, 4, 8, 9), (4, 1, *kernel), 4, padding=1, layout=layout, pass_=pass_)
      for layout in ("NCDHW", "NDHWC") for pass_ in ("forward", "dgrad", "wgrad")
      for kernel in ((3, 3, 3), (2, 3, 1))),
]  # fmt: skip
IN_REGISTERS = (
    "gpu.strips", "gpu.planes", "gpu.pixels", "gpu.reduction_planes", "gpu.reduction_pixels",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "p"),
    [(name, p) for name in IN_REGISTERS for p in DEPTHWISE if TEMPLATES[name].fits(p, SIM)],
    ids=str,
)
@settings(max_examples=2)
@given(data=st.data())
def test_sums_in_registers_are_counted(name, p, data):
    template = TEMPLATES[name]
    # Of threads with more rows than there are, some programs leave out those.
    tiles = [t for t in template.candidates(p, SIM) if getattr(t, "rows", 1) <= 4]
    config = data.draw(st.sampled_from(tiles))
    assert template.counts is not None
    c, report = template.counts(p, config), simulated(p, template, config)
    module = tilewright.lower(*template.scheduled(p, config), SIM)
    counted = sum(map(products, module.funcs))
    if p.pass_ == "dgrad" and max(p.stride) > 1:  # phases have more or fewer taps
        assert p.flops <= report.flops <= 2 * c.multiplies
    elif p.pass_ == "wgrad" and p.rank == 1:  # the last tile of a row may be trimmed
        assert p.flops // 2 <= counted <= c.multiplies
    else:
        assert c.multiplies == counted
    assert c.blocks == sum(report.blocks.values())
    assert c.stored == report.traffic["global"].stores
    several = p.pass_ == "dgrad" and p.multiplier > 1
    if p.pass_ != "wgrad" and not several:  # sums of the former are in shared memory, too
        assert c.copied == report.traffic.get("shared", Traffic()).stores


@pytest.mark.parametrize(
    "p", [p for p in DEPTHWISE if TEMPLATES["gpu.reduction_pixel_tiles"].fits(p, SIM)], ids=str
)
@settings(max_examples=2)
@given(data=st.data())
def test_sums_over_tiles_are_counted(p, data):
    template = TEMPLATES["gpu.reduction_pixel_tiles"]
    config = data.draw(st.sampled_from(template.candidates(p, SIM)))
    config = replace(config, chunks=data.draw(st.sampled_from((1, config.chunks))))
    assert template.counts is not None
    c, report = template.counts(p, config), simulated(p, template, config)
    module = tilewright.lower(*template.scheduled(p, config), SIM)
    assert p.flops // 2 <= sum(map(products, module.funcs)) <= c.multiplies
    assert c.blocks == sum(report.blocks.values())
    assert c.stored == report.traffic["global"].stores
    if len(module.funcs) == 1:  # the second has shared memory for what it adds
        assert c.copied == report.traffic["shared"].stores


@pytest.mark.parametrize("p", PROBLEMS, ids=str)
@settings(max_examples=2)
@given(data=st.data())
def test_loops_are_counted(p, data):
    template = TEMPLATES["gpu.loops"]
    config = data.draw(st.sampled_from(template.candidates(p, SIM)))
    assert template.counts is not None
    c = template.counts(p, config)
    blocks, _, copied, stored = played(p, template, config)
    assert (c.blocks, c.copied, c.stored) == (blocks, copied, stored)
    assert p.flops // 2 <= c.multiplies


BANDED = ("gpu.toeplitz_rows", "gpu.toeplitz_warps", "gpu.toeplitz", "gpu.toeplitz_wgrad")
BANDS = [
    (Conv.parse((n, 2, 16, 20), (2, 1, k, k), padding=k // 2, **more), tile)
    for n, k, more, tile in (
        (3, 5, {}, RowTile(1, 16, 1, 2)),
        (1, 7, {"pass_": "dgrad"}, RowTile(1, 32)),
        (2, 3, {"dilation": 2}, RowTile(1, 16, 1, 1, 1)),
        (33, 5, {}, WarpTile(2, 16, 2, 2, 2, 2)),
        (3, 3, {"stride": 2, "dtype": "bfloat16"}, WarpTile(1, 16, 1, 2, 1, 4, 3)),
        (2, 5, {"dilation": (2, 1)}, WarpTile(1, 32, 1, 4, 1, 3)),
        (65, 7, {}, ToeplitzTile(4, 16, 2, 2)),
        (2, 5, {"stride": 2}, ToeplitzTile(2, 8, 1, 4, 2)),
        (5, 5, {"pass_": "wgrad"}, GradientTile(1, 16, 2, 2)),
        (3, 3, {"pass_": "wgrad", "stride": 2, "dtype": "bfloat16"}, GradientTile(1, 16, 3, 1, 3)),
    )
    for more in [{"dtype": "float16"} | more]
]


@pytest.mark.parametrize(("p", "tile"), BANDS, ids=str)
def test_products_with_bands_are_counted(p, tile):
    """Of images in whole blocks: of others, a block's last tiles multiply what nobody stores."""
    (template,) = (TEMPLATES[name] for name in BANDED if TEMPLATES[name].config is type(tile))
    assert template.counts is not None
    c, report = template.counts(p, tile), simulated(p, template, tile)
    results = math.prod(p.result.shape)  # of a gradient the second kernel's are no fragments
    reads = report.traffic["fragment"].loads
    reads -= c.stored - results if p.pass_ == "wgrad" else results
    images, rows, columns = tile.product
    # An mma reads 512 elements for 2048 products, a wgmma both its results and the image.
    each = 4.0 if images <= WARP else 16 * rows * columns / (16 + rows * columns)
    assert c.multiplies == reads * each
    assert c.blocks == sum(report.blocks.values())
    assert c.copied == report.traffic["shared"].stores
    assert c.stored == report.traffic["global"].stores
