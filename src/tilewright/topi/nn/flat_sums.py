"""Sums over windows in rows (:mod:`~tilewright.topi.nn.flat_windows`): what is stored of an image
and of a filter, and what is summed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.declared import Declared
from tilewright.topi.nn.flat_windows import LANES, FlatWindows, numbered, placed, weight_of
from tilewright.topi.nn.images import Images, or_zero, within
from tilewright.topi.operators.convolution import OPERANDS, Convolution

#: What axes are called, of planes, rows and columns.
_LETTERS = "zyx"


@dataclass(frozen=True)
class FlatDeclaration(Declared):
    """A convolution as windows of one dimension.

    ``sum`` is (batch, group, channel, pixel), or where vectors lie ``across`` channels (batch,
    group, pixel, channel). ``padded`` is the image, a row of ``row_stride`` pixels behind the
    other, or of as many numbers where taps are joined, in the type of sums, None where the image is
    read as it lies; ``packed`` the filter in the order and the type in which it is read, None where
    it lies so. Of a gradient with strides, channels are those of all ``phases``, as
    :meth:`FlatWindows.joined` numbers them. ``partial`` are sums of integers, as floats, of so few
    products that they are exact, each with the indices of what is left to sum behind those of
    ``sum``; None where all are.
    """

    problem: Convolution
    sum: Tensor
    padded: Tensor | None
    packed: Tensor | None
    across: bool
    row_stride: int
    phases: tuple[int, ...]
    partial: Tensor | None


def declare_flat(p: Convolution, given: Any = None) -> FlatDeclaration:
    """The program of a problem whose vectors lie along pixels; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    return _declare(p, False, given)


def declare_across(p: Convolution, given: Any = None) -> FlatDeclaration:
    """The same, with vectors across channels of the result."""
    return _declare(p, True, given)


def declare_trimmed(p: Convolution, given: Any = None) -> FlatDeclaration:
    """The same without taps that see padding alone: of a row above the image, say."""
    return _declare(p, True, given, trims=True)


