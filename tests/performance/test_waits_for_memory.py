"""How often a thread waits for global memory: as few times as loads depend on one another."""

from __future__ import annotations

import random
import re

import pytest
from tests.support.sass_loads import rounds_of_loads

import tilewright
from tilewright.codegen.cuda import generate
from tilewright.target.target import blocks_each, shared_apart
from tilewright.topi import Conv
from tilewright.topi.templates import TEMPLATES

pytestmark = pytest.mark.needs_nvrtc
TARGET = "cuda -arch=sm_90a"


def loads(p: Conv, template: str, *parameters: int) -> list[int]:
    chosen = TEMPLATES[template]
    config = chosen.config(*parameters)
    kernel = tilewright.build(*chosen.scheduled(p, config), TARGET)
    return rounds_of_loads(kernel.assembly)


@pytest.mark.parametrize("epilogue", ["", "scale_shift+relu", "bias+silu"])
def test_a_thread_of_a_small_launch_waits_once(epilogue):
    p = Conv.parse("1x96x112x112", "96x1x3x3", padding=1, stride=2, epilogue=epilogue)
    assert len(loads(p, "gpu.strips", 7, 2, 4, 28, 1, 3, 1)) == 1


def test_a_launch_is_small_where_threads_may_have_64_registers_each():
    assert blocks_each("sm_90a", 132 * 4, 250) == 4
    assert blocks_each("sm_90a", 132 * 4 + 1, 250) == 0
    assert blocks_each("sm_90a", 132 * 4, 250, 100_000) == 2  # no more fit
    assert blocks_each("", 1, 32) == 0  # of an unknown machine


def test_no_sm_holds_more_blocks_than_its_share():
    rng = random.Random(0)
    for arch, count, shared_kib in (
        ("sm_90a", 132, 228),
        ("sm_120a", 170, 100),
        ("sm_100a", 148, 228),
    ):
        for _ in range(2000):
            shared = rng.randrange(1, (shared_kib - 1) * 1024)
            blocks, threads = rng.randrange(1, 40 * count), 32 * rng.randrange(1, 33)
            each = blocks_each(arch, blocks, threads, shared)
            asked = shared_apart(arch, blocks, threads, shared)
            assert shared <= asked <= (shared_kib - 1) * 1024
            fit = shared_kib * 1024 // (-(-(asked + 1024) // 128) * 128)
            assert fit >= each
            assert fit == each or asked == shared
    assert shared_apart("sm_90a", 132 * 40, 128, 50_000) == 50_000  # of a launch of many waves


def test_blocks_of_tiles_ask_for_their_share():
    p = Conv.parse("64x96x56x56", "96x1x7x7", padding=3, dtype="float16", layout="NHWC")
    template = TEMPLATES["gpu.channel_pairs"]
    config = template.config(2, 4, 2, 4, 1, 1, 4, 18, 2)  # 262 blocks
    kernel = tilewright.build(*template.scheduled(p, config), TARGET)
    assert (
        kernel.program.asked_shared[0] > 228 * 1024 // 3 - 1024 > kernel.program.dynamic_shared[0]
    )


@pytest.mark.parametrize(
    ("template", "tile", "asks"),
    [
        ("gpu.plane_gradient", (4, 1, 5), True),  # two blocks an SM, with room for three
        ("gpu.reduction_planes", (7, 4, 1, 1, 32, 2, 4), False),  # parts, and their sums
        ("gpu.reduction_planes", (1, 1, 1, 1, 32, 1, 1), False),  # many blocks, and no memory
    ],
)
def test_few_blocks_of_a_single_kernel_ask_for_their_share(template, tile, asks):
    p = Conv.parse("64x1024x7x7", "1024x1x13x13", padding=6, dtype="float16", pass_="wgrad")
    chosen = TEMPLATES[template]
    made = generate(tilewright.lower(*chosen.scheduled(p, chosen.config(*tile)), TARGET), "sm_90a")
    assert {k.asked > k.dynamic_shared for k in made.kernels} == {asks}


def test_what_would_spill_is_told_less_of_registers_until_it_does_not(tmp_path):
    p = Conv.parse("64x144x56x56", "144x1x5x5", padding=2, dtype="float16", layout="NHWC")
    template = TEMPLATES["gpu.channel_pairs"]
    texts = []
    for tile in ((4, 8, 2, 4, 1, 1, 4, 6, 2), (4, 2, 8, 4, 1, 1, 6, 11, 2)):
        config = template.config(*tile)
        kernel = tilewright.build(*template.scheduled(p, config), TARGET)
        assert kernel.resources["main_kernel"].spills == 0
        texts.append(kernel.source)
        kernel.save(tmp_path / "k.kernel")
        assert tilewright.load(tmp_path / "k.kernel").source == kernel.source
    assert ["#define own_register" in text for text in texts] == [False, True]


def test_products_of_warpgroups_are_compiled_as_for_a_large_launch():
    p = Conv.parse("64x384x32x32", "384x1x31x31", padding=15, dtype="float16", pass_="wgrad")
    template = TEMPLATES["gpu.row_products"]
    config = template.config(8, 2, 16, 18, 3)
    kernel = tilewright.build(*template.scheduled(p, config), TARGET)
    assert "__launch_bounds__(256) main_kernel(" in kernel.source
    assert all(used.spills == 0 for used in kernel.resources.values())


def test_what_does_not_fit_the_registers_is_compiled_as_for_a_large_launch(tmp_path):
    p = Conv.parse("1x512x16x16", "512x1x21x21", padding=10, dtype="bfloat16")
    template = TEMPLATES["gpu.planes"]
    config = template.candidates(p, tilewright.Target.parse(TARGET))[0]
    kernel = tilewright.build(*template.scheduled(p, config), TARGET)
    kernel.export_c(tmp_path / "k.cu")
    for text in (kernel.source, (tmp_path / "k.cu").read_text()):
        assert re.search(r"__launch_bounds__\(\d+\) ", text)
    assert all(used.spills == 0 for used in kernel.resources.values())


@pytest.mark.parametrize("epilogue", ["", "scale_shift+relu", "bias+silu"])
def test_behind_the_wait_for_a_tile_nothing_is_loaded(epilogue):
    p = Conv.parse("64x144x56x56", "144x1x3x3", padding=1, dtype="float16", layout="NHWC",
                      epilogue=epilogue)  # fmt: skip
    assert len(loads(p, "gpu.pixel_tiles", 5, 8, 2, 2, 1, 72, 1, 1, 1)) == 1
