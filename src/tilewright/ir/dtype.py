"""Types of values: a scalar kind with its width, times a number of vector lanes.

A :class:`DType` is a string (``"float32"``, ``"int8x4"``), so it compares and hashes like one;
its parts are attributes.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import Any

from tilewright.ir.errors import UnknownTypeError

#: Floats of 8 bits, which have no arithmetic of their own: see :mod:`tilewright.ir.float8`.
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
SCALARS = (
    "float64", "float32", "float16", "bfloat16", *FLOAT8, "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool", "handle",
)  # fmt: skip
_PATTERN = re.compile(rf"^({'|'.join(FLOAT8)}|float|bfloat|int|uint|bool|handle)(\d*)(?:x(\d+))?$")


class DType(str):
    """One type; make it with :func:`dtype`, which interns it."""

    kind: str  # "float", "bfloat", one of FLOAT8, "int", "uint", "bool" or "handle"
    bits: int
    lanes: int
    element: DType  # the type of one lane
    is_float: bool
    is_float8: bool
    is_int: bool  # signed or unsigned, not bool
    is_bool: bool

    @property
    def bytes(self) -> int:
        """The size of one lane in memory."""
        return (self.bits + 7) // 8

    def with_lanes(self, lanes: int) -> DType:
        """The same element type with another number of lanes."""
        return dtype(self.element if lanes == 1 else f"{self.element}x{lanes}")


def dtype(name: Any) -> DType:
    """Parse and intern a type: its name, or a type of NumPy's or PyTorch's; the words "float",
    "int" and "uint" are of 32 bits, as TVM has them.

    Raises :class:`UnknownTypeError` where there is no such type.

    >>> dtype("float16x8").lanes
    8
    """
    if isinstance(name, DType):
        return name
    if not isinstance(name, str):
        # numpy.float32, numpy.dtype("float32"), torch.float32
        given = name.__name__ if isinstance(name, type) else getattr(name, "name", None)
        name = str(given or name).removeprefix("torch.").removesuffix("_")
    elif name in _WORDS:
        name += "32"
    found = _types.get(name)
    return _types.setdefault(name, _parsed(name)) if found is None else found


_WORDS = ("float", "int", "uint")

#: By name; of two threads that ask for a new one at once both get the same.
_types: dict[str, DType] = {}


def _parsed(name: str) -> DType:
    match = _PATTERN.match(name)
    kind, bits, lanes = match.groups() if match else ("", "", "")
    scalar = kind + bits
    if scalar not in SCALARS:
        near = difflib.get_close_matches(name, SCALARS, 1)
        hint = f": did you mean {near[0]}?" if near else ""
        known = ", ".join(SCALARS[:-1])
        raise UnknownTypeError(f"unknown type {name!r}; the scalar types are {known}{hint}")
    made = DType(name)
    made.kind = kind
    made.is_float8 = kind in FLOAT8
    made.bits = 8 if made.is_float8 else {"bool": 8, "handle": 64}.get(kind) or int(bits)
    made.lanes = int(lanes or 1)
    made.element = made if made.lanes == 1 else dtype(scalar)
    made.is_float = kind in ("float", "bfloat") or made.is_float8
    made.is_int = kind in ("int", "uint")
    made.is_bool = kind == "bool"
    return made


@cache
def int_range(t: DType) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    if t.kind == "uint":
        return 0, 2**t.bits - 1
    return -(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1


def wrapped(value: int, t: DType) -> int:
    """What an integer type makes of a number: the rest that its bits hold.

    >>> wrapped(200, dtype("int8"))
    -56
    """
    low, _ = int_range(t)
    return int((value - low) % 2**t.bits) + low
