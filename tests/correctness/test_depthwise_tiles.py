"""Depthwise convolutions of bfloat16 on a CPU that multiplies tiles: AMX.

Where the processor has none, loops compute them, and the machine code runs on an emulator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from tests.support.amx_emulator import emulated, emulates, has_tiles, with_tiles
from tests.support.cpu_code import SAPPHIRE_RAPIDS, machine_code, x86_only
from tests.support.depthwise import TOLERANCE, decode, encode, poison, reference, run

import tilewright
from tilewright import te
from tilewright.ir.errors import TargetError
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.cpu.depthwise_tiles import AmxTile, amx_tiles, declare_amx, schedule_amx
from tilewright.topi.templates import candidates

MIDDLE = Conv.parse("2x3x20x22", "3x1x9x11", padding=(4, 5, 4, 5), dtype="bfloat16")
REPLKNET = Conv.parse("1x2x32x32", "2x1x31x31", padding=15, dtype="bfloat16")
DGRAD = MIDDLE.replace(pass_="dgrad")
WIDE = MIDDLE.replace(batch=1, width=70, height=40)

CASES = [
    (REPLKNET, AmxTile()),
    (MIDDLE, AmxTile(1, 1, 2, 2, 1)),
    (MIDDLE.replace(batch=19, channels=1), AmxTile(2, 2, 16, 1, 0, 1)),
    (DGRAD.replace(padding=(0, 7, 8, 1)), AmxTile(3, 1, 4)),
    (DGRAD.replace(padding=(11, 14, 10, 12), dilation=(1, 2)), AmxTile(2, 2)),
    (MIDDLE.replace(stride=(2, 2)), AmxTile(1, 1)),
    (MIDDLE.replace(stride=(3, 2), multiplier=2), AmxTile(2, 2, 16, 1, 1)),
    (MIDDLE.replace(dilation=(2, 3), width=50, height=30), AmxTile(2, 1, 2)),
    (WIDE.replace(kernel_w=31, padding=(4, 15, 4, 15)), AmxTile(4, 1)),
    (WIDE.replace(padding=(20, 30, 0, 3)), AmxTile(2, 1, 1, 1, 1)),
    (MIDDLE.replace(height=5, width=7, padding=4, epilogue=["bias", "relu"]), AmxTile(1, 1)),
]


def kernel_of(p: Conv, tile: AmxTile, target: str = "llvm") -> tilewright.Kernel:
    found = declare_amx(p, tile)
    return tilewright.build(schedule_amx(found, tile), found.args, target)


def assembly_of(p: Conv, tile: AmxTile) -> str:
    """Of the program, without the functions that were inlined into it."""
    found = declare_amx(p, tile)
    text = machine_code(schedule_amx(found, tile), found.args, SAPPHIRE_RAPIDS)
    return text[: text.index("-- End function")]


def mnemonics(text: str) -> list[str]:
    return re.findall(r"^\t(ldtile\w+|tile\w+|tdp\w+)", text, re.MULTILINE)


@pytest.mark.parametrize(("p", "tile"), CASES, ids=str)
def test_every_tile_computes_a_convolution(p: Conv, tile: AmxTile) -> None:
    kernel = kernel_of(p, tile, "llvm -threads=2")
    assert run(p, kernel) < TOLERANCE[p.dtype]
    assert ("tdpbf16ps" in kernel.assembly) == has_tiles()


@emulates
@pytest.mark.parametrize(("p", "tile"), CASES, ids=str)
def test_its_machine_code_computes_a_convolution(p: Conv, tile: AmxTile) -> None:
    found = declare_amx(p, tile)
    kernel = with_tiles(schedule_amx(found, tile), found.args)
    with emulated() as counts:
        assert run(p, kernel) < TOLERANCE[p.dtype]
    if not has_tiles():
        assert counts["multiplied"] > 0
        assert counts["configured"] > 0
        assert not counts["left"], "tiles are released"


@pytest.mark.parametrize("tile", [AmxTile(2, 1, 2), AmxTile(1, 2, 1, 1, 1)])
def test_sums_of_small_integers_are_exact_and_the_simulator_finds_nothing(tile: AmxTile) -> None:
    p = Conv.parse("2x1x9x17", "1x1x5x7", padding=(2, 3, 2, 3), dtype="bfloat16")
    rng = np.random.default_rng(0)
    arrays = {n: encode(rng.integers(-2, 3, s), "bfloat16") for n, s in p.shapes().items()}
    kernel = kernel_of(p, tile)
    for call in (kernel, kernel.simulate):
        out = poison(p)
        report = call(*arrays.values(), out)
        assert report is None or report.ok, str(report)
        np.testing.assert_array_equal(decode(out), reference(p, arrays))


def test_one_kernel_serves_every_batch() -> None:
    for tile in (AmxTile(2, 1, 1), AmxTile(2, 1, 4)):
        found = declare_amx(MIDDLE, tile, te.var("n"))
        kernel = tilewright.build(schedule_amx(found, tile), found.args)
        for batch in (1, 5):
            assert run(MIDDLE.replace(batch=batch), kernel) < TOLERANCE["bfloat16"]


@x86_only
@pytest.mark.parametrize(
    ("tile", "steps"),
    [
        (AmxTile(2, 2), ["tileloadd"] * 3 + ["tdpbf16ps"] * 2 + ["tileloadd"] + ["tdpbf16ps"] * 2),
        (AmxTile(2, 2, together=1), ["tileloadd"] * 4 + ["tdpbf16ps"] * 4),
        (AmxTile(4, 1, 8), ["tileloadd"] + ["tileloadd", "tdpbf16ps"] * 4),
    ],
    ids=str,
)
def test_sums_stay_in_tiles_for_all_taps(tile: AmxTile, steps: Sequence[str]) -> None:
    p = REPLKNET.replace(batch=8)
    text = assembly_of(p, tile)
    loops = re.split(r"^\.L\w+:", text, flags=re.MULTILINE)
    busy = [loop[: loop.index("\n\tj")] for loop in loops if "tdpbf16ps" in loop]
    assert busy
    for loop in busy:
        assert mnemonics(loop) == steps
        assert "%zmm" not in loop
    found, sums = mnemonics(text), len(busy) * tile.down * tile.across
    assert found.count("tilestored") == found.count("tdpbf16ps") == sums


@x86_only
@pytest.mark.parametrize(
    "p",
    [REPLKNET, WIDE.replace(channels=4), MIDDLE.replace(batch=8, pass_="dgrad")],
    ids=str,
)
def test_no_candidate_spills_a_tile(p: Conv) -> None:
    for tile in amx_tiles(p, Target.parse("llvm"))[:5]:
        text = assembly_of(p, tile)
        for line in text.splitlines():
            assert not ("tile" in line and ("Spill" in line or "Reload" in line)), (tile, line)
        assert "tdpbf16ps" in text


@x86_only
def test_each_thread_configures_its_tiles_and_releases_them() -> None:
    found = declare_amx(REPLKNET, AmxTile())
    kernel = tilewright.build(schedule_amx(found, AmxTile()), found.args, "llvm -arch=amx")
    body = next(f for f in kernel.assembly.split("-- End function") if "tdpbf16ps" in f)
    assert "parallel" in body[: body.index("@function")], "what threads of the pool call"
    used = mnemonics(body)
    assert used[0] == "ldtilecfg"
    assert used[-1] == "tilerelease"


@x86_only
def test_code_for_a_processor_with_tiles_is_made_anywhere_and_runs_only_there() -> None:
    kernel = kernel_of(REPLKNET, AmxTile(), "llvm -arch=amx")
    assert "tdpbf16ps" in kernel.assembly
    assert "tdpbf16ps" not in kernel_of(REPLKNET, AmxTile(), "llvm -arch=baseline").assembly
    if has_tiles():
        assert run(REPLKNET, kernel) < TOLERANCE["bfloat16"]
        return
    with pytest.raises(TargetError, match="cannot run here: .*amx-bf16"):
        run(REPLKNET, kernel)


@x86_only
def test_they_come_first_for_processors_that_have_them() -> None:
    def names(p: Conv, target: str = "llvm -arch=amx") -> list[str]:
        return [t.name for t, _ in candidates(p, target)]

    assert names(REPLKNET)[0] == names(REPLKNET.replace(pass_="dgrad"))[0] == "cpu.tiles"
    assert ("cpu.tiles" in names(REPLKNET, "llvm")) == has_tiles()
    assert "cpu.tiles" not in names(REPLKNET, "llvm -arch=avx512")
    others = (
        {"dtype": "float16"},
        {"stride": (1, 3)},
        {"kernel_h": 3, "kernel_w": 3},
        {"layout": "NHWC"},
        {"pass_": "dgrad", "stride": (2, 2)},
    )
    for changes in others:
        assert "cpu.tiles" not in names(REPLKNET.replace(**changes))
