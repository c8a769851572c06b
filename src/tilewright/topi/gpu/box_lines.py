"""What boxes cost beside their bytes: lines of memory that rows lie in, and copies for them."""

from __future__ import annotations

import functools
import math

from tilewright.topi.gpu.machine import MEMORY
from tilewright.topi.nn.box_phases import is_phased
from tilewright.topi.nn.box_problems import as_brought, by_pixels, is_in_halves, is_turned, widths
from tilewright.topi.operators.convolution import Convolution

#: Bytes of a line of memory, and microseconds of a launch that copies an image, and of one that
#: copies a filter, which is small.
LINE, COPYING, FILTER = 128, 1.35, 1.0
#: Rows of integers of 8 bits that an SM is brought in a microsecond, for each byte of one; by which
#: power of the lines that they lie in they take longer; and how many times as long where half of
#: them or more is filled up.
_SHORT, _CROSSED, _FILLED = 4.0, 1.5, 2.0
#: The same of one that turns a filter in groups, which threads read by elements, or one of float32,
#: for which the products wait until it is there.
_TURNED = 3.0
#: Bytes that are moved for an element that is copied in halves.
_HALVES = 12


def crossing(pixel: int, row: int) -> float:
    """In how many lines of memory rows of as many bytes lie, in the mean, of pixels of as many; of
    rows that are as long as a line, or divide it.

    >>> crossing(512, 128), crossing(192, 64), crossing(192, 128), crossing(432, 128)
    (1.0, 1.0, 1.5, 1.875)
    """
    offsets = [k * pixel % LINE for k in range(LINE // 16)]
    return sum((at + row - 1) // LINE + 1 for at in offsets) / len(offsets)


@functools.lru_cache(maxsize=64)
def short_row(p: Convolution, bytes_each: int, parts: int) -> float:
    """Microseconds in which an SM is brought a row of integers of 8 bits, one of ``parts`` of a
    pixel, that is shorter than a line, of 12 layers of one tap on an H200; 0 of other types and
    rows."""
    if not p.is_quantized or bytes_each >= LINE or p.block:
        return 0.0
    channels, _ = slid_over(p)
    filled = _FILLED if 2 * channels <= parts * bytes_each else 1.0
    crossed: float = crossing(channels, bytes_each) ** _CROSSED
    return crossed * filled / (_SHORT * bytes_each)


def copying(own: Convolution | None, p: Convolution) -> float:
    """Microseconds of the copies that are made where ``p`` computes a problem's ``own`` convolution
    in its place, of a pass whose result is an image: of a filter that lies otherwise, and of what
    windows slide over, where it has other channels or other pixels."""
    if own is None or own.pass_ == "wgrad":
        return 0
    own = by_pixels(as_brought(own))
    if is_in_halves(p):  # both factors are read, and written twice
        elements = slid_over(own)[1] + math.prod(own.filter_shape)
        return FILTER + COPYING + _HALVES * elements / MEMORY
    if own == p and (not is_phased(own) or is_turned(own)):
        return 0
    (read, elements), (channels, made) = slid_over(own), slid_over(p)
    if p.groups > 1 and own.pass_ == "dgrad":
        return _TURNED
    if own.dtype == "float32" and own.pass_ == "dgrad":
        return _TURNED + 8 * math.prod(own.filter_shape) / MEMORY
    if p.groups > 1 or read == channels:
        return FILTER
    return FILTER + COPYING + 16 // widths(p.dtype).chunk * (elements + made) / MEMORY


def slid_over(p: Convolution) -> tuple[int, int]:
    """Channels of what windows slide over, and elements of it."""
    channels = p.out_channels if p.pass_ == "dgrad" else p.channels
    image = p.out_image if p.pass_ == "dgrad" else p.image
    return channels, p.batch * channels * math.prod(image)
