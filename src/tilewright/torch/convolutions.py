"""Convolutions of any groups, and transposed ones, as functions of :mod:`torch.nn.functional`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from tilewright.topi import Conv, Conv3d, ProblemError
from tilewright.topi.arguments import whole
from tilewright.torch.autocast import autocast
from tilewright.torch.linear import as_results, check_tensors, in_type, with_epilogue

#: By the dimensions of an image: the operator, and the memory format of channels last.
_OPERATORS: dict[int, tuple[type[Conv] | type[Conv3d], Any]] = {
    1: (Conv, None),
    2: (Conv, torch.channels_last),
    3: (Conv3d, torch.channels_last_3d),
}

Sizes = int | Sequence[int]


def conv1d(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Sizes = 1,
    padding: str | Sizes = 0, dilation: Sizes = 1, groups: int = 1, *,
    scale: torch.Tensor | float | None = None, out_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """:func:`conv2d` of (N, C, W) or (C, W)."""
    return _convolved(1, input, weight, bias, stride, padding, dilation, groups, scale, out_dtype)


def conv2d(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Sizes = 1,
    padding: str | Sizes = 0, dilation: Sizes = 1, groups: int = 1, *, precision: str = "exact",
    scale: torch.Tensor | float | None = None, out_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """``F.conv2d`` by :func:`~tilewright.torch.compute`: dense, in groups or depthwise.

    Parameters
    ----------
    input : (N, C, H, W) or (C, H, W), in either memory format; the output has the same one.
    weight : (OC, C / groups, KH, KW).
    bias : (OC,) or None.
    padding : also (top, left, bottom, right), "same" and "valid".
    precision : what may be done to products, as a :class:`~tilewright.topi.Problem` has it:
        "winograd" allows fewer of them, on a CPU, at some two times the error.
    scale : of operands in float8 what sums are multiplied with before the bias is added, in
        float32: one number, or (OC,).
    out_dtype : of operands in float8 the type of the bias and the output: bfloat16, the default,
        float16 or float32; or of an output in float8, which saturates, with a bias in float32.
        Others leave both out.

    It has derivatives of any order. Images and filters without an element are PyTorch's. Raises
    :class:`~tilewright.topi.ProblemError` for what is no convolution.
    """
    return _convolved(
        2, input, weight, bias, stride, padding, dilation, groups, scale, out_dtype,
        precision=precision,
    )  # fmt: skip


def conv3d(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Sizes = 1,
    padding: str | Sizes = 0, dilation: Sizes = 1, groups: int = 1, *,
    scale: torch.Tensor | float | None = None, out_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """:func:`conv2d` of (N, C, D, H, W) or (C, D, H, W)."""
    return _convolved(3, input, weight, bias, stride, padding, dilation, groups, scale, out_dtype)


def conv_transpose1d(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Sizes = 1,
    padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1,
) -> torch.Tensor:  # fmt: skip
    """:func:`conv_transpose2d` of (N, C, W) or (C, W)."""
    return _transposed(
        1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )  # fmt: skip


def conv_transpose2d(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Sizes = 1,
    padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1,
) -> torch.Tensor:  # fmt: skip
    """``F.conv_transpose2d`` by :func:`~tilewright.torch.compute`, otherwise as :func:`conv2d`.

    Parameters
    ----------
    weight : (C, OC / groups, KH, KW).
    padding : also (top, left, bottom, right), as ONNX's ConvTranspose has it.

    The output has (H - 1) * stride - 2 * padding + dilation * (KH - 1) + output_padding + 1 rows.
    """
    return _transposed(
        2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )  # fmt: skip


def conv_transpose3d(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Sizes = 1,
    padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1,
) -> torch.Tensor:  # fmt: skip
    """:func:`conv_transpose2d` of (N, C, D, H, W) or (C, D, H, W)."""
    return _transposed(
        3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )  # fmt: skip


def _convolved(
    rank: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    groups: int, scale: Any, out_dtype: Any, **more: Any,
) -> Any:  # fmt: skip
    check_tensors(f"conv{rank}d", bias, scale, input=input, weight=weight)
    if 0 in (*input.shape, *weight.shape):
        function: Any = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
        operands = as_results(out_dtype, input, weight)
        found = function(*operands, bias, stride, padding, dilation, groups)
        return in_type(out_dtype, found)
    depthwise = rank < 3 and weight.dim() == rank + 2 and weight.shape[1] == 1
    return _computed(
        rank, input, weight, bias, groups, depthwise and weight.shape[0] % groups == 0,
        dict(stride=stride, padding=padding, dilation=dilation, **more), scale, out_dtype,
    )  # fmt: skip


def _transposed(
    rank: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, more: Any,
    groups: int, dilation: Any,
) -> Any:  # fmt: skip
    check_tensors(f"conv_transpose{rank}d", bias, None, input=input, weight=weight)
    if 0 in (*input.shape, *weight.shape):
        function: Any = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        return function(input, weight, bias, stride, padding, more, groups, dilation)
    steps, extra = (_each(x, rank) for x in (stride, more))
    extra = tuple(whole("output_padding", x, 0) for x in extra)
    # Rows that a whole stride lies beyond the last one are those of rows of zeros behind it.
    behind = [m // s if s > 0 else 0 for s, m in zip(steps, extra, strict=False)]
    if any(behind):
        input = F.pad(input, [side for n in reversed(behind) for side in (0, n)])
        extra = tuple(m % s for s, m in zip(steps, extra, strict=True))
    depthwise = rank < 3 and weight.dim() == rank + 2 and weight.shape[1] == 1
    return _computed(
        rank, input, weight, bias, groups, depthwise and weight.shape[0] % groups == 0,
        dict(stride=stride, padding=padding, output_padding=extra, dilation=dilation,
             pass_="dgrad"),
    )  # fmt: skip


def _each(given: Any, rank: int) -> tuple[int, ...]:
    found = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    return found * rank if len(found) == 1 else found


def _computed(
    rank: int, input: Any, weight: Any, bias: Any, groups: int, depthwise: bool,
    values: dict[str, Any], scale: Any = None, out_dtype: Any = None,
) -> Any:  # fmt: skip
    """``compute`` of operands in PyTorch's shapes, in the memory format of the input."""
    if input.dim() == rank + 1:
        return _computed(
            rank, input[None], weight, bias, groups, depthwise, values, scale, out_dtype
        )[0]  # fmt: skip
    if not input.dim() == weight.dim() == rank + 2:
        raise ProblemError(
            f"over {rank} dimensions: an input of {tuple(input.shape)} and a weight of "
            f"{tuple(weight.shape)}: each has {rank + 2} dimensions, or the input one less"
        )
    operator, form = _OPERATORS[rank]
    input, weight, bias = autocast(input, weight, bias)
    filters = len(weight)  # of the one that is no gradient, which alone has a scale
    if depthwise:  # the filters of a channel side by side
        weight = weight.reshape(groups, -1, *weight.shape[2:])
    last = form is not None and not input.is_contiguous()
    last = last and input.is_contiguous(memory_format=form)
    values["groups"] = None if depthwise else groups
    if last:
        values["layout"] = "N" + "DHW"[3 - rank :] + "C"
        input = input.movedim(1, -1)
        weight = weight if depthwise else weight.movedim(1, -1)
    found = with_epilogue(operator, (input, weight), filters, scale, bias, out_dtype, values)
    return found.movedim(-1, 1) if last else found
