"""Random problems in tiles of AMX agree with float64: their machine code, on an emulator."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.amx_emulator import emulated, emulates, with_tiles
from tests.support.depthwise import TOLERANCE, run
from tests.support.wide_problems import wide_problems

from tilewright.target import Target
from tilewright.topi.cpu.depthwise_tiles import amx_tiles, declare_amx, schedule_amx, suits_amx

#: Of 25 taps and more, in rows of 4 and more.
_KERNELS = st.one_of(
    st.tuples(st.integers(5, 13), st.integers(5, 13)),
    st.sampled_from([(1, 31), (3, 9), (51, 5), (5, 51), (31, 31)]),
)


@emulates
@settings(max_examples=max(1, settings().max_examples // 10))
@given(st.data())
def test_any_tile_of_any_problem(data: st.DataObject) -> None:
    pass_ = data.draw(st.sampled_from(["forward", "dgrad"]))
    step = data.draw(st.sampled_from([(1, 1)] if pass_ == "dgrad" else [(1, 1), (2, 2), (3, 1)]))
    fixed = {"pass_": pass_, "layout": "NCHW", "dtype": "bfloat16", "stride": step}
    fixed |= {"multiplier": 1} if pass_ == "dgrad" else {}
    p = data.draw(wide_problems(work=300_000, kernels=_KERNELS, **fixed))
    assume(suits_amx(p))
    tile = data.draw(st.sampled_from(amx_tiles(p, Target.parse("llvm"))))
    found = declare_amx(p, tile)
    kernel = with_tiles(schedule_amx(found, tile), found.args)
    with emulated():
        assert run(p, kernel) < TOLERANCE["bfloat16"], (p, tile)
