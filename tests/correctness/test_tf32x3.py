"""Float32 as three products of TF32: halves of both factors, the small terms first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.dense import convolution
from tests.support.depthwise import run
from tests.support.tiles import HOPPER, TARGETS, check_tile

import tilewright
from tilewright.runtime.sass import opcodes
from tilewright.select.choice import choose
from tilewright.target import Target
from tilewright.topi import Conv, Gemm
from tilewright.topi.gpu.box_sizes import suited
from tilewright.topi.templates import TEMPLATES, candidates

LAST: dict[str, Any] = {"layout": "NHWC", "precision": "tf32x3"}
#: Channels that fill no step, whose halves would fill more together, few of them, none filled up.
PROBLEMS: tuple[Conv | Gemm, ...] = (
    Conv.parse((2, 40, 9, 7), (24, 40, 3, 3), 1, padding=1, epilogue="bias+relu", **LAST),
    Conv.parse((2, 3, 19, 17), (16, 3, 5, 5), 1, padding=2, stride=2, **LAST),
    Conv.parse((2, 40, 9, 7), (24, 40, 3, 3), 1, padding=1, pass_="dgrad", **LAST),
    Conv.parse((2, 40, 9, 8), (60, 40, 3, 3), 1, padding=1, stride=2, pass_="dgrad", **LAST),
    Conv.parse((2, 40, 9, 8), (60, 4, 3, 3), 10, padding=1, **LAST),
    Conv.parse((1, 128, 5, 4), (128, 64, 3, 3), 2, padding=1, pass_="dgrad", **LAST),
    Conv.parse((1, 200, 40), (8, 200, 3), 1, **LAST | {"layout": "NWC"}),
    Gemm(m=70, n=40, k=64, transpose_b=True, precision="tf32x3", epilogue="residual"),
    Gemm(m=70, n=5, k=100, precision="tf32x3"),
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("p", PROBLEMS, ids=str)
def test_results_are_as_near_as_those_of_float32(p: Conv | Gemm, target: str) -> None:
    assert suited(p) is not None
    found = [t for t in candidates(p, target) if "box" in t[0].name]
    template, tile = found[len(str(p)) % len(found)]
    if template.name == "gpu.box_products":
        tile = replace(tile, boxes=2)
    check_tile(template.name, p, tile, target)


def test_nothing_is_lost_but_the_product_of_the_small_halves() -> None:
    """One product of each result: its relative error is below 2^-21."""
    p = Gemm(m=64, n=64, k=2, transpose_b=True, precision="tf32x3")
    template = TEMPLATES["gpu.box_products"]
    tile = template.candidates(p, Target.parse("sim"))[0]
    kernel = tilewright.build(*template.scheduled(p, tile), "sim")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 2)).astype("float32") for _ in range(2))
    a[:, 1] = 0
    found = np.full((64, 64), np.nan, "float32")
    kernel(a, b, found)
    wanted = a.astype("float64") @ b.astype("float64").T
    assert (abs(found - wanted) <= 2.0**-21 * abs(wanted)).all()


@pytest.mark.needs_nvrtc
def test_hoppers_tensor_cores_multiply_tf32_without_spills() -> None:
    p = Conv.parse((64, 256, 14, 14), (256, 256, 3, 3), 1, padding=1, **LAST)
    halves = ("gpu.box_products", "gpu.window_products")
    template, tile = next(x for x in candidates(p, HOPPER) if x[0].name in halves)
    program = tilewright.build(*template.scheduled(p, tile), HOPPER).program
    found = opcodes(program.assembly)
    assert any(op.startswith("HGMMA.64x") and "TF32" in op for op in found), sorted(found)
    assert all(used.spills == 0 for used in program.resources.values())
    # Threads add what tensor cores, which round towards zero, added in a step.
    assert sum(n for op, n in found.items() if op.startswith("FADD")) >= tile.channels // 2


def test_it_is_an_allowance_that_other_schedules_need_not_use() -> None:
    """Nor is it the default."""
    p = Conv.parse((1, 6, 9, 7), (9, 6, 3, 3), 1, stride=2, pass_="wgrad", **LAST)
    assert suited(p) is None
    assert suited(PROBLEMS[0].replace(precision="exact")) is None
    for target in ("llvm", "sim"):
        assert run(p, choose(p, target).build(), exact=convolution) < 1e-6
