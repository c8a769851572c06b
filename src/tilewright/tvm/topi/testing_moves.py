"""What operators that move elements, or find them, compute, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any


def _blocks(shape: Sequence[int], size: int) -> tuple[int, int, int, int]:
    n, c, h, w = shape
    return n, c, h // size, w // size


def space_to_depth_python(data: Array, block_size: int) -> Array:
    n, c, h, w = _blocks(data.shape, block_size)
    apart = data.reshape(n, c, h, block_size, w, block_size)
    return apart.transpose(0, 3, 5, 1, 2, 4).reshape(n, c * block_size**2, h, w)


def depth_to_space_python(data: Array, block_size: int, mode: str = "DCR") -> Array:
    n, c, h, w = data.shape
    each = c // block_size**2
    if mode == "DCR":
        apart = data.reshape(n, block_size, block_size, each, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        apart = data.reshape(n, each, block_size, block_size, h, w).transpose(0, 1, 4, 2, 5, 3)
    return apart.reshape(n, each, h * block_size, w * block_size)


def space_to_batch_nd_python(
    data: Array, block_shape: Any, pad_before: Any, pad_after: Any, pad_value: float = 0
) -> Array:
    rest = data.ndim - 1 - len(block_shape)
    around = [(0, 0), *zip(pad_before, pad_after, strict=True), *[(0, 0)] * rest]
    x, rank = np.pad(data, around, constant_values=pad_value), len(block_shape)
    shape = [v for e, b in zip(x.shape[1:], block_shape, strict=False) for v in (e // b, b)]
    apart = x.reshape(x.shape[0], *shape, *x.shape[1 + rank :])
    order = [
        *range(2, 2 * rank + 1, 2),
        0,
        *range(1, 2 * rank, 2),
        *range(2 * rank + 1, apart.ndim),
    ]
    parts = apart.transpose(order)
    return parts.reshape(
        -1, *(e // b for e, b in zip(x.shape[1:], block_shape, strict=False)), *x.shape[1 + rank :]
    )


def batch_to_space_nd_python(
    data: Array, block_shape: Any, crop_begin_list: Any, crop_end_list: Any
) -> Array:
    rank = len(block_shape)
    apart = data.reshape(*block_shape, -1, *data.shape[1:])
    order = [
        rank,
        *(v for k in range(rank) for v in (rank + 1 + k, k)),
        *range(2 * rank + 1, apart.ndim),
    ]
    whole = apart.transpose(order)
    shape = [e * b for e, b in zip(data.shape[1:], block_shape, strict=False)]
    made = whole.reshape(-1, *shape, *data.shape[1 + rank :])
    cut = [
        slice(b, made.shape[1 + k] - e)
        for k, (b, e) in enumerate(zip(crop_begin_list, crop_end_list, strict=True))
    ]
    return made[(slice(None), *cut)]


def one_hot(
    indices: Array, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str
) -> Array:
    hot = (indices[..., None] == np.arange(depth)).astype(bool)
    return np.moveaxis(np.where(hot, on_value, off_value).astype(dtype), -1, axis)


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    cut = tuple(
        slice(e) if d != axis % data.ndim else slice(None) for d, e in enumerate(indices.shape)
    )
    return np.take_along_axis(data[cut], indices.astype("int64"), axis)


def gather_nd_python(a_np: Array, indices_np: Array) -> Array:
    return a_np[tuple(indices_np.astype("int64"))]


def strided_slice_python(
    data: Array, begin: Any, end: Any, strides: Any, slice_mode: str = "end", axes: Any = None
) -> Array:
    cut = [slice(None)] * data.ndim
    for k, d in enumerate(axes or range(len(begin))):
        step = 1 if slice_mode == "size" or not strides or k >= len(strides) else strides[k]
        stop = None if end is None or k >= len(end) else end[k]
        if slice_mode == "size" and stop is not None:
            stop = None if stop < 0 else begin[k] + stop
        cut[d] = slice(begin[k], stop, step)
    return data[tuple(cut)]


def strided_set_python(data: Array, v: Array, begin: Any, end: Any, strides: Any) -> Array:
    made = data.copy()
    given = strides or []
    steps = [*given, *[1] * (len(begin) - len(given))]
    made[tuple(slice(b, e, s) for b, e, s in zip(begin, end, steps, strict=False))] = v
    return made


def reverse_sequence(data: Array, seq_lengths: Array, seq_axis: int, batch_axis: int) -> Array:
    made = data.copy()
    for b, n in enumerate(seq_lengths):
        own = [slice(None)] * data.ndim
        own[batch_axis] = slice(b, b + 1)
        own[seq_axis] = slice(int(n))
        made[tuple(own)] = np.flip(data[tuple(own)], seq_axis)
    return made


def sequence_mask(data: Array, valid_length: Array, mask_value: float, axis: int) -> Array:
    places = np.arange(data.shape[axis])
    shape = (-1, 1) if axis == 0 else (1, -1)
    inside = places.reshape(shape) < valid_length.reshape(shape[::-1])
    return np.where(inside.reshape(*inside.shape, *[1] * (data.ndim - 2)), data, mask_value)


def matrix_set_diag(
    input_np: Array, diagonal: Array, k: Any = 0, align: str = "RIGHT_LEFT"
) -> Array:
    low, high = (k, k) if isinstance(k, int) else tuple(k)
    made, wide = input_np.copy(), diagonal.shape[-1]
    sup, sub = align.split("_")
    for far in range(low, high + 1):
        line = (
            diagonal
            if low == high and diagonal.ndim < input_np.ndim
            else diagonal[..., high - far, :]
        )
        count = min(made.shape[-2] + min(far, 0), made.shape[-1] - max(far, 0))
        skip = wide - count if (sup if far >= 0 else sub) == "RIGHT" else 0
        for n in range(count):
            made[..., n - min(far, 0), n + max(far, 0)] = line[..., skip + n]
    return made


def searchsorted_ref(sorted_sequence: Array, values: Array, right: bool, out_dtype: str) -> Array:
    side: Any = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, values, side).astype(out_dtype)
    rows = sorted_sequence.reshape(-1, sorted_sequence.shape[-1])
    given = values.reshape(len(rows), -1)
    found = [np.searchsorted(a, b, side) for a, b in zip(rows, given, strict=True)]
    return np.stack(found).reshape(values.shape).astype(out_dtype)
