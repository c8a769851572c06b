"""Depthwise convolutions of bytes on a CPU that adds four products of each channel at once."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.cpu_code import x86_only
from tests.support.depthwise import reference

import tilewright
from tilewright import te
from tilewright.runtime.llvm_host import host_features
from tilewright.topi import Conv
from tilewright.topi.cpu.depthwise_words import WordTile, schedule_words
from tilewright.topi.templates import TEMPLATES, candidates

MIDDLE = Conv.parse("2x32x9x11", "32x1x3x3", padding=1, dtype="uint8", layout="NHWC")

CASES = [
    (MIDDLE, WordTile(4, 4, 0, 2, 0)),
    (MIDDLE.replace(dtype="int8"), WordTile(3, 2, 1, 1, 0)),
    (MIDDLE.replace(channels=17), WordTile(2, 8, 2, 1, 0)),
    (MIDDLE.replace(channels=40, dtype="int8"), WordTile(4, 4, 0, 4, 1)),
    (MIDDLE.replace(stride=2), WordTile(2, 3, 0, 2, 0)),
    (MIDDLE.replace(stride=2, dtype="int8", padding=(0, 2, 1, 0)), WordTile(4, 4, 1, 1, 1)),
    (MIDDLE.replace(dilation=(2, 1)), WordTile(4, 2, 0, 2, 1)),
    (MIDDLE.replace(padding=0, channels=16), WordTile(1, 2)),
    (MIDDLE.replace(padding=0, channels=16, width=12), WordTile(1, 1, 3, 1, 0)),
    (MIDDLE.replace(kernel_h=7, kernel_w=5, padding=(3, 2, 3, 2)), WordTile(2, 4, 2, 1, 1)),
    (MIDDLE.replace(kernel_w=8, padding=(1, 7, 0, 5), dtype="int8"), WordTile(4, 4, 0, 2, 0)),
    (MIDDLE.replace(kernel_h=1, kernel_w=31, padding=15, height=3), WordTile(1, 4, 0, 1, 1)),
]


def kernel_of(p: Conv, tile: WordTile, target: str = "llvm") -> tilewright.Kernel:
    found = p.declare_as("unsigned dots")
    return tilewright.build(schedule_words(found, tile), found.args, target)


def arrays_of(p: Conv) -> dict[str, np.ndarray]:
    """Bytes over all of their range."""
    rng = np.random.default_rng(0)
    found = {}
    for name, shape in p.shapes().items():
        kind = np.dtype(p.dtypes()[name])
        ends = np.iinfo(kind)
        found[name] = rng.integers(ends.min, ends.max, shape, endpoint=True).astype(kind)
    return found


def assert_exact(p: Conv, kernel: tilewright.Kernel) -> None:
    arrays, out = arrays_of(p), np.full(p.result_shape, -123456789, np.int32)
    kernel(*arrays.values(), out)
    np.testing.assert_array_equal(out, reference(p, arrays))


@pytest.mark.spread
@pytest.mark.parametrize(("p", "tile"), CASES, ids=str)
def test_every_tile_is_exact(p: Conv, tile: WordTile) -> None:
    kernel = kernel_of(p, tile, "llvm -threads=2")
    assert_exact(p, kernel)
    if tile.rows == 4:
        assert ("vpdpbusd" in kernel.assembly) == ("avx512vnni" in host_features())


def test_without_the_instruction_loops_compute_the_same() -> None:
    p = MIDDLE.replace(height=5, width=6, batch=1, dtype="int8")
    assert_exact(p, kernel_of(p, WordTile(2, 2), "llvm -arch=baseline"))


def test_one_kernel_serves_every_batch() -> None:
    found = MIDDLE.declare_as("unsigned dots", te.var("n"))
    kernel = tilewright.build(schedule_words(found, WordTile(4, 4)), found.args)
    for batch in (1, 3):
        assert_exact(MIDDLE.replace(batch=batch), kernel)


@x86_only
@pytest.mark.parametrize("p", [p for p, _ in CASES], ids=str)
def test_words_are_the_first_choice_where_windows_begin_at_them(p: Conv) -> None:
    if not set(TEMPLATES["cpu.words"].features) <= host_features():
        pytest.skip("the processor has no VNNI")
    template, tile = next(iter(candidates(p, "llvm")))
    assert template.name == "cpu.words"
    if p.padding == (1, 1, 1, 1):
        assert_exact(p, kernel_of(p, tile))


@pytest.mark.parametrize(
    "p",
    [
        MIDDLE.replace(stride=3),
        MIDDLE.replace(dilation=(1, 2)),
        MIDDLE.replace(multiplier=2),
        MIDDLE.replace(layout="NCHW"),
        MIDDLE.replace(dtype="float32"),
    ],
    ids=str,
)
def test_other_windows_have_other_schedules(p: Conv) -> None:
    assert "cpu.words" not in {template.name for template, _ in candidates(p, "llvm")}
