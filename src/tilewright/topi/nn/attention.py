"""Attention as stages: scores, their softmax, and what it weighs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declared import Declared
from tilewright.topi.nn.images import or_zero

if TYPE_CHECKING:
    from tilewright.topi.operators.attention import Attention

#: Powers are of 2, which takes fewer instructions: exp(x) = 2 ** (x * _BITS).
_BITS = 1 / math.log(2)
#: The sum of powers of a row that attends to no key, so that 0 is divided by no 0; others have one
#: that is 1. And the least score where no number is added to it, so that minus infinity less the
#: largest score is that, not NaN.
_LEAST, _FINITE = 1e-30, -1e30


class Fill(NamedTuple):
    """What rows, keys, the elements of a query and of a value, and rows of values are filled up to
    multiples of, with zeros: what instructions multiply."""

    rows: int = 1
    keys: int = 1
    depth: int = 1
    width: int = 1
    values: int = 1

    def of(self, p: Attention) -> Fill:
        """The extents of a problem, filled up."""
        extents = p.rows, p.keys, p.depth, p.width, p.keys
        return Fill(*(-(-n // f) * f for n, f in zip(extents, self, strict=True)))


@dataclass(frozen=True)
class AttentionDeclaration(Declared):
    """Stages over (batch, head, row), and a key or an element of a value.

    Attributes
    ----------
    q, k, v : queries, keys and values of all heads, whatever way they lie: inlined, or copied.
    scores : sums of products of queries and keys.
    masked : scores as they are, or scaled, with what the mask adds; minus infinity where a row does
        not attend to a key.
    largest : of a row.
    powers : of 2, to what masked scores are less than the largest one.
    factors : these in the type of values, where tensor cores take them.
    total : the sum of a row's powers.
    share : of each power in a row, the inverse of that sum.
    weighted : the sum of values, times factors.
    """

    problem: Attention
    q: Tensor
    k: Tensor
    v: Tensor
    scores: Tensor
    masked: Tensor
    largest: Tensor
    powers: Tensor
    factors: Tensor | None
    total: Tensor
    share: Tensor
    weighted: Tensor


def declare_attention(
    p: Attention, rounded: bool = False, fill: Fill = Fill(), together: bool = False
) -> AttentionDeclaration:
    """The program of a problem; powers are ``rounded`` to the type of values, as tensor cores
    multiply them, or stay in that of sums. Of a causal one, rows that are filled up ``together``
    attend to no keys, by as many as are, behind those of the last."""
    inputs = {name: te.placeholder(t.shape, t.dtype, name=name) for name, t in p.inputs().items()}
    kind, whole = p.accumulate, fill.of(p)
    every = (p.batch, p.heads, whole.rows)
    given = p.dtype if rounded else kind
    q = _operand(p, inputs, 0, (whole.rows, whole.depth), given)
    k = _operand(p, inputs, 1, (whole.keys, whole.depth), given)
    v = _operand(p, inputs, 2, (whole.values, whole.width), given)
    scores, masked = _scores(p, inputs, q, k, whole)

    def seen(i: Any, j: Any) -> Any:
        """Whether any row of those with ``i`` attends to any key of those with ``j``."""
        if not (p.causal and together):
            return None
        return j // fill.keys <= (i // fill.rows * fill.rows + fill.rows - 1) // fill.keys

    j = te.reduce_axis((0, whole.keys), "j")
    largest = te.compute(
        every, lambda *i: te.max(masked[(*i, j)], axis=j, where=seen(i[-1], j)), name="Largest"
    )
    late = te.const(_factors(p)[1], kind)

    def power(*at: Any) -> Any:
        if _adds(p):  # whatever number it is, keys of a row whose sums are equal are so exactly
            least = te.const(float(np.finfo(kind).min), kind)
            return te.exp2((masked[at] - te.max(largest[at[:-1]], least)) * late)
        least = te.const(_FINITE, kind)
        return te.exp2(masked[at] * late - te.max(largest[at[:-1]], least) * late)

    powers = te.compute((*every, whole.keys), power, name="Powers", tag="elementwise")
    factors = None
    if rounded and p.dtype != kind:
        factors = te.compute(
            powers.shape, lambda *at: powers[at].astype(p.dtype), name="Factors", tag="elementwise"
        )
    j = te.reduce_axis((0, whole.values), "j")
    weighted = te.compute(
        (*every, whole.width),
        lambda b, h, i, e: te.sum(
            (factors or powers)[b, h, i, j].astype(kind) * v[b, h, j, e].astype(kind),
            axis=j,
            where=seen(i, j),
        ),
        name="Weighted",
    )
    j = te.reduce_axis((0, whole.keys), "j")
    total = te.compute(
        every, lambda *i: te.sum(powers[(*i, j)], axis=j, where=seen(i[-1], j)), name="Total"
    )
    share = te.compute(
        every, lambda *i: 1 / te.max(total[i], te.const(_LEAST, kind)), name="Share",
        tag="elementwise",
    )  # fmt: skip

    def result(*at: Any) -> Any:
        b, h, i, e = at if p.layout == "BHSD" else (at[0], at[2], at[1], at[3])
        return (weighted[b, h, i, e] * share[b, h, i]).astype(p.dtype)

    out = te.compute(p.result.shape, result, name="Attention", tag="elementwise")
    return AttentionDeclaration(
        p, inputs, out, q, k, v, scores, masked, largest, powers, factors, total, share, weighted,
    )  # fmt: skip


def _adds(p: Attention) -> bool:
    """Whether a mask of numbers is added to scores."""
    return bool(p.mask) and not p.mask_dtype


def _factors(p: Attention) -> tuple[float, float]:
    """What scores are multiplied with before the largest is found, and after: then it is one
    operation with the difference, if nothing was added and the largest stays the largest."""
    if _adds(p):
        return p.scaled_by, _BITS
    whole = p.scaled_by * _BITS
    return (whole, 1.0) if whole <= 0 else (1.0, whole)


def _operand(
    p: Attention, inputs: Mapping[str, Tensor], place: int, filled: tuple[int, int], kind: str
) -> Tensor:
    """Queries, keys or values of all heads, (batch, head, row, element), in a type that has all of
    them, filled up with zeros."""
    extents = (p.keys if place else p.rows, p.width if place == 2 else p.depth)
    group = p.heads // p.kv_heads if place else 1

    def read(b: Any, h: Any, s: Any, d: Any) -> Any:
        if p.is_packed:
            return inputs["qkv"][b, s, place, h, d]
        x = inputs["qkv"[place]]
        return x[b, h // group, s, d] if p.layout == "BHSD" else x[b, s, h // group, d]

    def element(b: Any, h: Any, s: Any, d: Any) -> Any:
        inside = [i < n for i, n, f in zip((s, d), extents, filled, strict=True) if f > n]
        value = read(b, h, s, d).astype(kind)
        if not inside:
            return value
        return or_zero(inside, value)

    shape = (p.batch, p.heads, *filled)
    made: Tensor = te.compute(shape, element, name="QKV"[place], tag="injective")
    return made


def _scores(
    p: Attention, inputs: Mapping[str, Tensor], q: Tensor, k: Tensor, whole: Fill
) -> tuple[Tensor, Tensor]:
    """Products of queries and keys, and these as the softmax reads them."""
    kind, least = p.accumulate, te.min_value(p.accumulate)
    d = te.reduce_axis((0, whole.depth), "d")
    shape = (p.batch, p.heads, whole.rows, whole.keys)
    scores = te.compute(
        shape,
        lambda b, h, i, j: te.sum(q[b, h, i, d].astype(kind) * k[b, h, j, d].astype(kind), axis=d),
        name="Scores",
    )

    def element(b: Any, h: Any, i: Any, j: Any) -> Any:
        value = scores[b, h, i, j] * te.const(_factors(p)[0], kind)
        if p.mask:
            at = (b, h, i, j)[4 - len(p.mask) :]
            place = [0 if e == 1 else x for e, x in zip(p.mask, at, strict=True)]
            if len(place) == 4 and 1 < p.mask[0] < p.batch:
                place[0] = b % p.mask[0]
            given = inputs["mask"][tuple(place)]
            limits = ((i, p.rows, whole.rows), (j, p.keys, whole.keys))
            inside = [x < n for x, n, f in limits if f > n]
            if inside:
                given = or_zero(inside, given)
            if p.mask_dtype:
                value = te.select(given, value, least)
            else:
                value = value + given.astype(kind)
        value = te.select(j <= i, value, least) if p.causal else value
        return te.select(j < p.keys, value, least) if whole.keys > p.keys else value

    return scores, te.compute(shape, element, name="Masked", tag="elementwise")


#: The declarations of this module, by name.
FORMS: dict[str, Callable[..., AttentionDeclaration]] = {
    "rounded": lambda p, given: declare_attention(p, rounded=True),
}
