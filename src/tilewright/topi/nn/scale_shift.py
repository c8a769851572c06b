"""Scale and shift of every channel: a batch normalization at inference."""

from __future__ import annotations

from tilewright import te
from tilewright.te import Tensor


def scale_shift_nchw(x: Tensor, scale: Tensor, shift: Tensor, name: str = "ScaleShift") -> Tensor:
    """``x[n, c, h, w] * scale[c] + shift[c]``; ``scale`` and ``shift`` have shape (C,)."""
    made: Tensor = te.compute(
        x.shape,
        lambda b, c, i, j: x[b, c, i, j] * scale[c] + shift[c],
        name=name,
        tag="broadcast",
    )
    return made


scale_shift = scale_shift_nchw
