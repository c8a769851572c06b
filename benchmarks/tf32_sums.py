"""How exact sums of float32 on tensor cores are: a model of them, on a CPU.

Products of float32 are three of TF32 each, whose factors have 11 bits, and the unit adds eight of
them at a time, exactly, to a sum that it rounds towards zero. Of sums over all taps of a filter,
of normal numbers, the norm of the error by that of taps added one by one in float32: where tensor
cores add all taps to one sum, and where they sum each row from zero and rows are added in float32.
The same of sums of a dense layer, all small terms before the large ones, in one sum or in steps of
32 products that are added in float32.

    python benchmarks/tf32_sums.py
"""

from __future__ import annotations

from typing import Any, TypeAlias

import measure
import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

FILTERS = (7, 13, 31)
#: Products of a result of a dense layer: of 3x3 filters and 64, 256 and 512 channels.
DEPTHS = (576, 2304, 4608)
#: Sums of each kind, products that the unit adds at once, and those of a step.
_SUMS, _AT_ONCE, _STEP = 4000, 8, 32


def truncate(x: Array) -> Array:
    """Float32 as tensor cores read it: its lowest 13 bits are zero."""
    return (x.view("uint32") & np.uint32(0xFFFFE000)).view("float32")


def nearest(x: Array) -> Array:
    """The nearest TF32."""
    return truncate((x.view("uint32") + np.uint32(0x1000)).view("float32"))


def towards_zero(x: Array) -> Array:
    """Float64 rounded to float32 towards zero."""
    near = x.astype("float32")
    return np.where(abs(near.astype("float64")) > abs(x), np.nextafter(near, np.float32(0)), near)


def in_parts(x: Array, w: Array) -> list[tuple[Array, Array]]:
    """The factors of the three products that stand for one, the smallest first."""
    large = nearest(x), nearest(w)
    small = truncate(x - large[0]), truncate(w - large[1])
    return [(small[0], large[1]), (large[0], small[1]), large]


def added(begin: Array, a: Array, b: Array) -> Array:
    """``begin`` and at most eight products of TF32."""
    return towards_zero(begin + (a.astype("float64") * b).sum(1))


def row_sum(begin: Array, x: Array, w: Array) -> Array:
    """``begin`` and the products of a row of taps, as tensor cores add them."""
    found = begin
    for k in range(0, x.shape[1], _AT_ONCE):
        for a, b in in_parts(x, w):
            found = added(found, a[:, k : k + _AT_ONCE], b[:, k : k + _AT_ONCE])
    return found


def dense_errors(depth: int) -> dict[str, float]:
    """By way of summing ``depth`` products, relative to products added one by one in float32."""
    rng = np.random.default_rng(depth)
    x, w = rng.standard_normal((2, _SUMS, depth)).astype("float32")
    zero = np.zeros(_SUMS, "float32")
    one = apart = plain = zero
    for a, b in in_parts(x, w):
        for k in range(0, depth, _STEP):
            step = zero
            for n in range(k, k + _STEP, _AT_ONCE):
                some = a[:, n : n + _AT_ONCE], b[:, n : n + _AT_ONCE]
                one, step = added(one, *some), added(step, *some)
            apart = apart + step
    for k in range(depth):
        plain = (plain + x[:, k].astype("float64") * w[:, k]).astype("float32")
    exact = (x.astype("float64") * w).sum(1)
    least = np.linalg.norm(plain - exact)
    return {
        "all in one sum": float(np.linalg.norm(one - exact) / least),
        "steps apart": float(np.linalg.norm(apart - exact) / least),
        "of the norm": float(np.linalg.norm(apart - exact) / np.linalg.norm(exact)),
    }


def errors(size: int) -> dict[str, float]:
    """By way of summing, for a square filter, relative to taps added one by one in float32."""
    rng = np.random.default_rng(size)
    x, w = rng.standard_normal((2, _SUMS, size, size)).astype("float32")
    zero = np.zeros(_SUMS, "float32")
    one = apart = plain = zero
    for i in range(size):
        one = row_sum(one, x[:, i], w[:, i])
        apart = apart + row_sum(zero, x[:, i], w[:, i])
        for j in range(size):
            product = x[:, i, j].astype("float64") * w[:, i, j]
            plain = (plain + product).astype("float32")
    exact = (x.astype("float64") * w).sum((1, 2))
    least = np.linalg.norm(plain - exact)
    return {
        "all taps in one sum": float(np.linalg.norm(one - exact) / least),
        "rows apart": float(np.linalg.norm(apart - exact) / least),
    }


def main() -> None:
    rows = [{"filter": f"{size}x{size}", **errors(size)} for size in FILTERS]
    print(measure.table(rows))
    print(measure.table([{"products": depth, **dense_errors(depth)} for depth in DEPTHS]))


if __name__ == "__main__":
    main()
