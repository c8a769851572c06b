"""Dense convolutions and products of matrices on OpenCL devices: spatial packing, im2col, and what
a Mali asks for. Programs run on PoCL and in sim, and are right by every tile."""

from __future__ import annotations

import re
from itertools import product as cross
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dense import convolution, convolutions, product, products, volumes
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright import te
from tilewright.codegen.opencl import generate
from tilewright.ir.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.target.devices import MALI
from tilewright.topi import Conv, Conv3d, Gemm
from tilewright.topi.declared import Declared
from tilewright.topi.gpu.conv2d_lanes import LaneTile
from tilewright.topi.opencl import candidates as opencl
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.item_products import ItemTile
from tilewright.topi.sketches.packing import PackTile
from tilewright.topi.templates import TEMPLATES, candidates, default_schedule, templates

PACKING, PRODUCTS = TEMPLATES["opencl.packing"], TEMPLATES["opencl.products"]
DOTS = TEMPLATES["opencl.dots"]
OPENCL, SIM = Target.parse("opencl"), Target.parse("sim")
MOBILE = Target.parse("opencl -device=mali")
CARD = Target.parse("opencl -device='NVIDIA H200'")
DEVICES = [pytest.param(OPENCL, marks=pytest.mark.needs_opencl, id="opencl"), "sim"]


def scheduled(name: str, p: Problem, tile: Any, batch: Any = None) -> tuple[Declared, Schedule]:
    template = TEMPLATES[name]
    found = template.declare(p, tile, batch)
    return found, template.schedule(found, tile)


def kernel(name: str, p: Problem, tile: Any, target: Any) -> Any:
    found, schedule = scheduled(name, p, tile)
    return tilewright.build(schedule, found.args, target)


def text(p: Problem, tile: Any, name: str, half: bool = True) -> str:
    """OpenCL C for a device with half precision."""
    found, schedule = scheduled(name, p, tile)
    return generate(tilewright.lower(schedule, found.args, "opencl -device=mali"), half).text


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_packed_windows_are_right_by_every_tile(data):
    p = data.draw((convolutions() | volumes()).filter(lambda p: PACKING.fits(p, SIM)))
    machine = data.draw(st.sampled_from([SIM, MOBILE]))
    tile = data.draw(st.sampled_from(PACKING.candidates(p, machine)))
    error = run(p, kernel(PACKING.name, p, tile, "sim"), exact=convolution)
    assert error < TOLERANCE[p.dtype], f"{tile}: relative error {error:.2g}"


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_products_of_items_are_right_by_every_tile(data):
    p = data.draw((products() | convolutions()).filter(lambda p: PRODUCTS.fits(p, SIM)))
    machine = data.draw(st.sampled_from([SIM, MOBILE]))
    tile = data.draw(st.sampled_from(PRODUCTS.candidates(p, machine)))
    exact: Any = product if isinstance(p, Gemm) else convolution
    error = run(p, kernel(PRODUCTS.name, p, tile, "sim"), exact=exact)
    assert error < TOLERANCE[p.dtype], f"{tile}: relative error {error:.2g}"


#: One pixel, channels that fill no vector, groups, strides above the filter, asymmetric padding and
#: more of it than the filter, dilation, other ranks, gradients, types.
ODD = [
    Conv.parse((2, 3, 1, 1), (5, 3, 1, 1), 1),
    Conv.parse((1, 7, 3, 2), (29, 7, 3, 2), 1, layout="NHWC", epilogue="bias+relu"),
    Conv.parse((1, 5, 9, 7), (67, 5, 2, 3), 1, padding=(0, 3, 2, 1), stride=3, layout="NHWC"),
    Conv.parse((2, 20, 8, 13), (6, 20, 1, 1), 1, stride=(2, 3)),
    Conv.parse((1, 6, 6, 5), (6, 6, 3, 3), 1, padding=5, dilation=2, layout="NHWC"),
    Conv.parse((1, 12, 6, 5), (18, 4, 3, 3), 3, padding=1, epilogue=("bias", "relu")),
    Conv.parse((1, 32, 6, 5), (32, 16, 3, 3), 2, padding=1, dtype="float16"),
    Conv.parse((1, 12, 6, 5), (18, 4, 3, 3), 3, padding=2, pass_="dgrad", dtype="bfloat16"),
    Conv.parse((2, 6, 11), (9, 6, 4), 1, padding=(2, 1), stride=2),
    Conv3d.parse((1, 5, 3, 4, 7), (19, 5, 2, 3, 2), padding=(0, 1, 2, 1, 2, 0), stride=(1, 2, 3)),
]  # fmt: skip


@pytest.mark.spread
@pytest.mark.needs_opencl
@pytest.mark.parametrize("p", ODD, ids=str)
@pytest.mark.parametrize("template", [PACKING, PRODUCTS], ids=lambda t: str(t.name))
def test_odd_shapes_on_this_device(template, p):
    for machine, k in ((OPENCL, 0), (MOBILE, -1)):
        tile = template.candidates(p, machine)[k]
        error = run(p, kernel(template.name, p, tile, OPENCL), exact=convolution)
        assert error < TOLERANCE[p.dtype], tile


