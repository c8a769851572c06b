"""Convolutions and products of 8-bit integers as dot products of four neighbouring channels.

VNNI multiplies bytes without a sign by bytes with one. An image in int8 is stored 128 above its
values, zeros of its padding included, and each sum is 128 times the sum of the filter too large,
which is subtracted from it: all of this is exact. The filter is stored as the instruction reads it:
of 16 channels of the result, four neighbouring channels of the image each. Of groups of fewer than
16 channels as many are joined, with zeros where a channel is one of another group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.declared import Declared
from tilewright.topi.nn.flat_windows import numbered, placed
from tilewright.topi.nn.images import Images, or_zero
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.problem import Problem

#: Channels of the result in a vector of sums; channels of the image in an element of one.
LANES, TOGETHER = 16, 4
#: Results behind the last one, which tiles may reach to: more than those of a tile.
_SPARE = 32
#: What an image in int8 is stored above its values.
ABOVE = 128


def unsigned(where: Sequence[Any], read: Any) -> Any:
    """A byte as it is stored, where all of some conditions hold, elsewhere what zero is."""
    raised = read.dtype == "int8"
    read = read.astype("uint8") ^ te.const(ABOVE, "uint8") if raised else read
    none = te.const(ABOVE if raised else 0, "uint8")
    return te.if_then_else(te.all(*where), read, none) if where else read


@dataclass(frozen=True)
class DotDeclaration(Declared):
    """``stored`` is what is multiplied, (batch, *pixels, channels) in uint8; ``packed`` the filter,
    (vectors, *taps, fours, 16, 4); ``above`` what sums of each channel are too large by, and
    ``halves`` what it is computed from, None where they are right. ``sum`` is (batch, *results,
    channels), of one dimension of results where windows are single pixels, as ``flat`` says.
    ``layout`` is that of the result, and ``by_words`` says whether words of filters, whole vectors
    of them, lie as they are packed."""

    flat: bool
    layout: str
    by_words: bool
    sum: Tensor
    stored: Tensor
    packed: Tensor
    above: Tensor | None
    halves: Tensor | None


def is_flat(p: Convolution | Gemm) -> bool:
    """Whether windows are single pixels."""
    return isinstance(p, Gemm) or all(d.taps == 1 for d in p.dims)


def constant(p: Problem) -> bool:
    """Whether the filter, or right factor, is a constant."""
    return not {"filter", "b"}.isdisjoint(p.constants)


@dataclass(frozen=True)
class Groups:
    """Groups that are multiplied as one: ``count`` of them, each of ``filters`` channels of the
    result and ``channels`` of the image, made of groups of the problem with ``per`` and ``own``."""

    count: int
    filters: int
    channels: int
    per: int
    own: int

    @staticmethod
    def of(p: Convolution | Gemm) -> Groups:
        """Those of a problem."""
        if isinstance(p, Gemm):
            return Groups(1, p.n, p.k, p.n, p.k)
        per, own = p.multiplier, p.channels // p.groups
        joined = LANES // per if p.groups > 1 and per < LANES else 1
        joined = joined if p.groups % joined == 0 else 1
        return Groups(p.groups // joined, per * joined, own * joined, per, own)

    @property
    def suit(self) -> bool:
        """Whether a vector of results, and what it reads, is of one group."""
        whole = self.filters % LANES == 0 and self.channels % TOGETHER == 0
        return whole or self.count == 1


def declare_dots(p: Convolution | Gemm, given: Any = None) -> DotDeclaration:
    """The program of a forward pass whose :class:`Groups` suit; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    inputs = placeholders(p, given)
    image, filter = list(inputs.values())[:2]
    if isinstance(p, Gemm):
        found = p.factors(inputs)
        return _declare(
            p, inputs, 1, found.rows, (),
            lambda n, at, c: (found.left((), at[0], c), []),
            lambda f, taps, c: found.right((), c, f),
        )  # fmt: skip
    images, flat = Images(p.layout), is_flat(p)

    def pixel(n: Any, at: Sequence[Any], c: Any) -> tuple[Any, list[Any]]:
        if flat:
            at = placed(at[0], p.out_extents)
        inside, place = [], []
        for i, d in zip(at, p.dims, strict=True):
            x = (i * d.stride if flat else i) - d.before
            ends = flat and not (d.before or d.after)
            inside += [] if ends else [x >= 0, x < d.extent]
            place.append(x)
        return image[images.order(n, c, place)], inside

    def weight(f: Any, taps: Sequence[Any], c: Any) -> Any:
        return filter[p.filter_place(f, c, [0] * p.rank if flat else taps)]

    taps = () if flat else tuple(d.taps for d in p.dims)
    return _declare(p, inputs, image.shape[0], math.prod(p.out_extents), taps, pixel, weight)


