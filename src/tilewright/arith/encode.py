"""Index expressions as linear forms, and conditions as constraints, of a system.

Floor divisions by constants, minima, maxima, choices and multiples by one of few numbers become
columns that constraints define; what is not affine (a value read from memory, another product of
variables) becomes an unknown column and marks the system inexact: proofs stay sound, refutations
may be spurious. Arithmetic on data that may leave the range of its type wraps around there: it is
a column that differs by a multiple of the numbers of the type, or an unknown one.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arith.quotients import Quotients
from tilewright.arith.system import Constraint, Form, System, constant, minus, number, plus, times
from tilewright.ir import expr as E
from tilewright.ir.dtype import dtype, int_range
from tilewright.ir.expr import Expr, Var
from tilewright.ir.visit import children

#: Alternatives beyond which a condition is left out as unknown.
_MAX_ALTERNATIVES = 48

#: A factor that is one of fewer values is distinguished by them.
_MAX_MULTIPLES = 4

#: Of these, what is the value in numbers less a multiple of those that its type has; of how many
#: multiples one is looked for, beyond which the value is unknown.
_TURNING = (E.Add, E.Sub, E.Mul, E.Ramp, E.Cast)
_MAX_TURNS = 4

#: Expressions that become columns of their own.
_DEFINED = (E.Mul, E.Min, E.Max, E.TruncDiv, E.TruncMod, E.FloorDiv, E.FloorMod, E.Select)

_INT64 = dtype("int64")

#: Arithmetic that wraps around in its type, where it is not that of indices.
_WRAPPING = (
    E.Add, E.Sub, E.Mul, E.Shl, E.FloorDiv, E.TruncDiv, E.Ramp, E.Cast
)  # fmt: skip

Alternatives = list[list[Constraint]]


class Instance(Quotients):
    """One moment of a program's run: the values that its variables have then.

    Parameters
    ----------
    system : where forms get their columns.
    lanes : how many vector lanes are considered; one of them is picked by a column.
    twin : another instance of the same program. What differs between the two is written as the
        twin's value plus a difference, so that proofs that two indices coincide are short.
    """

    twin: Instance | None

    def __init__(self, system: System, lanes: int = 1, twin: Instance | None = None) -> None:
        super().__init__(system, twin)
        self.values: dict[Var, Form] = {}
        self.defined: dict[Var, Expr] = {}
        self.forms: dict[Expr, Form] = {}
        self.equal: dict[Expr, bool] = {}
        #: Expressions of which only bounds are known here; of all else all is, unless ``vague``.
        self.bounded: set[Expr] = set()
        self.vague = False
        #: Values that variables are known to have, if they can.
        self.fixed: Mapping[Var, int] = {}
        self.lane: Form = {}
        if lanes > 1:
            base = twin.lane if twin is not None else {}
            self.lane = self.near(base, "lane", 0, lanes - 1)

    def bind(self, var: Var, low: int, high: int) -> Form:
        """Let ``var`` be any of ``low .. high``; near its value in the twin where it has one."""
        base = self.twin.values.get(var, {}) if self.twin is not None else {}
        if var in self.fixed:
            low, high = max(low, self.fixed[var]), min(high, self.fixed[var])
        made = self.near(base, var.name, low, high)
        self.values[var] = made
        return made

    def define(self, var: Var, value: Expr) -> None:
        """Let ``var`` stand for ``value``, which is looked at when it is first used."""
        if value.dtype.is_int or value.dtype.is_bool:
            self.defined[var] = value

    # ------------------------------------------------------------------ integer expressions

    def form(self, e: Expr) -> Form:
        """The value of an integer expression (of the lane picked, where it is a vector)."""
        found = self.forms.get(e)
        if found is None:
            twin = self.twin
            if twin is not None and type(e) in _DEFINED and e in twin.forms and self.alike(e):
                found = twin.forms[e]
            else:
                found = self._form(e)
                if not e.exact and isinstance(e, _WRAPPING) and not self._holds(e, found):
                    found = self._wrapped(e, found)
            self.forms[e] = found
        return found

    def _holds(self, e: Expr, form: Form) -> bool:
        """Whether arithmetic on data certainly stays within its type here, so that it does not
        wrap around."""
        low, high = int_range(e.dtype.element)
        least, greatest = self.system.bounds(form)
        return (low <= least or self._never(minus(constant(low - 1), form))) and (
            greatest <= high or self._never(minus(form, constant(high + 1)))
        )

    def _wrapped(self, e: Expr, form: Form) -> Form:
        """The value that arithmetic on data has in its type, where it may wrap around."""
        low, high = int_range(e.dtype.element)
        size = high - low + 1
        first, last = ((bound - low) // size for bound in self.system.bounds(form))
        if not isinstance(e, _TURNING) or last - first >= _MAX_TURNS:
            return self.unknown(e)
        made = self.system.column("wrapped", low, high)
        turns = self.system.column("turns", first, last)
        self.system.require(minus(form, plus(made, turns, size)), equal=True)
        return made

    def _signed(self, form: Form) -> tuple[int, int]:
        """Bounds of a factor, by proof where those of its terms do not tell its sign: of
        ``f // 4 * 6 + f % 4 * 2`` they do not, as one form ``2 * f - 2 * (f // 4)``."""
        low, high = self.system.bounds(form)
        if low < 0 <= high and self._never(minus(constant(-1), form)):
            low = 0
        return low, high

    def _never(self, form: Form) -> bool:
        """Whether a form is certainly negative here."""
        trial = self.system.copy()
        trial.require(form)
        return trial.refuted()

    def alike(self, e: Expr) -> bool:
        """Whether ``e`` certainly has the same value here and in the twin."""
        found = self.equal.get(e)
        if found is None:
            if isinstance(e, E.Var):
                assert self.twin is not None
                found = self.form(e) == self.twin.form(e)
            elif isinstance(e, (E.Load, E.Ramp, E.LetExpr, E.Call)):
                found = False
            else:
                found = all(self.alike(x) for x in children(e) if isinstance(x, Expr))
            self.equal[e] = found
        return found

    def _form(self, e: Expr) -> Form:
        match e:
            case E.Var():
                return self._variable(e)
            case E.IntImm(_, value):
                return constant(value)
            case E.Add(a, b):
                return plus(self.form(a), self.form(b))
            case E.Sub(a, b):
                return minus(self.form(a), self.form(b))
            case E.Mul(a, b):
                return self._product(e, self.form(a), self.form(b))
            case E.FloorDiv(a, b) | E.FloorMod(a, b):
                return self.division(e, a, b, isinstance(e, E.FloorMod))
            case E.TruncDiv(a, b) | E.TruncMod(a, b):
                return self.truncated(e, a, b, isinstance(e, E.TruncMod))
            case E.Min(a, b):
                return self._extremum(e, a, b, -1)
            case E.Max(a, b):
                return self._extremum(e, a, b, 1)
            case E.Broadcast(value, _):
                return self.form(value)
            case E.Ramp(base, stride, _):
                return plus(self.form(base), self._product(e, self.lane, self.form(stride)))
            case E.Cast(t, value) if t.is_int and value.dtype.is_int:
                return self.form(value)
            case E.Cast(t, value) if t.is_int and value.dtype.is_bool:
                return self._choice(e, value, constant(1), {})
            case E.Select(condition, on_true, on_false):
                return self._choice(e, condition, self.form(on_true), self.form(on_false))
            case E.BitAnd(a, b) | E.Shr(a, b) | E.Shl(a, b):
                return self._bitwise(e, a, number(self.form(b)))
            case E.LetExpr(var, value, body):
                self.define(var, value)
                return self.form(body)
            case E.Load(buffer, indices, predicate) if e.dtype.is_int and predicate is not None:
                whole = E.Load(buffer, indices, None)  # 0 in the lanes that are off
                return self._choice(e, predicate, self.form(whole), {})
        return self.unknown(e)

    def _bitwise(self, e: Expr, a: Expr, b: int | None) -> Form:
        """By a constant: shifts by fewer bits than indices have, and masks of low bits."""
        match e:
            case E.BitAnd() if b is not None and b >= 0 and b & (b + 1) == 0:
                return self.remainder(e, a, b + 1)
            case E.Shr() if b is not None and 0 <= b < 62:
                return self.quotient(a, 1 << b)
            case E.Shl() if b is not None and 0 <= b < 62:
                return times(self.form(a), 1 << b)
        return self.unknown(e)

    def _variable(self, var: Var) -> Form:
        found = self.values.get(var)
        if found is None and var in self.defined:  # late, when more is known of its parts
            found = self.form(self.defined[var])
            self.values[var] = found
        if found is None:  # bound outside of the program: the same at any moment
            if self.twin is not None:
                found = self.twin.form(var)
            else:
                found = self.system.column(var.name, *int_range(var.dtype))
            self.values[var] = found
        return found

    def unknown(self, e: Expr) -> Form:
        self.only_bounds(e)
        t = _INT64 if e.exact else e.dtype.element  # indices are computed in up to 64 bits
        low, high = int_range(t) if e.dtype.is_int else (0, 1)
        return self.system.column("unknown", low, high)

    def only_bounds(self, e: Expr) -> None:
        self.system.exact = False
        if e.dtype.lanes == 1:
            self.bounded.add(e)
        else:  # a number for each lane
            self.vague = True

    def _product(self, e: Expr, a: Form, b: Form) -> Form:
        left, right = number(a), number(b)
        if left is not None:
            return times(b, left)
        if right is not None:
            return times(a, right)
        corners = [x * y for x in self._signed(a) for y in self._signed(b)]
        if a == b:
            corners = [max(corner, 0) for corner in corners]
        for factor, other in ((a, b), (b, a)):
            low, high = self.system.bounds(factor)
            if 0 <= high - low < _MAX_MULTIPLES:
                made = self.system.column("product", min(corners), max(corners))
                self.system.choose(
                    [(minus(factor, constant(v)), True), (minus(made, times(other, v)), True)]
                    for v in range(low, high + 1)
                )
                self.products.append((a, b, made))
                return made
        self.only_bounds(e)
        made = self.system.column("product", min(corners), max(corners))
        self.products.append((a, b, made))
        return made

    def _extremum(self, e: Expr, a: Expr, b: Expr, sign: int) -> Form:
        left, right = self.form(a), self.form(b)
        apart = self.system.bounds(minus(left, right))
        if apart[0] >= 0:
            return left if sign > 0 else right
        if apart[1] <= 0:
            return right if sign > 0 else left
        ends = [*self.system.bounds(left), *self.system.bounds(right)]
        made = self.system.column("extremum", min(ends), max(ends))
        over = [times(minus(made, side), sign) for side in (left, right)]
        for form in over:
            self.system.require(form)
        self.system.choose([[(times(form, -1), False)] for form in over])
        return made

    def _choice(self, e: Expr, condition: Expr, on_true: Form, on_false: Form) -> Form:
        ends = [*self.system.bounds(on_true), *self.system.bounds(on_false)]
        made = self.system.column("choice", min(ends), max(ends))
        holds, fails = self.cases(condition, True), self.cases(condition, False)
        self.system.choose(
            [
                *([*case, (minus(made, on_true), True)] for case in holds),
                *([*case, (minus(made, on_false), True)] for case in fails),
            ]
        )
        return made

    # ------------------------------------------------------------------ conditions

    def require(self, condition: Expr, holds: bool = True) -> None:
        """Let ``condition`` hold at this moment, or not hold."""
        waiting = [(condition, holds)]
        while waiting:
            condition, holds = waiting.pop()
            match condition:
                case E.And(a, b) if holds:
                    waiting += [(b, True), (a, True)]
                case E.Or(a, b) if not holds:
                    waiting += [(b, False), (a, False)]
                case E.Not(a):
                    waiting.append((a, not holds))
                case E.Broadcast(value, _):
                    waiting.append((value, holds))
                case E.Var() if condition in self.defined:
                    waiting.append((self.defined[condition], holds))
                case _:
                    self.system.choose(self.cases(condition, holds))

    def cases(self, condition: Expr, holds: bool) -> Alternatives:
        """Alternatives of which one holds exactly where the condition is ``holds``.

        An alternative without constraints says nothing: the condition is unknown there.
        """
        match condition:
            case E.IntImm(_, value):
                return [[]] if bool(value) == holds else []
            case E.LetExpr(var, value, body):
                self.define(var, value)
                return self.cases(body, holds)
            case E.Not(a):
                return self.cases(a, not holds)
            case E.Broadcast(value, _):
                return self.cases(value, holds)
            case E.And() | E.Or():
                return self._joined(condition, holds)
            case E.Select(c, on_true, on_false):
                yes, no = self.cases(c, True), self.cases(c, False)
                chosen, other = self.cases(on_true, holds), self.cases(on_false, holds)
                if len(yes) * len(chosen) + len(no) * len(other) > _MAX_ALTERNATIVES:
                    return self._vague()
                return [
                    *(x + y for x in yes for y in chosen),
                    *(x + y for x in no for y in other),
                ]
            case E.Cast(_, value) if value.dtype.is_int or value.dtype.is_bool:
                if value.dtype.is_bool:
                    return self.cases(value, holds)
                return self._unequal(self.form(value), not holds)
            case E.Compare(a, b) if a.dtype.is_int:
                return self._comparison(condition, minus(self.form(a), self.form(b)), holds)
            case E.Var() if condition in self.defined:
                return self.cases(self.defined[condition], holds)
        return self._vague()

    def _joined(self, condition: Expr, holds: bool) -> Alternatives:
        """Those of an And or an Or, however nested, also by way of variables."""
        cls = type(condition)
        together = (cls is E.And) == holds
        found: Alternatives = [[]] if together else []
        waiting = [condition]
        while waiting:
            part = waiting.pop()
            if isinstance(part, E.Var):
                part = self.defined.get(part, part)
            if type(part) is cls and isinstance(part, E.Binary):
                waiting += [part.b, part.a]
                continue
            cases = self.cases(part, holds)
            if not together:
                found += cases
            elif len(found) * len(cases) > _MAX_ALTERNATIVES:
                return self._vague()
            else:
                found = [x + y for x in found for y in cases]
        return found

    def _vague(self) -> Alternatives:
        self.system.exact = False
        self.vague = True
        return [[]]

    def _comparison(self, e: E.Compare, apart: Form, holds: bool) -> Alternatives:
        match e:  # in terms of apart = a - b
            case E.LT() | E.GE():
                below = isinstance(e, E.LT) == holds
                return [[(minus(constant(-1), apart) if below else apart, False)]]
            case E.GT() | E.LE():
                above = isinstance(e, E.GT) == holds
                return [[(plus(apart, constant(-1)) if above else times(apart, -1), False)]]
        return self._unequal(apart, isinstance(e, E.EQ) == holds)

    def _unequal(self, form: Form, equal: bool) -> Alternatives:
        """``form == 0`` where ``equal``, else ``form != 0``."""
        if equal:
            return [[(form, True)]]
        return [[(minus(constant(-1), form), False)], [(plus(form, constant(-1)), False)]]
