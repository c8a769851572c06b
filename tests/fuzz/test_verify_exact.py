"""What verify says of small random kernels is what running every thread of them shows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.changed import without_barrier

from tilewright.ir import Buffer, Func, LaunchAxis, dtype
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import const, floordiv, floormod, maximum, minimum
from tilewright.ir.stmt import Allocate, For, ForKind, If, Seq, Stmt, Store, Sync, seq
from tilewright.ir.visit import walk
from tilewright.lower.async_.insert_barriers import insert_barriers
from tilewright.verify import check

SIZE = 6


@dataclass
class Run:
    """What one thread does: (epoch, what, buffer, element), epochs counted by barriers."""

    values: dict[Var, int]
    epoch: int = 0
    trace: list[tuple[int, bool, Buffer, tuple[int, ...]]] = field(default_factory=list)

    def value(self, e: Expr) -> Any:
        match e:
            case E.Var():
                return self.values[e]
            case E.IntImm(_, n) | E.FloatImm(_, n):
                return n
            case E.Load(buffer, indices, _):
                self.trace.append((self.epoch, False, buffer, tuple(map(self.value, indices))))
                return 0.0
            case E.IfThenElse(c, x, y):
                return self.value(x) if self.value(c) else self.value(y)
            case E.And(x, y):
                return self.value(x) and self.value(y)
            case E.Or(x, y):
                return self.value(x) or self.value(y)
            case E.Not(x):
                return not self.value(x)
        assert isinstance(e, (E.Binary, E.Compare))
        a, b = self.value(e.a), self.value(e.b)
        return {
            E.Add: lambda: a + b, E.Sub: lambda: a - b, E.Mul: lambda: a * b,
            E.FloorDiv: lambda: a // b, E.FloorMod: lambda: a % b, E.Min: lambda: min(a, b),
            E.Max: lambda: max(a, b), E.LT: lambda: a < b, E.LE: lambda: a <= b,
            E.GT: lambda: a > b, E.GE: lambda: a >= b, E.EQ: lambda: a == b, E.NE: lambda: a != b,
        }[type(e)]()  # fmt: skip

    def run(self, s: Stmt) -> None:
        match s:
            case Seq(stmts):
                for x in stmts:
                    self.run(x)
            case For(var, low, extent, _, body, _, _):
                first = self.value(low)
                for n in range(first, first + self.value(extent)):
                    self.values[var] = n
                    self.run(body)
            case If(condition, then, orelse):
                if self.value(condition):
                    self.run(then)
                elif orelse is not None:
                    self.run(orelse)
            case Allocate(_, body):
                self.run(body)
            case Store(buffer, indices, value, _):
                at = tuple(map(self.value, indices))
                self.value(value)
                self.trace.append((self.epoch, True, buffer, at))
            case Sync():
                self.epoch += 1


def races_when_run(func: Func) -> bool:
    """Whether two threads of a block, or two blocks, touch one element unordered."""
    touched: dict[Any, set[tuple[Any, bool]]] = defaultdict(set)
    sizes = [range(axis.extent.value) for axis in func.launch if isinstance(axis.extent, E.IntImm)]
    for place in product(*sizes):
        at = dict(zip((axis.var for axis in func.launch), place, strict=True))
        block, thread = place[0], place[1:]
        run = Run(dict(at))
        run.run(func.body)
        for epoch, write, buffer, element in run.trace:
            if buffer.scope == "shared":
                touched[(block, epoch, buffer, element)].add((thread, write))
            else:
                touched[("block", block, epoch, buffer, element)].add((thread, write))
                touched[("grid", buffer, element)].add((block, write))
    return any(
        len({who for who, _ in found}) > 1 and any(write for _, write in found)
        for found in touched.values()
    )


def leaves_when_run(func: Func) -> bool:
    """Whether any access is out of bounds."""
    sizes = [range(axis.extent.value) for axis in func.launch if isinstance(axis.extent, E.IntImm)]
    for place in product(*sizes):
        run = Run(dict(zip((axis.var for axis in func.launch), place, strict=True)))
        run.run(func.body)
        for _, _, buffer, element in run.trace:
            shape = buffer.constant_shape
            assert shape is not None
            if any(not 0 <= i < n for i, n in zip(element, shape, strict=True)):
                return True
    return False


def reads_what_no_one_wrote(func: Func, scope: str) -> bool:
    """Whether a thread reads in memory of ``scope``, its own, what it has not written before."""
    sizes = [range(axis.extent.value) for axis in func.launch if isinstance(axis.extent, E.IntImm)]
    for place in product(*sizes):
        run = Run(dict(zip((axis.var for axis in func.launch), place, strict=True)))
        run.run(func.body)
        written = set()
        for _, write, buffer, element in run.trace:
            if buffer.scope == scope and write:
                written.add(element)
            elif buffer.scope == scope and element not in written:
                return True
    return False


def index(draw: Any, variables: list[Var]) -> Expr:
    """An index expression with divisions, and minima and maxima now and then."""
    total: Expr = const(draw(st.integers(-1, 2)))
    for v in draw(st.lists(st.sampled_from(variables), min_size=1, max_size=3)):
        total = total + v * draw(st.integers(-2, 4))
    form = draw(st.sampled_from(["plain", "plain", "plain", "div", "mod", "min", "max"]))
    n = draw(st.integers(2, 4))
    if form == "div":
        return floordiv(total, n)
    if form == "mod":
        return floormod(total, n)
    if form == "min":
        return minimum(total, n)
    return maximum(total, 0) if form == "max" else total


def condition(draw: Any, variables: list[Var]) -> Expr:
    node = draw(st.sampled_from([E.LT, E.GE, E.EQ, E.NE]))
    one: Expr = node(index(draw, variables), const(draw(st.integers(0, 4))))
    if draw(st.integers(0, 3)) == 0:
        other: Expr = E.LT(index(draw, variables), const(2))
        return draw(st.sampled_from([E.And, E.Or]))(one, other)
    return E.Not(one) if draw(st.integers(0, 5)) == 0 else one


@st.composite
def kernels(draw: Any, barriers: bool, scope: str = "shared") -> Func:
    bx, tx, ty = Var.make("blockIdx_x"), Var.make("threadIdx_x"), Var.make("threadIdx_y")
    S = Buffer("S", (const(SIZE),), dtype("float32"), scope)
    G = Buffer("G", (const(SIZE), const(SIZE)), dtype("float32"))
    A = Buffer("A", (const(SIZE),), dtype("float32"))

    def store(variables: list[Var]) -> Stmt:
        value: Expr = A[index(draw, variables)]
        if draw(st.booleans()):
            value = S[index(draw, variables)]
            if draw(st.booleans()):
                value = E.IfThenElse(condition(draw, variables), value, const(0.0))
        if draw(st.integers(0, 2)):
            return Store(S, (index(draw, variables),), value)
        return Store(G, (index(draw, variables), index(draw, variables)), value)

    def block(variables: list[Var], depth: int, uniform: bool) -> Stmt:
        made: list[Stmt] = []
        for _ in range(draw(st.integers(1, 3))):
            kind = draw(st.sampled_from(["store", "store", "for", "if", "sync"]))
            if kind == "for" and depth:
                v = Var.make("ijk"[depth])
                extent = draw(st.integers(1, 3))
                body = block([*variables, v], depth - 1, uniform)
                made.append(
                    For(v, const(draw(st.integers(0, 1))), const(extent), ForKind.SERIAL, body)
                )
            elif kind == "if" and depth:
                made.append(If(condition(draw, variables), block(variables, depth - 1, False)))
            elif kind == "sync" and barriers and uniform:
                made.append(Sync("shared"))
            else:
                made.append(store(variables))
        return seq(*made)

    body = Allocate(S, block([tx, ty, bx], 2, True))
    launch = tuple(
        LaunchAxis(tag, var, const(draw(st.integers(1, most))))
        for tag, var, most in (
            ("blockIdx.x", bx, 2),
            ("threadIdx.x", tx, 4),
            ("threadIdx.y", ty, 2),
        )
    )
    return Func("main", (A, G), body, launch)


@settings(max_examples=60, deadline=None)
@given(kernels(barriers=True))
def test_races_and_bounds_are_those_of_running_it(func: Func) -> None:
    findings = check(func)
    kinds = {f.kind for f in findings}
    assert ("race" in kinds) == races_when_run(func), func
    assert ("bounds" in kinds) == leaves_when_run(func), func
    assert all(f.proved for f in findings)


@settings(max_examples=120, deadline=None)
@given(kernels(barriers=False, scope="local"))
def test_registers_that_their_thread_did_not_write_are_those_of_running_it(func: Func) -> None:
    if leaves_when_run(func):
        return
    found = [f for f in check(func) if f.kind == "uninitialised"]
    assert bool(found) == reads_what_no_one_wrote(func, "local"), func
    assert all(f.proved for f in found)


@settings(max_examples=60, deadline=None)
@given(kernels(barriers=False))
def test_barriers_are_inserted_where_they_help_and_each_is_needed(func: Func) -> None:
    made = insert_barriers(func)
    before, after = check(func), check(made)
    assert not any(f.kind == "divergence" for f in after)
    count = sum(isinstance(s, Sync) for s in walk(made.body))
    races = [f for f in after if "no barrier between" in f.message]
    if not any(f.kind == "race" for f in before):
        assert count == 0, made
    if races:  # those that no barrier prevents
        return
    for i in range(count):
        without = without_barrier(made, i)
        assert any("no barrier between" in f.message for f in check(without)), made
