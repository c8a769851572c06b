"""Iterations of a PARALLEL loop that touch different elements, whatever conditions hold inside."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arith import Analyzer
from tilewright.arith.encode import Instance
from tilewright.arith.system import System, Undecided, minus
from tilewright.ir import ops
from tilewright.ir.expr import Call, Expr, IntImm, LetExpr, Load, Ramp, Var
from tilewright.ir.stmt import For, Let
from tilewright.ir.visit import exprs, substitute
from tilewright.lower.analysis.accesses import Access, Kernel, Node
from tilewright.lower.analysis.barriers import Order
from tilewright.lower.analysis.domain import begin, enter
from tilewright.lower.analysis.runners import follow

#: An index and what the variables in it of inner loops range over, both ends included.
_Side = tuple[Expr, tuple[tuple[Var, int, int], ...]]


class Iterations:
    """What was once decided is kept: copies of a statement, which partitioning makes, have the
    same indices, so one answer serves most pairs of them."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._known: dict[tuple[Node, tuple[tuple[_Side, _Side], ...]], bool] = {}
        self._boxes: dict[tuple[Node, Access], tuple[_Side | None, ...]] = {}
        self._names: dict[tuple[int, int, int], Var] = {}  # of variables in boxes

    def apart(self, loop: Node, outside: frozenset[Node], a: Access, b: Access) -> bool:
        """Whether the indices of ``a`` and ``b`` keep iterations of ``loop`` apart.

        First those that both have in common, then the boxes of elements that an iteration touches.
        """
        return self._differ(loop, outside, self._common(loop, a, b)) or self._differ(
            loop, outside, self._both(loop, a, b)
        )

    def _differ(
        self, loop: Node, outside: frozenset[Node], sides: tuple[tuple[_Side, _Side], ...]
    ) -> bool:
        """Whether no two iterations have all ``sides`` in common."""
        if not sides:
            return False
        key = (loop, sides)
        if key not in self._known:
            system = System()
            one = Instance(system)
            begin(self.kernel, one, ())
            enter(self.kernel, one, loop.children[0])
            two = Instance(system, 1, one)
            enter(self.kernel, two, loop.children[0], (), outside)
            for x, y in sides:
                for instance, (_, spans) in ((one, x), (two, y)):
                    for var, low, high in spans:
                        if var not in instance.values:
                            instance.bind(var, low, high)
                system.require(minus(two.form(y[0]), one.form(x[0])), equal=True)
            follow(system, one, two, Order(outside, loop), "iterations")
            try:
                self._known[key] = system.solve() is None
            except Undecided:
                self._known[key] = False
        return self._known[key]

    def _common(self, loop: Node, a: Access, b: Access) -> tuple[tuple[_Side, _Side], ...]:
        """The indices that two accesses have in common, which are one number in an iteration."""
        inner = {
            x.stmt.var
            for x in a.node.ancestors[len(loop.ancestors) + 1 :]
            if isinstance(x.stmt, For | Let)
        }
        pairs = zip(a.indices, b.indices, strict=True)
        return tuple(((i, ()), (i, ())) for i, j in pairs if i is j and _plain(i, inner))

    def _both(self, loop: Node, a: Access, b: Access) -> tuple[tuple[_Side, _Side], ...]:
        """By dimension the boxes of two accesses, where both have one."""
        pairs = zip(self._box(loop, a), self._box(loop, b), strict=True)
        return tuple((x, y) for x, y in pairs if x and y)

    def _box(self, loop: Node, access: Access) -> tuple[_Side | None, ...]:
        """By dimension, what an iteration of ``loop`` touches: the index, in which variables of
        loops inside stand for any number within constants; None where it is not of that form, and
        where it is the same in all iterations."""
        found = self._boxes.get((loop, access))
        if found is None:
            analyzer = Analyzer()
            spans: dict[Var, tuple[int | None, int | None]] = {}
            for node in access.node.ancestors:
                match node.stmt:
                    case For(var, low, extent):
                        analyzer.bind(var, low, extent)
                        if node not in loop.line:
                            known = analyzer.bounds(var)
                            spans[var] = known.lo, known.hi
                    case Let(var):
                        spans[var] = None, None
            assert isinstance(loop.stmt, For)
            moved = loop.stmt.var
            named: dict[Var, tuple[Var, int, int]] = {}  # the same number in all dimensions
            found = tuple(self._side(i, moved, spans, named) for i in access.indices)
            self._boxes[loop, access] = found
        return found

    def _side(
        self,
        index: Expr,
        moved: Var,
        spans: Mapping[Var, tuple[int | None, int | None]],
        named: dict[Var, tuple[Var, int, int]],
    ) -> _Side | None:
        lanes = index.dtype.lanes
        if isinstance(index, Ramp) and isinstance(index.stride, IntImm):
            lane = Var.make("lane", index.base.dtype)
            spans = {**spans, lane: (0, lanes - 1)}
            index = ops.add(index.base, ops.mul(lane, index.stride))
        inside = list(dict.fromkeys(exprs(index)))
        if index.dtype.lanes > 1 or moved not in inside:
            return None
        if any(isinstance(x, (Load, Ramp, LetExpr, Call)) for x in inside):
            return None
        names: dict[Var, Expr] = {}
        for x in inside:
            if isinstance(x, Var) and x in spans:
                low, high = spans[x]
                if low is None or high is None:
                    return None
                if x not in named:
                    kind = (len(named), low, high)
                    name = self._names.setdefault(kind, Var.make(f"inner{len(named)}", x.dtype))
                    named[x] = (name, low, high)
                names[x] = named[x][0]
                if named[x][0].dtype != x.dtype:
                    return None
        return substitute(index, names), tuple(named[x] for x in names if isinstance(x, Var))


def _plain(index: Expr, excluded: set[Var]) -> bool:
    """Whether an index is one number that depends neither on memory nor on ``excluded``."""
    return index.dtype.lanes == 1 and not any(
        isinstance(x, (Load, Ramp, LetExpr)) or x in excluded for x in exprs(index)
    )
