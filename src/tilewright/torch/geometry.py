"""How a filter goes over an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Geometry(NamedTuple):
    """What a convolution is told beside its operands; extents of images may be symbolic."""

    stride: Sequence[int]
    #: (top, left, bottom, right)
    padding: Sequence[int]
    dilation: Sequence[int]

    @property
    def numbers(self) -> tuple[int, ...]:
        """All of it, to look things up by."""
        return (*self.stride, *self.padding, *self.dilation)

    def out_shape(self, input: Any, weight: Any) -> tuple[int, int, int, int]:
        """The shape of the convolution of (N, C, H, W) with (C * multiplier, 1, KH, KW)."""
        n, _, h, w = input.shape
        c, _, kh, kw = weight.shape
        # Compilers are to know these: what they make of sizes that all vary can be beyond them.
        kh, kw = int(kh), int(kw)
        return n, c, self._outputs(0, h, kh), self._outputs(1, w, kw)

    def _outputs(self, k: int, extent: int, kernel: int) -> int:
        """Outputs along dimension ``k``."""
        padded = extent + self.padding[k] + self.padding[k + 2]
        return (padded - (kernel - 1) * self.dilation[k] - 1) // self.stride[k] + 1
