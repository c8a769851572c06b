"""Convolution over images whose rows are stored one behind the other, with their padding.

A tap then reads what lies a constant distance behind the pixel of a result, in whatever row that
is: windows of any rank are those of one dimension, and neighbouring results, be they of the same
row or not, read neighbouring pixels. In return, results are computed for the padding between rows,
too, and dropped. With a stride the pixels of a phase are stored side by side.

A gradient by the input with stride 1 is the convolution of dy with the filter rotated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.declared import Declared
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.convolution import OPERANDS, Convolution

#: What axes are called, of planes, rows and columns.
_LETTERS = "zyx"


@dataclass(frozen=True)
class FlatWindows(Convolved):
    """A forward pass, or a gradient by the input with stride 1, in groups."""

    @cached_property
    def filters(self) -> tuple[int, int]:
        """Channels of a group: of the result, and of what is convolved."""
        own = self.problem.channels // self.problem.groups
        found = (self.problem.multiplier, own)
        return found[::-1] if self.problem.pass_ == "dgrad" else found

    @cached_property
    def stored(self) -> tuple[int, ...]:
        """Planes, where there are some, rows and columns that are stored of a phase: what windows
        of whole rows see, and of the first one more, which results beyond the last column read and
        nobody uses."""
        seen = [
            r + (k - 1) * d // s
            for r, k, d, s in zip(
                self.result, self.kernel, self.dilation, self.stride, strict=True
            )
        ]  # fmt: skip
        return (seen[0] + 1, *seen[1:])

    @cached_property
    def results(self) -> int:
        """Results that are computed of a channel of an image."""
        return self.result[0] * math.prod(self.stored[1:])

    def flat(self, place: Sequence[Any]) -> Any:
        """The number of a pixel by its row and column, or plane, row and column."""
        found = place[0]
        for index, extent in zip(place[1:], self.stored[1:], strict=True):
            found = found * extent + index
        return found

    def place(self, flat: Any) -> list[Any]:
        """What :meth:`flat` has the number of."""
        found: list[Any] = []
        for extent in self.stored[:0:-1]:
            found.append(flat % extent)
            flat = flat // extent
        return [flat, *reversed(found)]


@dataclass(frozen=True)
class FlatDeclaration(Declared):
    """A convolution as windows of one dimension.

    ``sum`` is (batch, group, channel, pixel), or where vectors lie ``across`` channels (batch,
    group, pixel, channel). ``padded`` is the image, a row of ``row_stride`` pixels behind the
    other, in the type of sums; ``packed`` the filter in the order and the type in which it is read,
    None where it lies so.
    """

    problem: Convolution
    sum: Tensor
    padded: Tensor
    packed: Tensor | None
    across: bool
    row_stride: int


def declare_flat(p: Convolution, given: Any = None) -> FlatDeclaration:
    """The program of a problem whose vectors lie along pixels; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    return _declare(p, False, given)


def declare_across(p: Convolution, given: Any = None) -> FlatDeclaration:
    """The same, with vectors across channels of the result."""
    return _declare(p, True, given)


