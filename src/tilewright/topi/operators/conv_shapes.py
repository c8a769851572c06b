"""Shapes of convolutions of any number of dimensions, and transposed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.ir.errors import ProblemError
from tilewright.topi import arguments


def layouts(rank: int) -> tuple[str, str]:
    """The layouts of images of ``rank`` dimensions: channels first, channels last.

    >>> layouts(3)
    ('NCDHW', 'NDHWC')
    """
    space = "DHW"[3 - rank :]
    return f"NC{space}", f"N{space}C"


#: Layouts of images of integers in two dimensions whose channels lie in blocks, innermost.
BLOCKED = {"NCHW4": 4, "NCHW32": 32}


class Dimension(NamedTuple):
    """A dimension of an image: its letter and extent, the taps of the filter along it, and how they
    lie. ``before`` and ``after`` are padding."""

    letter: str
    extent: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def padded(self) -> int:
        """The extent of the padded image."""
        return self.extent + self.before + self.after

    @property
    def window(self) -> int:
        """From the first to the last tap."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def results(self) -> int:
        """The extent of y."""
        return (self.padded - self.window) // self.stride + 1

    @property
    def pairs(self) -> int:
        """Pairs of an output and a tap whose input is inside the image."""
        total = 0
        for tap in range(self.taps):
            offset = tap * self.dilation - self.before  # input = output * stride + offset
            first = max(0, -(offset // self.stride))
            last = min(self.results - 1, (self.extent - 1 - offset) // self.stride)
            total += max(0, last - first + 1)
        return total


def dimensions(
    extents: Sequence[int], taps: Sequence[int], stride: Sequence[int], dilation: Sequence[int],
    padding: Sequence[int],
) -> tuple[Dimension, ...]:  # fmt: skip
    """The dimensions of an image; ``padding`` before all of them, then after."""
    count = len(extents)
    before, after = padding[:count], padding[count:]
    letters = "DHW"[3 - count :]
    each = zip(letters, extents, taps, stride, dilation, before, after, strict=True)
    return tuple(Dimension(*one) for one in each)


def by_dimension(values: Sequence[int]) -> str:
    """Numbers in words of a problem, one where all are equal.

    >>> by_dimension([3, 3]), by_dimension([1, 5])
    ('3', '1x5')
    """
    return "x".join(map(str, values if len(set(values)) > 1 else values[:1]))


def channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of a shape with channels last."""
    return (shape[0], shape[-1], *shape[1:-1])


def transposed_shape(
    grad: tuple[int, ...], filter: tuple[int, ...], groups: int | None, values: dict[str, Any]
) -> tuple[int, ...]:
    """The shape of x, from those of y and the filter; takes ``output_padding`` out of
    ``values``."""
    rank = len(grad) - 2
    more = arguments.each("output_padding", values.pop("output_padding", 0), rank, 0)[-rank:]
    if isinstance(values.get("padding"), str):
        raise ProblemError("the padding of a transposed convolution is given in numbers")
    stride, dilation = (
        arguments.each(name, values.get(name, 1), rank)[-rank:] for name in ("stride", "dilation")
    )
    sides = arguments.padding(values.get("padding", 0), rank)
    half = len(sides) // 2
    around = [a + b for a, b in zip(sides[:half], sides[half:], strict=True)][-rank:]
    image = []
    each = zip(grad[2:], filter[2:], stride, dilation, around, more, strict=False)
    for extent, taps, s, d, both, extra in each:
        if extra >= s:
            raise ProblemError(f"output_padding {extra} is smaller than the stride, which is {s}")
        image.append((extent - 1) * s - both + (taps - 1) * d + 1 + extra)
    channels = filter[0] if groups is None else filter[1] * groups
    if min(image) < 1:
        raise ProblemError(f"the result would be {image}: use less padding")
    if grad[1] != filter[0] * (filter[1] if groups is None else 1):
        raise ProblemError(
            f"an image of {grad[1]} channels and a filter of {filter[0]}: a transposed convolution "
            "has a filter for each channel that it reads"
        )
    return (grad[0], channels, *image)


def multiplier_of(first: int, second: int, channels: int, groups: int) -> int:
    """The filters of a group, of a filter whose shape begins with ``first`` x ``second``; raises
    :class:`ProblemError` where it is not one of these channels in these groups."""
    if groups < 1 or channels % groups:
        raise ProblemError(
            f"groups={groups}: it is a divisor of the channels, which are {channels}"
        )
    if second * groups != channels or first % groups:
        several = groups > 1
        raise ProblemError(
            f"a filter of {first} x {second} does not fit {channels} channels"
            f"{f' in {groups} groups' * several}: its shape begins with OC x {channels // groups}"
            f"{f', OC a multiple of {groups}' * several}"
        )
    return first // groups
