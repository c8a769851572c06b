"""ONNX's Einsum: products of matrices, of what is moved and summed before and after."""

from __future__ import annotations

import math
import string
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.builder import cast, constant, reshape
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.onnx.products import matmul
from tilewright.graph.value import Value

#: A tensor, and a letter for each of its dimensions.
Term = tuple[str, Value]


def _letters(n: Operation) -> tuple[list[str], str]:
    """The letters of each operand, and of the result, with some for what ``...`` stands for."""
    equation = n.attribute("equation").decode().replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(n.operands):
        raise n.error(f"{equation!r} is of {len(terms)} operands, not {len(n.operands)}")
    free = [c for c in string.ascii_letters if c not in equation]
    ranks = [x.rank - len(t.replace("...", "")) for t, x in zip(terms, n.operands, strict=True)]
    most = max([r for t, r in zip(terms, ranks, strict=True) if "..." in t], default=0)
    if min(ranks) < 0 or any(r and "..." not in t for t, r in zip(terms, ranks, strict=True)):
        raise n.error(f"{equation!r} does not fit tensors of {[x.rank for x in n.operands]}"
                      " dimensions")  # fmt: skip
    rest = "".join(free[:most])
    terms = [t.replace("...", rest[most - r :]) for t, r in zip(terms, ranks, strict=True)]
    if not arrow:
        joined = "".join(terms)
        right = "..." + "".join(sorted(c for c in set(joined) - set(rest) if joined.count(c) == 1))
    right = right.replace("...", rest)
    if not (set("".join((*terms, right))) <= set(string.ascii_letters)) or (
        len(set(right)) < len(right) or not set(right) <= set("".join(terms))
    ):
        raise n.error(f"{equation!r} is no equation of letters, each once behind the arrow")
    return terms, right


def _diagonal(n: Operation, letters: str, x: Value) -> Term:
    """Without letters that are there twice: elements whose indices there are equal."""
    for c in dict.fromkeys(letters):
        while letters.count(c) > 1:
            a = letters.index(c)
            b = letters.index(c, a + 1)
            size = x.shape[a]
            if x.shape[b] != size:
                raise n.error(f"{c} is of {size} and of {x.shape[b]} elements")
            others = [d for d in range(x.rank) if d not in (a, b)]
            flat = n("transpose", x, axes=(a, b, *others))
            flat = reshape(flat, (size * size, *flat.shape[2:]))
            x = n("take", flat, constant(np.arange(size, dtype="int32") * (size + 1)), axis=0)
            letters = c + "".join(letters[d] for d in others)
    return letters, x


def _summed(n: Operation, term: Term, kept: set[str]) -> Term:
    """Summed over the letters that nobody needs."""
    letters, x = term
    axes = tuple(d for d, c in enumerate(letters) if c not in kept)
    if not axes:
        return term
    return "".join(c for c in letters if c in kept), n("sum", x, axis=axes, keepdims=False)


def _ordered(n: Operation, term: Term, letters: str) -> Value:
    axes = tuple(term[0].index(c) for c in letters)
    return n("transpose", term[1], axes=axes) if axes else term[1]


def _product(n: Operation, a: Term, b: Term, kept: set[str]) -> Term:
    """The product of two tensors, as matrices in batches, summed over the letters of both that
    nobody needs."""
    both = [c for c in a[0] if c in b[0]]
    batch = "".join(c for c in both if c in kept)
    inner = "".join(c for c in both if c not in kept)
    a, b = (_summed(n, t, kept | set(both)) for t in (a, b))
    rows, columns = ("".join(c for c in t[0] if c not in both) for t in (a, b))
    x, y = _ordered(n, a, batch + rows + inner), _ordered(n, b, batch + inner + columns)
    size = {c: e for t in (a, b) for c, e in zip(t[0], t[1].shape, strict=True)}

    def count(letters: str) -> int:
        return math.prod(size[c] for c in letters)

    x = reshape(x, (*(size[c] for c in batch), count(rows), count(inner)))
    y = reshape(y, (*(size[c] for c in batch), count(inner), count(columns)))
    letters = batch + rows + columns
    return letters, reshape(matmul(n, x, y), tuple(size[c] for c in letters))


def _einsum(n: Operation) -> Value:
    terms, result = _letters(n)
    found = [_diagonal(n, t, x) for t, x in zip(terms, n.operands, strict=True)]
    size: dict[str, int] = {}
    for letters, x in found:
        for c, e in zip(letters, x.shape, strict=True):
            if size.setdefault(c, e) != e and 1 not in (size[c], e):
                raise n.error(f"{c} is of {size[c]} and of {e} elements")
            size[c] = max(size[c], e)
    # A dimension of one element beside a larger one is repeated: it has nothing to say.
    wide = [_narrow(letters, x, size) for letters, x in found]
    first, *rest = wide
    for k, term in enumerate(rest):
        later = set(result).union(*(t[0] for t in rest[k + 1 :]))
        first = _product(n, first, term, later)
    first = _summed(n, first, set(result))
    return cast(_ordered(n, first, result), n[0].dtype)


def _narrow(letters: str, x: Value, size: dict[str, int]) -> Term:
    kept = [d for d, c in enumerate(letters) if x.shape[d] == size[c]]
    return "".join(letters[d] for d in kept), reshape(x, tuple(x.shape[d] for d in kept))


CONVERTERS: dict[str, Callable[[Operation], Any]] = {"Einsum": _einsum}
