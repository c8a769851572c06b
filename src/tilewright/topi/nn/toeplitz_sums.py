"""How products with Toeplitz matrices are added up: in one sum, or float32 in parts.

Tensor cores read 10 bits of the mantissa of a float32 (TF32, :mod:`tilewright.ir.tf32`). Each
factor is the sum of two such numbers, a small and a large one, and three of their four
products make up for what is left out: small by large, large by small, and, last, large by large.
The hardware rounds its sums towards zero, always to the same side, so that a sum over a whole
filter would lose digits that float32 has: it adds up one row of taps, from zero, and the rows are
added in float32 like any other numbers. What is infinite has no small part, and gives NaN. Where
the problem allows TF32, one product of rounded factors is all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.operators.conv import Conv

#: Moves a float32 by half of what TF32 tells apart, on average, so that it is the nearest that is
#: left of it more often than not; one that is TF32 stays what it is, and so does NaN.
_HALF_MORE = 1 + 11 * 2.0**-15

#: From the numbers of a row of products (two), of a column, and an output's indices: where the
#: image and the matrices are read, and the conditions under which the row counts.
Factors: TypeAlias = Callable[..., tuple[tuple[Any, ...], tuple[Any, ...], list[Any]]]


@dataclass(frozen=True)
class Sums:
    """The stages: ``sum`` of all products, and of float32 ``rows``, the sums of one row of taps,
    and ``parts`` of the image."""

    sum: Tensor
    rows: Tensor
    parts: Tensor


def is_split(p: Conv) -> bool:
    """Whether the factors of a problem's products are taken apart."""
    return p.dtype == "float32" and p.precision != "tf32"


def in_parts(p: Conv, x: Tensor, name: str) -> Tensor:
    """``x`` as sums of a small TF32 and a large one, along a first dimension of two; where the
    problem allows TF32, along one of one, rounded to one of the two nearest."""

    def part(number: Any, *at: Any) -> Any:
        if not is_split(p):
            return te.truncate_tf32(x[at] * _HALF_MORE)
        large = te.round_tf32(x[at])
        return te.select(number.equal(0), x[at] - large, large)

    made: Tensor = te.compute((2 if is_split(p) else 1, *x.shape), part, name=name)
    return made


def summed(
    p: Conv,
    image: Tensor,
    matrices: Tensor,
    shape: Sequence[Any],
    rows: Sequence[tuple[str, int]],
    depth: int,
    factors: Factors,
    meets: Callable[[Any, Any], list[Any]],
) -> Sums:
    """The sums of ``shape``, over ``rows`` by name and extent, and ``depth`` columns of each.

    ``meets(j, w)`` are the conditions under which column ``j`` and output ``w`` are of a block of
    the matrices that is not zero. The matrices are in parts too.
    """
    outer = [te.reduce_axis((0, extent), name=name) for name, extent in rows]
    j = te.reduce_axis((0, depth), name="j")

    def total(value: Callable[..., Any], over: Sequence[Any]) -> Tensor:
        def element(*at: Any) -> Any:
            where = factors(*outer, j, *at)[2]
            return te.sum(value(*at), axis=[*outer, *over], where=te.all(*where))

        made: Tensor = te.compute(tuple(shape), element, name="ToeplitzSum", tag="toeplitz")
        return made

    parts, terms = in_parts(p, image, "ImageParts"), 3 if is_split(p) else 1
    term = te.reduce_axis((0, terms), name="term")

    def row(*at: Any) -> Any:
        own, row = at[: len(shape)], at[len(shape) :]
        x, m, where = factors(*row, j, *own)
        left, right = ((term + 1) // 2, (term + 1) % 2) if terms == 3 else (term, term)
        return te.sum(
            te.truncate_tf32(parts[(left, *x)]) * te.truncate_tf32(matrices[(right, *m)]),
            axis=[term, j],
            where=te.all(*where, *meets(j, own[-1])),
        )

    one = te.compute((*shape, *(extent for _, extent in rows)), row, name="RowSum")
    return Sums(total(lambda *at: one[(*at, *outer)], []), one, parts)
