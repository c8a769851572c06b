"""What the passes of a depthwise convolution convolve, and with what.

A gradient by the input with stride 1 is the convolution of dy with the filter rotated. A gradient
by the filter, of one image, is x convolved with a filter as large as dy, which is dy itself, with
stride and dilation changing places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.topi.once import once
from tilewright.topi.operators.convolution import Convolution


@dataclass(frozen=True)
class Convolved:
    """A problem as the convolution of an image; of gradients by the input, those of stride 1."""

    problem: Convolution

    @once
    def _turned(self) -> bool:
        return self.problem.pass_ == "dgrad"

    @once
    def _by_filter(self) -> bool:
        return self.problem.pass_ == "wgrad"

    @once
    def image(self) -> tuple[int, ...]:
        """Height and width of what is convolved: x, or dy."""
        p = self.problem
        return p.out_image if self._turned else p.image

    @once
    def result(self) -> tuple[int, ...]:
        """Height and width of the result: y, dx, or the filter's."""
        p = self.problem
        return p.kernel if self._by_filter else p.image if self._turned else p.out_image

    @once
    def kernel(self) -> tuple[int, ...]:
        """Height and width of what it is convolved with: the filter, or dy."""
        p = self.problem
        return p.out_image if self._by_filter else p.kernel

    @once
    def stride(self) -> tuple[int, ...]:
        p = self.problem
        return (1,) * len(p.image) if self._turned else p.dilation if self._by_filter else p.stride

    @once
    def dilation(self) -> tuple[int, ...]:
        p = self.problem
        return p.stride if self._by_filter else p.dilation

    @once
    def before(self) -> tuple[int, ...]:
        """Rows and columns of padding before the image."""
        p = self.problem
        padding = p.padding[: len(p.image)]
        if not self._turned:
            return padding
        each = zip(p.kernel, p.dilation, padding, strict=True)
        return tuple((k - 1) * d - low for k, d, low in each)

    def sees(self, d: int, results: int) -> int:
        """Rows of the image (``d`` is 0), or columns, that a number of the result, one beside the
        other, see."""
        return (results - 1) * self.stride[d] + (self.kernel[d] - 1) * self.dilation[d] + 1

    def tap(self, row: Any, column: Any) -> tuple[list[Any], tuple[Any, Any]]:
        """The conditions under which there is a tap so far from a window's corner, and which."""
        found, where = [], []
        for size, step, at in zip(self.kernel, self.dilation, (row, column), strict=True):
            where += [at >= 0, at <= (size - 1) * step]
            if step > 1:
                where.append(te.floormod(at, step).equal(0))
                at = te.floordiv(at, step)
            found.append(size - 1 - at if self._turned else at)
        return where, (found[0], found[1])
