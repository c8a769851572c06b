"""Floats that NumPy has no type for, as float32 that they can hold, and as the bits in memory.

These are bfloat16 and the floats of 8 bits; see :mod:`tilewright.ir.float8`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewright.ir.dtype import DType
from tilewright.ir.float8 import NAN, middles, values

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = Any  # an np.ndarray or a NumPy scalar


def is_narrow(t: DType) -> bool:
    """Whether NumPy itself has no such float."""
    return t.kind == "bfloat" or t.is_float8


def bits_type(t: DType) -> np.dtype[Any]:
    """The integers that have the bits of such a float."""
    import numpy as np

    return np.dtype(f"uint{t.bits}")


@functools.cache
def storage_type(t: DType) -> np.dtype[Any]:
    """How NumPy holds ``t``: what it lacks as ml_dtypes' type where installed, else as bits."""
    import numpy as np

    if not is_narrow(t):
        return np.dtype(str(t))
    try:
        import ml_dtypes
    except ImportError:
        return bits_type(t)
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, t.element))
    return found


def holds(kind: Any, t: DType) -> bool:
    """Whether an array of NumPy's type ``kind`` holds such floats, as bits or as ml_dtypes has."""
    return is_narrow(t) and str(kind) in (t.element, str(bits_type(t)))


def to_bits(x: Array, t: DType) -> Array:
    """The bits of numbers rounded to the nearest of a type, ties to even."""
    import numpy as np

    if t.kind == "bfloat":
        words = np.asarray(x, np.float32).view(np.uint32)
        even = (words >> np.uint32(16)) & np.uint32(1)
        short = ((words + np.uint32(0x7FFF) + even) >> np.uint32(16)).astype(np.uint16)
        return np.where(np.isnan(x), np.uint16(0x7FC0), short)[()]
    wide = np.asarray(x, np.float64)
    between, size = np.asarray(middles(t.kind)), np.abs(wide)
    low, high = (np.searchsorted(between, size, side) for side in ("left", "right"))
    found = np.where(low % 2, high, low) | np.where(np.signbit(wide), 0x80, 0)
    return np.where(np.isnan(wide), NAN, found).astype(np.uint8)[()]


def from_bits(bits: Array, t: DType) -> Array:
    """The numbers that bits stand for, as float32."""
    import numpy as np

    if t.kind == "bfloat":
        return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.asarray(values(t.kind), np.float32)[np.asarray(bits, np.uint8)]


def round_to(x: Array, t: DType) -> Array:
    """Numbers rounded to the nearest of a type, as float32."""
    return from_bits(to_bits(x, t), t)[()]


def to_storage(x: Array, t: DType) -> np.ndarray[Any, Any]:
    """Numbers as NumPy holds them in memory, rounded once."""
    import numpy as np

    given = np.asarray(x)
    if not is_narrow(t):
        return given.astype(str(t))
    if not holds(given.dtype, t):
        given = np.asarray(to_bits(given, t))
    return given.view(storage_type(t))


def from_storage(x: Array, t: DType) -> np.ndarray[Any, Any]:
    """What :func:`to_storage` made, as float32 where NumPy has no such type."""
    import numpy as np

    given = np.asarray(x)
    return np.asarray(from_bits(given.view(bits_type(t)), t)) if is_narrow(t) else given
