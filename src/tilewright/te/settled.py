"""Where index arithmetic becomes the value of an element.

Axes, extents and constants are computed with as integers without end; the value of an element has
a type. The two meet where an index is stored, converted, or combined with data, and there it is
brought into its type: what does not fit wraps around. So an element is the same number whether its
tensor is kept in memory or computed where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.arith.spans import Spans, type_span
from tilewright.ir import expr as E
from tilewright.ir.dtype import dtype, wrapped
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.itervar import IterVar
from tilewright.ir.visit import Rewriter, children, exprs

_INT64 = dtype("int64")


def settled(name: str, body: tuple[Expr, ...], axes: Sequence[IterVar]) -> tuple[Expr, ...]:
    """The values of the elements of ``name``, indices that do not fit their type wrapped around.

    Raises :class:`LanguageError` where an index may not fit 64 bits.
    """
    if not any(_loose(e) for e in body):
        return body
    spans = Spans()
    for e in body:
        for part in exprs(e):
            if isinstance(part, Var) and part.exact and part.dtype.is_int:
                spans.learn(part, type_span(part.dtype))
    reduced = [a for e in body if isinstance(e, E.Reduce) for a in e.axes]
    for axis in (*axes, *reduced):
        if axis.dom is not None:
            low, high = spans.span(axis.dom.min), spans.span(axis.dom.extent)
            spans.learn(axis.var, (low[0], max(low[0], low[1] + high[1] - 1)))
    rewriter = _Settle(name, spans)
    return tuple(rewriter.value(e) for e in body)


def _loose(e: Expr) -> bool:
    """Whether an index is a value somewhere in ``e``."""
    return _index(e) or any(_index(x) for node in exprs(e) if not node.exact for x in _values(node))


def _index(e: Expr) -> bool:
    if not (e.exact and e.dtype.is_int):
        return False
    # Arithmetic on constants is done when it is written.
    return not isinstance(e, E.IntImm) or e.value != wrapped(e.value, e.dtype)


def _values(node: Expr) -> Iterator[Expr]:
    """The operands of a node that are values: not what a load is addressed by."""
    if not isinstance(node, Load):
        for child in children(node):
            assert isinstance(child, Expr)
            yield child


class _Settle(Rewriter):
    def __init__(self, name: str, spans: Spans) -> None:
        self.name, self.spans = name, spans

    def value(self, e: Expr) -> Expr:
        """``e`` as a value of its type."""
        if not e.exact:
            return self.expr(e)
        if not e.dtype.is_int or self.spans.fits(e):
            return e
        if e.dtype.bits == 64:
            low, high = self.spans.span(e)
            raise LanguageError(
                f"compute {self.name}: {e} is between {low} and {high}, beyond what 64 bits hold: "
                "compute it of data, or of smaller axes"
            )
        if isinstance(e, E.IntImm):
            return E.IntImm(e.dtype, wrapped(e.value, e.dtype))
        return E.Cast(e.dtype, E.Cast(_INT64.with_lanes(e.dtype.lanes), e))

    def expr(self, e: Expr) -> Expr:
        if e.exact:
            return e
        if isinstance(e, Load):
            return super().expr(e)
        return _Operands(self).operands(e)


class _Operands(Rewriter):
    """Rebuilds one node of settled operands."""

    def __init__(self, settle: _Settle) -> None:
        self.settle = settle

    def operands(self, e: Expr) -> Expr:
        return super().expr(e)

    def expr(self, e: Expr) -> Expr:
        return self.settle.value(e)
