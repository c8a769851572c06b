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
from tilewright.topi.nn.images import Images, padded
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import Convolution

#: Pixels of a word, and how far those of neighbouring words are apart.
PIXELS, APART = 4, 2


@dataclass(frozen=True)
class DotDeclaration(Declaration):
    """``words`` is (batch, rows, words, channels, 4)."""

    words: Tensor


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
    inputs, images = placeholders(p, batch), Images(p.layout)
    data, filter = list(inputs.values())[:2]
    rows, columns = p.out_image
    high = (rows - 1) * p.stride[0] + (p.kernel_h - 1) * p.dilation[0] + 1
    extents, kinds = (high, seen(p, columns)), phases(p)
    source = padded(images, data, p.padding[:2], extents, "PaddedInput")
    n, c, (h, w) = images.extents(source.shape)
    laid = te.compute(
        (n, h, (int(w) - PIXELS) // APART + 1, c, PIXELS),
        lambda n, i, q, c, k: source[images.order(n, c, [i, q * APART + k])],
        name="Words",
    )
    packed = _packed(p, filter)
    di, g, k = (
        te.reduce_axis((0, extent), name=name)
        for name, extent in (("di", p.kernel_h), ("g", words(p)), ("k", PIXELS))
    )

    def element(n: Any, c: Any, at: list[Any]) -> Any:
        i, j = at
        q = te.indexdiv(j, kinds) + g * (PIXELS // APART)
        four = laid[n, i * p.stride[0] + di * p.dilation[0], q, c, k].astype(p.accumulate)
        return te.sum(
            four * packed[di, g, te.indexmod(j, kinds), c, k].astype(p.accumulate), axis=[di, g, k]
        )

    n = images.meaning(data.shape)[0]
    total = images.compute(n, p.out_channels, p.out_image, element, "DepthwiseConv", "dots")
    result = finished(p, total, inputs)
    image = None if source is data else source
    return DotDeclaration(p, inputs, result, total, image, packed, laid)


#: The declaration, by name.
FORMS = {"byte dots": declare_dots}


def _packed(p: Conv, filter: Tensor) -> Tensor:
    """(rows, words, phases, channels, 4)."""

    def tap(di: Any, g: Any, r: Any, c: Any, k: Any) -> Any:
        dj = g * PIXELS + k - r
        inside = te.all(dj >= 0, dj < p.kernel_w)
        return te.if_then_else(inside, filter[c, 0, di, dj], te.const(0, filter.dtype))

    shape = (p.kernel_h, words(p), phases(p), p.out_channels, PIXELS)
    made: Tensor = te.compute(shape, tap, name="PackedFilter", tag="filter")
    return made
