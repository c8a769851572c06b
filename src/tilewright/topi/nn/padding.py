"""Padding: what a kernel reads beyond the edge of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import IntImm
from tilewright.te import Tensor


def pad(
    x: Tensor,
    before: Sequence[int],
    after: Sequence[int] | None = None,
    value: float = 0.0,
    name: str = "PadInput",
) -> Tensor:
    """``x`` with ``before[d]`` and ``after[d]`` elements of ``value`` around dimension ``d``."""
    after = before if after is None else after
    if len(before) != x.ndim or len(after) != x.ndim:
        raise LanguageError(f"pad {x.name}: it has {x.ndim} dimensions, and needs as many pads")
    if all(p == 0 for p in (*before, *after)):
        return x
    shape = [e + b + a for e, b, a in zip(x.shape, before, after, strict=True)]

    def padded(*index: Any) -> Any:
        inside = []
        for i, b, a, extent in zip(index, before, after, x.shape, strict=True):
            inside += [i >= b] if b else []
            inside += [i - b < extent] if a else []
        source = [i - b for i, b in zip(index, before, strict=True)]
        return te.if_then_else(te.all(*inside), x[tuple(source)], te.const(value, x.dtype))

    made: Tensor = te.compute(shape, padded, name=name, tag="pad")
    return made


def pair(value: Any, what: str) -> tuple[int, int]:
    """An int or a pair of ints as (vertical, horizontal)."""
    found = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(found) != 2 or not all(isinstance(v, int) for v in found):
        raise LanguageError(f"{what} is an integer or a pair of them, got {value!r}")
    return found[0], found[1]


def window_padding(
    padding: Any, window: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) for an int, a pair, four ints, "SAME" or "VALID".

    "SAME" is topi's: ``window - 1`` rows in all whatever the stride, the larger half before.
    """
    if isinstance(padding, str):
        if padding.upper() == "VALID":
            return 0, 0, 0, 0
        if padding.upper() != "SAME":
            raise LanguageError(f'padding is "SAME", "VALID" or integers, got {padding!r}')
        (h, w), (dh, dw) = window, dilation
        total_h, total_w = (h - 1) * dh, (w - 1) * dw
        top, left = (total_h + 1) // 2, (total_w + 1) // 2
        return top, left, total_h - top, total_w - left
    if isinstance(padding, (tuple, list)) and len(padding) == 4:
        top, left, bottom, right = padding
        return top, left, bottom, right
    h, w = pair(padding, "padding")
    return h, w, h, w


def static(extent: Any, what: str) -> int:
    """An extent that has to be known while the program is written."""
    if isinstance(extent, IntImm):
        return extent.value
    raise LanguageError(f"{what} must be a constant, got {extent}")
