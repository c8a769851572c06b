"""Exported programs without Tilewright's operators, for where it is not installed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tilewright.topi.epilogue import Step
from tilewright.torch import aten_fallback
from tilewright.torch.geometry import Geometry
from tilewright.torch.normalized import conv_norm
from tilewright.torch.norms import activate
from tilewright.torch.operators import conv, conv_dgrad, conv_wgrad


def portable(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """``program`` with PyTorch's operators in the place of Tilewright's.

    What ``torch.export`` makes of an optimised model calls ``torch.ops.tilewright``, and a process
    that loads it imports ``tilewright.torch`` before. The program returned needs nothing but
    PyTorch, computes the same but for rounding, and can be written as ONNX.
    """
    return program.run_decompositions({
        conv: _conv, conv_dgrad: _dgrad, conv_wgrad: _wgrad, conv_norm: _norm,
    })  # fmt: skip


def _conv(x: Any, weight: Any, bias: Any, *geometry: Any) -> Any:
    return aten_fallback.conv2d(x, weight, bias, Geometry(*geometry))


def _dgrad(
    grad: Any, weight: Any, bias: Any, size: Any, stride: Any, padding: Any, dilation: Any, _: Any
) -> Any:
    """By the transposed convolution, which can be written as ONNX, as its gradient cannot."""
    sides = min(padding[0], padding[2]), min(padding[1], padding[3])
    starts = padding[0] - sides[0], padding[1] - sides[1]
    more = []
    for k in (0, 1):
        full = (grad.shape[2 + k] - 1) * stride[k] + dilation[k] * (weight.shape[2 + k] - 1) + 1
        more.append(size[2 + k] + padding[k] + padding[2 + k] - full)
    made = F.conv_transpose2d(grad, weight, bias, stride, sides, more, weight.shape[0], dilation)
    (top, left), (_, _, rows, columns) = starts, size
    if padding[:2] == padding[2:]:
        return made
    return made[:, :, top : top + rows, left : left + columns]


def _wgrad(x: Any, grad: Any, kernel: Any, *geometry: Any) -> Any:
    shape = (grad.shape[1], 1, *kernel)
    return aten_fallback.conv2d_weight(x, grad, shape, Geometry(*geometry))


def _norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, gamma: Any, beta: Any, eps: float,
    activation: str, *geometry: Any,
) -> Any:  # fmt: skip
    made = aten_fallback.conv2d(x, weight, bias, Geometry(*geometry))
    made = F.batch_norm(made, mean, variance, gamma, beta, False, 0.0, eps)
    return activate(made, Step.parse(activation)) if activation else made