def _declare(
    p: Convolution | Gemm,
    inputs: dict[str, Tensor],
    batch: Any,
    count: int,
    taps: tuple[int, ...],
    pixel: Callable[..., tuple[Any, list[Any]]],
    weight: Callable[..., Any],
) -> DotDeclaration:
    """``count`` results of an image, of windows of ``taps``."""
    g, raised = Groups.of(p), p.dtype == "int8"
    filters, channels = g.count * g.filters, g.count * g.channels
    fours, vectors = -(-g.channels // TOGETHER), -(-filters // LANES)
    results, seen = [count + _SPARE], [count + _SPARE]
    if taps:
        assert isinstance(p, Convolution)
        results = [*p.out_extents[:-1], p.out_extents[-1] + _SPARE]
        seen = [(r - 1) * d.stride + d.window for r, d in zip(results, p.dims, strict=True)]

    def value(n: Any, *at: Any) -> Any:
        *place, c = at
        read, inside = pixel(n, place, c)
        inside += [] if channels % TOGETHER == 0 else [c < channels]
        inside += [] if taps else [place[0] < count]
        return unsigned(inside, read)

    shape = (batch, *seen, g.count * fours * TOGETHER)
    stored = te.compute(shape, value, name="Stored")

    def word(v: Any, *at: Any) -> Any:
        *tap, four, lane, k = at
        f, c = v * LANES + lane, four * TOGETHER + k
        inside = [] if filters % LANES == 0 else [f < filters]
        inside += [] if channels % TOGETHER == 0 else [c < channels]
        inside += (
            [] if g.own == g.channels else [(c // g.own).equal(f // g.per % (g.channels // g.own))]
        )
        read = weight(f, tap, c % g.own)
        return or_zero(inside, read)

    packed = te.compute((vectors, *taps, fours, LANES, TOGETHER), word, name="Packed")

    axes = _sums((*taps, fours))
    *tap, four, k = axes

    def element(n: Any, *at: Any) -> Any:
        *place, f = at
        if taps:
            assert isinstance(p, Convolution)
            each = zip(place, tap, p.dims, strict=True)
            place = [i * d.stride + t * d.dilation for i, t, d in each]
        own = f // LANES * LANES // g.filters * g.channels if g.count > 1 else 0
        left = stored[(n, *place, own + four * TOGETHER + k)]
        right = packed[(f // LANES, *tap, four, f % LANES, k)]
        return te.sum(left.astype("int32") * right.astype("int32"), axis=axes)

    total = te.compute((batch, *results, vectors * LANES), element, name="Sums")
    halves = above = None
    if raised:
        halves = te.compute((TOGETHER,), lambda k: te.const(ABOVE, "uint8"), name="Halves")
        more = _sums((*taps, fours))

        def beyond(v: Any, lane: Any) -> Any:
            *tap, four, k = more
            right = packed[(v, *tap, four, lane, k)].astype("int32")
            return te.sum(halves[k].astype("int32") * right, axis=more)

        above = te.compute((vectors, LANES), beyond, name="Above")

    def right_sum(n: Any, place: Sequence[Any], f: Any) -> Any:
        found = total[(n, *place, f)]
        return found if above is None else found - above[f // LANES, f % LANES]

    if isinstance(p, Gemm):
        result = te.compute(p.result.shape, lambda i, j: right_sum(0, [i], j), name="Product")
    else:
        space = p.out_extents

        def at(n: Any, f: Any, place: Sequence[Any]) -> Any:
            return right_sum(n, list(place) if taps else [numbered(place, space)], f)

        result = Images(p.layout).compute(batch, filters, space, at, "Conv")
    along = p.transpose_b if isinstance(p, Gemm) else p.channels_last or not taps
    by_words = along and g.own == g.channels and filters % LANES == 0
    output = finished(p, result, inputs)
    return DotDeclaration(
        p, inputs, output, not taps, p.layout, by_words, total, stored, packed, above, halves
    )


def _sums(extents: Sequence[int]) -> list[Any]:
    """Axes to sum along: those of a window, and of a dot product."""
    return [te.reduce_axis((0, e), f"r{k}") for k, e in enumerate((*extents, TOGETHER))]


#: The declaration of this module, by name.
FORMS = {"dots": declare_dots}
