"""Convolution in three dimensions: dense, in groups and depthwise, with its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from tilewright.ir.errors import ProblemError
from tilewright.topi import arguments
from tilewright.topi.arguments import one_of
from tilewright.topi.operators.conv_shapes import Dimension, dimensions, layouts, multiplier_of
from tilewright.topi.operators.convolution import Convolution


@dataclass(frozen=True, kw_only=True)
class Conv3d(Convolution):
    """A convolution in three dimensions or one of its gradients, complete.

    Shapes are those of the forward convolution in every pass. The transposed convolution is the
    pass "dgrad". A convolution with as many groups as channels is depthwise.

    Parameters
    ----------
    pass_ : "forward" (x, filter to y), "dgrad" (dy, filter to dx) or "wgrad" (x, dy to dfilter).
    image, kernel : depth, height and width of x and of the filter.
    groups : the number of groups of channels, each with filters of its own.
    multiplier : filters of a group; y has ``groups * multiplier`` channels.
    stride, dilation : an integer or three, of depth, height and width.
    padding : an integer, three, (front, top, left, back, bottom, right), or a name of
        :func:`~tilewright.topi.arguments.named_padding`.
    layout : "NCDHW" or "NDHWC". Filters lie as (groups * multiplier, channels / groups, KD, KH,
        KW), or with channels last too: as PyTorch has them in memory in either format.
    epilogue : not in "wgrad".

    The other parameters are those of :class:`~tilewright.topi.problem.Problem`.

    >>> p = Conv3d.parse("2x16x8x32x32", "64x16x3x3x3", padding=(0, 1, 1))
    >>> p.output_shape
    (2, 64, 6, 32, 32)
    """

    NAMES: ClassVar[tuple[str, ...]] = ("conv3d",)

    batch: int
    channels: int
    image: tuple[int, int, int]
    groups: int = 1
    multiplier: int = 1
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int] = (1, 1, 1)
    padding: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)
    dilation: tuple[int, int, int] = (1, 1, 1)
    layout: str = "NCDHW"

    def check(self) -> None:
        """Values in one form; raises :class:`ProblemError` for what is no convolution."""
        self.put("layout", self.layout or layouts(3)[0])
        one_of("layout", self.layout, layouts(3))
        self.sizes("batch", "channels", "groups", "multiplier")
        for name in ("image", "kernel", "stride", "dilation"):
            self.put(name, arguments.each(name, getattr(self, name), 3))
        if self.channels % self.groups:
            raise ProblemError(
                f"{self.channels} channels in {self.groups} groups: their number is a multiple of "
                "that of the groups"
            )
        self.put("padding", self.sides(self.padding))
        self.check_windows()

    @staticmethod
    def parse(
        input: str | Sequence[int],
        filter: str | Sequence[int],
        groups: int | None = None,
        **more: Any,
    ) -> Conv3d:
        """The problem of two shapes, (N, C, D, H, W) and PyTorch's (OC, C / groups, KD, KH, KW), in
        this order whatever the layout, or as text; the others of its parameters by name."""
        data, weight = arguments.shape("input", input), arguments.shape("filter", filter)
        if not len(data) == len(weight) == 5:
            raise ProblemError(
                f"an input of {len(data)} and a filter of {len(weight)} dimensions: give "
                "NxCxDxHxW and MxCxKDxKHxKW"
            )
        (batch, channels, *image), (first, second, *kernel) = data, weight
        groups = 1 if groups is None else groups
        return Conv3d(
            batch=batch, channels=channels, image=(image[0], image[1], image[2]), groups=groups,
            multiplier=multiplier_of(first, second, channels, groups),
            kernel=(kernel[0], kernel[1], kernel[2]), **more,
        )  # fmt: skip

    def resized(
        self, image: Sequence[int], kernel: Sequence[int] | None = None, **changes: Any
    ) -> Self:
        """The same problem of images and filters of other extents, and with other ``changes``."""
        return self.replace(image=tuple(image), kernel=tuple(kernel or self.kernel), **changes)

    @cached_property
    def dims(self) -> tuple[Dimension, ...]:
        """Depth, height and width of an image."""
        return dimensions(self.image, self.kernel, self.stride, self.dilation, self.padding)
