"""Depthwise convolution tap by tap, the columns of the filter split among some threads.

The stages are those of MegEngine's direct convolution (article 001): ``Image``, the padded image;
``Taps``, the filter, its columns in :data:`PARTS` parts; ``Parts``, what each part adds to every
result; ``Sums``, which adds up the parts. A gradient by the input is declared alike: with stride 1
it is a convolution with the rotated filter, with a larger one the results of each phase are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.depthwise_dgrad import Gather, gathers
from tilewright.topi.operators.conv import Conv

#: Parts of a filter's columns: threads that share a row of results.
PARTS = 4
#: Elements of the widest vector.
_VECTOR = 8


@dataclass(frozen=True)
class Along:
    """One dimension: result ``group`` of a phase is the sum over ``taps`` of what stands at
    ``group * step + t * spread + offset(phase)`` of the image, times :meth:`tap` of the filter."""

    groups: int
    phases: int
    taps: int
    step: int
    spread: int
    extent: int
    padding: int
    gather: Gather | None

    def offset(self, phase: Any) -> Any:
        """The image's element that the first tap of the first result of a phase meets."""
        if self.gather is None:
            return -self.padding
        if self.gather.stride == 1:
            return self.padding - self.gather.reach
        return self.gather.base(phase) - self.gather.reach

    def tap(self, phase: Any, t: Any) -> Any:
        """The filter's tap."""
        return t if self.gather is None else self.gather.tap(phase, t)

    def conditions(self, phase: Any, t: Any) -> list[Any]:
        """Where there is such a tap; ``t`` may be larger than there are taps."""
        found = [] if self.gather is None else self.gather.conditions(phase, t)
        return [t < self.taps, *found]


def along(p: Conv) -> tuple[Along, Along]:
    """The two dimensions of a forward pass or a gradient by the input."""
    if p.pass_ == "dgrad":
        down, across = (
            Along(g.groups, g.stride, g.taps, 1, g.dilation // g.common, extent, g.padding, g)
            for g, extent in zip(gathers(p), p.out_image, strict=True)
        )
    else:
        down, across = (
            Along(p.out_image[k], 1, p.kernel[k], p.stride[k], p.dilation[k], p.image[k],
                  p.padding[k], None)
            for k in range(2)
        )  # fmt: skip
    return down, across


@dataclass(frozen=True)
class Direct:
    """How a problem is cut.

    Parameters
    ----------
    rows, columns : the results of a thread.
    down, across : how many such tiles are computed, or multiples.
    taps : the rows of the filter that are met at once.
    wide : whether the image is kept in the type of sums.
    """

    problem: Conv
    rows: int
    columns: int
    down: int
    across: int
    taps: int
    wide: bool

    @cached_property
    def along(self) -> tuple[Along, Along]:
        return along(self.problem)

    @property
    def part(self) -> int:
        """Columns of the filter in one part: a multiple of two, where there are two, as vectors
        of them are contiguous then."""
        least = -(-self.along[1].taps // PARTS)
        return least + least % 2 if least > 1 else least

    @property
    def steps(self) -> int:
        """Times that ``taps`` rows of the filter are met."""
        return -(-self.along[0].taps // self.taps)

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of results that are computed together."""
        return self.rows * self.down, self.columns * self.across

    @property
    def blocks(self) -> tuple[int, int]:
        """How many of them are of a phase, down and across."""
        down, across = (
            -(-a.groups // size) for a, size in zip(self.along, self.block, strict=True)
        )
        return down, across

    def seen(self, k: int, results: int) -> int:
        """Elements of the image along a dimension that the results read, with taps that fill
        up the filter, and columns that fill up vectors."""
        a = self.along[k]
        taps = self.steps * self.taps if k == 0 else PARTS * self.part
        found = (results - 1) * a.step + (taps - 1) * a.spread + 1
        return found if k == 0 else -(-found // _VECTOR) * _VECTOR


@dataclass(frozen=True)
class DirectStages:
    """The stages, in which results have the indices (n, c, vertical phase, horizontal phase, row,
    column)."""

    image: Tensor
    taps: Tensor
    parts: Tensor
    sums: Tensor


def depthwise_direct(cut: Direct, image: Tensor, filter: Tensor) -> DirectStages:
    """The sums of a problem in NCHW.

    Parameters
    ----------
    image : x, or dy for a gradient by the input, whose multiplier is 1.
    filter : (C, multiplier, KH, KW).
    """
    p, (down, across) = cut.problem, cut.along
    phases = down.phases, across.phases
    high, wide = (count * size for count, size in zip(cut.blocks, cut.block, strict=True))
    batch, channels = image.shape[0], image.shape[1]
    kept = p.accumulate if cut.wide else p.dtype

    def pixel(n: Any, c: Any, a: Any, b: Any, i: Any, j: Any) -> Any:
        y, x = i + down.offset(a), j + across.offset(b)
        inside = te.all(y >= 0, y < down.extent, x >= 0, x < across.extent)
        return te.if_then_else(inside, image[n, c, y, x].astype(kept), te.const(0, kept))

    padded = te.compute(
        (batch, channels, *phases, cut.seen(0, high), cut.seen(1, wide)),
        pixel, name="Image", tag="pad", varargs_names=["n", "c", "a", "b", "i", "j"],
    )  # fmt: skip
    m = p.multiplier

    def tap(c: Any, a: Any, b: Any, t: Any, u: Any) -> Any:
        there = te.all(*down.conditions(a, t), *across.conditions(b, u))
        read = filter[c // m, c % m, down.tap(a, t), across.tap(b, u)]
        return te.if_then_else(there, read.astype(p.accumulate), te.const(0, p.accumulate))

    taps = te.compute(
        (p.result_channels, *phases, cut.steps * cut.taps, PARTS * cut.part),
        tap, name="Taps", tag="filter", varargs_names=["c", "a", "b", "t", "u"],
    )  # fmt: skip
    to = te.reduce_axis((0, cut.steps), "to")
    ti, ui = te.reduce_axis((0, cut.taps), "ti"), te.reduce_axis((0, cut.part), "ui")

    def part(n: Any, c: Any, a: Any, b: Any, h: Any, w: Any, k: Any) -> Any:
        t, u = to * cut.taps + ti, k * cut.part + ui
        read = padded[
            n, c // m, a, b, h * down.step + t * down.spread, w * across.step + u * across.spread
        ]
        # Rows of the filter are left out that meet no row of the image in any row of the tile.
        first = h // cut.rows * cut.rows * down.step + to * (cut.taps * down.spread)
        first = first + down.offset(a)
        last = first + (cut.rows - 1) * down.step + (cut.taps - 1) * down.spread
        return te.sum(
            read.astype(p.accumulate) * taps[c, a, b, t, u],
            axis=[to, ti, ui],
            where=te.all(last >= 0, first < down.extent),
        )

    results = (batch, p.result_channels, *phases, high, wide)
    names = ["n", "c", "a", "b", "h", "w"]
    parts = te.compute((*results, PARTS), part, name="Parts", varargs_names=[*names, "k"])
    k = te.reduce_axis((0, PARTS), "k")
    sums = te.compute(
        results, lambda *i: te.sum(parts[(*i, k)], axis=k), name="Sums", varargs_names=names
    )
    return DirectStages(padded, taps, parts, sums)
