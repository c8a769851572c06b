"""Convolutions as products of matrices, dense and in groups: right for every shape; no spills."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import pytest
from tests.support.dense import convolution
from tests.support.depthwise import TOLERANCE, decode, encode, relative_error, run

import tilewright
from tilewright import te
from tilewright.ir.errors import LanguageError, ScheduleError
from tilewright.runtime.sass import opcodes
from tilewright.target import Target
from tilewright.topi import Conv, Gemm, nn
from tilewright.topi.cpu.conv2d_im2col import ColumnTile, schedule_conv2d_columns
from tilewright.topi.gpu.conv2d_lanes import LaneTile, conv2d_lanes_tiles, schedule_conv2d_lanes
from tilewright.topi.gpu.conv2d_mma import MmaTile, conv2d_mma_tiles, schedule_conv2d_mma
from tilewright.topi.templates import TEMPLATES

SCHEDULES = {
    MmaTile: schedule_conv2d_mma,
    LaneTile: schedule_conv2d_lanes,
    ColumnTile: schedule_conv2d_columns,
}

#: Image, filter, type, groups, and stride, padding, dilation.
CONVOLUTIONS = {
    "dense": ((2, 5, 7, 9), (20, 5, 3, 3), "float16", 1, (1, 1, 1)),
    "strided": ((3, 4, 11, 8), (17, 4, 3, 5), "bfloat16", 1, (2, (2, 1), (1, 2))),
    "groups": ((2, 6, 9, 6), (32, 3, 2, 3), "float16", 2, (1, (1, 0, 3, 2), 1)),
    "depthwise": ((2, 3, 9, 10), (3, 1, 5, 5), "float16", 3, (1, 2, 1)),
    "short rows": ((8, 3, 39, 8), (3, 1, 51, 5), "float16", 3, (2, (50, 8, 0, 0), (1, 2))),
    "one": ((1, 33, 5, 5), (8, 33, 1, 1), "float16", 1, (1, 0, 1)),
    "wide": ((2, 5, 7, 9), (20, 5, 3, 3), "float32", 1, (1, 1, 1)),
    "wide groups": ((2, 6, 9, 6), (20, 3, 2, 3), "float32", 2, ((1, 2), 1, 1)),
    "wide depthwise": ((2, 3, 9, 10), (6, 1, 5, 5), "float32", 3, (1, 2, 2)),
}

CASES: list[tuple[str, Any]] = [
    ("dense", MmaTile(32, 32, 16, 2, 2, 1, 1)),
    ("dense", MmaTile(32, 64, 32, 2, 1, 3, 0)),
    ("strided", MmaTile(16, 32, 16, 1, 2, 2, 1)),
    ("strided", MmaTile(32, 32, 16, 1, 1, 2, 0)),
    ("groups", MmaTile(16, 32, 16, 1, 2, 2, 1)),
    ("depthwise", MmaTile(16, 32, 32, 1, 2, 1, 1)),
    ("depthwise", MmaTile(16, 64, 16, 1, 2, 2, 0)),
    # Blocks of 128 windows, and images of twenty rows of two pairs of them.
    ("short rows", MmaTile(16, 128, 32, 1, 4, 1, 1)),
    ("one", MmaTile(16, 16, 32, 1, 1, 2, 1)),
    ("wide", LaneTile(16, 64, 8, 4, 8, 1, 1)),
    ("wide", LaneTile(8, 32, 4, 2, 8, 3, 0)),
    ("wide", LaneTile(16, 64, 8, 4, 8, 1, 1, 2)),
    ("wide", LaneTile(8, 32, 4, 2, 8, 2, 0, 3)),
    ("wide groups", LaneTile(10, 32, 4, 5, 4, 2, 1)),
    ("wide groups", LaneTile(10, 32, 4, 5, 4, 1, 1, 5)),
    ("wide depthwise", LaneTile(2, 64, 8, 1, 16, 1, 1)),
    ("dense", LaneTile(4, 32, 4, 1, 8, 1, 1)),
    *((name, ColumnTile(8, 2, 8, implicit)) for name in ("wide", "strided") for implicit in (1, 0)),
    ("wide groups", ColumnTile(5, 1, 8, 1)),
    ("wide depthwise", ColumnTile(4, 2, 8, 0)),
]


def convolved(x: Any, f: Any, groups: int, stride: Any, padding: Any, dilation: Any) -> np.ndarray:
    """In float64, tap by tap."""
    (sh, sw), (dh, dw), pads = (
        v if isinstance(v, tuple) else (v, v) for v in (stride, dilation, padding)
    )
    top, left, bottom, right = pads if len(pads) == 4 else pads * 2
    x, f = decode(x), decode(f)
    filters, each, kh, kw = f.shape
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    oh, ow = (x.shape[2] - (kh - 1) * dh - 1) // sh + 1, (x.shape[3] - (kw - 1) * dw - 1) // sw + 1
    y = np.zeros((len(x), filters, oh, ow))
    m = filters // groups
    for g in range(groups):
        part, own = x[:, g * each : (g + 1) * each], f[g * m : (g + 1) * m]
        for i, j in np.ndindex(kh, kw):
            rows = slice(i * dh, i * dh + (oh - 1) * sh + 1, sh)
            columns = slice(j * dw, j * dw + (ow - 1) * sw + 1, sw)
            y[:, g * m : (g + 1) * m] += np.einsum(
                "ncyx,mc->nmyx", part[:, :, rows, columns], own[:, :, i, j]
            )
    return y


def declared(name: str, tile: Any) -> list[Any]:
    shape, filter, dtype, groups, (stride, padding, dilation) = CONVOLUTIONS[name]
    x, f = te.placeholder(shape, dtype, name="X"), te.placeholder(filter, dtype, name="F")
    y = nn.conv2d_nchw(x, f, stride, padding, dilation, groups)
    return [x, f, y]


@pytest.mark.parametrize(("name", "tile"), CASES, ids=str)
def test_a_convolution_is_a_product_of_matrices(name, tile):
    args = declared(name, tile)
    target = "llvm" if isinstance(tile, ColumnTile) else "sim"
    kernel = tilewright.build(SCHEDULES[type(tile)](args[-1], tile), args, target)
    shape, filter, dtype, groups, more = CONVOLUTIONS[name]
    rng = np.random.default_rng(0)
    x, f = (encode(rng.standard_normal(s), dtype) for s in (shape, filter))
    y = encode(np.full([int(e) for e in args[-1].shape], np.nan), dtype)
    kernel(x, f, y)
    assert relative_error(y, convolved(x, f, groups, *more)) < TOLERANCE[dtype]


def test_one_kernel_serves_every_batch_and_what_follows_is_fused():
    tile = ColumnTile(4, 2, 8)
    x, f = te.placeholder((te.var("n"), 3, 8, 7), name="X"), te.placeholder((6, 3, 3, 3), name="F")
    y = nn.relu(nn.conv2d_nchw(x, f, padding=1))
    kernel = tilewright.build(schedule_conv2d_columns(y, tile), [x, f, y])
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((6, 3, 3, 3)).astype("float32")
    for batch in (1, 5):
        data = rng.standard_normal((batch, 3, 8, 7)).astype("float32")
        found = np.full((batch, 6, 8, 7), np.nan, "float32")
        kernel(data, weight, found)
        exact = np.maximum(convolved(data, weight, 1, 1, 1, 1), 0)
        assert relative_error(found, exact) < TOLERANCE["float32"]


@pytest.mark.parametrize("name", ["strided", "groups", "depthwise", "wide", "wide groups"])
def test_every_tile_worth_trying_has_a_program(name):
    shape, filter, dtype, groups, more = CONVOLUTIONS[name]
    make = conv2d_lanes_tiles if dtype == "float32" else conv2d_mma_tiles
    tiles = make(filter[0], groups)
    rng = np.random.default_rng(0)
    x, f = (encode(rng.standard_normal(s), dtype) for s in (shape, filter))
    exact = convolved(x, f, groups, *more)
    for tile in tiles[:: len(tiles) // 3]:
        args = declared(name, tile)
        y = encode(np.full(exact.shape, np.nan), dtype)
        tilewright.build(SCHEDULES[type(tile)](args[-1], tile), args, "sim")(x, f, y)
        assert relative_error(y, exact) < TOLERANCE[dtype]


def test_groups_of_any_size_have_tiles():
    for filters, groups in ((1, 1), (600, 6), (384, 384), (26, 2), (94, 2)):
        for tile in (conv2d_mma_tiles(filters, groups)[0], conv2d_lanes_tiles(filters, groups)[-1]):
            x = te.placeholder((2, groups, 8, 8), "float16", name="X")
            f = te.placeholder((filters, 1, 3, 3), "float16", name="F")
            SCHEDULES[type(tile)](nn.conv2d_nchw(x, f, groups=groups), tile)


def test_few_results_are_shared_out_among_all_units():
    """Of VGG-16's layers: 512 channels of 14 by 14 results, and 64 of 224 by 224."""
    for units in (8, 132):
        first = conv2d_lanes_tiles(512, 1, 14 * 14, 512 * 9, units)[0]
        assert units <= -(-512 // first.rows) * -(-196 // first.columns) * first.chunks
        assert conv2d_lanes_tiles(64, 1, 224 * 224, 64 * 9, units)[0].chunks == 1
    assert conv2d_lanes_tiles(512, 1, 14 * 14, 512 * 9, 8)[0].chunks < first.chunks


def test_chunks_have_several_steps_each():
    for depth in (16, 100, 4608):
        for tile in conv2d_lanes_tiles(32, 1, 49, depth):
            assert tile.chunks == 1 or 2 * tile.chunks * tile.depth <= depth


#: Of ResNet-50 at batch 64, with tiles and the instructions that their kernels are to have.
LAYERS = [
    ((64, 256, 14, 14), (256, 256, 3, 3), 1, MmaTile(128, 128, 32, 2, 4, 2, 1),
     ("HMMA.16816.F32", "LDSM.16.MT88.4", "LDG.E.128.CONSTANT")),
    ((64, 64, 56, 56), (256, 64, 1, 1), 1, MmaTile(128, 128, 32, 2, 2, 3, 0),
     ("HMMA.16816.F32", "LDGSTS.E.BYPASS.128", "STG.E")),
    ((64, 384, 32, 32), (384, 1, 7, 7), 384, MmaTile(16, 128, 32, 1, 4, 1, 1), ("HMMA.16816.F32",)),
    ((64, 256, 14, 14), (256, 256, 3, 3), 1, LaneTile(64, 128, 16, 8, 16, 1, 1),
     ("LDS.128", "LDG.E.128.CONSTANT")),
]  # fmt: skip


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("layer", "arch"), list(zip(LAYERS, cycle(["sm_80", "sm_90a"]))))
def test_layers_are_multiplied_by_the_instructions_meant(layer, arch):
    shape, filter, groups, tile, meant = layer
    dtype = "float16" if isinstance(tile, MmaTile) else "float32"
    x, f = te.placeholder(shape, dtype, name="X"), te.placeholder(filter, dtype, name="F")
    y = nn.conv2d_nchw(x, f, 1, filter[2] // 2, groups=groups)
    kernel = tilewright.build(SCHEDULES[type(tile)](y, tile), [x, f, y], f"cuda -arch={arch}")
    for used in kernel.program.resources.values():
        assert used.spills == used.stack == 0
    found = opcodes(kernel.program.assembly)
    for name in meant:
        assert any(op.startswith(name) for op in found), (name, sorted(found))


@pytest.mark.parametrize(
    ("name", "target"),
    [("gpu.products_mma", "sim"), ("gpu.products", "sim"), ("cpu.products", "llvm")],
)
@pytest.mark.parametrize(
    "p",
    [
        Conv.parse("3x4x9x7", "8x2x7x7", 2, padding=5, stride=(2, 1), dilation=(1, 2),
                   dtype="float16", epilogue="bias+relu"),
        Conv.parse("3x4x9x7", "6x2x5x10", 2, padding=(2, 19, 0, 1), dilation=(1, 2),
                   pass_="dgrad", dtype="bfloat16"),
    ],
    ids=str,
)  # fmt: skip
def test_candidates_of_a_problem_are_right(p, name, target):
    template = TEMPLATES[name]
    assert template.fits(p, Target.parse(target))
    tiles = template.candidates(p, Target.parse(target))
    for tile in tiles[:: max(3, len(tiles) // 4)]:
        kernel = tilewright.build(*template.scheduled(p, tile), target)
        assert run(p, kernel, exact=convolution) < TOLERANCE[p.dtype]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("m", [1, 3, 8, 13])
def test_rows_of_many_matrices_need_not_divide(m, turned):
    """Tiles of each matrix end with its rows: those of attention are any number."""
    p = Gemm(m=m, n=19, k=5, batch=3, transpose_b=turned)
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-4, 5, t.shape).astype("float32") for t in p.inputs().values())
    wanted = a @ (b.swapaxes(1, 2) if turned else b)
    template = TEMPLATES["cpu.products"]
    tiles = template.candidates(p, Target.parse("llvm"))
    assert all(t.rows <= m for t in tiles)
    for tile in tiles:
        y = np.full(p.result.shape, np.nan, "float32")
        tilewright.build(*template.scheduled(p, tile), "llvm")(a, b, y)
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(
    ("filter", "more", "words"),
    [
        ((8, 3, 3, 3), {}, "in 1 groups need a filter"),
        ((8, 2, 3, 3), {"groups": 3}, "in 3 groups need a filter"),
        ((9, 2, 3, 3), {"groups": 2}, "OC a multiple of 2"),
        ((8, 4, 3, 3), {"stride": 0}, "are positive"),
        ((8, 4, 9, 3), {"padding": 1}, "larger than the padded image"),
    ],
)
def test_a_convolution_that_there_is_not_is_refused(filter, more, words):
    x, f = te.placeholder((2, 4, 6, 6), name="X"), te.placeholder(filter, name="F")
    with pytest.raises(LanguageError, match=words):
        nn.conv2d_nchw(x, f, **more)


def test_tiles_of_several_groups_are_refused():
    args = declared("wide groups", LaneTile(8, 32, 4, 2, 8))
    with pytest.raises(ScheduleError, match="10 output channels is no number of tiles of 8 rows"):
        schedule_conv2d_lanes(args[-1], LaneTile(8, 32, 4, 2, 8))
    with pytest.raises(ScheduleError, match="for one sum of products, of 0 reductions"):
        schedule_conv2d_lanes(nn.relu(args[0]))
