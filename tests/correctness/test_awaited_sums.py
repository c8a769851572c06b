"""What products in the background sum up is touched when they have ended: in the machine code too.

A case of a benchmark's was wrong on an H200, though its CUDA C++ waited: ptxas of CUDA 13.0 makes
two roundings to 16 bits one instruction, wherever the first of them stood, before the wait too.
"""

from __future__ import annotations

import re

import pytest
from tests.support.sums_under_way import touched_early

import tilewright
from tilewright.topi import Problem
from tilewright.topi.templates import TEMPLATES

HOPPER = "cuda -arch=sm_90a"

#: Results of odd widths are stored one by one, the sums being rounded one by one.
CASES = [
    (Problem.parse("64x608x18x29", "608x1x17x17", padding=8, pass_="dgrad", dtype="float16"),
     "gpu.toeplitz", (4, 32, 4, 2, 2)),
    (Problem.parse("64x184x63x63", "184x1x9x9", padding=4, pass_="dgrad", dtype="bfloat16"),
     "gpu.toeplitz", (2, 16, 4, 8, 2)),
    (Problem.parse("64x464x9x7", "464x1x19x19", padding=9, pass_="dgrad", dtype="bfloat16"),
     "gpu.toeplitz", (4, 8, 2, 2, 3)),
    (Problem.parse("64x384x32x32", "384x1x31x31", padding=15, dtype="float16"),
     "gpu.toeplitz_staged", (4, 32, 2, 4, 0, 1, 1, 0)),
    (Problem.parse("64x256x28x28", "256x1x29x29", padding=14, pass_="wgrad", dtype="float16"),
     "gpu.row_products", None),
]  # fmt: skip


def assembly(p: Problem, template: str, values: tuple[int, ...] | None) -> str:
    chosen = TEMPLATES[template]
    config = chosen.candidates(p, tilewright.Target.parse(HOPPER))[0]
    if values is not None:
        config = chosen.parse(dict(zip(vars(config), values, strict=True)))
    declaration = chosen.declare(p, config)
    kernel = tilewright.build(chosen.schedule(declaration, config), declaration.args, HOPPER)
    return str(kernel.assembly)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("p", "template", "values"), CASES, ids=lambda x: str(x))
def test_sums_are_touched_when_their_products_have_ended(p, template, values):
    text = assembly(p, template, values)
    assert "HGMMA" in text
    assert not touched_early(text)


@pytest.mark.needs_nvrtc
def test_a_wait_that_is_taken_away_is_seen():
    text = assembly(*CASES[0])
    fewer = re.sub(r"(DEPBAR\.LE gsb0, )0x0", r"\g<1>0x7", text)
    assert fewer != text
    assert touched_early(fewer)


#: A product of two groups, and what follows.
PRODUCTS = """
        /*0000*/                   HGMMA.64x8x16.F32 R24, R40, gdesc[UR4], R24, gsb0 ;
        /*0010*/                   HGMMA.64x8x16.F32 R32, R40, gdesc[UR4], R32, gsb0 ;
"""


@pytest.mark.parametrize(
    ("then", "early"),
    [
        (["WARPGROUP.DEPBAR.LE gsb0, 0x0", "MOV R2, R35"], []),
        (["WARPGROUP.DEPBAR.LE gsb0, 0x1", "MOV R2, R27"], []),
        (["WARPGROUP.DEPBAR.LE gsb0, 0x1", "MOV R2, R32"], ["MOV R2, R32"]),
        (["MOV R2, R28"], []),  # of neither
        (["MOV R24, RZ"], ["MOV R24, RZ"]),
        (["@P0 BRA `(.L_x_0)", "WARPGROUP.DEPBAR.LE gsb0, 0x0", ".L_x_0:", "MOV R2, R25"],
         ["MOV R2, R25"]),
    ],
)  # fmt: skip
def test_what_is_under_way(then, early):
    lines = [x if x.startswith(".L") else f"        /*0020*/      {x} ;" for x in then]
    assert touched_early(PRODUCTS + "\n".join(lines)) == early
