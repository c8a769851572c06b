"""Depthwise templates of CUDA's GPUs: right at every edge, for every batch, exact for integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, poison, reference, run
from tests.support.gpu_tiles import CASES, OTHERS
from tests.support.tiles import HOPPER, TARGETS, built, module_of

import tilewright
from tilewright import te
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.templates import TEMPLATES, templates

EVERY = [(name, *case) for name, cases in CASES.items() for case in cases]
#: Those whose kernels take the batch of each call.
ANY_BATCH = (
    "gpu.channel_pairs", "gpu.plane_bands", "gpu.plane_tiles", "gpu.pixel_tiles",
    "gpu.reduction_pixel_tiles", "gpu.plane_products", "gpu.plane_gradient",
)  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "p", "tile"), EVERY, ids=[f"{n} {p}" for n, p, _ in EVERY])
def test_every_edge_is_right(name: str, p: Conv, tile: Any, target: str) -> None:
    """Of float32 by products of TF32, too, three of which stand for one."""
    assert TEMPLATES[name].fits(p, Target.parse(HOPPER))
    error = run(p, built(name, p, tile, target), device=target.split()[0].replace("sim", "cpu"))
    assert error < (2e-7 if "tf32" in name else TOLERANCE[p.dtype])


@pytest.mark.parametrize("name", CASES)
def test_small_integers_are_summed_exactly(name: str) -> None:
    p, tile = next(case for case in CASES[name] if "bfloat16" not in case[0].dtype)
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-1, 2, s).astype(p.dtype) for n, s in p.shapes().items()}
    out = poison(p)
    built(name, p, tile, "sim")(*arrays.values(), out)
    np.testing.assert_array_equal(out, reference(p, arrays))


@pytest.mark.parametrize("name", ANY_BATCH)
def test_one_kernel_serves_every_batch(name: str) -> None:
    p, tile = CASES[name][0]
    kernel = tilewright.build(*TEMPLATES[name].scheduled(p, tile, te.var("n")), "sim")
    for batch in (1, p.batch):
        assert run(p.replace(batch=batch), kernel) < TOLERANCE[p.dtype]


@pytest.mark.parametrize("name", ["gpu.channel_pairs", "gpu.plane_bands"])
def test_an_image_may_have_more_elements_than_32_bits_count(name: str) -> None:
    p, tile = CASES[name][0]
    p = p.replace(batch=1, channels=8, height=20000, width=20000)
    assert "tma_load" in repr(module_of(name, p, tile))


@pytest.mark.parametrize(("name", "p"), OTHERS, ids=str)
def test_other_problems_are_left_to_other_schedules(name: str, p: Conv) -> None:
    for target in ("sim", HOPPER):
        assert not TEMPLATES[name].fits(p, Target.parse(target))
    assert templates(p, HOPPER)


@pytest.mark.parametrize("name", CASES)
def test_tiles_worth_trying_are_each_named_once(name: str) -> None:
    machine = Target.parse(HOPPER)
    for p in {p for p, _ in CASES[name] if TEMPLATES[name].fits(p, machine)}:
        tiles = TEMPLATES[name].candidates(p, machine)
        assert 0 < len(tiles) == len(set(tiles))
