"""Depthwise convolutions as modules: PyTorch's own, with another forward pass."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import Proxy
from torch.jit import is_scripting

from tilewright.torch import scripted
from tilewright.torch.eager_fast_path import as_leaf, exports_onnx
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
        if is_scripting():  # what stands behind is not compiled by torch.jit.script then
            return self._scripted(input)
        elif not torch.compiler.is_compiling():
            if isinstance(input, Proxy):
                return as_leaf(self, input)
            # As attributes they take half a microsecond each: torch.nn.Module looks for them.
            # Whoever computes them, as parametrizations do, takes them out of here.
            own = self._parameters
            if "weight" in own and "bias" in own:
                return self._conv_forward(input, own["weight"], own["bias"])
            return self._conv_forward(input, self.weight, self.bias)
        else:
            return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(
        self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        made: torch.Tensor
        if has_other_channels(self, input):
            made = super()._conv_forward(input, weight, bias)  # raises, and says how many it has
            return made
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        made = self._convolve(input, weight, bias, self.stride, padding, self.dilation)
        return made


def has_other_channels(convolution: Any, input: Any) -> bool:
    """Whether an input lacks the channels of a convolution, which the weight alone does not tell:
    as many filters on fewer channels are a convolution with a multiplier."""
    shape, channels = input.shape, -len(convolution.kernel_size) - 1
    if len(shape) < -channels or isinstance(shape[channels], torch.Tensor):  # while it is traced
        return False
    return bool(shape[channels] != convolution.in_channels)


class DepthwiseConv2d(_Depthwise, nn.Conv2d):
    """``nn.Conv2d`` whose groups are its input's channels, in the same ``state_dict``.

    Parameters are those of ``nn.Conv2d``; ``groups`` is ``in_channels`` and may be left out, and
    ``out_channels`` a multiple of it, by default ``in_channels``. Raises :class:`ValueError` for
    others.
    """

    _convolve = staticmethod(depthwise_conv2d)

    def _scripted(self, input: torch.Tensor) -> torch.Tensor:
        left, right, top, bottom = self._reversed_padding_repeated_twice
        if self.padding_mode != "zeros":
            input = F.pad(input, [left, right, top, bottom], mode=self.padding_mode)
            left = right = top = bottom = 0
        elif not isinstance(self.padding, str):
            top, left = self.padding
            bottom, right = top, left
        sides = [top, left, bottom, right]
        return scripted.conv2d(
            input, self.weight, self.bias, self.stride, sides, self.dilation, self.in_channels
        )


class DepthwiseConv2dSame(DepthwiseConv2d):
    """In the place of timm's ``Conv2dSame``: padding as TensorFlow's "SAME", which depends on the
    size of the image and may differ by one between opposite sides."""

    def _conv_forward(
        self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        if input.dim() != 4 or has_other_channels(self, input):
            return nn.Conv2d._conv_forward(self, input, weight, bias)  # raises
        top, left, bottom, right = self._sides(input)
        made: torch.Tensor
        if torch.compiler.is_compiling() or exports_onnx() or torch.jit.is_tracing():
            input = F.pad(input, [left, right, top, bottom])
            made = self._convolve(input, weight, bias, self.stride, 0, self.dilation)
        else:
            sides: Any = (
                (top, left) if (top, left) == (bottom, right) else (top, left, bottom, right)
            )
            made = self._convolve(input, weight, bias, self.stride, sides, self.dilation)
        return made

    def _sides(self, input: torch.Tensor) -> list[int]:
        """(top, left, bottom, right) for an image."""
        steps, spread, size = self.stride, self.dilation, self.kernel_size
        height, width = input.shape[2], input.shape[3]
        rows = (-(-height // steps[0]) - 1) * steps[0] + (size[0] - 1) * spread[0] + 1 - height
        columns = (-(-width // steps[1]) - 1) * steps[1] + (size[1] - 1) * spread[1] + 1 - width
        rows, columns = max(rows, 0), max(columns, 0)
        top, left = rows // 2, columns // 2
        return [top, left, rows - top, columns - left]

    def _scripted(self, input: torch.Tensor) -> torch.Tensor:
        sides = self._sides(input)
        return scripted.conv2d(
            input, self.weight, self.bias, self.stride, sides, self.dilation, self.in_channels
        )


class DepthwiseConv1d(_Depthwise, nn.Conv1d):
    """``nn.Conv1d`` whose groups are its input's channels, as :class:`DepthwiseConv2d`."""

    _convolve = staticmethod(depthwise_conv1d)

    def _scripted(self, input: torch.Tensor) -> torch.Tensor:
        left, right = self._reversed_padding_repeated_twice
        if self.padding_mode != "zeros":
            input = F.pad(input, [left, right], mode=self.padding_mode)
            left = right = 0
        elif not isinstance(self.padding, str):
            left = right = self.padding[0]
        sides = [0, left, 0, right]
        return scripted.conv1d(
            input, self.weight, self.bias, self.stride, sides, self.dilation, self.in_channels
        )


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

    def forward(self, input: torch.Tensor, output_size: list[int] | None = None) -> torch.Tensor:
        if is_scripting():
            return self._scripted(input, output_size)
        elif isinstance(input, Proxy):
            return as_leaf(self, input, *(() if output_size is None else (output_size,)))
        else:
            more: Any = self._more(input, output_size)
            return depthwise_conv_transpose2d(
                input, self.weight, self.bias, self.stride, self.padding, more, self.dilation
            )

    def _more(self, input: torch.Tensor, output_size: list[int] | None) -> list[int]:
        """Rows and columns that the output has beyond those that it must."""
        more: list[int] = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, 2, self.dilation
        )
        return more

    def _scripted(self, input: torch.Tensor, output_size: list[int] | None) -> torch.Tensor:
        return F.conv_transpose2d(
            input, self.weight, self.bias, self.stride, self.padding,
            self._more(input, output_size), self.groups, self.dilation,
        )  # fmt: skip


#: By PyTorch's class, the one that takes its place.
REPLACEMENTS: dict[type, type] = {
    nn.Conv2d: DepthwiseConv2d,
    nn.Conv1d: DepthwiseConv1d,
    nn.ConvTranspose2d: DepthwiseConvTranspose2d,
}


def replacement(kind: type) -> type | None:
    """The class that takes the place of one of PyTorch's, or timm's; None where there is none.

    timm's is known by its name: whoever has a module of it has loaded timm.
    """
    is_same = kind.__name__ == "Conv2dSame" and kind.__module__.split(".")[0] == "timm"
    if is_same and kind.__base__ is nn.Conv2d:
        REPLACEMENTS.setdefault(kind, DepthwiseConv2dSame)
    return REPLACEMENTS.get(kind)


def _channels(given: int, out: int | None, groups: int | None) -> tuple[int, int]:
    """The output channels and the groups of a depthwise convolution."""
    out = given if out is None else out
    if groups not in (None, given):
        raise ValueError(f"groups={groups}: it is in_channels={given} in a depthwise convolution")
    if given < 1:
        raise ValueError(f"in_channels={given}: there is at least one")
    if out % given:
        raise ValueError(
            f"out_channels={out} is not a multiple of the {given} input channels, as a depthwise "
            "convolution needs"
        )
    return out, given