@pytest.mark.needs_opencl
@pytest.mark.parametrize("p", [
    Gemm(m=1, n=40, k=96, transpose_b=True, epilogue="bias+relu"),
    Gemm(m=5, n=7, k=3), Gemm(m=33, n=65, k=20, batch=2, dtype="float16"),
], ids=str)  # fmt: skip
def test_products_of_matrices_on_this_device(p):
    for template, machine in cross((PRODUCTS, DOTS), (OPENCL, MOBILE)):
        if template.fits(p, machine):
            tile = template.candidates(p, machine)[-(machine is MOBILE)]
            built = kernel(template.name, p, tile, OPENCL)
            assert run(p, built, exact=product) < TOLERANCE[p.dtype], tile


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_dot_products_of_items_are_right_by_every_tile(data):
    p = data.draw(products().filter(lambda p: DOTS.fits(p, SIM)))
    tile = data.draw(st.sampled_from(DOTS.candidates(p, data.draw(st.sampled_from([SIM, MOBILE])))))
    assert run(p, kernel(DOTS.name, p, tile, "sim"), exact=product) < TOLERANCE[p.dtype], tile


def test_a_linear_layer_of_one_row_reads_its_weight_as_it_lies():
    p = Gemm(m=1, n=64, k=96, transpose_b=True)
    template, tile = next(candidates(p, MOBILE))
    assert template.name == DOTS.name
    found, schedule = scheduled(template.name, p, tile)
    assert not tilewright.lower(schedule, found.args, MOBILE).workspaces
    assert tile.lanes == 4


@pytest.mark.parametrize("target", DEVICES)
def test_of_no_image_nothing_is_computed(target):
    p = Conv.parse((3, 4, 6, 6), (8, 4, 3, 3), 1, padding=1)
    found, schedule = scheduled(PACKING.name, p, PackTile(), te.var("n"))
    built = tilewright.build(schedule, found.args, target)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4, 6, 6), "float32")
    w = rng.standard_normal((8, 4, 3, 3), "float32")
    y, one = (np.full((n, 8, 6, 6), np.nan, "float32") for n in (2, 1))
    built(x, w, y)
    built(x[1:], w, one)
    assert (y[1:] == one).all()
    built(x[:0], w, y[:0])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_sums_of_small_integers_are_the_same_by_both(dtype):
    p = Conv.parse((1, 8, 7, 9), (12, 8, 3, 3), 1, padding=1, dtype=dtype)
    rng = np.random.default_rng(0)
    given_ = [rng.integers(-3, 4, t.shape).astype(dtype) for t in p.inputs().values()]
    found = []
    for template in (PACKING, PRODUCTS):
        for tile in (template.candidates(p, MOBILE)[k] for k in (0, -1)):
            found.append(np.full(p.result.shape, np.nan, dtype))
            kernel(template.name, p, tile, "sim")(*given_, found[-1])
    assert all((other == found[0]).all() for other in found)


# -- the rules of a Mali ---------------------------------------------------------------------


def layer(dtype: str = "float32", **more: Any) -> Conv:
    return Conv.parse((1, 64, 28, 28), (128, 64, 3, 3), 1, padding=1, dtype=dtype, **more)


