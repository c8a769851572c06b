"""A masked vector writes the lanes of its mask, and nothing beside them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import te


@pytest.mark.parametrize("extent", [1, 2, 15, 17])
@pytest.mark.parametrize("dtype", ["int8", "int16", "bfloat16", "float16", "float32"])
def test_rounded_values_end_with_the_output(dtype, extent):
    A = te.placeholder((extent,), "float32", name="A")
    B = te.compute((extent,), lambda i: (A[i] * 2.0).astype(dtype), name="B")
    s = te.create_schedule(B.op)
    local = s.cache_write(B, "local")
    tile, lane = s[B].split(B.op.axis[0], factor=16)
    s[B].vectorize(lane)
    s[local].compute_at(s[B], tile)
    s[local].vectorize(s[local].op.axis[0])
    kept = np.full(extent + 32, 7, "uint16" if dtype == "bfloat16" else dtype)
    tilewright.build(s, [A, B])(np.ones(extent, "float32"), kept[16 : 16 + extent])
    assert set(np.flatnonzero(kept != 7)) == set(range(16, 16 + extent))
