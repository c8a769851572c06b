"""Two products with a function of elements between them, as stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright import te
from tilewright.ir.expr import IntImm
from tilewright.te import Tensor
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.declared import Declared
from tilewright.topi.nn.images import Images, or_zero
from tilewright.topi.nn.steps import apply_step

if TYPE_CHECKING:
    from tilewright.topi.operators.mlp import Mlp


class MlpFill(NamedTuple):
    """What extents are filled up to multiples of, with zeros: what instructions multiply."""

    rows: Any = 1
    depth: int = 1
    hidden: int = 1
    columns: int = 1

    def of(self, p: Mlp, rows: Any) -> MlpFill:
        """The extents of a problem, which has ``rows``, filled up."""
        known = zip((p.k, p.hidden, p.n), self[1:], strict=True)
        whole = rows if self.rows == 1 else (rows + self.rows - 1) // self.rows * self.rows
        return MlpFill(whole, *(-(-n // f) * f for n, f in known))


class Normalization(NamedTuple):
    """Rows as they are given, filled up, and of each its sum, the sum of squares of what its
    elements are more than their mean, and the inverse of their deviation."""

    given: Tensor
    total: Tensor
    squares: Tensor
    share: Tensor


@dataclass(frozen=True)
class MlpDeclaration(Declared):
    """Stages over rows, and elements of what is hidden or columns.

    Attributes
    ----------
    a, b, c : the factors, filled up: inlined, or copied.
    norm : where rows are normalised, the stages of that, of which ``a`` is the last.
    inner : sums of the first product.
    hidden : what the function makes of them, rounded to the type of factors.
    product : sums of the second.
    numbers : what the function reads of each hidden element.
    """

    problem: Mlp
    a: Tensor
    b: Tensor
    c: Tensor
    norm: Normalization | None
    inner: Tensor
    hidden: Tensor
    product: Tensor
    numbers: tuple[Tensor, ...]


def declare_mlp(p: Mlp, fill: MlpFill = MlpFill(), given: Any = None) -> MlpDeclaration:
    """The program of a problem; ``given`` as for convolutions."""
    inputs, kind = placeholders(p, given), p.accumulate
    (rows, *_), columns = _extents(inputs["a"]), p.n
    whole = fill.of(p, rows)
    a = _filled(inputs["a"], (whole.rows, whole.depth), "A")
    norm = _normalization(p, a) if p.norm else None
    if norm is not None:
        a = _normalized(p, norm)
    b = _filled(inputs["b"], (whole.hidden, whole.depth), "B")
    c = _filled(inputs["c"], (whole.hidden, whole.columns), "C")
    d = te.reduce_axis((0, whole.depth), "d")
    inner = te.compute(
        (whole.rows, whole.hidden),
        lambda i, j: te.sum(a[i, d].astype(kind) * b[j, d].astype(kind), axis=d),
        name="Inner",
    )
    read = {
        name.removeprefix("inner_"): _filled(x, (whole.hidden,), name.title().replace("_", ""))
        for name, x in inputs.items() if name.startswith("inner_")
    }  # fmt: skip
    made = inner
    for step in p.steps:
        made = apply_step(step, made, Images(p.layout), read)
    hidden = te.compute(
        inner.shape, lambda *at: made[at].astype(p.dtype), name="Hidden", tag="elementwise"
    )
    j = te.reduce_axis((0, whole.hidden), "j")
    product = te.compute(
        (whole.rows, whole.columns),
        lambda i, e: te.sum(hidden[i, j].astype(kind) * c[j, e].astype(kind), axis=j),
        name="Product",
    )
    total = product
    if (whole.rows, whole.columns) != (rows, columns):
        total = te.compute((rows, columns), lambda *at: product[at], name="Kept", tag="elementwise")
    out = finished(p, total, inputs)
    if out is product:  # a stage of its own stores it
        out = te.compute(out.shape, lambda *at: product[at], name="Result", tag="elementwise")
    numbers = tuple(read.values())
    return MlpDeclaration(p, inputs, out, a, b, c, norm, inner, hidden, product, numbers)


def _filled(x: Tensor, shape: tuple[Any, ...], name: str) -> Tensor:
    """A tensor, filled up with zeros."""
    limits = _extents(x)

    def element(*at: Any) -> Any:
        inside = [i < n for i, n, f in zip(at, limits, shape, strict=True) if f is not n and f != n]
        return or_zero(inside, x[at])

    made: Tensor = te.compute(shape, element, name=name, tag="injective")
    return made


def _extents(x: Tensor) -> list[Any]:
    """The extents of a tensor, as numbers where they are known."""
    return [e.value if isinstance(e, IntImm) else e for e in x.shape]


def _normalization(p: Mlp, x: Tensor) -> Normalization:
    """What rows are normalised with, in the type of sums."""
    kind, rows = p.accumulate, (x.shape[0],)
    k = te.reduce_axis((0, p.k), "k")
    total = te.compute(rows, lambda i: te.sum(x[i, k].astype(kind), axis=k), name="Total")
    k = te.reduce_axis((0, p.k), "k")

    def squares(i: Any) -> Any:
        more = x[i, k].astype(kind) - total[i] * te.const(1 / p.k, kind)
        return te.sum(more * more, axis=k)

    found = te.compute(rows, squares, name="Squares")

    def inverse(i: Any) -> Any:
        return te.rsqrt(found[i] * te.const(1 / p.k, kind) + te.const(float(p.norm), kind))

    share = te.compute(rows, inverse, name="Share", tag="elementwise")
    return Normalization(x, total, found, share)


def _normalized(p: Mlp, n: Normalization) -> Tensor:
    """Normalised rows, filled up with zeros: others might be infinite in the type of factors."""
    kind, filled = p.accumulate, int(n.given.shape[1]) > p.k

    def element(i: Any, e: Any) -> Any:
        more = n.given[i, e].astype(kind) - n.total[i] * te.const(1 / p.k, kind)
        made = (more * n.share[i]).astype(p.dtype)
        return or_zero([e < p.k], made) if filled else made

    made: Tensor = te.compute(n.given.shape, element, name="Normalized", tag="elementwise")
    return made
