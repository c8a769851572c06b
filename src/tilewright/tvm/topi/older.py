"""Operators as topi had them until 2020: ``pool``, ``l2_normalize``, ``image.resize``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.te.tensor import Tensor
from tilewright.tvm.topi import pooling, resampling
from tilewright.tvm.topi.elements import axes_of, reduced


def pool(
    data: Tensor, kernel: Any, stride: Any, padding: Any, pool_type: str, ceil_mode: bool = False,
    layout: str = "NCHW", count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """``pool2d`` without dilation."""
    return pooling.NAMES["pool2d"](
        data, kernel, stride, (1, 1), padding, pool_type, ceil_mode, layout, count_include_pad
    )


def l2_normalize(data: Tensor, eps: float, axis: Any = None) -> Any:
    """``data / sqrt(max(sum(data * data), eps))``, the sum over ``axis``, or all."""
    axes = axes_of(axis, data.ndim)
    kept = [d for d in range(data.ndim) if d not in axes]
    squares = reduced(data, axes, False, lambda v, i, k: te.sum(v * v, axis=k), "l2_sum")

    def element(*i: Any) -> Any:
        total = squares(*(i[d] for d in kept))
        return data(*i) / te.sqrt(te.max(total, te.const(eps, data.dtype)))

    return te.compute(data.shape, element, "l2_normalize", tag="broadcast")


def resize(
    data: Tensor, size: Any, layout: str = "NCHW", method: str = "bilinear",
    coordinate_transformation_mode: Any = "align_corners", out_dtype: Any = None,
    align_corners: Any = None,
) -> Any:  # fmt: skip
    """``resize2d`` without a box; the mode may be a bool, ``align_corners``, as in 2019."""
    mode = coordinate_transformation_mode if align_corners is None else align_corners
    if isinstance(mode, bool):
        mode = "align_corners" if mode else "asymmetric"
    return resampling.NAMES["resize2d"](data, None, size, layout, method, mode, out_dtype=out_dtype)


NN: dict[str, Callable[..., Any]] = {"pool": pool, "l2_normalize": l2_normalize}
IMAGE: dict[str, Callable[..., Any]] = {"resize": resize}
