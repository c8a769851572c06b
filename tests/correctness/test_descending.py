"""Blocks that begin with the last iteration of the loop that is bound to them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.arith import Analyzer
from tilewright.ir.ops import const
from tilewright.ir.stmt import For
from tilewright.ir.visit import statements, substitute, uses
from tilewright.lower.pipeline import lower
from tilewright.topi import Conv
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.templates import TEMPLATES


def test_the_first_block_has_the_last_iteration() -> None:
    a = te.placeholder((200,), name="A")
    b = te.compute((200,), lambda i: a[i] * 2.0, name="B")
    s = te.create_schedule(b.op)
    block, thread = s[b].split(b.op.axis[0], factor=64)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    s[b].pragma(block, "descending")
    assert "- blockIdx_x * 64" in str(lower(s, [a, b], "sim").funcs[0])
    kernel = tilewright.build(s, [a, b], "sim")
    x, y = np.arange(200, dtype="float32"), np.full(200, np.nan, "float32")
    kernel(x, y)
    assert np.array_equal(y, 2 * x)


@pytest.mark.parametrize("padding", [0, 1])
def test_phases_with_most_taps_begin_first_beside_a_producer(padding: int) -> None:
    """Of a 3x3 filter with stride 2 one has four, the first or the last."""
    p = Conv.parse((1, 64, 17, 17), (64, 64, 3, 3), 1, padding=padding, stride=2, pass_="dgrad",
                   dtype="float16", layout="NHWC")  # fmt: skip
    schedule, args = TEMPLATES["gpu.box_products"].scheduled(
        p, BoxProductTile(1, 8, 8, 64, 3, staged=64)
    )
    (func,) = lower(schedule, args, "cuda -arch=sm_90a").funcs
    block = next(axis for axis in func.launch if axis.tag == "blockIdx.x")
    loops = [s.extent for s in statements(func.body) if isinstance(s, For)]
    (steps,) = {e for e in loops if uses(e, {block.var})}
    counts = [
        int(Analyzer().simplify(substitute(steps, {block.var: const(k)})).value)
        for k in range(block.extent.value)
    ]
    assert counts[0] == 4
    assert counts == sorted(counts, reverse=True)
