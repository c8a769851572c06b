"""What it costs to prove that what goes on in the background is waited for, in calls of Python's
functions."""

from __future__ import annotations

import pytest
from tests.correctness.test_arrivals import ring
from tests.performance.test_compile_work import calls
from tests.support.wait_mutants import NAMED, named

from tilewright.ir.func import Func
from tilewright.lower.analysis.accesses import collect
from tilewright.topi import Conv
from tilewright.topi.pieces.band_tiles import StagedTile
from tilewright.verify.arrivals import unarrived
from tilewright.verify.background import unawaited


def work(func: Func) -> int:
    """Calls to prove it of a kernel, of which the accesses are known."""
    kernel = collect(func)
    count, found = calls(lambda: list(unarrived(kernel)))
    assert found == []
    return count


def test_a_ring_of_copies_is_proved_by_numbers_alone_however_long_it_runs() -> None:
    short, long = work(ring(2, extent=9)), work(ring(2, extent=9000))
    assert short == long < 4_000


@pytest.mark.parametrize(("number", "most"), [(0, 7_000), (19, 9_000), (40, 29_000)])
def test_a_kernel_of_boxes_is_proved_with_bounded_work(number: int, most: int) -> None:
    assert work(named(*NAMED[number]).funcs[0]) < most


def test_a_ring_whose_slots_begin_elsewhere_in_each_tile_is_proved_with_bounded_work() -> None:
    p = Conv(batch=64, channels=96, height=56, width=56, kernel_h=7, kernel_w=7, padding=3,
             dtype="float16", pass_="dgrad")  # fmt: skip
    found = named("gpu.toeplitz_staged", p, StagedTile(2, 16, 4, 7, 2, 4, 3, 16))
    assert work(found.funcs[0]) < 170_000


def test_what_loops_in_loops_read_in_the_background_is_followed_once() -> None:
    p = Conv(batch=64, channels=96, height=56, width=56, kernel_h=7, kernel_w=7, padding=3,
             dtype="float16", pass_="dgrad")  # fmt: skip
    found = named("gpu.toeplitz_staged", p, StagedTile(2, 16, 4, 7, 2, 4, 3, 16))
    kernel = collect(found.funcs[0])
    count, findings = calls(lambda: list(unawaited(kernel)))
    assert findings == []
    assert count < 25_000  # 1,779,000 where all instructions are followed at once
