"""What is computed already, and what may be computed at any time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from tilewright.codegen.llvm.builder import Value
from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.visit import contents

_PURE, _PARTIAL, _EFFECT = 0, 1, 2


class Known:
    """Values of expressions at the current point of a function, by form ("index" or "expr").

    A region of code has a table of its own, forgotten at its end. What was read from a buffer is
    forgotten wherever the buffer may have changed: buffers do not overlap.
    """

    def __init__(self) -> None:
        self._begin()
        self._effects: dict[Expr, int] = {}
        self._stores = 0  # so far
        self._stored: dict[Buffer, int] = {}  # the last one to each buffer

    def _begin(self) -> None:
        self._known: list[dict[tuple[str, Expr], Value]] = [{}]
        self._loaded: list[dict[tuple[str, Expr], tuple[Value, int]]] = [{}]
        self._sums: list[dict[Hashable, Value]] = [{}]
        self._read: list[dict[Hashable, tuple[Value, int]]] = [{}]
        #: The variables that each level brings into scope; None for a region.
        self._bound: list[set[Var] | None] = [None]

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Code of a function of its own, where nothing is known at first."""
        around = self._known, self._loaded, self._sums, self._read, self._bound
        self._begin()
        yield
        self._known, self._loaded, self._sums, self._read, self._bound = around

    @contextmanager
    def region(self) -> Iterator[None]:
        """Code that does not dominate what follows it: its values are forgotten afterwards."""
        self._sums.append({})
        self._read.append({})
        try:
            with self._level(None):
                yield
        finally:
            self._sums.pop()
            self._read.pop()

    @contextmanager
    def turn(self, var: Var) -> Iterator[None]:
        """Code in which ``var`` has a value of its own, that dominates what follows it: what is
        known of registers lasts, what is known of expressions of that variable is forgotten."""
        with self._level({var}):
            yield

    @contextmanager
    def _level(self, bound: set[Var] | None) -> Iterator[None]:
        self._known.append({})
        self._loaded.append({})
        self._bound.append(bound)
        try:
            yield
        finally:
            self._known.pop()
            self._loaded.pop()
            self._bound.pop()

    def binds(self, var: Var) -> None:
        """Note that ``var`` comes into scope here."""
        bound = self._bound[-1]
        if bound is not None:
            bound.add(var)

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

    def once_read(self, buffer: Buffer, key: Hashable, read: Callable[[], Value]) -> Value:
        """What ``read`` loads from ``buffer``, at a place that ``key`` says by its registers."""
        for known in reversed(self._read):
            found = known.get(key)
            if found is not None and found[1] >= self._stored.get(buffer, 0):
                return found[0]
        value = read()
        self._read[-1][key] = value, self._stores
        return value

    def forget_loads(self, buffer: Buffer | None = None) -> None:
        """``buffer`` may have changed, or all memory."""
        self._stores += 1
        if buffer is not None:
            self._stored[buffer] = self._stores
            return
        for loaded in self._loaded:
            loaded.clear()
        for read in self._read:
            read.clear()

    def recall(self, form: str, e: Expr) -> Value | None:
        """The value of ``e`` where it is known."""
        effects, key = self.effects(e), (form, e)
        if effects == _PURE:
            for known in reversed(self._known):
                value = known.get(key)
                if value is not None:
                    return value
        elif effects == _PARTIAL:
            for loaded in reversed(self._loaded):
                found = loaded.get(key)
                if found is not None:
                    changed = (self._stored.get(b, 0) for b in contents(e)[1])
                    return found[0] if found[1] >= max(changed, default=0) else None
        return None

    def keep(self, form: str, e: Expr, value: Value) -> None:
        """Note the value of ``e``, for as long as its variables keep theirs."""
        effects = self.effects(e)
        if effects == _EFFECT:
            return
        level = len(self._bound) - 1
        while (bound := self._bound[level]) is not None and bound.isdisjoint(contents(e)[0]):
            level -= 1
        if effects == _PURE:
            self._known[level][form, e] = value
        else:
            self._loaded[level][form, e] = value, self._stores

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
