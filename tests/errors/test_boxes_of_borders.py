"""Boxes whose dimensions would be joined beyond a border are refused: sim plays the program, and
hardware the map."""

from __future__ import annotations

import pytest

from tilewright import te
from tilewright.ir.errors import LoweringError
from tilewright.lower.pipeline import lower
from tilewright.target.instructions import tma_load


def test_rows_above_an_image_are_not_the_last_of_the_one_before() -> None:
    n, h, w = 2, 4, 4
    a = te.placeholder((n, h, w, 256), "float16", name="A")
    shape = (n, h, w, 8, 4, 8)  # channels by digits, which makes six dimensions

    def above(n, h, w, j, i, k):
        seen = a[n, h - 1, w, i * 64 + j * 8 + k]
        return te.if_then_else(h >= 1, seen, te.const(0, "float16"))

    tile = te.compute(shape, above, name="T")
    b = te.compute(shape, lambda *at: tile[at] + te.const(1, "float16"), name="B")
    s = te.create_schedule(b.op)
    *blocks, _, i, k = s[b].op.axis
    for axis, name in zip(blocks, "zyx", strict=True):
        s[b].bind(axis, te.thread_axis(f"blockIdx.{name}"))
    s[b].bind(s[b].split(s[b].fuse(i, k), 32)[1], te.thread_axis((0, 32), "threadIdx.x"))
    s[tile].set_scope("shared")
    s[tile].compute_at(s[b], blocks[-1])
    s[tile].tensorize(s[tile].op.axis[3], tma_load((8, 4, 8), "float16"))
    with pytest.raises(LoweringError, match="some are not known to join"):
        lower(s, [a, b], "cuda -arch=sm_90a")
