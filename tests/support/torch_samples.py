"""The samples by which PyTorch tests its convolutions, with a group for each channel."""

from __future__ import annotations

import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

OPERATORS = ("conv1d", "conv2d", "conv_transpose2d")


@dataclass(frozen=True)
class Sample:
    """A call of ``torch.nn.functional.NAME`` whose groups are the channels of ``input``."""

    name: str
    input: Any
    weight: Any
    bias: Any
    settings: dict[str, Any]

    @property
    def groups(self) -> int:
        return int(self.input.shape[-3 if self.name.endswith("2d") else -2])

    def theirs(self, *operands: Any) -> Any:
        import torch.nn.functional as F

        x, w, b = operands or (self.input, self.weight, self.bias)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the copies that padding="same" may make
            return getattr(F, self.name)(x, w, b, groups=self.groups, **self.settings)

    def ours(self, *operands: Any) -> Any:
        import tilewright.torch

        x, w, b = operands or (self.input, self.weight, self.bias)
        return getattr(tilewright.torch, f"depthwise_{self.name}")(x, w, b, **self.settings)

    def operands(self) -> tuple[Any, Any, Any]:
        return self.input, self.weight, self.bias

    def __str__(self) -> str:
        return f"{self.name} {tuple(self.input.shape)} {tuple(self.weight.shape)} {self.settings}"


def samples(name: str, dtype: Any, device: str = "cpu", gradient: bool = True) -> Iterator[Sample]:
    """Those of OpInfo; where the groups are others, the weight becomes one of that many."""
    from torch.testing import make_tensor

    info = next(o for o in op_db() if o.name == f"nn.functional.{name}")
    for given in info.sample_inputs(device, dtype, requires_grad=gradient):
        x, weight, bias, settings = _bound(given)
        groups = settings.pop("groups", 1)
        spatial = 2 if name.endswith("2d") else 1
        channels = x.shape[-1 - spatial]
        if groups != channels:
            transposed = "transpose" in name
            out = weight.shape[1] * groups if transposed else weight.shape[0]
            many = max(1, out // channels)
            shape = (channels, many) if transposed else (channels * many, 1)
            kernel = weight.shape[2:]
            make = {"device": device, "dtype": dtype, "requires_grad": gradient}
            weight = make_tensor(*shape, *kernel, **make)
            bias = None if bias is None else make_tensor(channels * many, **make)
        yield Sample(name, x, weight, bias, settings)


def _bound(given: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Operands and settings of a sample, whichever way it passes them."""
    names = ("weight", "bias", "stride", "padding", "dilation", "groups")
    settings = dict(zip(names, given.args)) | given.kwargs
    return given.input, settings.pop("weight"), settings.pop("bias", None), settings


def op_db() -> list[Any]:
    """PyTorch's ``op_db``; its module asks for expecttest, which samples do without."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal import common_methods_invocations

    found: list[Any] = common_methods_invocations.op_db
    return found
