"""Systems of linear constraints over integers, with alternatives: is there a solution?

Most questions about a program have none, and propagating bounds shows it in microseconds; what
is left over goes to :mod:`tilewright.arith.isl`, which decides exactly and gives a solution.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from tilewright.arith.isl import UNBOUNDED, Row, Undecided, sample

__all__ = ["CONSTANT", "Constraint", "Form", "System", "Undecided", "constant", "minus", "plus"]

#: A linear form: coefficients by column, the constant under :data:`CONSTANT`.
Form = dict[int, int]
CONSTANT = -1

#: A constraint: a form, and whether it is zero (True) or at least zero (False).
Constraint = tuple[Form, bool]

Terms = tuple[tuple[int, int], ...]

#: Rounds of propagation: most systems settle in three; slow convergence is left to isl.
_ROUNDS = 8

#: How many columns are replaced by what an equality says of them before isl is asked.
_ELIMINATIONS = 12

#: How many ways through the alternatives of a system are looked at.
_BRANCHES = 500


def constant(value: int) -> Form:
    """The form of a number."""
    return {CONSTANT: value} if value else {}


def plus(a: Form, b: Form, scale: int = 1) -> Form:
    """``a + scale * b``."""
    total = dict(a)
    for k, c in b.items():
        value = total.get(k, 0) + scale * c
        if value:
            total[k] = value
        else:
            total.pop(k, None)
    return total


def minus(a: Form, b: Form) -> Form:
    """``a - b``."""
    return plus(a, b, -1)


def times(a: Form, scale: int) -> Form:
    """``scale * a``."""
    return {k: c * scale for k, c in a.items()} if scale else {}


def number(a: Form) -> int | None:
    """The value of a form without columns, None of any other."""
    if not a:
        return 0
    return a[CONSTANT] if len(a) == 1 and CONSTANT in a else None


def _row(constraint: Constraint) -> Row | None:
    """The constraint as a primitive row with its bounds; None where it never holds."""
    form, equal = constraint
    terms = sorted((k, c) for k, c in form.items() if k != CONSTANT)
    least = -form.get(CONSTANT, 0)
    if not terms:
        holds = least == 0 if equal else least <= 0
        return ((), 0, 0) if holds else None
    greatest = least if equal else UNBOUNDED
    if terms[0][1] < 0:
        terms = [(k, -c) for k, c in terms]
        least, greatest = -greatest, -least
    divisor = gcd(*(c for _, c in terms))
    if divisor > 1:
        terms = [(k, c // divisor) for k, c in terms]
        least = least if least <= -UNBOUNDED else -(-least // divisor)
        greatest = greatest if greatest >= UNBOUNDED else greatest // divisor
        if least > greatest:
            return None
    return tuple(terms), least, greatest


class System:
    """Columns with bounds, constraints that all hold, and choices of which one holds each.

    ``exact`` is cleared by whoever adds less than what is known (an unknown value): then a
    solution need not be a real one, while the absence of solutions still proves.
    """

    __slots__ = ("choices", "exact", "high", "low", "names", "possible", "rows")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.low: list[int] = []
        self.high: list[int] = []
        self.rows: dict[Terms, tuple[int, int]] = {}
        self.choices: list[list[list[Constraint]]] = []
        self.exact = True
        self.possible = True

    def copy(self) -> System:
        """An independent copy."""
        made = System()
        made.names, made.low, made.high = self.names[:], self.low[:], self.high[:]
        made.rows, made.choices = dict(self.rows), self.choices[:]
        made.exact, made.possible = self.exact, self.possible
        return made

    def column(self, name: str, low: int, high: int) -> Form:
        """A new unknown in ``low .. high``."""
        self.names.append(name)
        self.low.append(low)
        self.high.append(high)
        if low > high:
            self.possible = False
        return {len(self.names) - 1: 1}

    def require(self, form: Form, equal: bool = False) -> None:
        """Let ``form >= 0`` hold, or ``form == 0``."""
        row = _row((form, equal))
        if row is None:
            self.possible = False
            return
        terms, least, greatest = row
        if len(terms) == 1:  # the coefficient of a primitive row of one term is 1
            k = terms[0][0]
            self.low[k] = max(self.low[k], least)
            self.high[k] = min(self.high[k], greatest)
            if self.low[k] > self.high[k]:
                self.possible = False
        elif terms:
            old = self.rows.get(terms)
            if old is not None:
                least, greatest = max(least, old[0]), min(greatest, old[1])
                if least > greatest:
                    self.possible = False
            self.rows[terms] = (least, greatest)

    def choose(self, alternatives: Iterable[list[Constraint]]) -> None:
        """Let all constraints of at least one of the alternatives hold."""
        listed = list(alternatives)
        if len(listed) == 1:
            for form, equal in listed[0]:
                self.require(form, equal)
        elif not listed:
            self.possible = False
        elif all(listed):
            self.choices.append(listed)

    def settle(self) -> bool:
        """Tighten the bounds of the columns; False where that shows that there is no solution."""
        if self.possible:
            self.possible = self._propagate()
        return self.possible

    def bounds(self, form: Form) -> tuple[int, int]:
        """Bounds of a form by those of its columns, and by any one row that is a part of it."""
        least, greatest = self._span(form)
        for terms, (lower, upper) in self.rows.items():
            first, c = terms[0]
            scale, left = divmod(form.get(first, 0), c)
            if left or not scale or any(form.get(k, 0) != scale * c for k, c in terms):
                continue
            rest = dict(form)
            for k, _ in terms:
                del rest[k]
            ends = (lower * scale, upper * scale)
            low, high = self._span(rest)
            least, greatest = max(least, low + min(ends)), min(greatest, high + max(ends))
        return least, greatest

    def bounds_of_sum(self, form: Form) -> tuple[int, int]:
        """Bounds of a form by several rows that are parts of it, one after another.

        A twin's values are sums of two columns, of which a row has the bounds.
        """
        rest, low, high = dict(form), 0, 0
        for terms, (lower, upper) in self.rows.items():
            scale, left = divmod(rest.get(terms[0][0], 0), terms[0][1])
            if left or not scale or lower <= -UNBOUNDED or upper >= UNBOUNDED:
                continue
            if all(rest.get(k, 0) == scale * c for k, c in terms):
                for k, _ in terms:
                    del rest[k]
                low += min(lower * scale, upper * scale)
                high += max(lower * scale, upper * scale)
        least, greatest = self._span(rest)
        one, other = self.bounds(form)
        return max(least + low, one), min(greatest + high, other)

    def _span(self, form: Form) -> tuple[int, int]:
        least = greatest = form.get(CONSTANT, 0)
        low, high = self.low, self.high
        for k, c in form.items():
            if k == CONSTANT:
                continue
            if c > 0:
                least += c * low[k]
                greatest += c * high[k]
            else:
                least += c * high[k]
                greatest += c * low[k]
        return least, greatest

    def solve(self) -> list[int] | None:
        """Values of the columns that satisfy everything, or None where there are none.

        Raises :class:`Undecided` where isl gives up, and where more alternatives than _BRANCHES
        would have to be looked at: each of n choices doubles them.
        """
        return self._solve(iter(range(_BRANCHES)))

    def _solve(self, left: Iterator[int]) -> list[int] | None:
        if next(left, None) is None:
            raise Undecided(f"more than {_BRANCHES} alternatives")
        if self.refuted():
            return None
        found = self._dive()
        if found is not None:
            return found
        found = sample(self._listed(), self.low, self.high)
        if found is None or not self.choices:
            return found
        # What was required last is the question, or bears on it: ways end sooner than by what came
        # before.
        *rest, last = self.choices
        for alternative in last:
            branch = self.copy()
            branch.choices = rest
            for form, equal in alternative:
                branch.require(form, equal)
            found = branch._solve(left)
            if found is not None:
                return found
        return None

    def refuted(self) -> bool:
        """Whether propagation alone shows that there is no solution."""
        return not (self.settle() and self._narrow() and self._stands_reduced())

    def _stands_reduced(self) -> bool:
        """Whether the system is still possible with its equalities put to use.

        Columns that an equality gives are replaced in all other constraints, which may then
        contradict each other where each on its own did not.
        """
        trial = self.copy()
        for _ in range(_ELIMINATIONS):
            chosen = next(
                (
                    (terms, value, k, c)
                    for terms, (value, greatest) in trial.rows.items()
                    if value == greatest
                    for k, c in terms
                    if c in (1, -1)
                ),
                None,
            )
            if chosen is None:
                break
            terms, value, column, c = chosen
            del trial.rows[terms]
            given = {k: -c * other for k, other in terms if k != column}
            given[CONSTANT] = c * value
            trial._replace(column, given)
        return trial.settle() and trial._narrow()

    def _replace(self, column: int, given: Form) -> None:
        """Put a form in place of a column everywhere."""

        def put(form: Form) -> Form:
            scale = form.get(column)
            if not scale:
                return form
            return plus({k: c for k, c in form.items() if k != column}, given, scale)

        low, high = self.low[column], self.high[column]
        for terms in [t for t in self.rows if any(k == column for k, _ in t)]:
            least, greatest = self.rows.pop(terms)
            form = put(dict(terms))
            if least > -UNBOUNDED:
                self.require(plus(form, constant(-least)))
            if greatest < UNBOUNDED:
                self.require(minus(constant(greatest), form))
        self.require(plus(given, constant(-low)))
        self.require(minus(constant(high), given))
        self.choices = [
            [[(put(form), equal) for form, equal in alternative] for alternative in choice]
            for choice in self.choices
        ]

    def _dive(self) -> list[int] | None:
        """A solution found by fixing one column after another, without going back."""
        columns = sorted({k for terms in self.rows for k, _ in terms})
        for order in (columns, columns[::-1]):
            found = self._fix(order)
            if found is not None:
                return found
        return None

    def _fix(self, order: list[int]) -> list[int] | None:
        trial = self.copy()
        for k in order:
            if not trial.rows and not trial.choices:
                break
            low, high = trial.low[k], trial.high[k]
            if low == high:
                continue
            for value in dict.fromkeys((min(max(low, 0), high), low, high)):
                attempt = trial.copy()
                attempt.low[k] = attempt.high[k] = value
                if attempt.settle() and attempt._narrow():
                    break
            else:
                return None
            trial = attempt
        return None if trial.rows or trial.choices else trial.low[:]

    def _listed(self) -> list[Row]:
        return [(terms, least, greatest) for terms, (least, greatest) in self.rows.items()]

    def _narrow(self) -> bool:
        """Drop alternatives that cannot hold and choices that always do; take the only ones."""
        changed = True
        while changed:
            changed = False
            kept: list[list[list[Constraint]]] = []
            for choice in self.choices:
                states = [(a, self._state(a)) for a in choice]
                alive = [a for a, state in states if state != "never"]
                if not alive:
                    self.possible = False
                    return False
                if any(state == "always" for _, state in states):
                    continue
                if len(alive) > 1:
                    kept.append(alive)
                    continue
                for form, equal in alive[0]:
                    self.require(form, equal)
                changed = True
            self.choices = kept
            if changed and not self.settle():
                return False
        return True

    def _state(self, alternative: list[Constraint]) -> str:
        state = "always"
        for form, equal in alternative:
            least, greatest = self.bounds(form)
            if greatest < 0 or (equal and least > 0):
                return "never"
            if least < 0 or (equal and greatest > 0):
                state = "maybe"
        return state

    def _propagate(self) -> bool:
        low, high = self.low, self.high
        work = self._listed()
        for _ in range(_ROUNDS):
            changed = False
            kept: list[Row] = []
            for row in work:
                terms, least, greatest = row
                lo = hi = 0
                for k, c in terms:
                    if c > 0:
                        lo += c * low[k]
                        hi += c * high[k]
                    else:
                        lo += c * high[k]
                        hi += c * low[k]
                if lo > greatest or hi < least:
                    return False
                if lo >= least and hi <= greatest:
                    continue
                kept.append(row)
                # What every term may exceed its own least (fall below its greatest) value by.
                above, below = greatest - lo, hi - least
                for k, c in terms:
                    size = c if c > 0 else -c
                    width = (high[k] - low[k]) * size
                    if width > above:
                        if c > 0:
                            high[k] = low[k] + above // size
                        else:
                            low[k] = high[k] - above // size
                        changed = True
                        width = (high[k] - low[k]) * size
                    if width > below:
                        if c > 0:
                            low[k] = high[k] - below // size
                        else:
                            high[k] = low[k] + below // size
                        changed = True
                    if low[k] > high[k]:
                        return False
            work = kept
            if not changed:
                break
        self.rows = {terms: (least, greatest) for terms, least, greatest in work}
        return True
