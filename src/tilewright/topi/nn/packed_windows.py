"""Convolution over a padded image and a filter that are packed for vectors of channels.

Article 004 calls it spatial packing: results are summed for vectors of neighbouring channels, each
step multiplying one pixel with what a vector of filters has for it. The image is stored with its
padding, so that no window needs a guard, channels side by side; of the filter the channels of the
result are. Neither is cut into tiles here: a tile reads the image where it lies, halo included, and
its own columns of the filter. Sums are declared a little beyond the last row, column and channel,
so that small tiles need not divide the result; what is stored of it ends with it. Where parts of
sums are stored, sums end with the last row and column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.declared import Declared
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import Images, or_zero, within
from tilewright.topi.operators.convolution import OPERANDS, Convolution

#: Multiples of which sums are declared: rows, columns, and channels of the widest vector.
ROWS, COLUMNS, CHANNELS = 4, 8, 16


@dataclass(frozen=True)
class PackedDeclaration(Declared):
    """A convolution, or a gradient by the input with stride 1, over packed operands.

    ``sum`` is (batch, space, channel), whatever the layout; ``padded`` is the image with its
    padding, as (batch, rows, block of channels, column, channel), ``packed`` the filter, as (group,
    block of channels of the result, channel that is read, taps, channel of the block): what an item
    reads in turn is together, so that caches keep it whatever power of two its rows are apart.
    """

    problem: Convolution
    sum: Tensor
    padded: Tensor
    packed: Tensor


def channels(p: Convolution) -> tuple[int, int]:
    """Channels of a group: of the result, and of what is convolved."""
    own = p.channels // p.groups
    return (own, p.multiplier) if p.pass_ == "dgrad" else (p.multiplier, own)


def extents(result: Sequence[int]) -> list[int]:
    """Those of sums, by those of the result."""
    whole = (1, ROWS, COLUMNS)[3 - len(result) :]
    return [up(e, many) for e, many in zip(result, whole, strict=True)]


def up(extent: int, whole: int) -> int:
    """The next multiple."""
    return -(-extent // whole) * whole


def declare_packed(p: Convolution, given: Any = None, beyond: bool = True) -> PackedDeclaration:
    """The program of a problem, whose sums go ``beyond`` the last row and column or not; ``given``
    as in :func:`~tilewright.topi.declare.declare`."""
    w, images, inputs = Convolved(p), Images(p.layout), placeholders(p, given)
    image, filter = (inputs[name] for name in OPERANDS[p.pass_])
    (per, own), dims, batch = channels(p), p.rank, image.shape[0]
    filled = per if p.groups > 1 else up(per, CHANNELS)
    result, kernel, stride, dilation = (
        x[-dims:] for x in (w.result, w.kernel, w.stride, w.dilation)
    )
    summed = extents(result) if beyond else list(result)
    padded, packed = _padded(w, image, summed), _packed(p, filter, kernel, filled)
    deep, wide = (int(t.shape[-1]) for t in (padded, packed))
    names = "dhw"[3 - dims :]
    rc = te.reduce_axis((0, own), "rc")
    taps = [te.reduce_axis((0, e), f"r{name}") for e, name in zip(kernel, names, strict=True)]

    def element(n: Any, *at: Any) -> Any:
        *place, c = at
        g, f = (c // per, c % per) if p.groups > 1 else (te.const(0), c)
        seen = [o * s + t * d for o, t, s, d in zip(place, taps, stride, dilation, strict=True)]
        r = g * own + rc
        pixel = padded[(n, *seen[:-1], r // deep, seen[-1], r % deep)].astype(p.accumulate)
        weight = packed[(g, f // wide, rc, *taps, f % wide)].astype(p.accumulate)
        return te.sum(pixel * weight, axis=[rc, *taps])

    total = te.compute(
        (batch, *summed, p.groups * filled), element, name="Sums",
        varargs_names=["n", *names, "c"],
    )  # fmt: skip
    conv = images.compute(
        batch, p.result_channels, result, lambda n, c, at: total[(n, *at, c)], "Conv"
    )
    return PackedDeclaration(p, inputs, finished(p, conv, inputs), total, padded, packed)


def block(count: int) -> int:
    """How many of ``count`` channels are in a block: all of a few, else a power of two."""
    return count if count < CHANNELS else math.gcd(count, CHANNELS)


def _padded(w: Convolved, image: Tensor, results: Sequence[int]) -> Tensor:
    """The image with its padding, as far as the windows of ``results`` see."""
    images, dims = Images(w.problem.layout), w.problem.rank
    n, c, _ = images.meaning(image.shape)
    first, deep = len(w.result) - dims, block(int(c))
    *rows, columns = [w.sees(first + k, e) for k, e in enumerate(results)]

    def element(b: Any, *at: Any) -> Any:
        *rows, outer, column, inner = at
        seen = zip((*rows, column), w.before[-dims:], strict=True)
        place = [i - low for i, low in seen]
        inside = within(place, w.image[-dims:])
        read = image[images.order(b, outer * deep + inner, place)]
        return or_zero(inside, read)

    names = [*"dhw"[3 - dims :]]
    made: Tensor = te.compute(
        (n, *rows, int(c) // deep, columns, deep), element, name="Padded",
        varargs_names=["n", *names[:-1], "c", names[-1], "r"],
    )  # fmt: skip
    return made


def _packed(p: Convolution, filter: Tensor, kernel: Sequence[int], filled: int) -> Tensor:
    """The filter, of a gradient rotated, with zeros for channels that fill vectors up."""
    (per, own), wide = channels(p), block(filled)

    def element(g: Any, *at: Any) -> Any:
        outer, r, *taps, inner = at
        f = outer * wide + inner
        if p.pass_ == "dgrad":
            rotated = [k - 1 - t for k, t in zip(kernel, taps, strict=True)]
            read = filter[p.filter_place(g * own + r, f, rotated)]
        else:
            read = filter[p.filter_place(g * per + f, r, taps)]
        return or_zero([f < per], read) if filled > per else read

    made: Tensor = te.compute(
        (p.groups, filled // wide, own, *kernel, wide), element, name="Packed",
        varargs_names=["g", "c", "r", *(f"r{x}" for x in "dhw"[3 - len(kernel) :]), "f"],
    )  # fmt: skip
    return made


#: The declarations of this module, by name.
FORMS = {"packed": declare_packed, "packed parts": partial(declare_packed, beyond=False)}
