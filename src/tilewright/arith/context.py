"""What is known at one point of a program: ranges of atoms, linear facts, conditions that hold."""

from __future__ import annotations

from tilewright.arith.affine import Affine
from tilewright.arith.interval import EVERYTHING, Span, intersection
from tilewright.ir.expr import Expr, Var


class Context:
    """Knowledge, with the results derived from it.

    A context is extended in place by binding variables, and by :meth:`child` for what holds in a
    part of the program only. Results are forgotten when a variable they may mention changes.
    """

    __slots__ = (
        "affine",
        "atom_spans",
        "bound",
        "children",
        "definitions",
        "facts",
        "fixed",
        "ranges",
        "simplified",
        "truths",
    )

    def __init__(self) -> None:
        self.ranges: dict[Expr, Span] = {}  # of variables bound and atoms compared to constants
        self.fixed: dict[Expr, Affine] = {}  # variables of one value, which takes their place
        self.facts: dict[Expr, tuple[Affine, ...]] = {}  # forms >= 0, by each atom in them
        self.truths: dict[Expr, bool] = {}  # conditions in canonical form
        self.definitions: dict[Var, Expr] = {}
        self.bound: set[Var] = set()  # variables given a domain or a value
        self.forget()

    def forget(self) -> None:
        """Drop what was derived."""
        self.affine: dict[Expr, Affine] = {}
        self.simplified: dict[Expr, Expr] = {}
        self.atom_spans: dict[Expr, Span] = {}
        self.children: dict[Expr, Context] = {}

    def copy(self) -> Context:
        """The same knowledge, to be extended apart."""
        made = Context()
        made.ranges = dict(self.ranges)
        made.fixed = dict(self.fixed)
        made.facts = dict(self.facts)
        made.truths = dict(self.truths)
        made.definitions = dict(self.definitions)
        made.bound = set(self.bound)
        return made

    def unbind(self, var: Var) -> None:
        """Drop every piece of knowledge about a variable that gets a new meaning."""
        from tilewright.ir.visit import uses

        gone = {var}
        self.ranges = {e: r for e, r in self.ranges.items() if not uses(e, gone)}
        self.truths = {e: v for e, v in self.truths.items() if not uses(e, gone)}
        self.definitions = {
            v: e for v, e in self.definitions.items() if v is not var and not uses(e, gone)
        }
        self.fixed = {
            e: form
            for e, form in self.fixed.items()
            if e is not var and not any(uses(atom, gone) for atom in form.terms)
        }
        self.facts = {
            e: kept
            for e, forms in self.facts.items()
            if (kept := tuple(f for f in forms if not any(uses(atom, gone) for atom in f.terms)))
        }
        self.forget()

    def narrow(self, atom: Expr, span: Span) -> None:
        """Note that an atom lies within a span."""
        self.ranges[atom] = intersection(self.ranges.get(atom, EVERYTHING), span)

    def learn(self, fact: Affine) -> None:
        """Note that a form is not negative."""
        if not fact.terms:
            return
        if len(fact.terms) == 1:
            ((atom, k),) = fact.terms.items()
            if k > 0:
                self.narrow(atom, (-(fact.const // k), EVERYTHING[1]))
            else:
                self.narrow(atom, (EVERYTHING[0], fact.const // -k))
            return
        for atom in fact.terms:
            self.facts[atom] = (*self.facts.get(atom, ()), fact)
