"""What is computed already, and what may be computed at any time."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from tilewright.codegen.llvm.builder import Value
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr

_Table = dict[tuple[str, Expr], Value]
_PURE, _PARTIAL, _EFFECT = 0, 1, 2


class Known:
    """Values of expressions at the current point of a function, by form ("index" or "expr").

    A region of code has a table of its own, forgotten at its end. What was read from memory is
    forgotten wherever memory may have changed.
    """

    def __init__(self) -> None:
        self._known: list[_Table] = [{}]
        self._loaded: list[_Table] = [{}]
        self._sums: list[dict[Hashable, Value]] = [{}]
        self._effects: dict[Expr, int] = {}

    @contextmanager
    def region(self) -> Iterator[None]:
        """Code that does not dominate what follows it: its values are forgotten afterwards."""
        self._sums.append({})
        try:
            with self.turn():
                yield
        finally:
            self._sums.pop()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Code in which variables have values of their own, that dominates what follows it: what
        is known of registers lasts, what is known of expressions is forgotten."""
        self._known.append({})
        self._loaded.append({})
        try:
            yield
        finally:
            self._known.pop()
            self._loaded.pop()

    def recall_sum(self, key: Hashable) -> Value | None:
        """What was kept under ``key``, which speaks of registers and not of variables."""
        for sums in reversed(self._sums):
            found = sums.get(key)
            if found is not None:
                return found
        return None

    def keep_sum(self, key: Hashable, value: Value) -> None:
        """Note what is computed of registers."""
        self._sums[-1][key] = value

    def forget_loads(self) -> None:
        """Memory may have changed."""
        for loaded in self._loaded:
            loaded.clear()

    def recall(self, form: str, e: Expr) -> Value | None:
        """The value of ``e`` where it is known."""
        effects = self.effects(e)
        if effects < _EFFECT:
            for known in reversed(self._loaded if effects else self._known):
                found = known.get((form, e))
                if found is not None:
                    return found
        return None

    def keep(self, form: str, e: Expr, value: Value) -> None:
        """Note the value of ``e``."""
        effects = self.effects(e)
        if effects < _EFFECT:
            (self._loaded if effects else self._known)[-1][form, e] = value

    def effects(self, e: Expr) -> int:
        """0 for what can always be evaluated, :data:`_PARTIAL` for what may fail (loads),
        :data:`_EFFECT` for calls of C."""
        found = self._effects.get(e)
        if found is None:
            found = max(map(self.effects, _operands(e)), default=_PURE)
            match e:
                case E.Load():
                    found = max(found, _PARTIAL)
                case E.Call(_, name, _) if name.startswith("extern:"):
                    found = _EFFECT
            self._effects[e] = found
        return found

    def partial(self, e: Expr) -> bool:
        """Whether ``e`` must not be evaluated where the program does not."""
        return self.effects(e) > _PURE


def _operands(e: Expr) -> Iterator[Expr]:
    names: tuple[str, ...] = e.__match_args__
    for name in names:
        value = getattr(e, name)
        if isinstance(value, Expr):
            yield value
        elif isinstance(value, tuple):
            yield from (x for x in value if isinstance(x, Expr))


def fixed_divisor(d: Expr) -> int | None:
    """A constant divisor other than zero (and -1, whose quotient may overflow)."""
    if isinstance(d, E.Broadcast):
        d = d.value
    return d.value if isinstance(d, E.IntImm) and d.value not in (0, -1) else None
