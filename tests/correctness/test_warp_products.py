"""3xTF32 by warps that take factors apart in registers: on sim and on Hopper GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.tiles import HOPPER, TARGETS, check_tile, module_of

from tilewright.codegen.cuda import generate
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.templates import TEMPLATES

_NAME = "gpu.warp_products"


def _conv(input: tuple[int, ...], filter: tuple[int, ...], **values: Any) -> Conv:
    kind = {"layout": "NHWC", "dtype": "float32", "precision": "tf32x3"}
    return Conv.parse(input, filter, 1, **kind | values)


#: Channels that fill no step or tile, strides, one dimension, and epilogues.
_PROBLEMS = (
    _conv((2, 40, 9, 7), (72, 40, 1, 1), epilogue="bias+relu"),
    _conv((3, 40, 9, 7), (36, 40, 1, 1), stride=2, epilogue="batch_norm+residual"),
    _conv((2, 64, 5, 5), (96, 64, 1, 1), pass_="dgrad"),
    _conv((1, 36, 40), (40, 36, 1), layout="NWC"),
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("p", _PROBLEMS, ids=str)
def test_results_are_as_near_as_those_of_float32(p: Conv, target: str) -> None:
    found = TEMPLATES[_NAME].candidates(p, Target.parse(target))
    tile = found[-1] if _PROBLEMS.index(p) % 2 else replace(found[0], boxes=2)
    check_tile(_NAME, p, tile, target)


@pytest.mark.needs_nvrtc
def test_images_are_copied_once_and_nothing_is_spilled() -> None:
    p = _conv((64, 256, 56, 56), (64, 256, 1, 1))
    module = module_of(_NAME, p, TEMPLATES[_NAME].candidates(p, Target.parse(HOPPER))[0])
    assert len(module.funcs) == 1
    cubin = compile_cubin(generate(module, "sm_90a").text, "sm_90a")
    assert not any(r.spills for r in cubin.resources.values())
