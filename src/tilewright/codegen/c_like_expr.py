"""Scalar expressions as text of a C-like language."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.arith import Analyzer
from tilewright.codegen.c_like_dialect import FOREIGN, Dialect
from tilewright.codegen.c_like_text import EQUALITY, UNARY, Code, Names, call, code, infix
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr, Var
from tilewright.ir.visit import exprs, substitute

_FLOAT32 = dtype("float32")


class ExpressionPrinter:
    """Prints scalars, and holds what all printing shares: lines so far, names, facts.

    Attributes
    ----------
    dialect : how the language spells things.
    analyzer : what is known about the variables in scope.
    variables, buffers : the identifiers of what is in scope.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.analyzer = Analyzer()
        self.names = Names(dialect.reserved)
        self.variables: dict[Var, Code] = {}
        self.buffers: dict[Buffer, str] = {}
        self.lines: list[str] = []
        self.indent = 0
        self._guards = 0  # how many conditions what is being printed is evaluated under

    def line(self, text: str) -> None:
        """Add a line; temporaries are declared this way while an expression is printed."""
        pad = "  " * self.indent
        self.lines.append(pad + text.replace("\n", f"\n{pad}    "))

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """What is printed inside is not always evaluated, so nothing may be taken out of it."""
        self._guards += 1
        try:
            yield
        finally:
            self._guards -= 1

    def declare(self, var: Var, value: Code) -> None:
        """An immutable variable with its value."""
        name = self.names.fresh(var.name)
        self.line(f"{self.dialect.variable(var.dtype, name)} = {value};")
        self.variables[var] = code(name)

    def temporary(self, wanted: str, t: DType, value: Code) -> Code:
        """A fresh immutable variable that holds ``value``, as an expression."""
        name = self.names.fresh(wanted)
        self.line(f"{self.dialect.variable(t, name)} = {value};")
        return code(name)

    def nonnegative(self, e: Expr) -> bool:
        """Whether ``e`` is provably at least 0."""
        if isinstance(e, E.IntImm):
            return e.value >= 0
        return e.dtype.kind == "uint" or self.analyzer.prove(e >= 0)

    def expr(self, e: Expr) -> Code:
        """A scalar expression."""
        d = self.dialect
        match e:
            case E.Var():
                found = self.variables.get(e)
                if found is None:
                    raise TargetError(f"variable {e.name!r} is used where it has no value")
                return found
            case E.IntImm(t, value):
                return d.integer(t, value)
            case E.FloatImm(t, value):
                return d.floating(t, value)
            case E.StringImm(value):
                escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
                return code(f'"{escaped}"')
            case E.FloorDiv() | E.FloorMod() | E.TruncDiv() | E.TruncMod():
                return self._division(e)
            case E.Shl(a, b) | E.Shr(a, b):
                return self._shift(e, a, b)
            case E.Add(a, b) | E.Sub(a, b) | E.Mul(a, b) if self.wraps(e):
                return self._wrapping(e, a, b)
            case E.Mul(a, E.FloatImm(t, -1.0)):
                return d.negate(t, self.expr(a))
            case E.Add(a, b) if a.dtype.is_int:
                return self._sum(e, a, b)
            case E.Sub(E.IntImm(t, 0), b):
                return (
                    d.plain_cast(t, d.negate(t, self.expr(b)))
                    if t.bits < 32
                    else d.negate(t, self.expr(b))
                )
            case E.And(a, b) | E.Or(a, b):
                left = self.expr(a)
                node: type[E.Expr] = type(e)
                if _costs_nothing(b, a):  # no branch, before which what follows is not loaded
                    node = E.BitAnd if node is E.And else E.BitOr
                with self.guarded():
                    return d.binary(node, e.dtype, left, self.expr(b))
            case E.Binary(a, b) | E.Compare(a, b):
                return d.binary(type(e), a.dtype, self.expr(a), self.expr(b))
            case E.Not(a):
                return code(f"!{self.expr(a).at(UNARY)}", UNARY)
            case E.Cast(t, value) if t.is_float and t.bits == 16 and value.dtype is _FLOAT32:
                return d.cast(t, _FLOAT32, self.expr(d.before_rounding(value, t)))
            case E.Cast(t, E.Call(_, "nearbyint", (x,))) if (y := d.nearest(t, x)) is not None:
                return self.expr(y)
            case E.Cast(t, value):
                return d.cast(t, value.dtype, self.expr(value))
            case E.Select(E.LT(a, E.FloatImm() as b) | E.GT(a, E.FloatImm() as b), c, v) if (
                b.value == b.value  # functions of two values differ in what they make of NaN
                and ((b is c and a is v) or (a is c and b is v))
                and (name := self._bound(e, b is c))
            ):
                return call(name, self.expr(a), self.expr(b))
            case E.Select(condition, on_true, on_false):
                chosen = self.expr(condition)
                with self.guarded():
                    return d.choose(chosen, self.expr(on_true), self.expr(on_false))
            case E.Load():
                return self._load(e)
            case E.LetExpr(var, value, body):
                return self._let(var, value, body)
            case E.Call():
                return self._call(e)
        raise TargetError(f"{type(e).__name__} of type {e.dtype} cannot be written as a scalar")

    def _bound(self, e: E.Select, nan: bool) -> str:
        """The function that a choice between a value and a bound is; of NaN NaN, or the bound."""
        name = "max" if isinstance(e.condition, E.LT) == nan else "min"
        return self.dialect.bound(name, e.dtype, nan)

    def _sum(self, e: Expr, a: Expr, b: Expr) -> Code:
        """``a + b`` of integers, as a difference where ``b`` has a negative constant."""
        d = self.dialect
        match b:
            case E.IntImm(t, value) if -(2 ** (t.bits - 1)) < value < 0:
                return d.binary(E.Sub, t, self.expr(a), d.integer(t, -value))
            case E.Mul(x, E.IntImm(t, value)) if -(2 ** (t.bits - 1)) < value < 0:
                product = self.expr(ops.mul(x, ops.const(-value, t)))
                return d.binary(E.Sub, t, self.expr(a), product)
        return d.binary(E.Add, e.dtype, self.expr(a), self.expr(b))

    def wraps(self, e: Expr) -> bool:
        """Whether ``e`` is signed arithmetic of C's own width that may overflow, which C leaves
        undefined: that on data. Indices are computed in a type that holds them."""
        t = e.dtype
        return t.kind == "int" and t.bits >= 32 and t.lanes == 1 and not e.exact

    def _wrapping(self, e: Expr, a: Expr, b: Expr) -> Code:
        """Signed arithmetic done on unsigned numbers, which wrap around."""
        d, t = self.dialect, e.dtype
        unsigned = dtype(f"uint{t.bits}")
        left, right = (d.plain_cast(unsigned, self.expr(x)) for x in (a, b))
        return d.plain_cast(t, d.binary(type(e), unsigned, left, right))

    def _shift(self, e: E.Binary, a: Expr, b: Expr) -> Code:
        """A shift: C's own operator by a constant amount below the width of the type."""
        d, t, wraps = self.dialect, e.dtype, isinstance(e, E.Shl) and e.dtype.kind == "int"
        value, amount = self.expr(a), self.expr(b)
        if not (isinstance(b, E.IntImm) and 0 <= b.value < t.bits):
            return d.total_shift(type(e), t, value, amount)
        if not wraps or e.exact:
            return d.binary(type(e), t, value, amount)
        value = d.plain_cast(dtype(f"uint{t.bits}"), value)
        return d.plain_cast(t, d.binary(type(e), t, value, amount))

    def _division(self, e: E.Binary) -> Code:
        """A division: C's own operator where it means the same."""
        d, t = self.dialect, e.dtype
        fixed = isinstance(e.b, E.IntImm) and e.b.value not in (0, -1)
        least = 1 if t.kind == "int" else 0
        if not fixed and not (least and self.analyzer.prove(e.b >= least)):
            return d.total_division(type(e), t, self.expr(e.a), self.expr(e.b))
        if isinstance(e, (E.FloorDiv, E.FloorMod)):
            return self._floor_division(e)
        return d.binary(type(e), t, self.expr(e.a), self.expr(e.b))

    def _floor_division(self, e: E.FloorDiv | E.FloorMod) -> Code:
        """Floor division: C's truncating one where no operand is negative."""
        d, t, node = self.dialect, e.dtype, type(e)
        if self.nonnegative(e.b) and self.nonnegative(e.a):
            plain = E.TruncDiv if node is E.FloorDiv else E.TruncMod
            return d.binary(plain, t, self.expr(e.a), self.expr(e.b))
        if isinstance(e.b, E.IntImm) and e.b.value > 0 and not e.b.value & (e.b.value - 1):
            # >> and & on two's complement round down
            if node is E.FloorDiv:
                shift = d.integer(E.INT32, e.b.value.bit_length() - 1)
                return d.binary(E.Shr, t, self.expr(e.a), shift)
            return d.binary(E.BitAnd, t, self.expr(e.a), d.integer(t, e.b.value - 1))
        return d.floor_division(node, t, self.expr(e.a), self.expr(e.b))

    def _load(self, e: E.Load) -> Code:
        d = self.dialect
        name = self.source(e)
        if e.predicate is None or self.analyzer.prove(e.predicate):
            return d.load(e.buffer, name, self.expr(e.indices[0]))
        condition = self.expr(e.predicate)
        with self.guarded():
            found = d.load(e.buffer, name, self.expr(e.indices[0]))
        return d.choose(condition, found, self.expr(ops.const(0, e.dtype)))

    def name_of(self, buffer: Buffer) -> str:
        """The identifier of a buffer in scope."""
        found = self.buffers.get(buffer)
        if found is None:
            raise TargetError(
                f"buffer {buffer.name!r} is neither a parameter of the kernel nor allocated in it"
            )
        return found

    def source(self, e: E.Load) -> str:
        """What a load reads from: the buffer, or the part of it that another block of a cluster
        keeps."""
        name = self.name_of(e.buffer)
        if e.buffer.scope != "cluster":
            return name
        rank = e.indices[1]
        rank = rank.value if isinstance(rank, E.Broadcast) else rank
        return self.dialect.of_block(name, self.expr(rank))

    def _let(self, var: Var, value: Expr, body: Expr) -> Code:
        if self._guards:
            return self.expr(substitute(body, {var: value}))
        self.declare(var, self.expr(value))
        if var.dtype.is_int:
            self.analyzer.define(var, value)
        return self.expr(body)

    def _call(self, e: E.Call) -> Code:
        d = self.dialect
        if e.name == "address_of":
            at = e.args[0]
            assert isinstance(at, E.Load)
            offset = self.expr(at.indices[0])
            return d.pointer(self.name_of(at.buffer), offset)
        args = [self.expr(a) for a in e.args]
        if e.name.startswith("extern:"):
            d.require(FOREIGN)
            return call(e.name.removeprefix("extern:"), *args)
        t = e.args[0].dtype
        if e.name.startswith("shuffle"):
            if self._guards:
                raise TargetError(
                    f"{e.name} stands under a condition, where some threads of the warp may be "
                    "missing: take it out of the condition"
                )
            return d.shuffle(e.name, t, args[0], args[1])
        return d.function(e.name, t, args)

    def condition(self, e: Expr) -> Code:
        """A condition of a statement."""
        found = self.expr(e)
        return found if e.dtype.is_bool else infix(found, "!=", code("0"), EQUALITY)


def _costs_nothing(e: Expr, beside: Expr) -> bool:
    """Whether a condition compares floats by no more than what another one reads."""
    if not isinstance(e, E.Compare) or not e.a.dtype.is_float:
        return False
    read = set(exprs(beside))
    return all(x in read for x in exprs(e) if isinstance(x, (E.Call, E.Load)))
