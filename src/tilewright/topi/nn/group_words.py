"""Convolution of 8-bit integers in groups of 4 or 8 channels: dot products, a word for each lane.

A result's channel multiplies the words of its group, four channels each, of which there are one or
two: :mod:`~tilewright.topi.nn.byte_dots` multiplies 16 channels, zeros among them, as one word is
for all lanes there. The image is stored as lanes read it, each word as often as a group has
channels; in int8, 128 above its values, which sums are corrected for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.nn.byte_dots import ABOVE, TOGETHER, unsigned
from tilewright.topi.nn.group_windows import LANES, GroupDeclaration, unpadded
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.convolution import Convolution


def declare_words(p: Convolution, given: Any = None) -> GroupDeclaration:
    """The program of a forward pass whose channels fill vectors; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    inputs, images = placeholders(p, given), Images(p.layout)
    image, filter = list(inputs.values())[:2]
    own, vectors, raised = p.channels // p.groups, p.channels // LANES, p.dtype == "int8"
    batch, fours = image.shape[0], own // TOGETHER

    def pixel(n: Any, v: Any, *at: Any) -> Any:
        *place, four, lane, k = at
        place, inside = unpadded(p, place)
        c = v * LANES + lane // own * own + four * TOGETHER + k
        return unsigned(inside, image[images.order(n, c, place)])

    seen = [(d.results - 1) * d.stride + d.window for d in p.dims]
    stored = te.compute((batch, vectors, *seen, fours, LANES, TOGETHER), pixel, name="Stored")

    def word(v: Any, *at: Any) -> Any:
        *taps, four, lane, k = at
        return filter[p.filter_place(v * LANES + lane, four * TOGETHER + k, taps)]

    extents = [d.taps for d in p.dims]
    packed = te.compute((vectors, *extents, fours, LANES, TOGETHER), word, name="Packed")

    def axes() -> list[Any]:
        names = [*["rd", "rh", "rw"][3 - p.rank :], "rf", "rk"]
        sizes = [*extents, fours, TOGETHER]
        return [te.reduce_axis((0, e), name) for e, name in zip(sizes, names, strict=True)]

    reduced = axes()

    def element(n: Any, v: Any, *at: Any) -> Any:
        *place, lane = at
        *taps, four, k = reduced
        each = zip(place, taps, p.dims, strict=True)
        read = [i * d.stride + t * d.dilation for i, t, d in each]
        left = stored[(n, v, *read, four, lane, k)].astype("int32")
        return te.sum(left * packed[(v, *taps, four, lane, k)].astype("int32"), axis=reduced)

    total = te.compute((batch, vectors, *p.out_extents, LANES), element, name="Sums")
    above = None
    if raised:
        more = axes()

        def beyond(v: Any, lane: Any) -> Any:
            *taps, four, k = more
            return te.sum(packed[(v, *taps, four, lane, k)].astype("int32") * ABOVE, axis=more)

        above = te.compute((vectors, LANES), beyond, name="Above")

    def gathered(n: Any, c: Any, at: Sequence[Any]) -> Any:
        found = total[(n, c // LANES, *at, c % LANES)]
        return found if above is None else found - above[c // LANES, c % LANES]

    result = images.compute(batch, p.channels, p.out_extents, gathered, "Conv")
    output = finished(p, result, inputs)
    return GroupDeclaration(p, inputs, output, total, stored, packed, above)


#: The declaration of this module, by name.
FORMS = {"group words": declare_words}
