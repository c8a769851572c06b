"""Floats that NumPy lacks as their bits, by the name of their type; bfloat16 if none is given."""

from __future__ import annotations

from typing import Any

from tilewright.ir.dtype import dtype
from tilewright.runtime import narrow_floats


def to_bits(x: Any, kind: str = "bfloat16") -> Any:
    """The bits of the nearest numbers of a type."""
    return narrow_floats.to_bits(x, dtype(kind))


def from_bits(x: Any, kind: str = "bfloat16") -> Any:
    """The numbers of a type that bits stand for, as float32."""
    return narrow_floats.from_bits(x, dtype(kind))
