"""Depthwise convolutions of bfloat16 on a CPU that adds two products at once."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.support.cpu_code import SAPPHIRE_RAPIDS, machine_code, x86_only
from tests.support.depthwise import TOLERANCE, decode, encode, poison, reference, run

import tilewright
from tilewright import te
from tilewright.runtime.llvm_host import host_features
from tilewright.topi import Conv
from tilewright.topi.cpu.depthwise_pairs import PairTile, declare_pairs, schedule_pairs
from tilewright.topi.templates import TEMPLATES, candidates

MIDDLE = Conv.parse("2x20x15x14", "20x1x7x7", padding=3, dtype="bfloat16", layout="NHWC")

CASES = [
    (MIDDLE, PairTile()),
    (MIDDLE.replace(padding=(0, 5, 4, 1), kernel_w=8), PairTile(2, 8, 2, 0)),
    (MIDDLE.replace(pass_="dgrad", padding=(2, 6, 1, 0)), PairTile(3, 5, 1, 0)),
    (MIDDLE.replace(kernel_h=2, kernel_w=13, padding=(1, 9, 0, 6)), PairTile(1, 16, 3)),
    (MIDDLE.replace(channels=3, batch=1, epilogue=["bias", "relu"]), PairTile(2, 3)),
]


def kernel_of(p: Conv, tile: PairTile, target: str = "llvm") -> tilewright.Kernel:
    found = declare_pairs(p, tile)
    return tilewright.build(schedule_pairs(found, tile), found.args, target)


@pytest.mark.parametrize(("p", "tile"), CASES, ids=str)
def test_every_tile_computes_a_convolution(p: Conv, tile: PairTile) -> None:
    kernel = kernel_of(p, tile, "llvm -threads=2")
    assert run(p, kernel) < TOLERANCE[p.dtype]
    assert ("vdpbf16ps" in kernel.assembly) == ("avx512bf16" in host_features())


def test_without_the_instruction_loops_compute_the_same() -> None:
    p = MIDDLE.replace(height=5, width=6, batch=1)
    assert run(p, kernel_of(p, PairTile(1, 2), "llvm -arch=baseline")) < TOLERANCE[p.dtype]


def test_sums_of_small_integers_are_exact() -> None:
    rng = np.random.default_rng(0)
    arrays = {n: encode(rng.integers(-2, 3, s), "bfloat16") for n, s in MIDDLE.shapes().items()}
    out = poison(MIDDLE)
    kernel_of(MIDDLE, PairTile())(*arrays.values(), out)
    np.testing.assert_array_equal(decode(out), reference(MIDDLE, arrays))


def test_one_kernel_serves_every_batch() -> None:
    found = declare_pairs(MIDDLE, PairTile(), te.var("n"))
    kernel = tilewright.build(schedule_pairs(found, PairTile()), found.args)
    for batch in (1, 3):
        assert run(MIDDLE.replace(batch=batch), kernel) < TOLERANCE["bfloat16"]


@x86_only
def test_sums_stay_in_registers() -> None:
    tile = PairTile(4, 4, 2, 0)
    found = declare_pairs(MIDDLE.replace(kernel_h=31, kernel_w=31, padding=(15,) * 4), tile)
    text = machine_code(schedule_pairs(found, tile), found.args, SAPPHIRE_RAPIDS)
    loops = re.split(r"^\.L\w+:", text, flags=re.MULTILINE)
    busy = [loop[: loop.index("\n\tj")] for loop in loops if loop.count("vdpbf16ps") >= 32]
    assert busy
    for loop in busy:
        assert not re.search(r"vmov\w+\s+%zmm\d+, [^%]", loop), "no sum is stored"


def test_they_come_first_where_the_processor_has_the_instruction() -> None:
    def names(p: Conv, target: str = "llvm") -> list[str]:
        return [t.name for t, _ in candidates(p, target)]

    assert "cpu.pairs" not in names(MIDDLE, "llvm -arch=baseline")
    if not host_features().issuperset(TEMPLATES["cpu.pairs"].features):
        pytest.skip("the processor has no BF16 of AVX-512")
    assert names(MIDDLE)[0] == "cpu.pairs"
    others = (
        {"dtype": "float16"},
        {"stride": (2, 1)},
        {"kernel_h": 3, "kernel_w": 3},
        {"layout": "NCHW"},
    )
    for changes in others:
        assert "cpu.pairs" not in names(MIDDLE.replace(**changes))
