"""Large filters on tensor cores: right for every shape, in sim; instructions meant, no spills."""

from __future__ import annotations

import pytest

import tilewright
from tilewright.codegen.cuda import generate
from tilewright.ir.errors import LoweringError
from tilewright.lower.pipeline import lower
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.runtime.sass import disassemble, opcodes
from tilewright.select.choice import choose
from tilewright.select.profile_cache import ProfileCache
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.pieces.band_cuts import Bands
from tilewright.topi.pieces.band_tiles import (
    GradientTile,
    RowTile,
    StagedTile,
    ToeplitzTile,
    WarpTile,
)
from tilewright.topi.templates import TEMPLATES

#: For warpgroups of Hopper, and for warps of any GPU since Ampere.
TEMPLATE, WARPS = TEMPLATES["gpu.toeplitz"], TEMPLATES["gpu.toeplitz_warps"]
#: For few images, and for gradients by the filter.
ROWS, GRADIENTS = TEMPLATES["gpu.toeplitz_rows"], TEMPLATES["gpu.toeplitz_wgrad"]
STAGED = TEMPLATES["gpu.toeplitz_staged"]
HERE = {
    StagedTile: STAGED,
    ToeplitzTile: TEMPLATE,
    WarpTile: WARPS,
    RowTile: ROWS,
    GradientTile: GRADIENTS,
}


def problem(data, filter, **more):
    return Conv.parse(data, filter, **{"dtype": "float16", "padding": 3, **more})


HOPPER = "cuda -arch=sm_90a"
LARGE = problem("64x384x32x32", "384x1x31x31", padding=15)


def kernel(p, tile, target):
    template = HERE[type(tile)]
    return tilewright.build(*template.scheduled(p, tile), target)


@pytest.mark.parametrize(("chunks", "kernels"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_gradient_of_one_chunk_is_one_kernel(dtype, chunks, kernels):
    name = "gpu.toeplitz_tf32_wgrad" if dtype == "float32" else "gpu.toeplitz_wgrad"
    template, p = TEMPLATES[name], problem("4x2x16x16", "2x1x9x9", pass_="wgrad", dtype=dtype)
    tile = template.config(1, 16, chunks, 1, 2)
    module = lower(*template.scheduled(p, tile), HOPPER)
    assert len(module.funcs) == kernels
    assert len(module.workspaces) == kernels - 1


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("dtype", "pass_"), [("float16", "forward"), ("bfloat16", "dgrad")])
def test_the_tile_that_comes_first_multiplies_without_a_pause(dtype, pass_):
    p = LARGE.replace(dtype=dtype, pass_=pass_)
    tile = TEMPLATE.candidates(p, Target.parse(HOPPER))[0]
    module = lower(*TEMPLATE.scheduled(p, tile), HOPPER)
    cubin = compile_cubin(generate(module, "sm_90a").text, "sm_90a")
    (used,) = cubin.resources.values()
    assert used.spills == used.stack == 0
    assert "serialized" not in cubin.log  # products of a group that wait for each other
    found = opcodes(disassemble(cubin.data))
    width = f"HGMMA.64x{tile.rows * tile.columns}x16.F32"
    assert sum(n for op, n in found.items() if op.startswith(width)) >= 2 * tile.stages
    assert "LDG.E.128.CONSTANT" in found
    assert "STG.E.128" in found


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("image", "rank"), [(16, 0), (32, 0), (32, 1), (64, 0)])
def test_staged_images_are_multiplied_without_a_pause(image, rank):
    p = problem(f"64x384x{image}x{image}", "384x1x31x31", padding=15)
    tile = STAGED.candidates(p, Target.parse(HOPPER))[rank]
    module = lower(*STAGED.scheduled(p, tile), HOPPER)
    cubin = compile_cubin(generate(module, "sm_90a").text, "sm_90a")
    (used,) = cubin.resources.values()
    assert used.spills == used.stack == 0
    assert "serialized" not in cubin.log
    found = opcodes(disassemble(cubin.data))
    copies = "UTMALDG.4D" if tile.box else "LDGSTS.E.BYPASS.128"
    assert {f"HGMMA.64x{tile.rows * tile.columns}x16.F32", copies} <= set(found)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("batch", [3, 65])  # in a tile, and behind it
@pytest.mark.parametrize(
    "tile",
    [ToeplitzTile(4, 32, 2, 4, 2), StagedTile(2, 32, 2, 4, 0, 1), StagedTile(4, 16, 2, 2, 2, 2)],
    ids=str,
)
def test_sums_stay_in_registers_where_images_are_left_over(batch, tile):
    """In memory, they would be stored before the products of the background have written them."""
    p = problem(f"{batch}x8x32x32", "8x1x9x9", padding=4)
    (used,) = kernel(p, tile, HOPPER).program.resources.values()
    assert used.stack == 0


