"""What is provable about the integers of a program: the interface of this package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf

from tilewright.arith import (
    bounds,
    conditions,
    extrema,
    integers,
    products,
    regions,
    structure,
    vectors,
)
from tilewright.arith.affine import Affine, as_affine, of_atom
from tilewright.arith.context import Context
from tilewright.arith.facts import learn, reads_memory
from tilewright.arith.interval import Interval, Span, as_interval
from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Expr, FloatImm, IntImm, Var
from tilewright.ir.ops import Value, as_condition, as_index
from tilewright.ir.visit import exprs, substitute

#: How many steps one question may take before it is given up.
_EFFORT = 400


class Analyzer:
    """Simplifies and proves, under the domains of variables and the conditions it was given.

    Index arithmetic (``Expr.exact``) is that of integers without end. Arithmetic on data wraps
    around in its type: it is an atom, whose parts are simplified and whose range is used. Results
    are kept from call to call.

    >>> from tilewright.ir.expr import Var
    >>> from tilewright.arith import Analyzer
    >>> az, i, j = Analyzer(), Var.make("i"), Var.make("j")
    >>> az.bind(i, 0, 8)
    >>> az.bind(j, 0, 4)
    >>> az.simplify((i * 4 + j) // 4 * 8 + (j + i * 4) % 4)
    i * 8 + j
    >>> az.bounds(i * 4 - j)
    Interval(lo=-3, hi=28)
    >>> with az.assume(i + j < 3):
    ...     az.prove(i < 3)
    True
    """

    def __init__(self) -> None:
        self.context = Context()
        #: The order in which terms of equal coefficient are written.
        self.ranks: dict[Expr, int] = {}
        self.effort = _EFFORT
        self._raw: dict[Expr, Affine] = {}
        self._from_memory: dict[Expr, bool] = {}

    # --- what is known

    def bind(self, var: Var, min: Value, extent: Value | None) -> None:
        """Let ``var`` range over ``min .. min + extent - 1``; extent None for no upper end.

        A variable bound before gets the new domain, and what was known about it is dropped.
        """
        self._introduce(var)
        context = self.context
        low = as_index(min)
        if isinstance(low, IntImm) and isinstance(extent, (int, IntImm)):
            count = extent if isinstance(extent, int) else extent.value
            if count == 1:
                context.fixed[var] = Affine({}, low.value)
            context.narrow(var, (low.value, low.value + count - 1))
            return
        start = self.affine(low)
        span: Span = (bounds.lower(self, start, 1), inf)
        symbolic = bool(start.terms) and not reads_memory(low)
        facts: list[Affine] = []
        if extent is not None:
            size = as_index(extent)
            last = self.normal(start + self.affine(size) - 1)
            span = (span[0], -bounds.lower(self, -last, 1))
            if not reads_memory(low) and self.affine(size) == Affine({}, 1):
                context.fixed[var] = start
                symbolic = False
            elif last.terms and not reads_memory(size):
                facts += [part - of_atom(var) for part in extrema.branches(self, last, E.Min)]
        if span[0] == span[1]:
            context.fixed[var] = Affine({}, int(span[0]))
        if symbolic:
            facts += [of_atom(var) - part for part in extrema.branches(self, start, E.Max)]
        context.narrow(var, span)
        for fact in facts:
            context.learn(fact)

    def symbol(self, var: Var) -> None:
        """Let ``var`` be an extent that a call gives."""
        # No upper end: buffers would be made as large as the largest extent asks for.
        self.bind(var, var.least, None)

    def shapes(self, buffers: Iterable[Buffer]) -> set[Var]:
        """Let the extents of ``buffers`` not be negative; those of them that are variables.

        Of a variable within an extent no more is known than that.
        """
        extents = dict.fromkeys(extent for b in buffers for extent in b.shape)
        found = {extent: None for extent in extents if isinstance(extent, Var)}
        for var in found:
            self.symbol(var)
        for extent in extents:
            if not isinstance(extent, (Var, IntImm)):
                for fact in conditions.conjuncts(self.simplify(extent >= 0)):
                    self.enter(fact)
        return set(found)

    def define(self, var: Var, value: Expr) -> None:
        """Let ``var`` stand for ``value``: what is known of the one holds for the other.

        A constant takes the variable's place in what is simplified, other values do not.
        """
        assert value.exact or not (var.exact and var.dtype.is_int), f"{var} stands for {value}"
        self._introduce(var)
        context = self.context
        context.definitions[var] = value
        if not self.is_index(var.dtype):
            return
        form = self.affine(value)
        if form.is_const:
            context.fixed[var] = form
        context.narrow(var, (bounds.lower(self, form, 1), -bounds.lower(self, -form, 1)))
        if not reads_memory(value):
            context.learn(of_atom(var) - form)
            context.learn(form - of_atom(var))

    def _introduce(self, var: Var) -> None:
        if self.context.shared:
            self.context = self.context.copy()
        context = self.context
        if var in context.bound:
            context.unbind({var})
        elif var in context.affine or var in context.simplified:
            context.forget()
        context.bound.add(var)
        context.children.clear()
        self.ranks.setdefault(var, len(self.ranks))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is bound, defined or assumed inside is forgotten at the end."""
        outside = self.context
        self.context = outside.copy()
        try:
            yield
        finally:
            self.context = outside

    @contextmanager
    def assume(self, condition: Expr) -> Iterator[None]:
        """Take ``condition`` as holding inside.

        Parts of it that read memory are not taken in, since the memory may change.
        """
        outside = self.context
        try:
            for part in conditions.conjuncts(self.simplify(as_condition(condition))):
                if not reads_memory(part):
                    self.enter(part)
            yield
        finally:
            self.context = outside

    def enter(self, condition: Expr, eager: bool = False) -> None:
        """Go on in the context in which a simplified condition holds; the caller goes back.

        With ``eager``, what is simplified is evaluated where the condition fails, too, and is
        without effect there.
        """
        context = self.context
        key = (condition, eager) if eager else condition
        child = context.children.get(key)
        if child is None:
            child = context.copy()
            if eager:
                child.outside = context.outside or context
            elif context.outside is not None:
                self.context = context.outside
                self.enter(condition)
                child.outside = self.context
            self.context = child
            learn(self, condition)
            child.forget()
            child.shared = True
            context.children[key] = child
        self.context = child

    @contextmanager
    def unconditional(self) -> Iterator[None]:
        """Use only what holds wherever the present part is evaluated, for what may fail in it."""
        here = self.context
        self.context = here.outside or here
        try:
            yield
        finally:
            self.context = here

    # --- questions

    def simplify(self, e: Expr) -> Expr:
        """An equal expression in canonical form; simplifying it again changes nothing.

        Expressions of any type are simplified in their parts. Floating-point values stay what
        they were, bit for bit.
        """
        cls = type(e)
        if cls is IntImm or cls is FloatImm:
            return e
        context = self.context
        found = context.simplified.get(e)
        if found is None:
            t = e.dtype
            self.effort = _EFFORT
            if t.lanes > 1:
                found = vectors.simplify(self, e)
            elif t.kind == "int" and t.bits >= 32:
                found = self.to_expr(self.affine(e), t)
            elif t.is_bool:
                found = conditions.condition(self, e)
            else:
                found = self.rebuild(e)
            context.simplified[e] = found
            context.simplified.setdefault(found, found)
        return found

    def prove(self, condition: Expr) -> bool:
        """True only if ``condition`` holds for all values of the variables, as far as known."""
        made = self.simplify(as_condition(condition))
        if isinstance(made, IntImm):
            return bool(made.value)
        if self._prove(made):
            return True
        expanded = self.expand(made)  # residues show only where a definition is written out
        return expanded is not made and self.prove(expanded)

    def expand(self, e: Expr) -> Expr:
        """``e`` with the values of defined variables in their place.

        Values read from memory stay out of it: the memory may hold others by now.
        """
        known = self.context.definitions
        definitions = {v: value for v, value in known.items() if not reads_memory(value)}
        while any(v in definitions for v in exprs(e) if isinstance(v, Var)):
            e = substitute(e, definitions)
        return e

    def _prove(self, e: Expr) -> bool:
        match e:
            case E.And(a, b):
                return self._prove(a) and self._prove(b)
            case E.Or(a, b):
                if self._prove(a):
                    return True
                with self.scope():
                    self.enter(conditions.negation(self, a))
                    return self.prove(b)
            case IntImm(_, value):
                return bool(value)
        form = conditions.inequality_form(self, e)
        if form is not None:
            return self._at_least(-form, 0)
        match e:
            case E.EQ(a, b) if self.is_index(a.dtype):
                form = self.raw(a) - self.raw(b)
                return self._at_least(form, 0) and self._at_least(-form, 0)
            case E.NE(a, b) if self.is_index(a.dtype):
                form = self.raw(a) - self.raw(b)
                return self._at_least(form, 1) or self._at_least(-form, 1)
        return False

    def _at_least(self, form: Affine, least: int) -> bool:
        for depth in (1, 2, 3, 4):
            self.effort = _EFFORT
            if bounds.lower(self, form, depth, least) >= least:
                return True
        return False

    def bounds(self, e: Expr) -> Interval:
        """Constant bounds of an integer expression; an end is None where there is none known."""
        if not self.is_index(e.dtype):
            return as_interval(bounds.value_span(self, self.simplify(e)))
        self.effort = _EFFORT
        form = self.affine(e)
        return as_interval((bounds.lower(self, form, 2), -bounds.lower(self, -form, 2)))

    def relax(self, e: Expr, domain: Mapping[Var, tuple[Expr, Expr]]) -> tuple[Expr, Expr]:
        """The least and the greatest value of ``e`` as the variables of ``domain`` range over
        ``[lo, hi]`` each and all others stay as they are.

        Tight for affine forms. Raises :class:`tilewright.arith.regions.Unbounded` where ``e``
        takes a value from memory, or the like, that has no bounds.
        """
        return regions.relax(self, e, domain)

    def extent(self, lo: Expr, hi: Expr) -> Expr:
        """``hi - lo + 1``, or the least constant known that is no smaller, if there is one."""
        return regions.extent(self, lo, hi)

    # --- for the other files of this package

    def affine(self, e: Expr) -> Affine:
        """The simplified form of an integer expression."""
        memo = self.context.affine
        found = memo.get(e)
        if found is None:
            cls = type(e)
            if cls is Var or not (e.exact and (cls is E.Add or cls is E.Sub or cls is E.Mul)):
                found = self._term(e)
            else:
                found = self.normal(as_affine(e, self._term))
            memo[e] = found
        return found

    def raw(self, e: Expr) -> Affine:
        """The form of an integer expression, not simplified."""
        found = self._raw.get(e)
        if found is None:
            found = self._raw[e] = as_affine(e)
        return found

    def _term(self, e: Expr) -> Affine:
        context = self.context
        found = context.affine.get(e)
        if found is None:
            cls = type(e)
            if cls is Var:
                found = context.fixed.get(e) or of_atom(e)
            elif isinstance(e, IntImm):
                found = Affine({}, e.value)
            else:
                found = integers.term(self, e)
                if cls is not E.Mul:
                    found = self._known(found)
            context.affine[e] = found
        return found

    def _known(self, form: Affine) -> Affine:
        """The constant in place of an atom that assumptions leave one value."""
        if len(form.terms) == 1 and self.context.ranges:
            lo, hi = bounds.span(self, form)
            if lo == hi:
                return Affine({}, int(lo))
        return form

    def normal(self, form: Affine) -> Affine:
        """The form with its atoms put together where they fit."""
        return integers.normal(self, form)

    def to_expr(self, form: Affine, t: DType) -> Expr:
        """The form as an expression."""
        return form.to_expr(t, self.ranks)

    def rebuild(self, e: Expr) -> Expr:
        """A node from its simplified parts."""
        return structure.rebuild(self, e)

    def from_memory(self, e: Expr) -> bool:
        """Whether evaluating an expression reads memory, or calls a function."""
        if e.exact:
            return False
        found = self._from_memory.get(e)
        if found is None:
            found = self._from_memory[e] = reads_memory(e)
        return found

    def factors(self, atom: Expr) -> list[Expr]:
        """The factors of a product of atoms."""
        return products.factors(atom)

    def exact_quotient(self, form: Affine, divisor: Expr) -> Affine | None:
        """The form over an atom that is a factor of every term, or None."""
        return products.exact_quotient(self, form, divisor)

    def facts_of(self, atom: Expr, depth: int) -> Iterable[Affine]:
        """Forms with ``atom`` in them that are not negative."""
        known = self.context.facts.get(atom, ())
        if depth < 2 or type(atom) not in _DERIVED:
            return known
        return (*known, *integers.implied(self, atom))

    @staticmethod
    def is_index(t: DType) -> bool:
        """Whether values of a type are looked at as affine forms."""
        return t.kind == "int" and t.bits >= 32 and t.lanes == 1


_DERIVED = frozenset((E.FloorDiv, E.Min, E.Max, E.FloorMod))
