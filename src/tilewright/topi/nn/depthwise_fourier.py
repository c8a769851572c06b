"""Depthwise convolution by way of its spectrum: Fourier transforms as products of matrices.

With a period so long that nothing comes around that matters, the transform of a convolution is the
product of the transforms. Each transform in two dimensions is two products with tables of cosines
and sines, of the rows and of the columns, and costs the same whatever the size of the filter.
Strides, dilations and paddings are the places at which the tables are taken, so that forward pass
and both gradients differ in nothing else; that by the filter adds up spectra over the batch before
it goes back. What is not finite in an image spreads over all of its channel's results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.problem import Problem

#: Matrices are filled up with zeros to multiples of so many in what is summed over.
DEPTH = 8


@dataclass(frozen=True)
class Places:
    """Where the elements of a dimension stand: ``i * scale + offset``."""

    extent: int
    scale: int = 1
    offset: int = 0

    def at(self, i: Any) -> Any:
        return i * self.scale + self.offset

    @property
    def ends(self) -> tuple[int, int]:
        first, last = self.offset, self.at(self.extent - 1)
        return min(first, last), max(first, last)


@dataclass(frozen=True)
class Along:
    """One dimension: results stand at the place of the first operand's element less, or with
    ``less`` False plus, that of the second's."""

    first: Places
    second: Places
    result: Places
    less: bool

    @property
    def period(self) -> int:
        """The smallest multiple of 4 beyond which no sum of places comes around to a result."""
        (low, high), (near, far) = self.first.ends, self.second.ends
        least, most = (low - far, high - near) if self.less else (low + near, high + far)
        start, end = self.result.ends
        return -(-(max(most - start, end - least) + 1) // 4) * 4


def along(p: Problem) -> tuple[Along, Along]:
    """The two dimensions of a problem."""
    made = []
    for k in range(2):
        image, out = Places(p.image[k]), Places(p.out_image[k], p.stride[k])
        taps = Places(p.kernel[k], p.dilation[k])
        if p.pass_ == "forward":
            made.append(Along(image, taps, _moved(out, -p.padding[k]), True))
        elif p.pass_ == "dgrad":
            made.append(Along(out, taps, _moved(image, p.padding[k]), False))
        else:
            made.append(Along(image, out, _moved(taps, -p.padding[k]), True))
    return made[0], made[1]


def _moved(places: Places, by: int) -> Places:
    return Places(places.extent, places.scale, places.offset + by)


@dataclass(frozen=True)
class Product:
    """``sums[b, i, j]``, over k, of ``left[.., i, k] * right[.., k, j]``: one of them is a table,
    the other data, of a batch ``b`` or, where ``sums`` has two dimensions, of one."""

    sums: Tensor
    left: Tensor
    right: Tensor

    @property
    def operands(self) -> tuple[Tensor, Tensor]:
        return self.left, self.right


@dataclass(frozen=True)
class FourierStages:
    """The products one after another, the stage that multiplies spectra, and all tables."""

    products: list[Product]
    spectrum: Tensor
    tables: list[Tensor]

    @property
    def last(self) -> Product:
        return self.products[-1]


@dataclass(frozen=True)
class Fourier:
    """How a problem is cut: all matrices are filled up to multiples of ``rows`` by ``columns``."""

    problem: Problem
    rows: int
    columns: int

    @property
    def periods(self) -> tuple[int, int]:
        down, across = along(self.problem)
        return down.period, across.period

    @property
    def half(self) -> int:
        """Frequencies across that are kept; the others are conjugate to them. A multiple of 4."""
        return -(-(self.periods[1] // 2 + 1) // 4) * 4


class _Builder:
    def __init__(self, cut: Fourier) -> None:
        self.cut, self.products, self.tables = cut, list[Product](), list[Tensor]()
        self.total = cut.problem.accumulate
        self.period, self.half = cut.periods, cut.half

    def wave(self, place: Any, frequency: Any, k: int) -> tuple[Any, Any]:
        """Cosine and sine of the angle of a place at a frequency of dimension ``k``."""
        turn = te.floormod(place * frequency, self.period[k]).astype(self.total)
        angle = turn * (2 * math.pi / self.period[k])
        return te.cos(angle), te.sin(angle)

    def table(
        self, shape: tuple[int, int], own: tuple[int, int], element: Any, name: str
    ) -> Tensor:
        """A matrix of ``element``, ``own`` large, filled up to ``shape``."""

        def value(i: Any, j: Any) -> Any:
            inside = te.all(i < own[0], j < own[1])
            return te.if_then_else(inside, element(i, j), te.const(0, self.total))

        made: Tensor = te.compute(shape, value, name=name, varargs_names=["i", "j"])
        self.tables.append(made)
        return made

    def data(self, shape: tuple[Any, ...], own: tuple[Any, ...], element: Any, name: str) -> Tensor:
        """The data's matrices, filled up."""

        def value(*at: Any) -> Any:
            inside = [i < n for i, n, whole in zip(at, own, shape, strict=True) if n is not whole]
            read = element(*at).astype(self.total)
            if not inside:
                return read
            return te.if_then_else(te.all(*inside), read, te.const(0, self.total))

        names = ["b", "i", "j"][-len(shape) :]
        made: Tensor = te.compute(shape, value, name=name, varargs_names=names)
        return made

    def flat(self, left: Tensor, right: Tensor, name: str) -> Tensor:
        """Rows of data by a table."""
        k = te.reduce_axis((0, int(right.shape[0])), "k")
        made: Tensor = te.compute(
            (left.shape[0], right.shape[1]),
            lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name=name,
        )  # fmt: skip
        self.products.append(Product(made, left, right))
        return made

    def batched(self, left: Tensor, right: Tensor, name: str) -> Tensor:
        """A table by columns of data."""
        k = te.reduce_axis((0, int(left.shape[1])), "k")
        made: Tensor = te.compute(
            (right.shape[0], left.shape[0], right.shape[2]),
            lambda b, i, j: te.sum(left[i, k] * right[b, k, j], axis=k), name=name,
        )  # fmt: skip
        self.products.append(Product(made, left, right))
        return made

    def spectra(self, image: Any, batch: Any, places: tuple[Places, Places], name: str) -> Tensor:
        """(batch, 2 * period, half), filled up: frequencies down, each as its real and its
        imaginary part, by frequencies across. ``image`` reads (image of the batch, row, column)."""
        (down, across), cut = places, self.cut
        high, wide, half = down.extent, across.extent, self.half
        rows = self.data(
            (_up(batch * high, cut.rows), _up(wide, DEPTH)), (batch * high, wide),
            lambda i, k: image(i // high, i % high, k), f"{name}Rows",
        )  # fmt: skip

        def turned(k: Any, j: Any) -> Any:
            cos, sin = self.wave(across.at(k), j % half, 1)
            return te.Select(j < half, cos, 0.0 - sin)

        across_table = self.table(
            (_up(wide, DEPTH), _up(2 * half, cut.columns)), (wide, 2 * half), turned,
            f"{name}Across",
        )  # fmt: skip
        halves = self.flat(rows, across_table, f"{name}Half")

        def pairs(b: Any, k: Any, j: Any) -> Any:
            return halves[b * high + k // 2, k % 2 * half + j]

        columns = self.data(
            (batch, _up(2 * high, DEPTH), _up(half, cut.columns)), (batch, 2 * high, half), pairs,
            f"{name}Columns",
        )  # fmt: skip
        down_table = self.table(
            (_up(2 * self.period[0], cut.rows), _up(2 * high, DEPTH)),
            (2 * self.period[0], 2 * high),
            lambda i, k: _complex(*self.wave(down.at(k // 2), i // 2, 0), i, k, -1),
            f"{name}Down",
        )
        return self.batched(down_table, columns, f"{name}Spectrum")

    def images(self, spectrum: Tensor, batch: Any, places: tuple[Places, Places]) -> Tensor:
        """(batch * rows, columns), filled up: what has a spectrum, at the places of results."""
        (down, across), cut, half = places, self.cut, self.half
        high, (period, whole) = down.extent, self.period
        down_table = self.table(
            (_up(2 * high, cut.rows), 2 * period), (2 * high, 2 * period),
            lambda i, k: _complex(*self.wave(down.at(i // 2), k // 2, 0), i, k, 1), "ResultDown",
        )  # fmt: skip
        halves = self.batched(down_table, spectrum, "ResultHalf")
        rows = self.data(
            (_up(batch * high, cut.rows), 2 * half), (batch * high, 2 * half),
            lambda i, j: halves[i // high, i % high * 2 + j // half, j % half], "ResultRows",
        )  # fmt: skip

        def turned(j: Any, x: Any) -> Any:
            v = j % half
            cos, sin = self.wave(across.at(x), v, 1)
            # The frequencies that are not kept count with their conjugates.
            alone = te.any(v.equal(0), v.equal(whole // 2))
            weight = te.Select(alone, *(te.const(w / (whole * period), self.total) for w in (1, 2)))
            value = te.Select(j < half, cos, 0.0 - sin) * weight
            return te.Select(v <= whole // 2, value, te.const(0, self.total))

        across_table = self.table(
            (2 * half, _up(across.extent, cut.columns)), (2 * half, across.extent), turned,
            "ResultAcross",
        )  # fmt: skip
        return self.flat(rows, across_table, "Sums")


def _complex(cos: Any, sin: Any, i: Any, k: Any, sign: int) -> Any:
    """What part ``k % 2`` of a number adds to part ``i % 2`` of its product with
    ``cos + sign * 1j * sin``."""
    same = (i % 2).equal(k % 2)
    up, down = (sin, 0.0 - sin) if sign > 0 else (0.0 - sin, sin)
    return te.Select(same, cos, te.Select((i % 2).equal(1), up, down))


def depthwise_fourier(cut: Fourier, first: Tensor, second: Tensor) -> FourierStages:
    """The result of a problem in NCHW as a matrix: ((n * channels + c) * rows + row, column) or, in
    the gradient by the filter, (filter * rows + row, column), filled up.

    Parameters
    ----------
    first : x; or dy for a gradient by the input, whose multiplier is 1.
    second : the filter (C, multiplier, KH, KW); or dy for a gradient by the filter.
    """
    p, b = cut.problem, _Builder(cut)
    (down, across), m = along(p), p.multiplier
    batch, channels = first.shape[0], p.channels
    own = channels if p.pass_ != "dgrad" else p.out_channels

    def of_first(i: Any, y: Any, x: Any) -> Any:
        return first[i // own, i % own, y, x]

    def of_second(i: Any, y: Any, x: Any) -> Any:
        if p.pass_ == "wgrad":
            return second[i // p.out_channels, i % p.out_channels, y, x]
        return second[i // m, i % m, y, x]

    count = batch * p.out_channels if p.pass_ == "wgrad" else p.out_channels
    one = b.spectra(of_first, batch * own, (down.first, across.first), "First")
    two = b.spectra(of_second, count, (down.second, across.second), "Second")
    sign = 1 if down.less else -1

    def multiplied(i: Any, j: Any, r: Any, v: Any) -> Any:
        part = r % 2
        turned = one[i, r - part + 1 - part, v] * two[j, r - part + 1, v]
        real = one[i, r, v] * two[j, r - part, v]
        return real + te.Select(part.equal(0), turned * float(sign), turned * float(-sign))

    shape = (2 * cut.periods[0], _up(cut.half, cut.columns))
    results = p.out_channels if p.pass_ != "dgrad" else channels
    if p.pass_ == "wgrad":
        n = te.reduce_axis((0, batch), "n")
        spectrum = te.compute(
            (results, *shape),
            lambda c, r, v: te.sum(
                multiplied(n * own + c // m, n * results + c, r, v), axis=n
            ),
            name="Multiplied", varargs_names=["c", "r", "v"],
        )  # fmt: skip
        count = results
    else:
        count = batch * results
        spectrum = te.compute(
            (count, *shape),
            lambda i, r, v: multiplied(
                i // results * own + i % results // m if m > 1 else i, i % results, r, v
            ),
            name="Multiplied", varargs_names=["i", "r", "v"],
        )  # fmt: skip
    b.images(spectrum, count, (down.result, across.result))
    return FourierStages(b.products, spectrum, b.tables)


def multiplications(p: Problem) -> int:
    """Of all transforms of a problem, without what fills up matrices."""
    cut = Fourier(p, 1, 1)
    (down, across), half, period = along(p), cut.half, cut.periods[0]

    def one(y: Places, x: Places) -> int:
        return 2 * half * y.extent * x.extent + 4 * period * y.extent * half

    batches = {
        "forward": (p.batch * p.channels, p.out_channels, p.batch * p.out_channels),
        "dgrad": (p.batch * p.out_channels, p.out_channels, p.batch * p.channels),
        "wgrad": (p.batch * p.channels, p.batch * p.out_channels, p.out_channels),
    }[p.pass_]
    places = zip((down.first, down.second, down.result), (across.first, across.second,
                 across.result), strict=True)  # fmt: skip
    return sum(count * one(y, x) for count, (y, x) in zip(batches, places, strict=True))


def _up(extent: Any, whole: int) -> Any:
    return (extent + (whole - 1)) // whole * whole
