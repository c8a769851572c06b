"""Random products in tiles of AMX are right: their machine code, on an emulator where needed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.amx_emulator import emulated, emulates, with_tiles
from tests.support.dense import convolution, convolutions, product, products, volumes
from tests.support.depthwise import TOLERANCE, run
from tests.support.quantized import check, quantized

from tilewright.target import Target
from tilewright.topi import Gemm
from tilewright.topi.templates import TEMPLATES

MACHINE = Target.parse("llvm -arch=amx -threads=1")
TILES = TEMPLATES["cpu.matrix_tiles"]


@emulates
@settings(max_examples=max(1, settings().max_examples // 5), deadline=None)
@given(st.data())
def test_any_tile_of_any_problem(data: st.DataObject) -> None:
    of_floats = {"dtype": "bfloat16", "accumulate": "float32"}
    kinds = [
        convolutions(**of_floats, pass_="forward"), convolutions(**of_floats, pass_="dgrad"),
        volumes(**of_floats, pass_="forward"), products(**of_floats, pass_="forward"), quantized(),
    ]  # fmt: skip
    p = data.draw(data.draw(st.sampled_from(kinds)).filter(lambda p: TILES.fits(p, MACHINE)))
    tile = data.draw(st.sampled_from(TILES.candidates(p, MACHINE)))
    kernel = with_tiles(*TILES.scheduled(p, tile))
    with emulated():
        if p.is_quantized:
            check(kernel, p)
        else:
            exact = product if isinstance(p, Gemm) else convolution
            assert run(p, kernel, exact=exact) < TOLERANCE["bfloat16"], (p, tile)
