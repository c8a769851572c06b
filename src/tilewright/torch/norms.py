"""What may follow a convolution in its kernel: batch normalisation as evaluated, and an activation.

Both are steps of an epilogue (:mod:`tilewright.topi.epilogue`), here as PyTorch has them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tilewright.topi.epilogue import Step
from tilewright.topi.problem import ACCUMULATORS
from tilewright.torch.calls import DTYPES

#: By class, what a step takes from an activation besides its input.
SETTINGS: dict[type, Callable[[Any], Any]] = {
    nn.GELU: operator.attrgetter("approximate"),
    nn.Hardtanh: operator.attrgetter("min_val", "max_val"),
    nn.LeakyReLU: operator.attrgetter("negative_slope"),
}
_PLAIN = {
    nn.ReLU: "relu", nn.ReLU6: "relu6", nn.SiLU: "silu", nn.Hardswish: "hswish",
    nn.Hardsigmoid: "hsigmoid",
}  # fmt: skip


def activation_step(module: Any) -> str:
    """The step of an activation; empty where there is none like it."""
    kind = type(module)
    if kind is nn.GELU:
        return "gelu" if module.approximate == "none" else ""
    if kind is nn.Hardtanh:
        return f"clamp({module.min_val},{module.max_val})"
    if kind is nn.LeakyReLU:
        return f"leaky_relu({module.negative_slope})"
    return _PLAIN.get(kind, "")


def norm_step(eps: float, dtype: torch.dtype, of_statistics: torch.dtype) -> Step | None:
    """The step of a normalisation with statistics of one type, of images of another; None where
    there is none.

    >>> str(norm_step(0.001, torch.float16, torch.float32))
    'wide_batch_norm(0.001)'
    """
    if dtype is of_statistics:
        return Step("batch_norm", (eps,))
    wide = dtype in DTYPES and DTYPES.get(of_statistics) == ACCUMULATORS[DTYPES[dtype]][0]
    return Step("wide_batch_norm", (eps,)) if wide else None


def activate(x: Any, step: Step) -> Any:
    """The step of an activation, by PyTorch."""
    if step.name == "clamp":
        return F.hardtanh(x, step.values[0], step.values[1])
    if step.name == "leaky_relu":
        return F.leaky_relu(x, step.values[0])
    plain: dict[str, Callable[[Any], Any]] = {
        "relu": F.relu, "relu6": F.relu6, "silu": F.silu, "gelu": F.gelu, "hswish": F.hardswish,
        "hsigmoid": F.hardsigmoid,
    }  # fmt: skip
    return plain[step.name](x)
