"""ONNX's Fourier transforms: products with matrices of cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant, reshape
from tilewright.graph.onnx.operation import Converter, Operation
from tilewright.graph.onnx.products import matmul
from tilewright.graph.onnx.shapes import part
from tilewright.graph.onnx.types import dtype_of
from tilewright.graph.value import Value

#: Elements of a matrix of cosines, and of frames, at most.
_MOST = 1 << 25


def _turns(rows: int, columns: int, length: int, sign: int) -> Any:
    """``exp(sign * 2 pi i * r * c / length)``, exact in how often it turns."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    return np.exp(sign * 2j * math.pi * turns / length)


def transform(n: Operation, x: Value, length: int, inverse: bool, onesided: bool) -> Value:
    """The transform along the dimension before the last, which holds a real number or the parts of
    a complex one: of ``length`` elements, cut or filled with zeros. A transform that is
    ``onesided`` is the half of it that says all of real numbers, and its inverse takes that half.
    """
    count, parts = x.shape[-2:]
    if parts not in (1, 2) or length < 1 or min(count, length) * length > _MOST:
        raise n.error(f"a transform of {length} elements of {x.shape}")
    if inverse and onesided:  # elements but the first, and the last of an even length, stand twice
        used = min(count, length // 2 + 1)
        matrix = _turns(used, length, length, 1) / length
        twice = [1 if 2 * k in (0, length) else 2 for k in range(used)]
        matrix *= np.array(twice)[:, None]
        blocks = [[matrix.real], [-matrix.imag]]
    else:
        used, made = min(count, length), length // 2 + 1 if onesided else length
        matrix = _turns(used, made, length, 1 if inverse else -1) / (length if inverse else 1)
        blocks = [[matrix.real, matrix.imag], [-matrix.imag, matrix.real]]
    # By element and part of the operand, and of the result.
    whole = np.stack([np.stack(row, -1) for row in blocks[:parts]], 1)
    rows = part(n, x, [0] * x.rank, [1] * x.rank, [*x.shape[:-2], used, parts])
    flat = reshape(rows, (math.prod(x.shape[:-2]), used * parts))
    factors = constant(whole.reshape(used * parts, -1), x.dtype)
    return reshape(matmul(n, flat, factors), (*x.shape[:-2], *whole.shape[2:]))


def _dft(n: Operation) -> Value:
    x = n[0]
    axis = n.attribute("axis", 1)
    if n.opset >= 20:
        axis = n.integers(2, "axis")[0] if n.has(2) else -2
    axis = n.axis(axis, x.rank)
    if axis == x.rank - 1:
        raise n.error("the last dimension holds the parts of a number")
    inverse, onesided = (bool(n.attribute(k, 0)) for k in ("inverse", "onesided"))
    length = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    if n.has(1):
        (length,) = n.integers(1, "length")
    order = [d for d in range(x.rank - 1) if d != axis]
    axes = (*order, axis, x.rank - 1)
    found = transform(n, n("transpose", x, axes=axes), length, inverse, onesided)
    return n("transpose", found, axes=tuple(axes.index(d) for d in range(x.rank)))


def _stft(n: Operation) -> Value:
    """Transforms of windows that move along a signal (batch, length, parts)."""
    x, (step,) = n[0], n.integers(1, "step")
    size = n[2].shape[0] if n.has(2) else x.shape[1]
    if n.has(3):
        (size,) = n.integers(3, "length")
    count = 1 + (x.shape[1] - size) // step if step > 0 else 0
    if x.rank != 3 or not 0 < count * size <= _MOST or (n.has(2) and n[2].shape != (size,)):
        raise n.error(f"windows of {size} elements, {step} apart, in {x.shape}")
    places = np.arange(count)[:, None] * step + np.arange(size)
    frames = n("take", x, constant(places, "int32"), axis=1)
    if n.has(2):
        frames = n("multiply", frames, reshape(cast(n[2], x.dtype), (size, 1)))
    onesided = bool(n.attribute("onesided", 1))
    return transform(n, frames, size, inverse=False, onesided=onesided)


def _cosines(*factors: float) -> Converter:
    """A window of these cosines: of a constant, of one turn, of two."""

    def convert(n: Operation) -> Value:
        (size,) = n.integers(0, "size")
        if not 0 < size <= 1 << 24:
            raise n.error(f"a window of {size} elements")
        period = size if n.attribute("periodic", 1) else max(size - 1, 1)
        turn = 2 * math.pi * np.arange(size) / period
        made = sum(f * np.cos(k * turn) for k, f in enumerate(factors))
        return constant(made, dtype_of(n.attribute("output_datatype", 1), n))

    return convert


def _mel(n: Operation) -> Value:
    """Triangles over a spectrum, their corners as far apart as one hears them to be."""
    bins, length, rate = (n.integers(k, "sizes")[0] for k in range(3))
    low, high = (float(n.array(k, "edges").reshape(-1)[0]) for k in (3, 4))
    if min(bins, length, rate) < 1 or bins > 1 << 16 or length > 1 << 24:
        raise n.error(f"{bins} bins of a transform of {length} elements")
    ends = [2595 * math.log10(1 + f / 700) for f in (low, high)]
    steps = np.arange(bins + 2) * (ends[1] - ends[0]) / (bins + 2) + ends[0]
    corners = ((length + 1) * (700 * (10 ** (steps / 2595) - 1)) // rate).astype(int)
    made = np.zeros((length // 2 + 1, bins))
    for k in range(bins):
        first, middle, last = (int(c) for c in corners[k : k + 3])
        if not 0 <= first <= middle <= last <= len(made):
            raise n.error(f"frequencies from {low} to {high} at a rate of {rate}")
        rising, falling = np.arange(first, middle + 1), np.arange(middle, last)
        made[rising, k] = (rising - first) / (middle - first) if middle > first else 1
        made[falling, k] = (last - falling) / max(last - middle, 1)
    return constant(made, dtype_of(n.attribute("output_datatype", 1), n))


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "BlackmanWindow": _cosines(0.42, -0.5, 0.08), "DFT": _dft,
    "HammingWindow": _cosines(25 / 46, -21 / 46), "HannWindow": _cosines(0.5, -0.5),
    "MelWeightMatrix": _mel, "STFT": _stft,
}  # fmt: skip
