"""Loops over the elements of fragments become loops over what each thread holds of them.

A fragment lies in the registers of a group of threads, and the instructions that use it say which
thread holds which element. What fills it, reads it or stores it away is written as loops over its
elements, like any stage. Of each of those loops, the bits that choose a thread become bits of the
thread's number, and the others stay loops:

>>> from tilewright.lower.ir_builder import axes, buffer, func, loop, store, allocate
>>> from tilewright.ir.distribution import Distribution, runs_of
>>> i, j = axes("i j")
>>> C, F = buffer("C", 16, 8), buffer("F", 16, 8, scope="fragment")
>>> rows, columns = ("lane 2", "lane 3", "lane 4", "slot"), ("slot", "lane 0", "lane 1")
>>> F = replace(F, distribution=Distribution.parse((16, 8), (rows, columns)))
>>> write = loop(i, 16, loop(j, 8, store(C[i, j], F[i, j])))
>>> print(distribute(func(allocate(F, write))).body)
F = T.allocate([16, 8], 'float32', 'fragment')
lane = T.launch_thread('threadIdx.x', 32)
for i_o in T.unrolled(2):
    for j_0 in T.unrolled(2):
        C[i_o * 8 + lane // 4, lane % 4 * 2 + j_0] = F[i_o * 8 + lane // 4, lane % 4 * 2 + j_0]

A loop of a reduction that goes through what several threads hold, into an element that all of these
have, is shuffles among them: each combines its part with those of the others.

>>> parts = ("slot", "slot"), ("lane 0", "lane 1")
>>> P = replace(buffer("P", 4, 4, scope="fragment"), distribution=Distribution.parse((4, 4), parts))
>>> held = Distribution.parse((4,), (("slot", "slot"),), group=4)
>>> S = replace(buffer("S", 4, scope="fragment"), distribution=held)
>>> total = loop(i, 4, loop(j, 4, store(S[i], S[i] + P[i, j])))
>>> print(distribute(func(allocate(P, allocate(S, total)))).body)
P = T.allocate([4, 4], 'float32', 'fragment')
S = T.allocate([4], 'float32', 'fragment')
for i in range(4):
    lane = T.launch_thread('threadIdx.x', 4)
    S_part: T.float32 = P[i, lane]
    S_part: T.float32 = S_part + T.shuffle_xor(S_part, 1)
    S_part: T.float32 = S_part + T.shuffle_xor(S_part, 2)
    S[i] = S[i] + S_part

The threads of a group are those along threadIdx.x. It stands right after instructions have taken
their places, so that all later passes see threads and their loops as in any other kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.arith.affine import as_affine
from tilewright.ir.distribution import runs_of
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Add, Binary, Call, Expr, IntImm, Max, Min, Mul, Var, load
from tilewright.ir.func import Func
from tilewright.ir.ops import (
    add,
    const,
    floordiv,
    floormod,
    is_const,
    logical_and,
    maximum,
    minimum,
    mul,
)
from tilewright.ir.stmt import Allocate, For, ForKind, If, Instr, Let, Produce, Stmt, Store, let
from tilewright.ir.visit import Steps, allocated, children, distinct, statements, substitute, uses
from tilewright.lower.build.fragment_uses import Unfused, Use, loads_of, uses_of
from tilewright.lower.context import InContext, analyzer_of

#: How a reduction combines two numbers, by what it writes.
_COMBINES: Mapping[type[Expr], Callable[[Expr, Expr], Expr]] = {
    Add: add, Mul: mul, Max: maximum, Min: minimum,
}  # fmt: skip
#: The axis along which the threads of a group lie.
LANES = "threadIdx.x"


def distribute(func: Func) -> Func:
    """Every nest over elements of fragments as one over its thread's part.

    Raises :class:`LoweringError` where no instruction says which thread holds what, and where a
    nest reads two fragments that are held differently, or is bound to threads itself.
    """
    if not any(
        isinstance(s, Allocate) and s.buffer.scope == "fragment" for s in statements(func.body)
    ):
        return func
    for buffer in allocated(func.body):
        if buffer.scope == "fragment" and buffer.distribution is None:
            raise LoweringError(
                f"no instruction says which thread holds what of {buffer.name!r}, which is in "
                "fragments: tensorize a stage that reads or computes it, inline it with "
                "compute_inline(), or keep it in another memory with set_scope()"
            )
    return replace(func, body=_Distribute(func).stmt(Unfused(func).stmt(func.body)))


def check_groups(func: Func) -> Func:
    """``func`` itself, in which the threads along x are the groups that hold fragments.

    Raises :class:`LoweringError` where they are more or fewer.
    """
    extent = func.extent(LANES)
    for buffer in allocated(func.body):
        held = buffer.distribution
        if held is not None and not (isinstance(extent, IntImm) and extent.value == held.lanes):
            raise LoweringError(
                f"fragment {buffer.name!r} is held by the {held.lanes} threads along {LANES}, "
                f"which are {extent} here: bind other axes of the kernel to that number of "
                "threadIdx.x, and the groups of threads to threadIdx.y"
            )
    return func


class _Distribute(InContext):
    def __init__(self, func: Func) -> None:
        super().__init__(analyzer_of(func))
        self.ranges = Analyzer()  # of the threads and the loops that divide a nest: who holds what
        self.stage = ""
        self.lane: Var | None = None  # of the nest that is being divided
        self.uses: tuple[Use, ...] = ()
        self.named: dict[Var, tuple[Use, ...]] = {}  # by the variables that stand for values
        self.alike = set[Var]()  # those that are the same for all holders of a row, say

    def steps(self, s: Stmt) -> Steps:
        match s:
            case Produce(stage, _):
                outer, self.stage = self.stage, stage
                made = yield from super().steps(s)
                self.stage = outer
                return made
            case Instr():
                return s
            case For() if self.lane is None:
                found = tuple(uses_of(s.body))
                if any(None is not bit for use in found for bit in self.bits(s, use)):
                    return (yield self.divided(s, found))
                return (yield self.kept(s))
            case For():
                return (yield self.loop(s))
            case Store() if self.lane is None and (found := tuple(uses_of(s))):
                return (yield self.divided(s, found))  # one element, which no loop goes to
            case Let(var, value, _) if self.lane is not None:
                self.named[var] = () if var in self.alike else self.used(value)
            case Store() if self.lane is not None:
                made = yield from super().steps(s)
                self.check_alike(s)
                holders = self.holders(s)
                return made if is_const(holders, 1) else If(holders, made)
        return (yield from super().steps(s))

    def used(self, s: Stmt | Expr) -> tuple[Use, ...]:
        """The accesses to fragments of a value or a statement, also by variables that stand for
        what has some."""
        found = [*(loads_of(s) if isinstance(s, Expr) else uses_of(s))]
        for e in [s] if isinstance(s, Expr) else [x for x in children(s) if isinstance(x, Expr)]:
            for x in distinct(e):
                if isinstance(x, Var):
                    found += self.named.get(x, ())
        return tuple(found)

    def divided(self, nest: For | Store, found: tuple[Use, ...]) -> Steps:
        """A nest whose loops choose threads, or one element's store, in a loop over these."""
        groups = {use.held.lanes for use in found}
        if len(groups) > 1:
            sizes = " and ".join(map(str, sorted(groups)))
            raise self.error(f"fragments of groups of {sizes} threads are used together")
        for inner in statements(nest):
            if isinstance(inner, Instr) and isinstance(nest, For):
                raise self.error(
                    f"loop {nest.var.name!r} over elements of a fragment has the instruction "
                    f"{inner.instruction.name!r} inside, which all threads execute together",
                    nest.var.name,
                )
        (lanes,) = groups
        self.lane, self.uses = Var.make("lane"), found
        with self.analyzer.scope(), self.ranges.scope():
            for known in (self.analyzer, self.ranges):
                known.bind(self.lane, const(0), const(lanes))
            body = yield self.loop(nest) if isinstance(nest, For) else self.steps(nest)
        made = For(self.lane, const(0), const(lanes), ForKind.THREAD, body, LANES)
        self.lane, self.uses = None, ()
        return made

    def kept(self, s: For) -> Steps:
        """A loop that all threads go through."""
        with self.ranges.scope():
            self.ranges.bind(s.var, s.min, s.extent)
            return (yield from super().steps(s))

    def loop(self, s: For) -> Steps:
        """A loop inside such a nest."""
        bits = self.together(s)
        if not any(bit is not None for bit in bits):
            if s.kind is ForKind.THREAD and s.tag == LANES:
                raise self.bound(s)
            return (yield self.kept(s))
        if s.kind not in (ForKind.SERIAL, ForKind.UNROLLED, ForKind.VECTORIZED):
            raise self.bound(s)
        if isinstance(s.body, Store) and self.apart(s.body, bits):
            return (yield self.steps(self.combined(s, s.body, bits)))
        low, extent = self.analyzer.simplify(s.min), self.analyzer.simplify(s.extent)
        span = 1 << len(bits)
        if not (isinstance(low, IntImm) and low.value % span == 0 and isinstance(extent, IntImm)):
            raise self.error(
                f"the loop over {s.var.name!r} is from {low} of {extent}, not of constant extent "
                f"from a multiple of {span}",
                s.var.name,
            )
        value: Expr = low
        loops: list[tuple[Var, int, ForKind]] = []
        outer = -(-extent.value // span)
        if outer > 1:
            loops.append((Var.make(f"{s.var.name}_o"), outer, ForKind.UNROLLED))
            value = add(value, mul(loops[-1][0], const(span)))
        for run in reversed(runs_of(bits)):
            assert self.lane is not None
            size = 1 << run.count
            part: Expr
            if run.lane is not None:
                part = floormod(floordiv(self.lane, const(1 << run.lane)), const(size))
            else:
                whole = s.kind is ForKind.VECTORIZED and run.first == 0
                kind = ForKind.VECTORIZED if whole else ForKind.UNROLLED
                var = Var.make(f"{s.var.name}_{len(loops)}")
                loops.append((var, size, kind))
                part = var
            value = add(value, mul(part, const(1 << run.first)))
        with self.analyzer.scope(), self.ranges.scope():
            for var, count, _ in loops:
                self.analyzer.bind(var, const(0), const(count))
                self.ranges.bind(var, const(0), const(count))
            value = self.analyzer.simplify(value)
            inside = None if extent.value % span == 0 else value < low + extent
            outer_uses = self.uses
            self.uses = tuple(
                replace(use, indices=tuple(substitute(i, {s.var: value}) for i in use.indices))
                for use in outer_uses
            )
            body: Stmt = substitute(s.body, {s.var: value})
            if inside is None:
                body = yield self.steps(body)
            else:
                body = If(inside, (yield self.under(inside, body)))
            self.uses = outer_uses
        for var, count, kind in reversed(loops):
            body = For(var, const(0), const(count), kind, body)
        return body

    def apart(self, store: Store, bits: Sequence[int | None]) -> bool:
        """Whether threads that hold what is stored alike differ in these bits of a loop."""
        held = store.buffer.distribution
        return held is not None and not set(held.shared).isdisjoint(bits)

    def combined(self, s: For, store: Store, bits: Sequence[int | None]) -> Stmt:
        """A loop over what several threads hold, into an element that they hold alike: each thread
        combines its own part with those of the others, by shuffles."""
        assert self.lane is not None
        held, old = store.buffer.distribution, load(store.buffer, store.indices)
        assert held is not None
        combine = _COMBINES.get(type(store.value))
        low, extent = self.analyzer.simplify(s.min), self.analyzer.simplify(s.extent)
        lanes = [bit for bit in bits if bit in held.shared]
        whole = is_const(low, 0) and is_const(extent, 1 << len(bits)) and len(lanes) == len(bits)
        parts = (store.value.a, store.value.b) if isinstance(store.value, Binary) else ()
        if combine is None or old not in parts or not whole:
            raise self.error(
                f"the loop over {s.var.name!r} goes through what several threads hold, into "
                f"{store.buffer.name!r}, which they hold alike: let it be one of a sum, a product, "
                "a maximum or a minimum, split so that its extent is the number of these threads",
                s.var.name,
            )
        (part,) = (x for x in parts if x is not old)
        own: Expr = const(0)
        for b, bit in enumerate(lanes):
            assert bit is not None
            own = add(own, mul(_bit(self.lane, bit), const(1 << b)))
        value: Expr = substitute(part, {s.var: self.analyzer.simplify(own)})
        steps = [(Var.of(f"{store.buffer.name}_part", value), value)]
        for bit in lanes:
            assert bit is not None
            last = steps[-1][0]
            other = Call(last.dtype, "shuffle_xor", (last, const(1 << bit)))
            value = combine(last, other)
            steps.append((Var.of(f"{store.buffer.name}_part", value), value))
        self.alike.add(steps[-1][0])
        return let(steps, Store(store.buffer, store.indices, combine(old, steps[-1][0])))

    def check_alike(self, s: Store) -> None:
        """Raises :class:`LoweringError` where threads that hold an element alike would store
        what each of them has."""
        held = s.buffer.distribution
        if held is None or not held.shared:
            return
        for use in self.used(s):
            told = {bit for own in use.held.bits for bit in own}
            if not told.isdisjoint(held.shared):
                raise self.error(
                    f"threads hold {s.buffer.name!r} alike, but each a part of "
                    f"{use.buffer.name!r} of its own, which it is stored of: reduce over these "
                    "parts in the innermost loop"
                )

    def together(self, s: For) -> list[int | None]:
        """Where the bits of a loop's variable go, for all fragments that the nest uses."""
        found: list[int | None] = []
        name = ""
        for use in self.uses:
            bits = self.bits(s, use)
            if not bits:
                continue
            if name and found[: len(bits)] != bits[: len(found)]:
                raise self.error(
                    f"fragments {name!r} and {use.buffer.name!r} are held by the threads in "
                    f"different ways along {s.var.name!r}, and are used together: copy one "
                    "through shared memory",
                    s.var.name,
                )
            if len(bits) > len(found):
                found, name = bits, use.buffer.name
        return found

    def bits(self, s: For, use: Use) -> list[int | None]:
        """Where the bits of a loop's variable go in one access, up to the last that counts."""
        found: list[int | None] = []
        for index, own in zip(use.indices, use.held.bits, strict=True):
            if s.var not in distinct(index) or all(bit is None for bit in own):
                continue
            form = as_affine(index)
            factor = form.coefficient(s.var)
            if any(uses(atom, {s.var}) for atom in form.terms if atom is not s.var):
                raise self.error(
                    f"index {index} of fragment {use.buffer.name!r} is not affine in "
                    f"{s.var.name!r}: split the axes of the stage instead of fusing them",
                    s.var.name,
                )
            tile = 1 << len(own)
            if factor % tile == 0:
                continue
            if factor < 0 or factor & (factor - 1):
                raise self.error(
                    f"index {index} of fragment {use.buffer.name!r} goes in steps of {factor}, "
                    "which is not a power of two",
                    s.var.name,
                )
            last = self.analyzer.bounds(s.min + s.extent - 1).hi
            count = len(own) if last is None else last.bit_length()
            found = list(own[factor.bit_length() - 1 :][:count])
        while found and found[-1] is None:
            found.pop()
        return found

    def holders(self, s: Store) -> Expr:
        """Which threads hold what a statement uses: all that come to it, or those with some bits.

        Bits of an index that no loop goes through, as of a row that is used alone, choose threads
        by a condition.
        """
        assert self.lane is not None
        found: list[Expr] = []
        for use in self.used(s):
            if self.ranges.prove(use.held.lane(use.indices).equal(self.lane)):
                continue
            for index, own in zip(use.indices, use.held.bits, strict=True):
                for b, bit in enumerate(own):
                    if bit is None:
                        continue
                    wanted = self.ranges.simplify(_bit(index, b))
                    here = _bit(self.lane, bit)
                    if self.ranges.prove(wanted.equal(here)):
                        continue
                    if uses(wanted, {self.lane}):
                        indices = ", ".join(map(repr, use.indices))
                        raise self.error(
                            f"thread {self.lane.name!r} would use {use.buffer.name}[{indices}], "
                            "which another one holds"
                        )
                    found.append(here.equal(wanted))
        return logical_and(*dict.fromkeys(found))

    def bound(self, s: For) -> LoweringError:
        how = f"bound to {s.tag}" if s.kind is ForKind.THREAD else s.kind.value
        return self.error(
            f"the loop over {s.var.name!r} is {how}, but the threads that hold the fragment share "
            "its elements among themselves: leave the axis unbound",
            s.var.name,
        )

    def error(self, text: str, axis: str = "") -> LoweringError:
        return LoweringError(text, stage=self.stage, axis=axis)


def _bit(e: Expr, number: int) -> Expr:
    return floormod(floordiv(e, const(1 << number)), const(2))
