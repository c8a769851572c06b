"""How a filter goes over an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.torch.eager_fast_path import shape_of


class Geometry(NamedTuple):
    """What a convolution takes beside its operands; extents of images may be symbolic."""

    stride: Sequence[int]
    #: (top, left, bottom, right)
    padding: Sequence[int]
    dilation: Sequence[int]

    @property
    def is_valid(self) -> bool:
        """Whether there is such a convolution."""
        return min(*self.stride, *self.dilation) > 0 and min(self.padding) >= 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """All of it, to look things up by."""
        return (*self.stride, *self.padding, *self.dilation)

    def out_shape(self, input: Any, weight: Any) -> tuple[int, int, int, int]:
        """The shape of the convolution of (N, C, H, W) with (OC, C / groups, KH, KW)."""
        n, _, h, w = input.shape
        c, _, kh, kw = weight.shape
        # Compilers are to know these: what they make of sizes that all vary can be beyond them.
        kh, kw = int(kh), int(kw)
        return n, c, self._outputs(0, h, kh), self._outputs(1, w, kw)

    def is_of(self, grad: Any, size: Sequence[int], kernel: Sequence[int]) -> bool:
        """Whether ``grad`` is as what the convolution makes of images of ``size``, (N, C, H, W),
        with a filter of (KH, KW)."""
        n, c, *image = size
        filters = grad.shape[1]
        made = [n, filters, *(self._outputs(k, image[k], kernel[k]) for k in (0, 1))]
        return c > 0 and filters % c == 0 and made == list(grad.shape)

    def _outputs(self, k: int, extent: int, kernel: int) -> int:
        """Outputs along dimension ``k``."""
        padded = extent + self.padding[k] + self.padding[k + 2]
        return (padded - (kernel - 1) * self.dilation[k] - 1) // self.stride[k] + 1


def fits(input: Any, weight: Any, bias: Any, own: int = 1) -> bool:
    """Whether operands of two dimensions or more are those of a convolution in groups of ``own``
    channels, by default a depthwise one."""
    channels, (filters, each, *_) = shape_of(input)[1], shape_of(weight)
    if channels == 0 or each != own or channels % own or filters % (channels // own):
        return False
    return bias is None or (bias.dim() == 1 and shape_of(bias)[0] == filters)