@pytest.mark.needs_nvrtc
def test_sums_stay_in_registers_where_rows_are_left_over_and_much_follows_them():
    """So much that NVRTC does not write out a loop whose end differs from warp to warp."""
    p = problem("1x24x32x18", "48x1x7x7", padding=(2, 0), dtype="bfloat16").replace(
        epilogue="hsigmoid+gelu+relu"
    )
    made = kernel(p, StagedTile(16, 16, 2, 1, 8, 4), HOPPER)
    (used,) = made.program.resources.values()
    assert used.stack == 0


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    ("p", "arch"),
    [(LARGE, "sm_80"), (LARGE.replace(pass_="dgrad", dtype="bfloat16"), "sm_90a")],
    ids=str,
)
def test_the_first_tile_of_warps_loads_matrices_and_spills_nothing(p, arch):
    target = Target.parse(f"cuda -arch={arch}")
    tile = WARPS.candidates(p, target)[0]
    program = kernel(p, tile, target).program
    (used,) = program.resources.values()
    assert used.spills == used.stack == 0
    found = opcodes(program.assembly)
    products = sum(n for op, n in found.items() if op.startswith("HMMA.16816.F32"))
    loads = found["LDSM.16.M88.4"]
    assert products >= 2 * tile.images * loads  # of 32 images, half as many a product
    assert {"LDG.E.128.CONSTANT", "STG.E.128"} <= set(found)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("template", "batch"), [(ROWS, 1), (GRADIENTS, 64)], ids=["rows", "wgrad"])
def test_what_one_image_needs_is_no_matrix_in_memory(template, batch, arch):
    p, target = LARGE.replace(batch=batch), Target.parse(f"cuda -arch={arch}")
    p = p.replace(pass_="wgrad") if template is GRADIENTS else p
    program = kernel(p, template.candidates(p, target)[0], target).program
    for used in program.resources.values():
        assert used.spills == used.stack == 0
        assert (used.shared_memory or 0) <= 16384
    found = opcodes(program.assembly)
    products = sum(n for op, n in found.items() if op.startswith("HMMA.16816.F32"))
    gathered = sum(n for op, n in found.items() if op.startswith("LDS"))
    assert gathered < products  # neighbours in a matrix are one tap of the filter


def test_what_is_staged_of_whole_rows_is_what_there_is_of_them():
    """As many boxes as a row has, though windows begin in the padding, between two of them."""
    p = problem("64x3x64x64", "3x1x21x21", pass_="dgrad", padding=10)
    module = lower(*STAGED.scheduled(p, StagedTile(1, 64, 4, 16, 2, 3, 3, 64)), HOPPER)
    assert "PaddedGrad_shared = T.allocate([3, 1, 1, 2, 1, 64, 64]" in str(module)


def test_rows_that_do_not_lie_as_instructions_read_them_are_refused():
    p = problem("1x1x16x16", "1x1x3x3", padding=1, stride=3)
    with pytest.raises(LoweringError, match="is not one bit of one index"):
        lower(*ROWS.scheduled(p, RowTile()), "sim")


def test_an_image_as_wide_as_a_tile_needs_no_columns_of_padding():
    cut = Bands(LARGE, 64, 4, 32)
    assert (cut.first, cut.depth, cut.steps) == (17, 32, 34)
    wide = Bands(problem("64x384x64x64", "384x1x31x31", padding=15), 64, 4, 32)
    assert (wide.first, wide.depth) == (1, 64)


@pytest.mark.parametrize(
    ("arch", "fits"),
    [("sm_75", (False, False)), ("sm_80", (False, True)), ("sm_90a", (True, True)),
     ("sm_120", (False, True))],
)  # fmt: skip
def test_a_gpu_gets_what_it_has_instructions_for(arch, fits):
    target = Target.parse(f"cuda -arch={arch}")
    assert (TEMPLATE.fits(LARGE, target), WARPS.fits(LARGE, target)) == fits


def test_large_filters_go_to_tensor_cores_unmeasured(tmp_path):
    cache, target = ProfileCache(tmp_path / "profile.sqlite"), HOPPER
    many = choose(LARGE, target, cache=cache).algorithm.name
    assert many in ("gpu.toeplitz", "gpu.toeplitz_staged")
    ampere = choose(LARGE, "cuda -arch=sm_80", cache=cache).algorithm.name
    assert ampere == "gpu.toeplitz_warps"
    one = choose(LARGE.replace(batch=1), target, cache=cache).algorithm.name
    assert one == "gpu.toeplitz_rows"
    wgrad = choose(LARGE.replace(pass_="wgrad"), target, cache=cache).algorithm.name
    assert wgrad == "gpu.row_products"
    other = LARGE.replace(dtype="float64", accumulate="")
    assert "toeplitz" not in choose(other, target, cache=cache).algorithm.name
