"""What Winograd's algorithm does on a CPU: its sums stay in registers, its products are few."""

from __future__ import annotations

import re

from tests.support.cpu_code import SAPPHIRE_RAPIDS, machine_code, x86_only

from tilewright.topi import Conv
from tilewright.topi.nn.winograd import POINTS, Transforms
from tilewright.topi.sketches.winograd import WinogradTile
from tilewright.topi.templates import TEMPLATES


@x86_only
def test_products_are_summed_in_registers():
    p = Conv.parse(
        (1, 64, 56, 56), (64, 64, 3, 3), 1, padding=1, layout="NHWC", precision="winograd"
    )
    template, tile = TEMPLATES["cpu.winograd"], WinogradTile(rows=7, vectors=2, tiles=28)
    text = machine_code(*template.scheduled(p, tile), SAPPHIRE_RAPIDS)
    loops = re.findall(r"\n(\.LBB\w+):((?:(?!\n\.LBB).)*?)\tjne\t\1\n", text, re.DOTALL)
    products = [body for _, body in loops if body.count("vfmadd231ps") == 14]
    assert products
    for body in products:
        assert body.count("vbroadcastss") + body.count("{1to16}") == tile.rows, body
        assert len(re.findall(r"vmovups\t[^\n]*\(%", body)) == tile.vectors, body
        assert "%rsp" not in body  # nothing is spilled


def test_a_result_takes_as_many_products_as_a_tile_has_points():
    by_result = {m: Transforms(m).size ** 2 / m**2 for m in POINTS}
    assert by_result == {2: 4, 4: 2.25}  # the direct sum has 9
