"""Depthwise convolutions as modules: PyTorch's own, with another forward pass."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tilewright.torch.functional import depthwise_conv1d, depthwise_conv2d
from tilewright.torch.transposed import depthwise_conv_transpose2d


class _Depthwise(nn.modules.conv._ConvNd):
    """What stands between a convolution of PyTorch's and :attr:`_convolve`, its function here."""

    _convolve: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        kernel_size: Any = 3,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int | None = None,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        out, groups = _channels(in_channels, out_channels, groups)
        super().__init__(
            in_channels, out, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
            device, dtype,
        )  # fmt: skip

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor
        if not torch.compiler.is_compiling():
            # As attributes they take half a microsecond each: torch.nn.Module looks for them.
            # Whoever computes them, as parametrizations do, takes them out of here.
            own = self._parameters
            if "weight" in own and "bias" in own:
                made = self._conv_forward(input, own["weight"], own["bias"])
                return made
        made = self._conv_forward(input, self.weight, self.bias)
        return made

    def _conv_forward(
        self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        made: torch.Tensor = self._convolve(
            input, weight, bias, self.stride, padding, self.dilation
        )
        return made


class DepthwiseConv2d(_Depthwise, nn.Conv2d):
    """``nn.Conv2d`` whose groups are its input's channels, in the same ``state_dict``.

    Parameters are those of ``nn.Conv2d``; ``groups`` is ``in_channels`` and may be left out, and
    ``out_channels`` a multiple of it, by default ``in_channels``. Raises :class:`ValueError` for
    others.
    """

    _convolve = staticmethod(depthwise_conv2d)


class DepthwiseConv1d(_Depthwise, nn.Conv1d):
    """``nn.Conv1d`` whose groups are its input's channels, as :class:`DepthwiseConv2d`."""

    _convolve = staticmethod(depthwise_conv1d)


class DepthwiseConvTranspose2d(nn.ConvTranspose2d):
    """``nn.ConvTranspose2d`` whose groups are its input's channels, in the same ``state_dict``."""

    # Its parameters stand in another order than those of the others.
    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        kernel_size: Any = 3,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int | None = None,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        out, groups = _channels(in_channels, out_channels, groups)
        super().__init__(
            in_channels, out, kernel_size, stride, padding, output_padding, groups, bias, dilation,
            padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: torch.Tensor, output_size: Any = None) -> torch.Tensor:
        more = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, 2, self.dilation
        )
        return depthwise_conv_transpose2d(
            input, self.weight, self.bias, self.stride, self.padding, more, self.dilation
        )


#: By PyTorch's class, the one that takes its place.
REPLACEMENTS: dict[type, type] = {
    nn.Conv2d: DepthwiseConv2d,
    nn.Conv1d: DepthwiseConv1d,
    nn.ConvTranspose2d: DepthwiseConvTranspose2d,
}


def _channels(given: int, out: int | None, groups: int | None) -> tuple[int, int]:
    """The output channels and the groups of a depthwise convolution."""
    out = given if out is None else out
    if groups not in (None, given):
        raise ValueError(f"groups={groups}: it is in_channels={given} in a depthwise convolution")
    if out % given:
        raise ValueError(
            f"out_channels={out} is not a multiple of the {given} input channels, as a depthwise "
            "convolution needs"
        )
    return out, given
