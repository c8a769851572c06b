"""Quotients and remainders as columns of a system, each with the rows that define it.

A division by a constant has a column for the quotient of what the divisor leaves of the dividend;
one by a variable has a column for the unknown product of quotient and divisor as well.
"""

from __future__ import annotations

from tilewright.arith.isl import UNBOUNDED
from tilewright.arith.system import CONSTANT, Form, System, constant, minus, number, plus, times
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr


class Quotients:
    """Divides forms; :class:`~tilewright.arith.encode.Instance` knows the forms of expressions.

    Attributes
    ----------
    atoms : the columns of quotients, and of products, by what they stand for.
    floors : those of quotients by a constant, by residue and divisor.
    products : factors and the column of what is not affine.
    """

    def __init__(self, system: System, twin: Quotients | None) -> None:
        self.system, self.twin = system, twin
        self.atoms: dict[Expr, Form] = {}
        self.floors: dict[tuple[tuple[tuple[int, int], ...], int], Form] = {}
        self.products: list[tuple[Form, Form, Form]] = []

    def form(self, e: Expr) -> Form:
        """The value of an integer expression."""
        raise NotImplementedError

    def alike(self, e: Expr) -> bool:
        """Whether ``e`` certainly has the same value here and in the twin."""
        raise NotImplementedError

    def unknown(self, e: Expr) -> Form:
        """A column of which nothing is known but the range of ``e``'s type."""
        raise NotImplementedError

    def only_bounds(self, e: Expr) -> None:
        """Note that of ``e`` no more is known than its bounds."""
        raise NotImplementedError

    def near(self, base: Form, name: str, low: int, high: int) -> Form:
        """A value in ``low .. high``, written as its twin's, ``base``, plus a difference: the twin
        may lie elsewhere."""
        if not any(k != CONSTANT for k in base):
            return self.system.column(name, low, high)
        least, greatest = self.system.bounds(base)
        made = plus(base, self.system.column(f"{name}'", low - greatest, high - least))
        self.system.require(plus(made, constant(-low)))
        self.system.require(minus(constant(high), made))
        return made

    def quotient(self, a: Expr, divisor: int, sign: int = 1) -> Form:
        """``floor(sign * a / divisor)`` for a positive divisor.

        The sign is that of the form: what has the type of ``a`` may wrap around when it is negated.
        """
        dividend = times(self.form(a), sign)
        value = number(dividend)
        if value is not None:
            return constant(value // divisor)
        if all(c % divisor == 0 for c in dividend.values()):
            return {k: c // divisor for k, c in dividend.items()}
        t = a.dtype.element
        named = a if sign > 0 else E.Sub(E.IntImm(t, 0), a)
        return self._floor(E.FloorDiv(named, E.IntImm(t, divisor)), dividend, divisor)

    def _floor(self, key: Expr, dividend: Form, divisor: int) -> Form:
        """The quotient, by a column for that of the dividend's residue.

        Indices that are alike modulo the divisor, ``64 * i + j`` and ``10 * i + j`` by 18, so
        have one column.
        """
        system = self.system
        residue = {k: c % divisor for k, c in dividend.items() if c % divisor}
        whole = {k: c // divisor for k, c in dividend.items() if c // divisor}
        name = (tuple(sorted(residue.items())), divisor)
        made = self.floors.get(name)
        if made is None:
            base = self._twins(key)
            if base and self.alike(key):
                made = base
            else:
                least, greatest = system.bounds(residue)
                made = self.near(base, "quotient", least // divisor, greatest // divisor)
                rest = minus(residue, times(made, divisor))
                system.require(rest)
                system.require(minus(constant(divisor - 1), rest))
            self.floors[name] = made
        quotient = plus(whole, made)
        least, greatest = system.bounds_of_sum(dividend)
        system.require(plus(quotient, constant(-(least // divisor))))
        system.require(minus(constant(greatest // divisor), quotient))
        self._bound_by_rows(quotient, dividend, divisor)
        self.atoms[key] = made
        return quotient

    def _bound_by_rows(self, quotient: Form, dividend: Form, divisor: int) -> None:
        """From ``dividend <= divisor * x + c`` follows ``quotient <= x + c // divisor``."""
        shift = dividend.get(CONSTANT, 0)
        parts = {k: c for k, c in dividend.items() if k != CONSTANT}
        for terms, (least, greatest) in list(self.system.rows.items()):
            row = dict(terms)
            rest = {k: c // divisor for k, c in terms if k not in parts}
            if not rest or any(row[k] % divisor for k in rest):
                continue
            if all(row.get(k) == c for k, c in parts.items()):
                rest = times(rest, -1)
            elif all(row.get(k) == -c for k, c in parts.items()):
                least, greatest = -greatest, -least
            else:
                continue
            # least <= dividend - shift - divisor * rest <= greatest
            if greatest < UNBOUNDED:
                end = constant((greatest + shift) // divisor)
                self.system.require(minus(plus(rest, end), quotient))
            if least > -UNBOUNDED:
                end = constant((least + shift) // divisor)
                self.system.require(minus(quotient, plus(rest, end)))

    def remainder(self, e: Expr, a: Expr, divisor: int) -> Form:
        rest = minus(self.form(a), times(self.quotient(a, divisor), divisor))
        if e.exact:
            return rest
        made = self.system.column("remainder", 0, divisor - 1)  # sums of such are small, too
        self.system.require(minus(made, rest), True)
        return made

    def division(self, e: Expr, a: Expr, b: Expr, modulo: bool) -> Form:
        divisor = number(self.form(b))
        if divisor is not None and divisor > 0:
            return self.remainder(e, a, divisor) if modulo else self.quotient(a, divisor)
        if divisor is not None and divisor < 0:  # a // -c == -a // c
            quotient = self.quotient(a, -divisor, -1)
            return minus(self.form(a), times(quotient, divisor)) if modulo else quotient
        return self._symbolic_division(e, a, b, modulo)

    def _symbolic_division(self, e: Expr, a: Expr, b: Expr, modulo: bool) -> Form:
        """Division by a positive variable, through the unknown product of quotient and divisor."""
        dividend, divisor = self.form(a), self.form(b)
        system = self.system
        if not self._positive(divisor):
            return self.unknown(e)
        self.only_bounds(e)
        key, product_key = E.FloorDiv(a, b), E.Mul(E.FloorDiv(a, b), b)
        if key not in self.atoms:
            least, greatest = system.bounds_of_sum(dividend)
            base, product_base = self._twins(key), self._twins(product_key)
            low, high = min(least, 0), max(greatest, 0)
            quotient = self.near(base, "quotient", low, high)
            product = self.near(product_base, "product", low - system.bounds(divisor)[1], high)
            rest = minus(dividend, product)
            system.require(rest)
            system.require(plus(minus(divisor, rest), constant(-1)))
            if least >= 0:
                system.require(quotient)
                system.require(minus(product, quotient))
            for factor in self._multiples(dividend, divisor):
                system.require(plus(minus(factor, quotient), constant(-1)))
            if base and self.alike(b):  # both grow together
                up, over = minus(quotient, base), minus(product, product_base)
                down, under = times(up, -1), times(over, -1)
                one = constant(-1)
                system.choose(
                    [
                        [(up, True), (over, True)],
                        [(plus(up, one), False), (plus(over, one), False)],
                        [(plus(down, one), False), (plus(under, one), False)],
                    ]
                )
            self.atoms[key], self.atoms[product_key] = quotient, product
        return minus(dividend, self.atoms[product_key]) if modulo else self.atoms[key]

    def _positive(self, form: Form) -> bool:
        """Whether a form is at least 1, perhaps since a product is of which it is a factor: in a
        loop over ``m * n``, where either may be 0, neither is."""
        system = self.system
        if system.bounds(form)[0] >= 1 or (system.settle() and system.bounds(form)[0] >= 1):
            return True
        known = self.products + (self.twin.products if self.twin is not None else [])
        for left, right, product in known:
            if form in (left, right) and min(system.bounds(left)[0], system.bounds(right)[0]) >= 0:
                if self._positive(product):
                    system.require(plus(form, constant(-1)))
                    return True
        return False

    def _twins(self, key: Expr) -> Form:
        return self.twin.atoms.get(key, {}) if self.twin is not None else {}

    def _multiples(self, dividend: Form, divisor: Form) -> list[Form]:
        """Each ``x`` for which ``dividend < x * divisor`` is known."""
        known = self.products + (self.twin.products if self.twin is not None else [])
        found = [
            left if right == divisor else right
            for left, right, product in known
            if divisor in (left, right) and self.system.bounds(minus(product, dividend))[0] >= 1
        ]
        return found + self._constant_multiples(dividend, divisor)

    def _constant_multiples(self, dividend: Form, divisor: Form) -> list[Form]:
        """The least of the numbers among :meth:`_multiples`, as a row on parts of both tells it.

        From ``loop <= 4 * n - 1`` and ``thread <= 2`` follows ``3 * loop + thread < 12 * n``.
        """
        found: list[int] = []
        for terms, (least, greatest) in self.system.rows.items():
            row = dict(terms)
            shared = [(c, row[k]) for k, c in dividend.items() if k in row and k not in divisor]
            wanted = [(d, row[m]) for m, d in divisor.items() if m in row and m not in dividend]
            if not shared or not wanted or least == greatest:
                continue
            (c, own), (d, other) = shared[0], wanted[0]
            scale, apart = divmod(c, own)  # of the row in the dividend
            ratio, left = divmod(-other * scale, d)
            if apart or left or ratio < 1:
                continue
            rest = minus(minus(times(divisor, ratio), dividend), times(row, -scale))
            end = least if scale < 0 else greatest
            if abs(end) < UNBOUNDED and self.system.bounds(rest)[0] - scale * end >= 1:
                found.append(ratio)
        return [constant(min(found))] if found else []

    def truncated(self, e: Expr, a: Expr, b: Expr, modulo: bool) -> Form:
        dividend, divisor = self.form(a), number(self.form(b))
        if divisor is None or divisor == 0:
            return self.unknown(e)
        size = abs(divisor)
        least, greatest = self.system.bounds(dividend)
        if least >= 0:
            quotient = self.quotient(a, size)
        elif greatest <= 0:
            quotient = times(self.quotient(a, size, -1), -1)
        else:
            up, down = self.quotient(a, size), times(self.quotient(a, size, -1), -1)
            low, high = self.system.bounds(up)[0], self.system.bounds(up)[1]
            quotient = self.system.column("quotient", low, high + 1)
            below = minus(constant(-1), dividend)
            self.system.choose(
                [
                    [(dividend, False), (minus(quotient, up), True)],
                    [(below, False), (minus(quotient, down), True)],
                ]
            )
        if divisor < 0:
            quotient = times(quotient, -1)
        return minus(dividend, times(quotient, divisor)) if modulo else quotient