def _declare(p: Convolution, across: bool, given: Any, trims: bool = False) -> FlatDeclaration:
    w, images = FlatWindows.of(p, across), Images(p.layout)
    inputs = placeholders(p, given)
    image, filter = (inputs[name] for name in OPERANDS[p.pass_])
    per, own = w.filters
    stored = None if w.reads_image(across) else _stored(w, image, across)
    packed = _packed(w, filter, across) if w.packs(across) else None
    joins, once = w.joins(across), w.channels_at_once
    kernel, once = (w.kernel[:-1], w.kernel[-1] * own) if joins else (w.kernel, once)
    letters = "dhw"[3 - len(w.kernel) :]
    taps = [te.reduce_axis((0, e), f"r{name}") for e, name in zip(kernel, letters, strict=False)]
    inner, outer = te.reduce_axis((0, once), "rc"), te.reduce_axis((0, own // once or 1), "ro")
    split = [outer] if once < own else []
    # What is next in memory is read next.
    last, planar = across or p.channels_last or p.is_quantized, w.planar(across)
    order = [*taps, *split, inner] if last else [inner, *taps]
    sizes = [*kernel, *[own // once][: len(split)], once]
    if planar and not split:
        order, sizes = ([*x[:-2], x[-1], x[-2]] for x in (order, sizes))
    together = order[-_exact(sizes, w.exact) :] if p.is_quantized else order
    rest = order[: len(order) - len(together)]

    def read(n: Any, g: Any, f: Any, q: Any, tap: Sequence[Any], rc: Any) -> Any:
        """What a tap and a channel that is read, or the number of both, multiply for a result."""
        c = g * own + rc
        if not across:
            shifts = [(t * d, s) for t, d, s in zip(tap, w.dilation, w.stride, strict=True)]
            phase = [x % s for x, s in shifts]
            assert stored is not None
            return stored[(n, c, *phase, q + w.flat([x // s for x, s in shifts]))]
        each = zip(
            placed(q, w.result), w.stride, [*tap, 0], w.dilation,
            w.shifts(w.parted(f, True)[0]), strict=False,
        )  # fmt: skip
        at = [r * s + t * d + more for r, s, t, d, more in each]
        if stored is None:
            return image[images.order(n, c, at[-p.rank :])]
        place = numbered(at, w.extents(True))
        if planar:
            return stored[n, c, place]
        return stored[n, place * own + rc] if joins else stored[n, place, c]

    def seen(q: Any, tap: Sequence[Any], phase: Any) -> list[Any]:
        """That planes and rows that taps see are in the image."""
        each = zip(
            placed(q, w.result), w.stride, tap, w.dilation, w.before, w.shifts(phase), strict=False
        )
        at = [r * s + t * d + more - low for r, s, t, d, low, more in each]
        return within(at[:-1] if len(tap) == len(w.result) else at, w.image[:-1])

    def element(n: Any, g: Any, f: Any, q: Any, given: Mapping[Any, Any]) -> Any:
        """The sum of what is summed together, of indices of the rest."""
        tap = [given.get(t, t) for t in taps]
        rc = given.get(outer, outer) * once + inner if split else inner
        index = [*tap, rc] if across or p.channels_last else [rc, *tap]
        if planar:
            index = [*tap[:-1], rc, tap[-1]]
        pixel = read(n, g, f, q, tap, rc)
        if packed is None:
            weight = weight_of(w, filter, g, f, rc, tap, across)
        elif across:
            wide = int(packed.shape[-1])
            weight = packed[(g, f // wide, *index, f % wide)]
        else:
            weight = packed[(g, f, *index)]
        # Taps that a phase lacks are left out where a tile has one phase, else multiplied by zero.
        alone = w.by_phase(across) and not joins
        own_taps = w.taps_of(w.parted(f, across)[0], tap) if alone else []
        if trims:
            own_taps += seen(q, tap, w.parted(f, across)[0])
        where = te.all(*own_taps) if own_taps else None
        return te.sum(pixel * weight, axis=together, where=where)

    batch, groups = image.shape[0], p.groups
    count = math.prod(w.result) if across else w.results
    filled = per if packed is None or not across else math.prod((packed.shape[1], packed.shape[-1]))
    shape = (batch, groups, count, filled) if across else (batch, groups, per, count)
    names = [*("ngqf" if across else "ngfq"), *(f"o{k}" for k in range(len(rest)))]

    def summed(n: Any, g: Any, *more: Any) -> Any:
        (q, f), at = more[:2] if across else more[1::-1], more[2:]
        return element(n, g, f, q, dict(zip(rest, at, strict=True)))

    partial = None
    if not rest:
        total = te.compute(shape, summed, name="Sums", varargs_names=names)
    else:
        partial = te.compute(
            (*shape, *sizes[: len(rest)]), summed, name="Partial", varargs_names=names
        )

        def whole(*at: Any) -> Any:
            assert partial is not None
            return te.sum(partial[(*at, *rest)].astype(p.accumulate), axis=rest)

        total = te.compute(shape, whole, name="Sums", varargs_names=names[:4])

    phases = math.prod(w.phases)

    def gathered(n: Any, c: Any, at: list[Any]) -> Any:
        channels = per // phases
        g, f = (c // channels, c % channels) if groups > 1 else (te.const(0), c)
        phase, place = w.result_of([*[0] * (len(w.result) - len(at)), *at])
        f = w.joined(phase, f, across)
        if across:
            found = total[n, g, numbered(place, w.result), f]
        else:
            found = total[n, g, f, w.flat(place)]
        return found.astype(p.accumulate)

    space = p.image_extents if p.pass_ == "dgrad" else p.out_extents
    result = images.compute(batch, p.result_channels, space, gathered, "Conv")
    output = finished(p, result, inputs)
    return FlatDeclaration(
        p, inputs, output, total, stored, packed, across,
        w.extents(across)[-1] * (own if joins else 1), w.phases, partial,
    )  # fmt: skip


def _exact(extents: Sequence[int], most: int) -> int:
    """How many of the last axes sum at most ``most`` products."""
    return max(k for k in range(1, len(extents) + 1) if math.prod(extents[-k:]) <= most)


def _stored(w: FlatWindows, image: Tensor, across: bool) -> Tensor:
    p, images = w.problem, Images(w.problem.layout)
    n, c, _ = images.meaning(image.shape)
    extents = w.extents(across)

    def element(b: Any, channel: Any, at: Sequence[Any]) -> Any:
        at = [i - low for i, low in zip(at, w.before, strict=True)]
        inside = within(at, w.image)
        read = image[images.order(b, channel, at[-p.rank :])]
        return or_zero(inside, read).astype(w.factors)

    def of_phase(b: Any, channel: Any, *at: Any) -> Any:
        each = zip(w.place(at[-1]), w.stride, at[:-1], strict=True)
        return element(b, channel, [i * s + a for i, s, a in each])

    count = math.prod(extents)
    shape: tuple[Any, ...]
    place: Callable[..., tuple[Any, Any]]  # the channel and the pixel of an element
    if w.joins(across):
        shape, names, place = (n, count * c), "bq", lambda m: (m % c, m // c)
    elif w.planar(across):
        shape, names, place = (n, c, count), "brq", lambda r, q: (r, q)
    else:
        shape, names, place = (n, count, c), "bqr", lambda q, r: (r, q)

    def of_row(b: Any, *at: Any) -> Any:
        channel, pixel = place(*at)
        return element(b, channel, placed(pixel, extents))

    made: Tensor
    if across:
        made = te.compute(shape, of_row, name="Rows", varargs_names=names)
    else:
        made = te.compute(
            (n, c, *w.stride, count), of_phase, name="Rows",
            varargs_names=["b", "r", *_LETTERS[-len(w.stride) :], "q"],
        )  # fmt: skip
    return made


def _packed(w: FlatWindows, filter: Tensor, across: bool) -> Tensor:
    (per, own), groups, kind = w.filters, w.problem.groups, w.factors

    def element(g: Any, f: Any, r: Any, *taps: Any) -> Any:
        return weight_of(w, filter, g, f, r, taps, across).astype(kind)

    names = _LETTERS[-len(w.kernel) :]
    made: Tensor
    if across:
        # What a vector reads in turn is together, so that it is on few pages.
        wide = LANES if per > LANES else per
        whole = (*w.kernel, own)
        if w.joins(across):
            whole, names = (*w.kernel[:-1], w.kernel[-1] * own), names[:-1]
        elif w.planar(across):
            whole = (*w.kernel[:-1], own, w.kernel[-1])

        def panel(g: Any, v: Any, *at: Any) -> Any:
            *taps, r, f = at
            taps, r = ([*taps, r // own], r % own) if w.joins(across) else (taps, r)
            if w.planar(across):
                taps, r = [*taps[:-1], r], taps[-1]
            f = v * wide + f
            if per % wide == 0:
                return element(g, f, r, *taps)
            return or_zero([f < per], element(g, f, r, *taps))

        made = te.compute(
            (groups, -(-per // wide), *whole, wide), panel, name="Packed",
            varargs_names=["g", "v", *names, "r", "f"],
        )  # fmt: skip
    elif w.problem.channels_last:
        made = te.compute(
            (groups, per, *w.kernel, own), lambda g, f, *at: element(g, f, at[-1], *at[:-1]),
            name="Packed", varargs_names=["g", "f", *names, "r"],
        )  # fmt: skip
    else:
        made = te.compute(
            (groups, per, own, *w.kernel), element, name="Packed",
            varargs_names=["g", "f", "r", *names],
        )  # fmt: skip
    return made


#: The declarations of this module, by name.
FORMS = {"flat": declare_flat, "across": declare_across, "trimmed": declare_trimmed}
