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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.te import Tensor
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import or_zero
from tilewright.topi.once import once
from tilewright.topi.operators.convolution import Convolution

#: Channels of the widest vector.
LANES = 16


@dataclass(frozen=True)
class FlatWindows(Convolved):
    """A forward pass, or a gradient by the input, in groups; strides of such a gradient are 1, or
    2 or at most the taps where these lie side by side. Where its phases lie ``apart``, those of a
    pixel are the results that follow one another from a multiple of the strides on, and each phase
    reads from a place of its own; else results are those that read from the same place on, of which
    there are more."""

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
        few = self.filters[1] < LANES and p.groups == 1 and not p.is_quantized
        few = few and not self.planar(across)
        return across and bool(p.channels_last) and few and taps > 1 and self.dilation[-1] == 1

    def by_phase(self, across: bool) -> bool:
        """Whether sums of a phase lie together, of all channels of a group, so that a vector of
        them is of one phase; else those of a channel do."""
        return across and set(self.phases) != {1} and self._own % LANES == 0

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
