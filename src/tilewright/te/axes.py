"""Axes as declarations make them: which variable stands for which kind of axis."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from tilewright.ir.expr import Var
from tilewright.ir.itervar import IterVar

_kinds: WeakKeyDictionary[Var, str] = WeakKeyDictionary()


def declared(axis: IterVar) -> IterVar:
    """``axis``, whose variable is known from now on to be one of a loop."""
    _kinds[axis.var] = axis.kind
    return axis


def axis_kind(var: Var) -> str | None:
    """ "data", "reduce" or "thread" for the variable of an axis, None for any other."""
    return _kinds.get(var)