@pytest.mark.parametrize("p", [
    layer(), layer("float16"), layer("float16", accumulate="float16", precision="half"),
    layer(layout="NHWC", epilogue="bias+relu"), Gemm(m=64, n=96, k=32),
], ids=str)  # fmt: skip
def test_a_mali_gets_vectors_of_128_bits_and_no_shared_memory(p):
    widest = {"float": 16 // 4, "half": 16 // 2}
    found = [c for c in candidates(p, MOBILE) if c[0].name.startswith("opencl.")]
    for template, tile in found[:: -(-len(found) // 16)]:
        source = text(p, tile, template.name)
        assert "__local" not in source
        assert "barrier" not in source
        for kind, lanes in re.findall(r"\b(float|half)(\d+)\b", source):
            wide = p.accumulate == "float32" and p.dtype == "float16" and kind == "half"
            assert int(lanes) <= widest[kind], (tile, kind, lanes, wide)


def test_half_precision_is_stored_and_computed_in_half_precision():
    p = layer("float16", accumulate="float16", precision="half")
    tile = PACKING.candidates(p, MOBILE)[0]
    assert tile.lanes == 8  # 128 bits
    source = text(p, tile, PACKING.name)
    assert "half8" in source
    assert "float" not in source


@pytest.mark.parametrize("accumulate", ["float32", "float16"])
def test_a_tile_of_a_mali_fits_into_its_registers(accumulate):
    kind = "float16" if accumulate == "float16" else "float32"
    p = layer(kind, accumulate=accumulate, precision="half")
    size = 2 if accumulate == "float16" else 4
    for tile in PACKING.candidates(p, MOBILE):
        assert tile.rows * tile.columns * tile.channels * size < MALI.registers
        assert tile.across * tile.along <= MALI.group
    for tile in PRODUCTS.candidates(p, MOBILE):
        assert tile.rows * tile.columns * size < MALI.registers
        assert tile.across * tile.along <= MALI.group


def test_a_mali_is_known_by_its_name():
    assert Target.parse("opencl -device=Mali-T860").max_num_threads == MALI.group
    assert not opencl.shares_memory(MOBILE)
    names = [t.name for t in templates(layer(), MOBILE)]
    assert names[:2] == [PACKING.name, PRODUCTS.name]
    assert "gpu.products" not in names


# -- what is tried ---------------------------------------------------------------------------


def test_spatial_packing_is_what_nobody_tuned_gets():
    _, schedule = default_schedule(layer(), MOBILE)
    assert any(s.op.name == "Packed" for s in schedule.stages)


def test_both_are_candidates_of_a_convolution_and_one_of_a_matrix_product():
    assert {PACKING.name, PRODUCTS.name} <= {t.name for t, _ in candidates(layer(), MOBILE)}
    names = {t.name for t, _ in candidates(Gemm(m=64, n=96, k=32), MOBILE)}
    assert PRODUCTS.name in names
    assert PACKING.name not in names


def test_what_is_searched_are_tile_unroll_and_vectors():
    tiles = PACKING.candidates(layer(), MOBILE)
    for name in ("rows", "columns", "vectors", "unroll"):
        assert len({getattr(t, name) for t in tiles}) > 1, name


@pytest.mark.parametrize(("p", "why"), [
    (layer(pass_="wgrad"), "has no wgrad"),
    (layer(pass_="dgrad", stride=2), "other problems"),
    (Gemm(m=4, n=4, k=4), "other problems"),
    (Conv.parse((1, 8, 9, 9), (8, 1, 3, 3)), "other problems"),
], ids=str)  # fmt: skip
def test_it_says_what_it_is_not_for(p, why):
    assert why in PACKING.why_not(p, MOBILE)


def test_it_is_not_for_cpus():
    assert "for GPUs" in PACKING.why_not(layer(), Target.parse("llvm"))


def test_parameters_that_are_too_small_are_refused():
    with pytest.raises(ScheduleError, match="columns is 0"):
        PACKING.declare(layer(), PackTile(columns=0))
    with pytest.raises(ScheduleError, match="rows is 0"):
        PRODUCTS.declare(layer(), ItemTile(rows=0))


def test_what_a_kernel_stores_for_another_is_moved_by_aligned_vectors():
    """``vload4`` promises the alignment of one element, so that NVIDIA's compiler splits it; what
    callers give may begin anywhere."""
    tile = next(t for t in PACKING.candidates(layer(), MOBILE) if t.kept)
    source = text(layer(), tile, PACKING.name)
    assert "*(__global const float4*)&Padded[" in source
    assert "*(__global const float4*)&Packed[" in source
    assert "vload4(0, &Padded[" not in source
    given_ = text(layer(layout="NHWC", epilogue="bias"), tile, PACKING.name)
    assert "vload4(0, &bias[" in given_
    assert not re.search(r"\*\(__global (const )?float4\*\)&(data|bias|Conv)", given_)


# -- what shares memory ----------------------------------------------------------------------


def shared(p: Problem, tile: LaneTile) -> str:
    """OpenCL C for a device whose memory is aligned."""
    found, schedule = scheduled("gpu.products", p, tile)
    return generate(tilewright.lower(schedule, found.args, CARD), aligned=True).text


def test_columns_that_are_contiguous_are_copied_as_vectors():
    x = (1, 32, 8, 6)
    pointwise, windows = (Conv.parse(x, (32, 32, k, k), 1, padding=k // 2) for k in (1, 3))
    assert "*(__global const float4*)&data[" in shared(pointwise, LaneTile(32, 32, 8, 4, 8))
    assert "*(__global const float4*)&data[" not in shared(windows, LaneTile(32, 32, 8, 4, 8))
    odd = Conv.parse((1, 32, 7, 7), (32, 32, 1, 1), 1)
    assert "float4*)&data[" not in shared(odd, LaneTile(32, 32, 8, 4, 8))


def test_steps_of_whole_windows_do_not_ask_for_the_tap():
    p = layer()
    assert " / 9 " in shared(p, LaneTile(32, 64, 8, 4, 16))
    assert " / 9 " not in shared(p, LaneTile(32, 64, 9, 4, 16))
    assert " / 9 " not in shared(p, LaneTile(64, 64, 18, 8, 16))  # two threads a column
    tiles = TEMPLATES["gpu.products"].candidates(p, CARD)
    repeated = {t for t in tiles if t.depth % 9 == 0}
    assert repeated
    assert all(9 * t.down * t.across <= t.depth * t.columns for t in repeated)
