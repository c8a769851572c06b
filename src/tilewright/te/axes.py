"""Axes as declarations make them: which variable stands for which kind of axis."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Var
from tilewright.ir.itervar import IterVar

_kinds: WeakKeyDictionary[Var, str] = WeakKeyDictionary()


def declared(axis: IterVar) -> IterVar:
    """``axis``, whose variable is known from now on to be one of a loop."""
    _kinds[axis.var] = axis.kind
    return axis


def named(what: str, name: str) -> str:
    """``name``, of what it is; raises :class:`LanguageError` unless it is a text."""
    if not isinstance(name, str):
        raise LanguageError(f"the name of {what} is a text, got {name!r}")
    return name


def axis_kind(var: Var) -> str | None:
    """ "data", "reduce" or "thread" for the variable of an axis, None for any other."""
    return _kinds.get(var)
