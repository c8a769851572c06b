"""What templates that stage tiles say of them, before anything is compiled, is what is compiled."""

import numpy as np
import pytest

from tilewright.ir.expr import IntImm
from tilewright.ir.stmt import Allocate
from tilewright.ir.visit import statements
from tilewright.lower.pipeline import lower
from tilewright.select.cost import cost
from tilewright.select.features import features
from tilewright.select.staged import Staged
from tilewright.target import Target
from tilewright.target.devices import WARP, gpu
from tilewright.topi import Conv
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.pieces.pixel_boxes import BoxTile
from tilewright.topi.pieces.reduction_tiles import GradientPixelTile
from tilewright.topi.templates import TEMPLATES

HOPPER = Target.parse("cuda -arch=sm_90a")


def problem(data, filter, **more):
    usual = {"dtype": "float16", "padding": 1, "layout": "NHWC"}
    return Conv.parse(data, filter, **{**usual, **more})


CASES = [
    (problem("8x144x56x56", "144x1x3x3"), "gpu.pixel_tiles",
     BoxTile(14, 4, 2, 2, 7, 24, 2, 2, 1)),
    (problem("2x40x20x17", "40x1x5x5", padding=2, stride=2, dtype="float32"), "gpu.pixel_tiles",
     BoxTile(2, 3, 1, 2, 2, 16, 1, 1, 0)),
    (problem("3x48x20x20", "48x1x3x3", pass_="dgrad"), "gpu.pixel_tiles",
     BoxTile(5, 5, 2, 1, 4, 8, 4, 1, 1)),
    (problem("3x24x5x6", "24x1x3x3"), "gpu.pixel_tiles",
     BoxTile(4, 4, 2, 4, 4, 16, 2, 2, 1)),
    (problem("8x48x21x20", "48x1x3x3", pass_="wgrad", stride=2), "gpu.reduction_pixel_tiles",
     GradientPixelTile(4, 5, 2, 8, 1, 2, 2, 2, 6)),
    (problem("8x96x28x28", "96x1x5x5", padding=2, pass_="wgrad"), "gpu.reduction_pixel_tiles",
     GradientPixelTile(4, 7, 2, 16, 1, 2, 4, 3, 22)),
    (problem("6x24x9x9", "24x1x3x3", pass_="wgrad", dtype="float32"), "gpu.reduction_pixel_tiles",
     GradientPixelTile(2, 4, 1, 8, 2, 1, 3, 2, 5)),
]  # fmt: skip


def of(p, template, *configs):
    return cost(p, template, np.array([list(vars(c).values()) for c in configs], "float64"))


def extents(func):
    found = {}
    for axis in func.launch:
        assert isinstance(axis.extent, IntImm)
        found[axis.tag] = axis.extent.value
    return found


@pytest.mark.parametrize(("p", "name", "config"), CASES, ids=[f"{c[1]} {c[0]}" for c in CASES])
def test_threads_blocks_and_shared_memory_are_those_of_the_kernel(p, name, config):
    template = TEMPLATES[name]
    func = lower(*template.scheduled(p, config), HOPPER).funcs[0]
    launch, k = extents(func), of(p, name, config)
    threads = np.prod([n for tag, n in launch.items() if tag.startswith("thread")])
    assert k.threads[0] == -(-threads // WARP) * WARP
    assert k.blocks[0] == np.prod([n for tag, n in launch.items() if tag.startswith("block")])
    buffers = {
        s.buffer for s in statements(func.body)
        if isinstance(s, Allocate) and s.buffer.scope == "shared"
    }  # fmt: skip
    held = sum(np.prod([int(n) for n in b.shape]) * b.dtype.bytes for b in buffers)
    assert held <= k.shared[0] <= 1.1 * held + 2048


@pytest.mark.parametrize(("p", "name", "config"), CASES, ids=[f"{c[1]} {c[0]}" for c in CASES])
def test_every_candidate_has_finite_features(p, name, config):
    configs = TEMPLATES[name].candidates(p, HOPPER)
    values = np.array([list(vars(c).values()) for c in configs], "float64")
    assert isinstance(cost(p, name, values), Staged)
    found = features(p, name, values, gpu(HOPPER.arch))
    assert len(found) == len(configs)
    assert np.isfinite(found).all()


def test_one_set_counts_as_it_does_among_others():
    """Sets are arrays throughout: none has a part in what is said of another."""
    p, name, _ = CASES[0]
    configs = TEMPLATES[name].candidates(p, HOPPER)[::20]
    together = of(p, name, *configs)
    for k, config in enumerate(configs):
        alone = of(p, name, config)
        for field in ("turns", "threads", "blocks", "shared", "code"):
            assert getattr(alone, field)[0] == getattr(together, field)[k], field


@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_conflicts_are_the_words_of_the_busiest_bank(width):
    rng = np.random.default_rng(width)
    address = rng.integers(0, 64, (20, 32)) * width
    for row, found in zip(address, bank_conflicts(address, np.full(20, width)), strict=True):
        words = {(start + byte) // 4 for start in row.tolist() for byte in range(width)}
        banks = [sum(word % 32 == bank for word in words) for bank in range(32)]
        assert found == max(banks)


def test_pixels_side_by_side_meet_no_bank_and_rows_of_a_bank_all_meet():
    one, four = np.array([4.0]), np.array([8.0])
    thread = np.arange(32)[None, :]
    assert bank_conflicts(thread * 4, one) == 1
    assert bank_conflicts(thread * 8, four) == 2
    assert bank_conflicts(thread * 128, one) == 32
    assert bank_conflicts(thread * 0, one) == 1
