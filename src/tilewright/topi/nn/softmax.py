"""Softmax, and its logarithm."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.elementwise import ELEMENTWISE
from tilewright.topi.reduction import dimension, max, sum


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``axis``, without overflow."""
    shifted, total = _exponents(x, axis)
    return _by_line(x, total, axis, lambda i, s: te.exp(shifted[i]) / s, "softmax")


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of :func:`softmax`, without its loss of digits."""
    shifted, total = _exponents(x, axis)
    return _by_line(x, total, axis, lambda i, s: shifted[i] - te.log(s), "log_softmax")


def _exponents(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """``x`` less its largest element, and the sum of the exponentials of that."""
    wide = "float32" if x.dtype.bits == 16 else x.dtype
    largest = max(x, axis, True)
    shifted = _by_line(x, largest, axis, lambda i, m: x[i].astype(wide) - m.astype(wide), "shifted")
    powers: Tensor = te.compute(
        x.shape, lambda *i: te.exp(shifted[i]), name="powers", tag=ELEMENTWISE
    )
    return shifted, sum(powers, axis, True)


def _by_line(x: Tensor, line: Tensor, axis: int, element: Any, name: str) -> Tensor:
    """``element`` of an index and what ``line`` has for all along ``axis``."""
    axis = dimension(axis, x.ndim)

    def of(*i: Any) -> Any:
        value = element(i, line[(*i[:axis], 0, *i[axis + 1 :])])
        return value if name == "shifted" else value.astype(x.dtype)

    made: Tensor = te.compute(x.shape, of, name=name, tag=ELEMENTWISE)
    return made
