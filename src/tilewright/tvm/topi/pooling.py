"""topi's pools, of all dimensions and layouts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.te import Tensor
from tilewright.tvm.topi.transform import integers
from tilewright.tvm.topi.windows import SPATIAL, check_layout, numbers, padding_of


def _pooled(
    data: Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str,
    ceil_mode: bool, layout: str, count_include_pad: bool, image: str,
) -> Any:  # fmt: skip
    if any(c in SPATIAL.lower() for c in str(layout)):
        raise LanguageError(
            f"Unsupported layout {layout}: of a pool's dimensions, only channels may be in parts"
        )
    check_layout(layout, data, image, free=True)
    spatial = [d for d, c in enumerate(layout) if c in SPATIAL]
    rank = len(spatial)
    size, steps, holes = (
        numbers(v, rank, what)
        for v, what in ((kernel, "kernel"), (stride, "stride"), (dilation, "dilation"))
    )
    before, behind = padding_of(padding, size)
    taps = [te.reduce_axis((0, k), f"r{n}") for n, k in enumerate(size)]
    shape = list(data.shape)
    for n, d in enumerate(spatial):
        left = data.shape[d] + before[n] + behind[n] - (size[n] - 1) * holes[n] - 1
        left = left + (steps[n] - 1 if ceil_mode else 0)
        shape[d] = te.floordiv(left, steps[n]) + 1

    def places(i: Any) -> tuple[list[Any], Any]:
        at, inside = list(i), []
        for n, d in enumerate(spatial):
            at[d] = i[d] * steps[n] + taps[n] * holes[n] - before[n]
            inside += [at[d] >= 0, at[d] < data.shape[d]]
        return at, te.all(*inside)

    def element(*i: Any) -> Any:
        at, inside = places(i)
        if pool_type == "max":
            return te.max(te.if_then_else(inside, data(*at), te.min_value(data.dtype)), axis=taps)
        return te.sum(te.if_then_else(inside, data(*at), te.const(0, data.dtype)), axis=taps)

    if pool_type not in ("max", "avg"):
        raise LanguageError(f"pool_type is 'max' or 'avg', not {pool_type!r}")
    made = te.compute(tuple(shape), element, f"pool_{pool_type}", tag=f"pool_{pool_type}")
    if pool_type == "max":
        return made

    def mean(*i: Any) -> Any:
        count: Any = te.const(1, "int32")
        for n, d in enumerate(spatial):
            first = i[d] * steps[n] - before[n]
            stop = data.shape[d] + (behind[n] if count_include_pad else 0)
            last = te.floordiv(stop - 1 - first, holes[n]) + 1
            begin = (
                te.max(te.floordiv(-first + holes[n] - 1, holes[n]), 0)
                if not count_include_pad
                else 0
            )
            count = count * te.max(te.min(last, size[n]) - begin, 1 if not count_include_pad else 0)
        return (
            made(*i) / te.max(count, 1).astype(data.dtype)
            if data.dtype.is_float
            else (te.truncdiv(made(*i), te.max(count, 1).astype(data.dtype)))
        )

    return te.compute(tuple(shape), mean, "pool_avg_mean", tag="elemwise")


def _pool(rank: int) -> Callable[..., Any]:
    layout0 = "NC" + SPATIAL[3 - rank :]

    def function(
        data: Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str,
        ceil_mode: bool = False, layout: str = layout0, count_include_pad: bool = True,
    ) -> Any:  # fmt: skip
        return _pooled(
            data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout,
            count_include_pad, layout0[2:],
        )  # fmt: skip

    return function


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Any:
    return adaptive_pool(data, 1, pool_type, layout)


def _adaptive(layout0: str) -> Callable[..., Any]:
    def function(data: Tensor, output_size: Any, pool_type: str, layout: str = layout0) -> Any:
        return adaptive_pool(data, output_size, pool_type, layout, layout0[2:])

    return function


def adaptive_pool(
    data: Tensor, output_size: Any, pool_type: str, layout: str = "NCHW", image: str = "HW"
) -> Any:
    """Windows that divide the image into as many parts as the output has."""
    check_layout(layout, data, image, free=True)
    spatial = [d for d, c in enumerate(layout) if c in SPATIAL]
    goal = numbers(output_size, len(spatial), "output_size")
    extents = integers([data.shape[d] for d in spatial])
    most = [
        max(-(-(o + 1) * e // n) - o * e // n for o in range(n))
        for e, n in zip(extents, goal, strict=True)
    ]
    taps = [te.reduce_axis((0, m), f"r{k}") for k, m in enumerate(most)]
    shape = list(data.shape)
    for d, n in zip(spatial, goal, strict=True):
        shape[d] = ops.const(n)

    def window(i: Any) -> list[tuple[Any, Any]]:
        found = []
        for d, e, n in zip(spatial, extents, goal, strict=True):
            start = te.floordiv(i[d] * e, n)
            found.append((start, te.floordiv((i[d] + 1) * e + n - 1, n) - start))
        return found

    def element(*i: Any) -> Any:
        at, inside = list(i), []
        for d, t, (start, count) in zip(spatial, taps, window(i), strict=True):
            at[d] = start + t
            inside += [t < count, at[d] < data.shape[d]]
        none = te.min_value(data.dtype) if pool_type == "max" else te.const(0, data.dtype)
        value = te.if_then_else(te.all(*inside), data(*at), none)
        return te.max(value, axis=taps) if pool_type == "max" else te.sum(value, axis=taps)

    name = f"adaptive_pool_{pool_type}"
    made = te.compute(tuple(shape), element, name, tag=name)
    if pool_type == "max":
        return made

    def mean(*i: Any) -> Any:
        count = functools.reduce(ops.mul, (c for _, c in window(i)))
        return ops.div(made(*i), count.astype(data.dtype))

    return te.compute(tuple(shape), mean, f"{name}_mean", tag="elemwise")


NAMES: dict[str, Callable[..., Any]] = {
    "adaptive_pool": adaptive_pool,
    "adaptive_pool1d": _adaptive("NCW"),
    "adaptive_pool3d": _adaptive("NCDHW"),
    "global_pool": global_pool,
    "pool1d": _pool(1),
    "pool2d": _pool(2),
    "pool3d": _pool(3),
}
