"""Two stages in a row: what schedules that place or store the first of them are tried on."""

from __future__ import annotations

import numpy as np
from tests.support.schedules import integers

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.te import Tensor

N = 29
X = integers(N, seed=7)


def chain(n: int = N) -> tuple[Schedule, Tensor, Tensor, Tensor]:
    """C[i] = B[i - 1] + B[i] + B[i + 1], with zeros outside, and B = 2 A + 1."""
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0 + 1.0, name="B")
    c = te.compute(
        (n,),
        lambda i: (
            te.if_then_else(i > 0, b[i - 1], 0.0) + b[i] + te.if_then_else(i < n - 1, b[i + 1], 0.0)
        ),
        name="C",
    )
    return te.create_schedule(c.op), a, b, c


def stencil(x: np.ndarray) -> np.ndarray:
    """C of ``x``."""
    y = np.pad(x * 2 + 1, 1)
    return y[:-2] + y[1:-1] + y[2:]
