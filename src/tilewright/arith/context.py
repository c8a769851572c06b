"""What is known at one point of a program: ranges of atoms, linear facts, conditions that hold."""

from __future__ import annotations

from collections.abc import Hashable

from tilewright.arith.affine import Affine
from tilewright.arith.interval import EVERYTHING, Span, intersection
from tilewright.ir.expr import Expr, Var
from tilewright.ir.visit import uses


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
        "outside",
        "ranges",
        "shared",
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
        #: Where both values of a choice are evaluated, what holds for either; None: all of this.
        self.outside: Context | None = None
        self.shared = False  # kept for the next time its condition is assumed, so not to change
        self.forget()

    def forget(self) -> None:
        """Drop what was derived."""
        self.affine: dict[Expr, Affine] = {}
        self.simplified: dict[Expr, Expr] = {}
        self.atom_spans: dict[Expr, Span] = {}
        self.children: dict[Hashable, Context] = {}  # by what holds or ranges there

    def copy(self) -> Context:
        """The same knowledge, to be extended apart."""
        made = Context()
        made.ranges = dict(self.ranges)
        made.fixed = dict(self.fixed)
        made.facts = dict(self.facts)
        made.truths = dict(self.truths)
        made.definitions = dict(self.definitions)
        made.bound = set(self.bound)
        made.outside = self.outside
        return made

    def unbind(self, gone: set[Var]) -> None:
        """Drop all facts about variables that get a new meaning."""

        def about(e: Expr) -> bool:
            return e in gone if type(e) is Var else uses(e, gone)

        def concerns(form: Affine) -> bool:
            return any(map(about, form.terms))

        self.bound -= gone
        self.ranges = {e: r for e, r in self.ranges.items() if not about(e)}
        self.truths = {e: v for e, v in self.truths.items() if not about(e)}
        self.definitions = {
            v: e for v, e in self.definitions.items() if v not in gone and not about(e)
        }
        self.fixed = {
            v: form for v, form in self.fixed.items() if v not in gone and not concerns(form)
        }
        self.facts = {
            e: kept
            for e, forms in self.facts.items()
            if (kept := tuple([form for form in forms if not concerns(form)]))
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
        self.atom_spans.clear()
        for atom in fact.terms:
            self.facts[atom] = (*self.facts.get(atom, ()), fact)
