"""Stores as text of a C-like language."""

from __future__ import annotations

from tilewright.codegen.c_like_text import code
from tilewright.codegen.c_like_vector import VectorPrinter, as_ramp
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir import stmt as S
from tilewright.ir.expr import Expr
from tilewright.ir.visit import loads, rewrite_exprs


class StorePrinter(VectorPrinter):
    """Prints stores: of scalars, of vectors by as few accesses as there can be, under masks."""

    def store(self, s: S.Store) -> None:
        """Add the lines of a store."""
        lanes = max((i.dtype.lanes for i in s.indices), default=1)
        lanes = max(lanes, s.value.dtype.lanes)
        match s.predicate:
            case E.Broadcast(condition, _):
                self._under(condition, S.Store(s.buffer, s.indices, s.value))
            case None if lanes == 1:
                self._store_scalar(s)
            case None:
                self._store_vector(s, lanes)
            case condition if lanes == 1:
                self._under(condition, S.Store(s.buffer, s.indices, s.value))
            case mask:
                self._store_masked(s, lanes, mask)

    def _store_scalar(self, s: S.Store) -> None:
        d, name = self.dialect, self.name_of(s.buffer)
        at = self.expr(s.indices[0])
        match s.value:
            case E.Add(E.Load(buffer, indices, None), x) if (
                buffer is s.buffer and indices[0] is s.indices[0] and d.updates_in_place(buffer)
            ):
                self.line(f"{name}[{at}] += {self.expr(x)};")
            case value:
                self.line(d.store(s.buffer, name, at, self.expr(value)))

    def _lane_store(self, s: S.Store, value: Expr, i: int) -> S.Store:
        """The store of lane ``i``."""
        return S.Store(s.buffer, (self.lane(s.indices[0], i),), self.lane(value, i))

    def _store_vector(self, s: S.Store, lanes: int) -> None:
        d = self.dialect
        value = s.value if s.value.dtype.lanes == lanes else E.Broadcast(s.value, lanes)
        self.prepare(value)
        width = self.width(value.dtype)
        access = self.access(s.buffer, s.indices[0])
        base, k = access or (s.indices[0], 1)
        clobbers = any(
            x.buffer is s.buffer and x not in self.hoisted and x.indices[0] is not s.indices[0]
            for x in loads(value)
        )
        if value not in self.hoisted and (clobbers or width > k):
            self.hold(value)
        if access is None:
            for i in range(lanes):
                self._store_scalar(self._lane_store(s, value, i))
            return
        held = self.hoisted.get(value)
        if held is not None and held.width == k and d.vector_name(s.buffer.dtype, k):
            parts = [code(text) for text in held.texts]
        else:
            width = min(width, k)
            subvectors = self.subvectors(value, width)
            each = k // width
            t = value.dtype.with_lanes(k)
            groups = [subvectors[i : i + each] for i in range(0, len(subvectors), each)]
            parts = [group[0] if each == 1 else d.pack(t, group) for group in groups]
        ramp = E.Ramp(base, ops.const(1, base.dtype), lanes)
        aligned = d.needs_alignment(s.buffer) and self.at_multiple(base, k)
        for i, part in enumerate(parts):
            at = self.expr(self.lane(ramp, i * k))
            self.line(d.store_vector(s.buffer, self.name_of(s.buffer), at, k, part, aligned))

    def _store_masked(self, s: S.Store, lanes: int, mask: Expr) -> None:
        """All lanes at once where none is off, else each under its own condition."""
        value = s.value if s.value.dtype.lanes == lanes else E.Broadcast(s.value, lanes)
        if self.access(s.buffer, s.indices[0]) is None:
            self._store_lanes(s, value, mask)
            return

        def unmasked(e: Expr) -> Expr | None:
            if isinstance(e, E.Load) and e.predicate is mask:
                return E.Load(e.buffer, e.indices, None)
            return None

        whole = S.Store(s.buffer, s.indices, rewrite_exprs(value, unmasked), None)
        self._under(self._all(mask), whole, closed=False)
        self.line("} else {")
        self.indent += 1
        self.names.push()
        self._store_lanes(s, value, mask)
        self.names.pop()
        self.indent -= 1
        self.line("}")

    def _store_lanes(self, s: S.Store, value: Expr, mask: Expr) -> None:
        """Each lane under its own condition; what is off is not evaluated either."""
        lanes = value.dtype.lanes
        self.hoisted = dict(self.vectors)
        self.prepare(mask)
        if _others(s, mask):  # lanes are read before any is written
            held = ops.select(mask, *(E.Broadcast(ops.const(k, "int32"), lanes) for k in (1, 0)))
            self.hold(held)
            mask = E.NE(held, E.Broadcast(ops.const(0, "int32"), lanes))
        if _others(s, value):
            zero = E.Broadcast(ops.const(0, value.dtype.element), lanes)
            value = E.IfThenElse(mask, value, zero)
            self.hold(value)
        for i in range(lanes):
            self._under(self.lane(mask, i), self._lane_store(s, value, i))

    def _all(self, mask: Expr) -> Expr:
        """Whether all lanes of a mask are on."""
        if isinstance(mask, E.And):
            return ops.logical_and(self._all(mask.a), self._all(mask.b))
        one = deciding_lane(mask)
        lanes = range(mask.dtype.lanes) if one is None else (one,)
        return ops.logical_and(*(self.lane(mask, i) for i in lanes))

    def _under(self, condition: Expr, s: S.Store, closed: bool = True) -> None:
        """A store inside ``if (condition)``; the closing brace is left out unless ``closed``."""
        self.line(f"if ({self.condition(condition)}) {{")
        self.indent += 1
        self.names.push()
        outer = self.hoisted
        self.hoisted = dict(outer)  # temporaries inside end with the block
        with self.analyzer.assume(condition):
            self.store(s)
        self.hoisted = outer
        self.names.pop()
        self.indent -= 1
        if closed:
            self.line("}")


def _others(s: S.Store, e: Expr) -> bool:
    """Whether ``e`` reads elements of what a store writes that another lane may write."""
    return any(x.buffer is s.buffer and x.indices[0] is not s.indices[0] for x in loads(e))


def deciding_lane(mask: Expr) -> int | None:
    """The lane that is off if any is, where the mask shows which one that is.

    >>> from tilewright.ir.expr import LT, Broadcast, Ramp, Var
    >>> i, n = Var.make("i"), Var.make("n")
    >>> deciding_lane(LT(Ramp(i * 4, ops.const(1), 4), Broadcast(n, 4)))
    3
    """
    if not isinstance(mask, (E.LT, E.LE, E.GT, E.GE)):
        return None
    left, right = as_ramp(mask.a), as_ramp(mask.b)
    if left is None or right is None:
        return None
    growth = ops.sub(left[1], right[1])
    if not isinstance(growth, E.IntImm):
        return None
    rising = growth.value > 0
    return mask.dtype.lanes - 1 if rising is isinstance(mask, (E.LT, E.LE)) else 0
