"""Depthwise convolution of bytes, channels last, as dot products of four neighbouring pixels.

The stage ``Words`` has pixels of a row by fours: for each second pixel, and each channel, that one
and the three behind it lie in a word. A result of a channel is the sum over rows, and over words
four pixels apart, of dot products with the filter, which is packed for results at even and at odd
columns, with zeros for pixels of a word that a window does not see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.nn.byte_dots import ABOVE, unsigned
from tilewright.topi.nn.images import Images, or_zero, padded, within
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import Convolution

#: Pixels of a word, and how far those of neighbouring words are apart.
PIXELS, APART = 4, 2
#: Channels in a vector of 32-bit sums, of CPUs.
_LANES = 16


@dataclass(frozen=True)
class DotDeclaration(Declaration):
    """``words`` is (batch, rows, words, channels, 4); ``above`` what sums are too large by, None
    where they are right."""

    words: Tensor
    above: Tensor | None


def phases(p: Convolution) -> int:
    """Neighbouring results that begin in the same word."""
    return APART // p.stride[-1]


def words(p: Convolution) -> int:
    """Words of a row that a result sees."""
    return -(-(p.kernel[-1] + phases(p) - 1) // PIXELS)


def seen(p: Convolution, columns: Any) -> Any:
    """Pixels of a row in the words of neighbouring results, the first of them at an even column:
    an integer, or a column of them."""
    last = -(-columns // phases(p)) - 1
    return APART * last + PIXELS * words(p)


def suits_dots(p: Conv) -> bool:
    """Whether a problem is one of bytes whose windows begin at words."""
    return p.is_quantized and p.stride[1] <= APART and p.dilation[1] == 1


def declare_dots(p: Conv, batch: Any = None) -> DotDeclaration:
    """The program of a forward pass that :func:`suits_dots`; ``batch`` as in
    :func:`~tilewright.topi.declare.declare`."""
    return _declare(p, batch)


def declare_unsigned(p: Conv, batch: Any = None) -> DotDeclaration:
    """The same for what multiplies bytes without a sign by bytes with one, of whole vectors of
    channels: an image in int8 is stored 128 above its values, zeros of its padding included, and
    128 times the sum of a channel's filter is subtracted from its sums."""
    return _declare(p, batch, _LANES)


def _declare(p: Conv, batch: Any, lanes: int = 1) -> DotDeclaration:
    inputs, images = placeholders(p, batch), Images(p.layout)
    data, filter = list(inputs.values())[:2]
    rows, columns = p.out_image
    filled, raised = -(-p.out_channels // lanes) * lanes, lanes > 1 and p.dtype == "int8"
    high = (rows - 1) * p.stride[0] + (p.kernel_h - 1) * p.dilation[0] + 1
    extents, kinds = (high, seen(p, columns)), phases(p)
    if raised or filled > p.out_channels:
        source = _stored(p, data, extents, filled, raised)
    else:
        source = padded(images, data, p.padding[:2], extents, "PaddedInput")
    n, c, (h, w) = images.extents(source.shape)
    laid = te.compute(
        (n, h, (int(w) - PIXELS) // APART + 1, c, PIXELS),
        lambda n, i, q, c, k: source[images.order(n, c, [i, q * APART + k])],
        name="Words",
    )
    packed = _packed(p, filter, lanes)
    di, g, k = (
        te.reduce_axis((0, extent), name=name)
        for name, extent in (("di", p.kernel_h), ("g", words(p)), ("k", PIXELS))
    )

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        i, j = at
        q = te.indexdiv(j, kinds) + g * (PIXELS // APART)
        four = laid[n, i * p.stride[0] + di * p.dilation[0], q, c, k].astype(p.accumulate)
        place = [c] if lanes == 1 else [c // lanes, c % lanes]
        weight = packed[(di, g, te.indexmod(j, kinds), *place, k)].astype(p.accumulate)
        return te.sum(four * weight, axis=[di, g, k])

    n = images.meaning(data.shape)[0]
    total = images.compute(n, filled, p.out_image, element, "DepthwiseConv", "dots")
    sums, above = total, _above(p, filter) if raised else None

    def own(n: Any, c: Any, at: list[Any]) -> Any:
        found = total[images.order(n, c, at)]
        return found if above is None else found - above[c]

    if raised or filled > p.out_channels:
        sums = images.compute(n, p.out_channels, p.out_image, own, "Own")
    result = finished(p, sums, inputs)
    image = None if source is data else source
    return DotDeclaration(p, inputs, result, total, image, packed, laid, above)


#: The declarations, by name.
FORMS = {"byte dots": declare_dots, "unsigned dots": declare_unsigned}


def _stored(p: Conv, data: Tensor, extents: Any, filled: int, raised: bool) -> Tensor:
    """The padded image of ``extents`` rows and columns, of ``filled`` channels, in uint8."""
    images = Images(p.layout)

    def value(n: Any, c: Any, at: list[Any]) -> Any:
        place = [i - d.before for i, d in zip(at, p.dims, strict=True)]
        inside = [c < p.channels] if filled > p.channels else []
        inside += within(place, p.image_extents)
        return unsigned(inside, data[images.order(n, c, place)])

    n = images.meaning(data.shape)[0]
    return images.compute(n, filled, extents, value, "PaddedInput")


def _above(p: Conv, filter: Tensor) -> Tensor:
    """By channel, what sums of a raised image are too large by."""
    di, dj = (te.reduce_axis((0, k), name=x) for k, x in zip(p.kernel, ("di", "dj"), strict=True))

    def sum_of(c: Any) -> Any:
        return te.sum(filter[c, 0, di, dj].astype("int32") * ABOVE, axis=[di, dj])

    made: Tensor = te.compute((p.out_channels,), sum_of, name="Above", tag="filter")
    return made


def _packed(p: Conv, filter: Tensor, lanes: int) -> Tensor:
    """(rows, words, phases, channels, 4), or (..., vectors, ``lanes``, 4) with zeros for channels
    that the filter has not."""
    vectors = -(-p.out_channels // lanes)
    channels = [p.out_channels] if lanes == 1 else [vectors, lanes]

    def tap(*at: Any) -> Any:
        di, g, r, *place, k = at
        dj, c = g * PIXELS + k - r, place[0] if lanes == 1 else place[0] * lanes + place[1]
        inside = [dj >= 0, dj < p.kernel_w]
        inside += [c < p.out_channels] if vectors * lanes > p.out_channels else []
        read = filter[c, 0, di, dj]
        return or_zero(inside, read)

    shape = (p.kernel_h, words(p), phases(p), *channels, PIXELS)
    names = ["di", "g", "r", *(["c"] if lanes == 1 else ["v", "c"]), "k"]
    made: Tensor = te.compute(shape, tap, name="PackedFilter", tag="filter", varargs_names=names)
    return made