def _declare(p: Convolution, across: bool, given: Any) -> FlatDeclaration:
    w, images = FlatWindows(p), Images(p.layout)
    inputs = placeholders(p, given)
    image, filter = (inputs[name] for name in OPERANDS[p.pass_])
    per, own = w.filters
    stored = _stored(w, image, across)
    packed = _packed(w, filter, across) if across or p.dtype != p.accumulate else None
    rc = te.reduce_axis((0, own), "rc")
    letters = "dhw"[3 - len(w.kernel) :]
    taps = [te.reduce_axis((0, e), f"r{name}") for e, name in zip(w.kernel, letters, strict=True)]
    # What is next in memory is read next.
    order = [*taps, rc] if across or p.channels_last else [rc, *taps]
    shifts = [(t * d, s) for t, d, s in zip(taps, w.dilation, w.stride, strict=True)]
    phase = [x % s for x, s in shifts]
    behind = w.flat([x // s for x, s in shifts])

    def element(n: Any, g: Any, f: Any, q: Any) -> Any:
        c, at = g * own + rc, q + behind
        pixel = stored[(n, *phase, at, c) if across else (n, c, *phase, at)]
        if packed is None:
            weight = filter[_tap(w, g, f, rc, taps)]
        else:
            weight = packed[(g, *order, f) if across else (g, f, *order)]
        return te.sum(pixel * weight, axis=order)

    batch, groups, count = image.shape[0], p.groups, w.results
    if across:
        total = te.compute(
            (batch, groups, count, per), lambda n, g, q, f: element(n, g, f, q), name="Sums"
        )
    else:
        total = te.compute((batch, groups, per, count), element, name="Sums")

    def gathered(n: Any, c: Any, at: list[Any]) -> Any:
        g, f = (c // per, c % per) if groups > 1 else (te.const(0), c)
        q = w.flat([*[0] * (len(w.result) - len(at)), *at])
        return total[(n, g, q, f) if across else (n, g, f, q)]

    space = w.result[-p.rank :]
    result = images.compute(batch, groups * per, space, gathered, "Conv")
    output = finished(p, result, inputs)
    return FlatDeclaration(p, inputs, output, total, stored, packed, across, w.stored[-1])


def _tap(w: FlatWindows, g: Any, f: Any, r: Any, taps: Sequence[Any]) -> tuple[Any, ...]:
    """Where the filter has the tap of channel ``f`` of a group and channel ``r`` that it reads."""
    p, (per, own) = w.problem, w.filters
    kept = list(taps)[-p.rank :]
    if p.pass_ != "dgrad":
        return p.filter_place(g * per + f, r, kept)
    turned = [k - 1 - t for k, t in zip(w.kernel[-p.rank :], kept, strict=True)]
    return p.filter_place(g * own + r, f, turned)


def _stored(w: FlatWindows, image: Tensor, across: bool) -> Tensor:
    p, images = w.problem, Images(w.problem.layout)
    n, c, _ = images.meaning(image.shape)

    def element(b: Any, channel: Any, phase: Sequence[Any], q: Any) -> Any:
        at = [
            i * s + a - low
            for i, s, a, low in zip(w.place(q), w.stride, phase, w.before, strict=True)
        ]
        inside = [x for i, e in zip(at, w.image, strict=True) for x in (i >= 0, i < e)]
        read = image[images.order(b, channel, at[-p.rank :])]
        return te.if_then_else(te.all(*inside), read, te.const(0, p.dtype)).astype(p.accumulate)

    shape = (*w.stride, math.prod(w.stored))
    made: Tensor
    names = _LETTERS[-len(w.stride) :]
    if across:
        made = te.compute(
            (n, *shape, c), lambda b, *at: element(b, at[-1], at[:-2], at[-2]), name="Rows",
            varargs_names=["b", *names, "q", "r"],
        )  # fmt: skip
    else:
        made = te.compute(
            (n, c, *shape), lambda b, r, *at: element(b, r, at[:-1], at[-1]), name="Rows",
            varargs_names=["b", "r", *names, "q"],
        )  # fmt: skip
    return made


def _packed(w: FlatWindows, filter: Tensor, across: bool) -> Tensor:
    (per, own), groups, kind = w.filters, w.problem.groups, w.problem.accumulate

    def element(g: Any, f: Any, r: Any, *taps: Any) -> Any:
        return filter[_tap(w, g, f, r, taps)].astype(kind)

    names = _LETTERS[-len(w.kernel) :]
    made: Tensor
    if across:
        made = te.compute(
            (groups, *w.kernel, own, per), lambda g, *at: element(g, at[-1], at[-2], *at[:-2]),
            name="Packed", varargs_names=["g", *names, "r", "f"],
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
