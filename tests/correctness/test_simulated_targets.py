"""A program that was lowered for another GPU runs on the simulator like one lowered for it."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.runtime.sim import simulate

#: Functions of one float32.
UNARY = (
    "exp exp2 exp10 log log2 log10 log1p expm1 sqrt rsqrt sin cos tan asin acos atan sinh cosh "
    "tanh erf erfc sigmoid floor ceil round trunc nearbyint round_tf32 truncate_tf32 abs"
).split()
#: Those that are computed in other ways, and may differ in the last bit.
NEAR = 1e-6


@pytest.mark.parametrize("target", ["cuda -arch=sm_90a", "opencl"])
def test_every_function_is_simulated_whatever_the_target(target: str) -> None:
    x = np.concatenate([np.linspace(0.01, 0.99, 30), [2.0**-20 * 1.2345, 0.333]]).astype(np.float32)
    for name in UNARY:
        a = te.placeholder((32,), name="A")
        b = te.compute((32,), lambda i, a=a, name=name: getattr(te, name)(a[i]), name="B")
        s = te.create_schedule(b.op)
        s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
        found = {}
        for place in (target, "sim"):
            found[place] = np.zeros(32, np.float32)
            report = simulate(tilewright.lower(s, [a, b], place), [x, found[place]])
            assert not report.findings, name
        np.testing.assert_allclose(found[target], found["sim"], rtol=NEAR, err_msg=name)
