"""Products with a bias as a function of :mod:`torch.nn.functional`, and of float8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from tilewright.ir.dtype import FLOAT8
from tilewright.ir.errors import ProblemError
from tilewright.topi import Gemm
from tilewright.topi.problem import OUT_DTYPES, Problem
from tilewright.torch.any_operator import compute
from tilewright.torch.autocast import autocast


def linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *,
    scale: torch.Tensor | float | None = None, out_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """``F.linear`` by :func:`~tilewright.torch.compute`.

    Parameters
    ----------
    input : (..., K).
    weight : (N, K).
    bias : (N,) or None.
    scale, out_dtype : as of :func:`~tilewright.torch.conv2d`.

    The output is (..., N). It has derivatives of any order, but of float8. Operands without an
    element are PyTorch's. Raises :class:`~tilewright.topi.ProblemError` for what is no product.
    """
    check_tensors("linear", bias, scale, input=input, weight=weight)
    if weight.dim() != 2 or input.dim() < 1 or input.shape[-1] != weight.shape[1]:
        raise ProblemError(
            f"linear: an input of {tuple(input.shape)} and a weight of {tuple(weight.shape)}: give "
            "(..., in_features) and (out_features, in_features)"
        )
    if 0 in (*input.shape, *weight.shape):
        input, weight = as_results(out_dtype, input, weight)
        return in_type(out_dtype, F.linear(input, weight, bias))
    input, weight, bias = autocast(input, weight, bias)
    rows = input.reshape(-1, input.shape[-1])
    values = {"transpose_b": True}
    found = with_epilogue(Gemm, (rows, weight), weight.shape[0], scale, bias, out_dtype, values)
    return found.reshape(*input.shape[:-1], -1)


def check_tensors(function: str, bias: Any, scale: Any, **operands: Any) -> None:
    """Raises :class:`~tilewright.topi.ProblemError` for operands that are no dense tensors; a bias
    may be None, and a scale also a number."""
    operands |= {} if bias is None else {"bias": bias}
    operands |= {} if scale is None or type(scale) in (int, float) else {"scale": scale}
    for name, given in operands.items():
        if not isinstance(given, torch.Tensor):
            raise ProblemError(f"{function}: {name} is a tensor, got a {type(given).__name__}")
        if given.is_nested:  # a list of tensors, which has no shape
            raise ProblemError(f"{function}: {name} is nested: give its tensors one by one")
        if given.layout is not torch.strided:
            raise ProblemError(f"{function}: {name} is {given.layout}: give {name}.to_dense()")


def with_epilogue(
    operator: type[Problem], operands: Sequence[Any], channels: int, scale: Any, bias: Any,
    out_dtype: Any, values: dict[str, Any],
) -> torch.Tensor:  # fmt: skip
    """``compute``, then the product with a scale and the sum with a bias where they are given, of a
    result of ``channels``."""
    tensors, steps = list(operands), []
    if scale is not None:
        if not isinstance(scale, torch.Tensor):
            scale = torch.full((), scale, dtype=torch.float32, device=operands[0].device)
        if scale.dim() > 1 or scale.numel() not in (1, channels):
            raise ProblemError(
                f"a scale is one number or {channels}, one for each channel of the output, got "
                f"{tuple(scale.shape)}"
            )
        tensors.append(scale.to(torch.float32).expand(channels))
        steps.append("dequantize")
    if bias is not None:
        tensors.append(bias)
        steps.append("bias")
    if steps:
        values["epilogue"] = tuple(steps)
    if out_dtype is not None:
        values["out_dtype"] = str(out_dtype)
    return compute(operator, *tensors, **values)


def as_results(out_dtype: Any, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """Operands in the type of the result, or of sums, where PyTorch multiplies none of theirs."""
    if str(tensors[0].dtype).removeprefix("torch.") not in FLOAT8:
        return list(tensors)
    kind = out_dtype or getattr(torch, OUT_DTYPES[0])
    kind = torch.float32 if str(kind).removeprefix("torch.") in FLOAT8 else kind
    return [t.to(kind) for t in tensors]


def in_type(out_dtype: Any, result: torch.Tensor) -> torch.Tensor:
    """A result of PyTorch's in the type that was asked for."""
    return result if out_dtype is None else result.to(out_dtype)
