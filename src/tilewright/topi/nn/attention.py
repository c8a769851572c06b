"""Attention as stages: scores, their softmax, and what it weighs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declared import Declared

if TYPE_CHECKING:
    from tilewright.topi.operators.attention import Attention

#: Powers are of 2, which takes fewer instructions: exp(x) = 2 ** (x * _BITS).
_BITS = 1 / math.log(2)
#: The sum of exponentials of a row that attends to no key, so that 0 is divided by no 0; others
#: have one that is 1.
_LEAST = 1e-30


@dataclass(frozen=True)
class AttentionDeclaration(Declared):
    """Stages over (batch, head, row), and a key or an element of a value.

    Attributes
    ----------
    q, k, v : queries, keys and values of all heads, whatever way they lie: inlined, or copied.
    scores : sums of products of queries and keys.
    masked : scores that are scaled, with what the mask adds, in bits; minus infinity where a row
        does not attend to a key.
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


class Fill(NamedTuple):
    """What rows, keys, and the elements of a query and of a value are filled up to multiples of,
    with zeros: what instructions multiply."""

    rows: int = 1
    keys: int = 1
    depth: int = 1
    width: int = 1

    def of(self, p: Attention) -> tuple[int, int, int, int]:
        """The extents of a problem, filled up."""
        extents = p.rows, p.keys, p.depth, p.width
        rows, keys, depth, width = (-(-n // f) * f for n, f in zip(extents, self, strict=True))
        return rows, keys, depth, width


def declare_attention(
    p: Attention, rounded: bool = False, fill: Fill = Fill()
) -> AttentionDeclaration:
    """The program of a problem; powers are ``rounded`` to the type of values, as tensor cores
    multiply them, or stay in that of sums."""
    inputs = {name: te.placeholder(t.shape, t.dtype, name=name) for name, t in p.inputs().items()}
    kind, group = p.accumulate, p.heads // p.kv_heads
    least = te.min_value(kind)

    rows, keys, depth, width = fill.of(p)

    def operand(
        place: int, extents: tuple[int, int], filled: tuple[int, int], shared: int
    ) -> Tensor:
        def read(b: Any, h: Any, s: Any, d: Any) -> Any:
            if p.is_packed:
                return inputs["qkv"][b, s, place, h, d]
            x = inputs["qkv"[place]]
            return x[b, h // shared, s, d] if p.layout == "BHSD" else x[b, s, h // shared, d]

        def element(b: Any, h: Any, s: Any, d: Any) -> Any:
            beyond = [i < n for i, n, f in zip((s, d), extents, filled, strict=True) if f > n]
            zero = te.const(0, p.dtype)
            return (
                te.if_then_else(te.all(*beyond), read(b, h, s, d), zero)
                if beyond
                else read(b, h, s, d)
            )

        shape = (p.batch, p.heads, *filled)
        made: Tensor = te.compute(shape, element, name="QKV"[place], tag="injective")
        return made

    q = operand(0, (p.rows, p.depth), (rows, depth), 1)
    k = operand(1, (p.keys, p.depth), (keys, depth), group)
    v = operand(2, (p.keys, p.width), (keys, width), group)
    every = (p.batch, p.heads, rows)
    d = te.reduce_axis((0, depth), "d")
    scores = te.compute(
        (*every, keys),
        lambda b, h, i, j: te.sum(q[b, h, i, d].astype(kind) * k[b, h, j, d].astype(kind), axis=d),
        name="Scores",
    )

    def masked_score(b: Any, h: Any, i: Any, j: Any) -> Any:
        value = scores[b, h, i, j] * te.const(p.scaled_by * _BITS, kind)
        if p.mask:
            at = (b, h, i, j)[4 - len(p.mask) :]
            place = [0 if e == 1 else x for e, x in zip(p.mask, at, strict=True)]
            if len(place) == 4 and 1 < p.mask[0] < p.batch:
                place[0] = b % p.mask[0]
            given = inputs["mask"][tuple(place)]
            beyond = [x < n for x, n, f in ((i, p.rows, rows), (j, p.keys, keys)) if f > n]
            if beyond:
                given = te.if_then_else(te.all(*beyond), given, te.const(0, given.dtype))
            value = (
                te.select(given, value, least)
                if p.mask_dtype
                else value + given.astype(kind) * _BITS
            )
        value = te.select(j <= i, value, least) if p.causal else value
        return te.select(j < p.keys, value, least) if keys > p.keys else value

    masked = te.compute((*every, keys), masked_score, name="Masked", tag="elementwise")
    j = te.reduce_axis((0, keys), "j")
    largest = te.compute(every, lambda b, h, i: te.max(masked[b, h, i, j], axis=j), name="Largest")
    # Of a row that attends to nothing, minus infinity less a number is minus infinity still.
    finite = te.const(-3e38, kind)
    powers = te.compute(
        (*every, keys),
        lambda b, h, i, j: te.exp2(masked[b, h, i, j] - te.max(largest[b, h, i], finite)),
        name="Powers", tag="elementwise",
    )  # fmt: skip
    factors = None
    if rounded and p.dtype != kind:
        factors = te.compute(
            powers.shape, lambda *at: powers[at].astype(p.dtype), name="Factors", tag="elementwise"
        )
    j = te.reduce_axis((0, keys), "j")
    total = te.compute(every, lambda b, h, i: te.sum(powers[b, h, i, j], axis=j), name="Total")
    share = te.compute(
        every, lambda *at: 1 / te.max(total[at], te.const(_LEAST, kind)), name="Share",
        tag="elementwise",
    )  # fmt: skip
    j = te.reduce_axis((0, keys), "j")
    weighted = te.compute(
        (*every, width),
        lambda b, h, i, e: te.sum(
            (factors or powers)[b, h, i, j].astype(kind) * v[b, h, j, e].astype(kind), axis=j
        ),
        name="Weighted",
    )

    def result(*at: Any) -> Any:
        b, h, i, e = at if p.layout == "BHSD" else (at[0], at[2], at[1], at[3])
        return (weighted[b, h, i, e] * share[b, h, i]).astype(p.dtype)

    out = te.compute(p.result.shape, result, name="Attention", tag="elementwise")
    return AttentionDeclaration(
        p,
        inputs,
        out,
        q,
        k,
        v,
        scores,
        masked,
        largest,
        powers,
        factors,
        total,
        share,
        weighted,
    )


#: The declarations of this module, by name.
FORMS: dict[str, Callable[[Attention], AttentionDeclaration]] = {
    "rounded": lambda p: declare_attention(p, rounded=True),
}
