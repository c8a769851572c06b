"""Floats that NumPy lacks as their bits, by the name of their type; bfloat16 if none is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.support.depthwise import relative_error

from tilewright.ir.dtype import FLOAT8, dtype
from tilewright.runtime import narrow_floats
from tilewright.runtime.ndarray import array
from tilewright.topi.problem import Problem


def to_bits(x: Any, kind: str = "bfloat16") -> Any:
    """The bits of the nearest numbers of a type."""
    return narrow_floats.to_bits(x, dtype(kind))


def from_bits(x: Any, kind: str = "bfloat16") -> Any:
    """The numbers of a type that bits stand for, as float32."""
    return narrow_floats.from_bits(x, dtype(kind))


def error_of_float8(
    p: Problem, kernel: Any, exact: Callable[[Any, Any], Any], seed: int = 0, device: str = "cpu"
) -> float:
    """The relative error of a kernel of floats of 8 bits, its result in memory full of NaN; what
    ``exact`` says of the numbers that its operands hold is right."""
    rng = np.random.default_rng(seed)
    given, numbers = {}, {}
    for name, (shape, kind) in p.inputs().items():
        drawn = rng.standard_normal(shape).astype("float32")
        if name == "variance":
            drawn = abs(drawn) + np.float32(0.5)
        held = array(drawn, type=kind)
        given[name] = held.copyto(device) if device != "cpu" else held
        raw = held.numpy()
        narrow = kind in (*FLOAT8, "bfloat16")
        numbers[name] = from_bits(raw.view(f"uint{8 * raw.itemsize}"), kind) if narrow else raw
    result = array(np.full(p.result.shape, np.nan, "float32"), device, p.result.dtype)
    kernel(*given.values(), result)
    found = result.numpy()
    if p.result.dtype == "bfloat16":
        found = from_bits(found.view("uint16"))
    return relative_error(found, exact(p, numbers))
