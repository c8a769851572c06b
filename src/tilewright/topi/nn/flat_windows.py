"""Convolution over images whose rows are stored one behind the other, with their padding.

A tap then reads what lies a constant distance behind the pixel of a result, in whatever row that
is: windows of any rank are those of one dimension, and neighbouring results, be they of the same
row or not, read neighbouring pixels. In return, vectors along pixels compute results for the
padding between rows, too, which are dropped. With a stride the pixels of a phase are stored side by
side. Vectors across channels need neither: of few channels they join the taps of a row, and single
pixels they read as the image lies.

A gradient by the input with stride 1 is the convolution of dy with the filter rotated. With a
stride, every s-th pixel of the result sees every s-th tap: the pixels of a phase are a convolution
with stride 1 of their own, and those of all phases one with as many filters for each channel, whose
results are put between one another. Where vectors lie across channels that fill them, the sums of a
phase lie together, and taps that it lacks are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.declared import Declared
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import Images, or_zero, within
from tilewright.topi.once import once
from tilewright.topi.operators.convolution import OPERANDS, Convolution

#: Channels of the widest vector.
_LANES = 16
#: What axes are called, of planes, rows and columns.
_LETTERS = "zyx"


@dataclass(frozen=True)
class FlatWindows(Convolved):
    """A forward pass, or a gradient by the input, in groups; strides of such a gradient are 1, or 2
    where taps lie side by side. Where its phases lie ``apart``, those of a pixel are the results
    that follow one another from a multiple of the strides on, and each phase reads from a place of
    its own; else results are those that read from the same place on, of which there are more."""

    apart: bool = False

    @classmethod
    def of(cls, p: Convolution, across: bool) -> FlatWindows:
        """Those of a problem whose vectors lie ``across`` channels, or along pixels."""
        found = cls(p)
        return cls(p, True) if found.by_phase(across) else found

    @once
    def phases(self) -> tuple[int, ...]:
        """By dimension, kinds of results with taps of their own."""
        p = self.problem
        return p.stride if self._turned else (1,) * len(p.stride)

    @once
    def filters(self) -> tuple[int, int]:
        """Channels of a group: of the result, those of all phases, and of what is convolved."""
        own = self.problem.channels // self.problem.groups
        if self._turned:
            return own * math.prod(self.phases), self.problem.multiplier
        return self.problem.multiplier, own

    @once
    def kernel(self) -> tuple[int, ...]:
        """Taps of a phase."""
        return tuple(-(-k // s) for k, s in zip(self.problem.kernel, self.phases, strict=True))

    @once
    def result(self) -> tuple[int, ...]:
        """Results of a phase, of those whose phases have most."""
        own = super().result
        if self.apart:
            return tuple(-(-e // s) for e, s in zip(own, self.phases, strict=True))
        ends = zip(own, self._first, self.problem.padding, self.phases, strict=False)
        return tuple((e - 1 + low) // s - q + 1 for e, q, low, s in ends)

    @once
    def _first(self) -> tuple[int, ...]:
        """By dimension, the number of the first result in its phase, counted from the padding's."""
        return tuple(low // s for low, s in zip(self.problem.padding, self.phases, strict=False))

    @once
    def before(self) -> tuple[int, ...]:
        """Rows and columns of padding before the image."""
        if not self._turned:
            return super().before
        each = zip(self.kernel, self.dilation, self._first, strict=True)
        return tuple((k - 1) * d - q for k, d, q in each)

    @once
    def factors(self) -> str:
        """The type in which factors are stored: of integers float32, for which vectors have more
        arithmetic, and in which sums of :attr:`exact` products are exact."""
        return "float32" if self.problem.is_quantized else self.problem.accumulate

    @once
    def exact(self) -> int:
        """How many products of integers are summed exactly in float32: up to 2**24."""
        return 2**24 // ((255 if self.problem.dtype == "uint8" else 128) * 128)

    @once
    def channels_at_once(self) -> int:
        """Channels whose products are summed before sums become integers; all of floats."""
        own = self.filters[1]
        if not self.problem.is_quantized:
            return own
        return max(n for n in range(1, min(own, self.exact) + 1) if own % n == 0)

    def reads_image(self, across: bool) -> bool:
        """Whether windows are read of the image as it lies: single pixels, of which no vector
        reads several, in the type of the factors."""
        p = self.problem
        seen = zip(self.result, self.stride, self.image, strict=True)
        plain = across and bool(p.channels_last) and p.dtype == self.factors
        single = set(self.kernel) == {1} and not any(self.before)
        return plain and single and all((r - 1) * s < e for r, s, e in seen)

    def planar(self, across: bool) -> bool:
        """Whether the pixels of a channel lie side by side in a view of an image that is given with
        channels last: they are stored so, too, and single numbers are read of them."""
        p = self.problem
        lies = p.strides_of().get("data", ()) if p.pass_ == "forward" and p.groups == 1 else ()
        return across and bool(lies) and bool(p.channels_last) and lies[-1] > lies[-2]

    def joins(self, across: bool) -> bool:
        """Whether the taps of a row are summed together with the channels, of which there are few:
        numbers that lie side by side."""
        p, taps = self.problem, self.kernel[-1]
        few = self.filters[1] < _LANES and p.groups == 1 and not p.is_quantized
        few = few and not self.planar(across)
        return across and bool(p.channels_last) and few and taps > 1 and self.dilation[-1] == 1

    def by_phase(self, across: bool) -> bool:
        """Whether sums of a phase lie together, of all channels of a group, so that a vector of
        them is of one phase; else those of a channel do."""
        return across and set(self.phases) != {1} and self._own % _LANES == 0

    @once
    def _own(self) -> int:
        """Channels of a group of the result."""
        return self.filters[0] // math.prod(self.phases)

    def parted(self, f: Any, across: bool) -> tuple[Any, Any]:
        """Of a channel of the sums, the number of its phase and its channel of the result."""
        count = math.prod(self.phases)
        if count == 1:
            return 0, f
        return (f // self._own, f % self._own) if self.by_phase(across) else (f % count, f // count)

    def joined(self, phase: Any, f: Any, across: bool) -> Any:
        """What :meth:`parted` takes apart."""
        count = math.prod(self.phases)
        if count == 1:
            return f
        return phase * self._own + f if self.by_phase(across) else f * count + phase

    def taps_of(self, phase: Any, taps: Sequence[Any]) -> list[Any]:
        """What holds of those taps that a phase has."""
        sizes = zip(self.tap_of(phase, taps), self.problem.kernel, self.kernel, self.phases,
                    strict=True)  # fmt: skip
        return [t < whole for t, whole, k, s in sizes if k * s > whole]

    def packs(self, across: bool) -> bool:
        """Whether the filter is copied into the order in which it is read."""
        return across or self.problem.dtype != self.problem.accumulate or set(self.phases) != {1}

    def result_of(self, at: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Of a pixel of the result, the number of its phase, and its place among those of it."""
        if set(self.phases) == {1}:
            return 0, list(at)
        phase: Any = 0
        place = []
        for i, low, s, q in zip(at, self.problem.padding, self.phases, self._first, strict=False):
            low, q = (0, 0) if self.apart else (low, q)
            phase = phase * s + (i + low) % s
            place.append((i + low) // s - q)
        return phase, place

    def tap_of(self, phase: Any, taps: Sequence[Any]) -> list[Any]:
        """Which taps of the filter the taps of a phase are, those beyond the last included."""
        each = zip(taps, self.kernel, self.phases, self._begins(phase), strict=True)
        return [(k - 1 - t) * s + at % s if s > 1 else k - 1 - t for t, k, s, at in each]

    def _begins(self, phase: Any) -> list[Any]:
        """By dimension, the number of a phase's first result, counted from a multiple of the
        stride before the padding's first."""
        found = []
        padding = self.problem.padding[: len(self.phases)]
        for s, low in zip(reversed(self.phases), reversed(padding), strict=True):
            found.append(phase % s + (low % s if self.apart else 0) if s > 1 else 0)
            phase = phase // s
        return found[::-1]

    def shifts(self, phase: Any) -> list[Any]:
        """By dimension, how many pixels later than others a phase reads."""
        each = zip(self.phases, self._begins(phase), strict=True)
        return [at // s if self.apart and s > 1 else 0 for s, at in each]

    @once
    def _late(self) -> list[int]:
        """By dimension, the most of :meth:`shifts`."""
        each = zip(self.phases, self.problem.padding, strict=False)
        return [int(self.apart and low % s > 0) for s, low in each]

    @once
    def stored(self) -> tuple[int, ...]:
        """Planes, where there are some, rows and columns that are stored of a phase: what windows
        of whole rows see, and of the first one more, which results beyond the last column read and
        nobody uses. What lies behind a row, or a plane, is the padding before the next one: as much
        of it is not stored by itself.
        """
        seen = [
            r + (k - 1) * d // s
            for r, k, d, s in zip(
                self.result, self.kernel, self.dilation, self.stride, strict=True
            )
        ]  # fmt: skip
        behind = [
            max(0, min(low, e - low - size, e - r)) if s == 1 else 0
            for e, low, size, r, s in zip(
                seen, self.before, self.image, self.result, self.stride, strict=True
            )
        ]  # fmt: skip
        first, *rest = (e - n for e, n in zip(seen, [0, *behind[1:]], strict=True))
        return (first + 1, *rest)

    def extents(self, across: bool) -> tuple[int, ...]:
        """Planes, where there are some, rows and columns that are stored: of a phase where vectors
        lie along pixels, and where they lie across channels all that windows see, with what those
        of one more row of results do."""
        if not across:
            return self.stored
        each = zip(self.result, self.stride, self.kernel, self.dilation, self._late, strict=True)
        first, *rest = ((r - 1) * s + (k - 1) * d + 1 + more for r, s, k, d, more in each)
        return (first + self.stride[0], *rest)

    @once
    def results(self) -> int:
        """Results that are computed of a channel of an image where vectors lie along pixels."""
        return self.result[0] * math.prod(self.stored[1:])

    def flat(self, place: Sequence[Any]) -> Any:
        """The number of a pixel by its row and column, or plane, row and column."""
        return numbered(place, self.stored)

    def place(self, flat: Any) -> list[Any]:
        """What :meth:`flat` has the number of."""
        return placed(flat, self.stored)


def numbered(place: Sequence[Any], extents: Sequence[int]) -> Any:
    """The number of an element of an array by its place."""
    found = place[0]
    for index, extent in zip(place[1:], extents[1:], strict=True):
        found = found * extent + index
    return found


def placed(number: Any, extents: Sequence[int]) -> list[Any]:
    """What :func:`numbered` has the number of."""
    found: list[Any] = []
    for extent in extents[:0:-1]:
        found.append(number % extent)
        number = number // extent
    return [number, *reversed(found)]


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


def _declare(p: Convolution, across: bool, given: Any) -> FlatDeclaration:
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


def weight_of(
    w: FlatWindows, filter: Tensor, g: Any, f: Any, r: Any, taps: Sequence[Any], across: bool
) -> Any:
    """What channel ``f`` of a group multiplies channel ``r`` that it reads with, at a tap."""
    p, (per, own) = w.problem, w.filters
    if p.pass_ != "dgrad":
        return filter[p.filter_place(g * per + f, r, list(taps)[-p.rank :])]
    phase, f = w.parted(f, across)
    read = filter[p.filter_place(g * own + r, f, w.tap_of(phase, taps)[-p.rank :])]
    inside = w.taps_of(phase, taps)
    return or_zero(inside, read)


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

    made: Tensor
    if w.joins(across):
        made = te.compute(
            (n, math.prod(extents) * c), lambda b, m: element(b, m % c, placed(m // c, extents)),
            name="Rows", varargs_names="bq",
        )  # fmt: skip
    elif w.planar(across):
        made = te.compute(
            (n, c, math.prod(extents)), lambda b, r, q: element(b, r, placed(q, extents)),
            name="Rows", varargs_names="brq",
        )  # fmt: skip
    elif across:
        made = te.compute(
            (n, math.prod(extents), c), lambda b, q, r: element(b, r, placed(q, extents)),
            name="Rows", varargs_names="bqr",
        )  # fmt: skip
    else:
        made = te.compute(
            (n, c, *w.stride, math.prod(extents)), of_phase, name="Rows",
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
        wide = _LANES if per > _LANES else per
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
FORMS = {"flat": declare_flat, "across": declare_across}
