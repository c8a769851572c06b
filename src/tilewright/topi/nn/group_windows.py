"""Convolution in groups of few channels, as many as a result's: vectors across several groups.

Groups of 2, 4 or 8 channels are part of a vector each. A result's channel sums products of all
channels of its group, ``x[c // 4 * 4 + (c + k) % 4]`` for groups of four, say, so that a vector of
results reads lanes of one vector of the image, each ``k`` others: first each lane its own, which is
in place. The image is stored in such vectors, with its padding, and so is the filter. Lanes change
places at low cost only within 128 bits: of groups of 8 channels the first four are stored in both
quarters of a vector that read them, and then the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.declared import Declared
from tilewright.topi.nn.images import Images, or_zero, within
from tilewright.topi.operators.convolution import Convolution

#: Channels of a vector, and of those that change places at no cost.
LANES, QUARTER = 16, 4


@dataclass(frozen=True)
class GroupDeclaration(Declared):
    """``stored`` is the image, (batch, vectors, *pixels, parts of a group, 16), ``packed`` the
    filter, (vectors, *taps, channels of a group, 16), and ``sum`` the results, (batch, vectors,
    *results, 16). Of words of bytes each has one more dimension, of 4, and parts of a group are
    words; ``above`` is what sums are too large by, None where they are right."""

    problem: Convolution
    sum: Tensor
    stored: Tensor
    packed: Tensor
    above: Tensor | None = None


def unpadded(p: Convolution, at: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Where a pixel of the padded image is in the image, and when there is one."""
    place = [i - d.before for i, d in zip(at, p.dims, strict=True)]
    ends = [(i, d.extent) for i, d in zip(place, p.dims, strict=True) if d.before or d.after]
    return place, within(*zip(*ends, strict=True)) if ends else []


def declare_groups(p: Convolution, given: Any = None) -> GroupDeclaration:
    """The program of a forward pass; ``given`` as in :func:`~tilewright.topi.declare.declare`."""
    inputs, images = placeholders(p, given), Images(p.layout)
    image, filter = list(inputs.values())[:2]
    own, channels, kind = p.channels // p.groups, p.channels, p.accumulate
    whole, vectors = channels % LANES == 0, -(-channels // LANES)
    part = QUARTER if whole and own > QUARTER else own

    def pixel(n: Any, v: Any, *at: Any) -> Any:
        *place, half, lane = at
        c = v * LANES + (lane if part == own else lane // own * own + half * part + lane % part)
        place, inside = unpadded(p, place)
        inside += [] if whole else [c < channels]
        return or_zero(inside, image[images.order(n, c, place)]).astype(kind)

    seen = [(d.results - 1) * d.stride + d.window for d in p.dims]
    stored = te.compute((image.shape[0], vectors, *seen, own // part, LANES), pixel, name="Stored")

    def turned(k: Any, lane: Any) -> Any:
        """Which of a part's channels a lane reads ``k``-th: its own first, which is in place."""
        return (lane + k) % part

    def weight(v: Any, *at: Any) -> Any:
        *taps, k, lane = at
        f = v * LANES + lane
        read = filter[p.filter_place(f, k // part * part + turned(k, lane), taps)]
        return (read if whole else or_zero([f < channels], read)).astype(kind)

    extents = [d.taps for d in p.dims]
    packed = te.compute((vectors, *extents, own, LANES), weight, name="Packed")
    names = ["rd", "rh", "rw"][3 - p.rank :]
    taps: list[Any] = [te.reduce_axis((0, e), name) for e, name in zip(extents, names, strict=True)]
    k = te.reduce_axis((0, own), "rc")

    def element(n: Any, v: Any, *at: Any) -> Any:
        *place, lane = at
        each = zip(place, taps, p.dims, strict=True)
        read = [i * d.stride + t * d.dilation for i, t, d in each]
        left = stored[(n, v, *read, k // part, lane // part * part + turned(k, lane))]
        return te.sum(left * packed[(v, *taps, k, lane)], axis=[*taps, k])

    total = te.compute((image.shape[0], vectors, *p.out_extents, LANES), element, name="Sums")

    def gathered(n: Any, c: Any, at: Sequence[Any]) -> Any:
        return total[(n, c // LANES, *at, c % LANES)]

    result = images.compute(image.shape[0], channels, p.out_extents, gathered, "Conv")
    return GroupDeclaration(p, inputs, finished(p, result, inputs), total, stored, packed)


#: The declaration of this module, by name.
FORMS = {"groups": declare_groups}
