"""Memory of an array, whoever it belongs to: a pointer with a shape, strides and a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.ir.dtype import FLOAT8, DType, dtype
from tilewright.ir.errors import ArgumentError


@dataclass(slots=True)
class ArrayView:
    """Memory of somebody else.

    ``strides`` are in elements; ``device`` is "cpu", "cuda:0", "opencl:0"; ``pointer`` is an
    address (for OpenCL the handle that the backend gave out); ``owner`` keeps the memory alive.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: str = "cpu"
    readonly: bool = False
    owner: Any = None

    @property
    def size(self) -> int:
        """How many elements the shape holds."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def span(self) -> tuple[int, int]:
        """The first byte and the one after the last; equal where the array is empty.

        A handle of OpenCL's is no address: it stands for all of its memory, whatever its size.
        """
        if not self.size:
            return self.pointer, self.pointer
        if self.device.startswith("opencl"):
            return self.pointer, self.pointer + 1
        low = high = 0
        for extent, stride in zip(self.shape, self.strides, strict=True):
            reach = (extent - 1) * stride
            low, high = low + min(reach, 0), high + max(reach, 0)
        size = self.dtype.bytes
        return self.pointer + low * size, self.pointer + (high + 1) * size


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


_KINDS = {"f": "float", "i": "int", "u": "uint", "b": "bool"}


def numpy_dtype(typestr: str, named: Any = None) -> DType:
    """The type that NumPy writes as ``typestr`` ("<f4"); ``named`` tells ml_dtypes' apart."""
    name = getattr(named, "name", None)
    if name in ("bfloat16", *FLOAT8):
        return dtype(name)
    order, kind, size = typestr[0], typestr[1], typestr[2:]
    if order == ">":
        raise ArgumentError(
            "big-endian arrays are not supported: pass array.astype(array.dtype.newbyteorder('='))"
        )
    if kind == "b" and size == "1":
        return dtype("bool")
    try:
        return dtype(f"{_KINDS[kind]}{8 * int(size)}")
    except (KeyError, ValueError):
        raise ArgumentError(f"arrays of NumPy's type {typestr!r} are not supported") from None
