"""Gradients by large filters as products of rows: right for every shape, in sim, and no spills."""

from __future__ import annotations

import pytest

import tilewright
from tilewright.runtime.sass import opcodes
from tilewright.select.choice import choose
from tilewright.select.profile_cache import ProfileCache
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.templates import TEMPLATES

TEMPLATE = TEMPLATES["gpu.row_products"]


def problem(data, filter, **more):
    return Conv.parse(data, filter, **{"dtype": "float16", "padding": 3, "pass_": "wgrad", **more})


LARGE = problem("64x384x32x32", "384x1x31x31", padding=15)


def kernel(p, tile, target):
    return tilewright.build(*TEMPLATE.scheduled(p, tile), target)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("p", [LARGE, problem("64x512x14x14", "512x1x27x27", padding=13)], ids=str)
def test_the_first_tiles_multiply_from_shared_memory_and_spill_nothing(p):
    target = Target.parse("cuda -arch=sm_90a")
    for tile in TEMPLATE.candidates(p, target)[:2]:
        program = kernel(p, tile, target).program
        (used,) = program.resources.values()
        assert used.spills == used.stack == 0
        found = opcodes(program.assembly)
        assert any(op.startswith("HGMMA.64x") for op in found)
        assert any(op.startswith("LDGSTS") for op in found)


def test_it_is_the_first_choice_for_large_filters_unmeasured(tmp_path):
    target = Target.parse("cuda -arch=sm_90a")
    cache = ProfileCache(tmp_path / "profile.sqlite")
    assert choose(LARGE, target, cache=cache).algorithm.name == "gpu.row_products"
