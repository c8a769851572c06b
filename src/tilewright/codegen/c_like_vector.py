"""Vector expressions as text of a C-like language.

A vector is a list of subvectors. What one access of memory moves becomes a temporary first
(:meth:`VectorPrinter.prepare`); arithmetic then works on as many lanes of it at once as the
language has operators for, else lane by lane, each lane a scalar expression. Whatever is evaluated
only under a condition is not taken out of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from tilewright.arith.conditions import conjuncts
from tilewright.codegen.c_like_dialect import Dialect
from tilewright.codegen.c_like_expr import ExpressionPrinter
from tilewright.codegen.c_like_text import BIT_AND, Code, code
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Expr, Var
from tilewright.ir.visit import exprs


@dataclass(frozen=True, slots=True)
class Subvectors:
    """A vector held in temporaries of ``width`` lanes each."""

    texts: tuple[str, ...]
    width: int


def as_ramp(e: Expr) -> tuple[Expr, Expr] | None:
    """(base, stride) where ``e`` is ``base + lane * stride``, stride a constant or loop-invariant.

    >>> from tilewright.ir.expr import Broadcast, Ramp, Var
    >>> i = Var.make("i")
    >>> as_ramp(Ramp(i, ops.const(1), 4) * 2 + Broadcast(i, 4))
    (i * 2 + i, 2)
    """
    match e:
        case E.Ramp(base, stride, _):
            return base, stride
        case E.Broadcast(value, _):
            return value, ops.const(0, value.dtype)
        case E.Add(a, b) | E.Sub(a, b):
            left, right = as_ramp(a), as_ramp(b)
            if left and right:
                combine = ops.add if isinstance(e, E.Add) else ops.sub
                return combine(left[0], right[0]), combine(left[1], right[1])
        case E.Mul(a, b):
            left, right = as_ramp(a), as_ramp(b)
            if left and right:
                if ops.is_const(right[1], 0):
                    return ops.mul(left[0], right[0]), ops.mul(left[1], right[0])
                if ops.is_const(left[1], 0):
                    return ops.mul(left[0], right[0]), ops.mul(left[0], right[1])
        case E.Cast(t, value):
            inner = as_ramp(value)
            if inner and t.is_int and value.dtype.is_int and t.bits >= value.dtype.bits:
                return ops.cast(t.element, inner[0]), ops.cast(t.element, inner[1])
    return None


class VectorPrinter(ExpressionPrinter):
    """Prints vectors.

    ``hoisted`` holds the vector expressions that are in temporaries while a statement is printed,
    ``vectors`` the vector variables in scope.
    """

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self.hoisted: dict[Expr, Subvectors] = {}
        self.vectors: dict[Expr, Subvectors] = {}

    def lane(self, e: Expr, i: int) -> Expr:
        """Lane ``i`` of ``e`` as a scalar expression; ``e`` itself where it is a scalar."""
        if e.dtype.lanes == 1:
            return e
        if e in self.hoisted:
            return E.Lane(e, i)
        match e:
            case E.Ramp(base, stride, _):
                step = ops.mul(stride, ops.const(i, stride.dtype))
                if isinstance(base, E.Add) and isinstance(base.b, E.IntImm):
                    return ops.add(base.a, ops.add(base.b, step))
                return ops.add(base, step)
            case E.Broadcast(value, _):
                return value
            case E.Concat(values):
                return values[i]
            case E.Load(buffer, indices, predicate):
                on = None if predicate is None else self.lane(predicate, i)
                return E.Load(buffer, tuple(self.lane(x, i) for x in indices), on)
            case E.Cast(t, value):
                return E.Cast(t.element, self.lane(value, i))
            case E.Call(t, name, args):
                return E.Call(t.element, name, tuple(self.lane(a, i) for a in args))
            case E.LetExpr(var, value, body):
                if var.dtype.lanes == 1:
                    return E.LetExpr(var, value, self.lane(body, i))
                mine = var.like(var.dtype.element)
                return E.LetExpr(mine, self.lane(value, i), _put_lane(self, body, var, mine, i))
        fields: tuple[str, ...] = type(e).__match_args__
        parts = [getattr(e, field) for field in fields]
        made: Expr = type(e)(*(self.lane(part, i) for part in parts))
        return made

    def expr(self, e: Expr) -> Code:
        if isinstance(e, E.Lane):
            if e.vector not in self.hoisted:
                return self.expr(self.lane(e.vector, e.index))
            return self._part(self.hoisted[e.vector], e.vector.dtype, e.index, 1)
        lane = _widened(e) if isinstance(e, E.Cast) else e
        if isinstance(lane, E.Lane) and lane.vector in self.hoisted:
            held = self.hoisted[lane.vector]
            text, index = held.texts[lane.index // held.width], lane.index % held.width
            made = self.dialect.cast_part(e.dtype, text, lane.dtype, held.width, index)
            if made is not None:
                return made
        return super().expr(e)

    def _part(self, held: Subvectors, t: DType, index: int, width: int) -> Code:
        """Lanes ``index`` to ``index + width - 1`` of a vector in temporaries."""
        d, k = self.dialect, held.width
        if width > k:
            parts = [self._part(held, t, i, k) for i in range(index, index + width, k)]
            return d.pack(t.with_lanes(width), parts)
        text = held.texts[index // k]
        if width == k:
            return code(text)
        return d.part(text, t.element, k, index % k, width)

    def width(self, t: DType) -> int:
        """The width of the subvectors in which arithmetic on vectors of type ``t`` is done."""
        width = self.dialect.width(t)
        while t.lanes % width:
            width //= 2
        return width

    def subvectors(self, e: Expr, width: int) -> list[Code]:
        """``e`` as expressions of ``width`` lanes each; call :meth:`prepare` before."""
        lanes = e.dtype.lanes
        if width == 1:
            return [self.expr(self.lane(e, i)) for i in range(lanes)]
        starts = range(0, lanes, width)
        held = self.hoisted.get(e)
        if held is not None:
            return [self._part(held, e.dtype, i, width) for i in starts]
        d, t = self.dialect, e.dtype.with_lanes(width)
        rounded = self._rounded(e, width)
        if rounded:
            return rounded
        match e:
            case E.Broadcast(value, _):
                return [d.splat(t, self.expr(value))] * len(starts)
            case E.Mul(a, E.Broadcast(E.FloatImm(_, -1.0), _)) if d.native(E.Sub, t):
                return [d.negate(t, x) for x in self.subvectors(a, width)]
            case E.Binary(a, b) if d.native(type(e), t) and _defined(e):
                pairs = zip(self.subvectors(a, width), self.subvectors(b, width), strict=True)
                return [d.binary(type(e), t, x, y) for x, y in pairs]
            case E.Cast(_, value):
                source = value.dtype.with_lanes(width)
                if self.width(value.dtype) == width:
                    cast = [d.vector_cast(t, source, x) for x in self.subvectors(value, width)]
                    done = [x for x in cast if x is not None]
                    if len(done) == len(cast):
                        return done
            case E.Call(_, name, args):
                if all(a.dtype.element is t.element for a in args):
                    columns = zip(*(self.subvectors(a, width) for a in args), strict=True)
                    called = [d.vector_function(name, t, list(column)) for column in columns]
                    found = [x for x in called if x is not None]
                    if len(found) == len(called):
                        return found
        scalars = self.subvectors(e, 1)
        return [d.pack(t, scalars[i : i + width]) for i in starts]

    def _rounded(self, e: Expr, width: int) -> list[Code]:
        """Integers that the language rounds and packs at once; empty where it does not."""
        match e:
            case E.Cast(
                t, E.Call(via, "nearbyint", (x,)) | E.Cast(via, E.Call(_, "nearbyint", (x,)))
            ):
                if via is not x.dtype and via.kind not in ("int", "uint"):
                    return []  # a bool is 1 of all numbers, and floats of 8 bits are rounded
                lanes = range(t.lanes)
                each = [self.dialect.saturated(t.element, self.lane(x, i)) for i in lanes]
                known = [y for y in each if y is not None]
                if len(known) == t.lanes:
                    texts, pack = [self.expr(y) for _, y in known], self.dialect.pack_nearest
                    parts = (texts[i : i + width] for i in lanes[::width])
                    return [pack(t.with_lanes(width), known[0][0], part) for part in parts]
        return []

    def hold(self, e: Expr, wanted: str = "v") -> None:
        """Evaluate a vector into temporaries."""
        width = self.width(e.dtype)
        t = e.dtype.with_lanes(width)
        texts = tuple(self.temporary(wanted, t, x) for x in self.subvectors(e, width))
        self.hoisted[e] = Subvectors(texts, width)

    # What must be evaluated first

    def prepare(self, e: Expr) -> None:
        """Put into temporaries what one access can load, and what lanes have in common.

        ``e`` is evaluated unconditionally.
        """
        if e.dtype.lanes == 1 or e in self.hoisted:
            return
        match e:
            case E.Load(buffer, _, None):
                self._prepare_load(buffer, e)
            case E.Load(_, _, E.Broadcast(condition, lanes)):
                plain = E.Load(e.buffer, e.indices, None)
                zero = E.Broadcast(ops.const(0, e.dtype.element), lanes)
                if self._loads_vector(plain):
                    self._branch(e, condition, plain, zero)
            case E.IfThenElse(E.Broadcast(condition, _), on_true, on_false):
                self._prepare_choice(e, condition, on_true, on_false)
            case E.IfThenElse(condition, on_true, on_false):
                if condition.dtype.lanes == 1:
                    self._prepare_choice(e, condition, on_true, on_false)
                else:
                    self.prepare(condition)
            case E.And(a, _) | E.Or(a, _):
                self.prepare(a)
            case E.Broadcast(value, lanes):
                if isinstance(value, (E.Load, E.Call, E.LetExpr, E.Select)):
                    name = value.buffer.name if isinstance(value, E.Load) else "s"
                    width = self.width(e.dtype)
                    t = value.dtype.with_lanes(width)
                    held = (
                        self.expr(value) if width == 1 else self.dialect.splat(t, self.expr(value))
                    )
                    held = self.temporary(name + "_s", t, held)
                    self.hoisted[e] = Subvectors((held,) * (lanes // width), width)
            case E.LetExpr(var, value, body) if var.dtype.lanes > 1:
                self.prepare(value)
                self.hold(value, var.name)
                self.hoisted[var] = self.hoisted[value]
                self._prepare_alias(e, body)
            case E.LetExpr(var, value, body):
                self.declare(var, self.expr(value))
                self._prepare_alias(e, body)
            case E.Cast(_, value):
                self.prepare(value)
                width = self.width(value.dtype)
                simple = (E.Load, E.Broadcast, E.Ramp, E.Var)
                if width > 1 and value not in self.hoisted and not isinstance(value, simple):
                    self.hold(value)
            case _:
                for name in type(e).__match_args__:
                    part = getattr(e, name)
                    for x in part if isinstance(part, tuple) else (part,):
                        if isinstance(x, Expr):
                            self.prepare(x)

    def _prepare_alias(self, e: Expr, body: Expr) -> None:
        """Hold ``e``, whose value is that of ``body``."""
        self.prepare(body)
        if body not in self.hoisted:
            self.hold(body)
        self.hoisted[e] = self.hoisted[body]

    def _prepare_load(self, buffer: Buffer, e: E.Load) -> None:
        loaded = self._moved(buffer, e, None)
        if loaded is not None:
            self.hoisted[e] = loaded

    def _moved(
        self, buffer: Buffer, e: E.Load, where: Code | None, other: Expr | None = None
    ) -> Subvectors | None:
        """The temporaries that a load fills, where a condition holds, or else with ``other``, zeros
        where that is None."""
        access = self.access(buffer, e.indices[0])
        if access is None:
            return None
        d, (base, k) = self.dialect, access
        aligned = d.needs_alignment(buffer) and self.at_multiple(base, k)
        texts, values = [], []
        fill = None
        if other is not None:
            fill = d.pack(e.dtype.with_lanes(k), [self.expr(other)] * k)
        for i in range(0, e.dtype.lanes, k):
            at = self.expr(self.lane(E.Ramp(base, ops.const(1, base.dtype), e.dtype.lanes), i))
            texts.append(self.names.fresh(f"{buffer.name}_v"))
            if where is None:
                value: Code | None = d.load_vector(buffer, self.source(e), at, k, aligned)
            else:
                value = d.load_vector_where(buffer, self.source(e), at, k, where, fill)
            if value is None:
                return None
            values.append(value)
        for name, value in zip(texts, values, strict=True):
            self.line(f"const {d.vector_name(buffer.dtype, k)} {name} = {value};")
        return Subvectors(tuple(texts), k)

    def access(self, buffer: Buffer, offset: Expr) -> tuple[Expr, int] | None:
        """(first offset, elements an access) where several elements can be moved at once."""
        ramp = as_ramp(offset)
        if ramp is None or not ops.is_const(ramp[1], 1):
            return None
        base = ramp[0]
        k = self.dialect.chunk(buffer, offset.dtype.lanes, lambda k: self.at_multiple(base, k))
        return (base, k) if k > 1 else None

    def at_multiple(self, base: Expr, k: int) -> bool:
        """Whether an offset is provably a multiple of ``k``."""
        return self.analyzer.prove(ops.floormod(base, ops.const(k, base.dtype)).equal(0))

    def _loads_vector(self, e: Expr) -> bool:
        """Whether evaluating ``e`` has a load that moves several elements at once."""
        return any(
            isinstance(x, E.Load)
            and x.dtype.lanes > 1
            and self.access(x.buffer, x.indices[0]) is not None
            for x in exprs(e)
        )

    def _prepare_choice(self, e: Expr, condition: Expr, on_true: Expr, on_false: Expr) -> None:
        if isinstance(on_true, E.Load) and on_true.predicate is None and _is_constant(on_false):
            fill = None if _is_zero(on_false) else on_false.value
            loaded = self._moved(on_true.buffer, on_true, self._at_once(condition), fill)
            if loaded is not None:
                self.hoisted[e] = loaded
                return
        if self._loads_vector(on_true) or self._loads_vector(on_false):
            self._branch(e, condition, on_true, on_false)

    def _at_once(self, condition: Expr) -> Code:
        """A condition without the branches that short-circuiting would be."""
        parts = conjuncts(condition)
        if len(parts) == 1 or any(isinstance(x, (E.Load, E.Call)) for x in exprs(condition)):
            return self.expr(condition)
        return code(" & ".join(f"({self.expr(part)})" for part in parts), BIT_AND)

    def _branch(self, e: Expr, condition: Expr, on_true: Expr, on_false: Expr) -> None:
        """Evaluate one of two vectors into variables, by a branch."""
        d, width = self.dialect, self.width(e.dtype)
        t = e.dtype.with_lanes(width)
        texts = tuple(self.names.fresh("v") for _ in range(e.dtype.lanes // width))
        for text in texts:
            self.line(f"{d.variable(t, text).removeprefix('const ')};")
        outer = self.hoisted
        for head, value in ((f"if ({self.expr(condition)}) {{", on_true), ("} else {", on_false)):
            self.line(head)
            self.indent += 1
            self.names.push()
            self.hoisted = dict(outer)  # temporaries of a branch end with it
            self.prepare(value)
            for text, subvector in zip(texts, self.subvectors(value, width), strict=True):
                self.line(f"{text} = {subvector};")
            self.names.pop()
            self.indent -= 1
        self.line("}")
        self.hoisted = outer
        self.hoisted[e] = Subvectors(texts, width)


def _defined(e: E.Binary) -> bool:
    """Whether the language's operator on vectors does what ``e`` means: it shifts by less than the
    width only."""
    if not isinstance(e, (E.Shl, E.Shr)):
        return True
    by = e.b.value if isinstance(e.b, E.Broadcast) else e.b
    return isinstance(by, E.IntImm) and 0 <= by.value < e.dtype.bits


def _widened(e: E.Cast) -> Expr:
    """What a conversion is of, where it is one to a float by integers that hold all values."""
    value = e.value
    match value:
        case E.Cast(t, inner) if (
            e.dtype.is_float
            and inner.dtype.is_int
            and (t.kind == "int" and t.bits > inner.dtype.bits)
        ):
            return inner
    return value


def _put_lane(printer: VectorPrinter, body: Expr, var: Var, mine: Var, i: int) -> Expr:
    """Lane ``i`` of ``body``, in which ``mine`` is that lane of the vector ``var``."""
    from tilewright.ir.visit import substitute

    named = substitute(body, {var: E.Broadcast(mine, var.dtype.lanes)})
    return printer.lane(named, i)


def _is_constant(e: Expr) -> TypeGuard[E.Broadcast]:
    return isinstance(e, E.Broadcast) and isinstance(e.value, (E.IntImm, E.FloatImm))


def _is_zero(e: Expr) -> bool:
    return isinstance(e, E.Broadcast) and ops.is_const(e.value, 0)
