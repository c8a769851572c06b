"""Loops that a schedule marked for an instruction become that instruction.

Around the outermost of them stands :class:`~tilewright.ir.stmt.Tensorize`. What they compute is
matched with the declaration; where it does not fit, the error says what differs. An
initialisation that stands inside the marked loops is moved in front of them. It stays a loop, but
where the instruction declares another one that clears its sums.

>>> from tilewright.lower.ir_builder import axes, buffer, func, loop, store
>>> from tilewright.target.instructions import dp4a
>>> i, k = axes("i k")
>>> A, B = (buffer(n, 8, 4, type="int8") for n in "AB")
>>> C = buffer("C", 8, type="int32")
>>> product = A[i, k].astype("int32") * B[i, k].astype("int32")
>>> dot = Tensorize(dp4a, "", loop(k, 4, store(C[i], C[i] + product)))
>>> print(tensorize(func(loop(i, 8, store(C[i], 0), dot))).body)
for i in range(8):
    C[i] = 0
    with T.instruction('dp4a', C[i], A[i, k], B[i, k]):
        for k in range(4):
            C[i] = C[i] + T.Cast('int32', A[i, k]) * T.Cast('int32', B[i, k])

It stands early, before loops are partitioned or vectorised and while their bodies look as they
were declared.

Operands that a group of threads holds together are buffers in fragments, and which thread holds
what of them is as their instructions want it (:mod:`~tilewright.target.fragments`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.arith.conditions import conjuncts
from tilewright.ir.buffer import Buffer
from tilewright.ir.distribution import Distribution
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, IntImm, Load, Select
from tilewright.ir.func import Func
from tilewright.ir.ops import const, is_const, logical_and
from tilewright.ir.stmt import (
    Access,
    For,
    ForKind,
    If,
    Instr,
    Produce,
    Remark,
    Seq,
    Stmt,
    Store,
    Tensorize,
    seq,
    with_body,
)
from tilewright.ir.visit import Steps, allocated, loads, replace_buffers, statements, uses, walk
from tilewright.lower.build.box_copies import match_box
from tilewright.lower.build.fragment_uses import Unfused
from tilewright.lower.build.inherit_fragments import inherited
from tilewright.lower.context import InContext, analyzer_of, pure
from tilewright.lower.substitution import copy
from tilewright.target.fragments import Held, distribution_of, joined, spread
from tilewright.target.instruction import Argument, Instruction
from tilewright.target.matching import match_instruction
from tilewright.target.target import Target


def tensorize(func: Func) -> Func:
    """Every marked nest as its instruction.

    Buffers allocated in ``func`` become as aligned as the instructions need, and fragments are held
    as they want them.

    Raises :class:`LoweringError` where a nest is not what its instruction declares, the target has
    no fragments, and where two instructions want one held differently.
    """
    if any(isinstance(s, Tensorize) for s in statements(func.body)):
        rewriter = _Tensorize(analyzer_of(func), func.target)
        body = _cleared(rewriter.stmt(func.body), rewriter.analyzer)
        if any(b.scope == "fragment" and b not in rewriter.bits for b in allocated(body)):
            body = Unfused(func).stmt(body)  # indices of a fused axis hide who holds what
        func = replace(func, body=_align(body, inherited(body, rewriter.bits)))
    return func


def _cleared(body: Stmt, analyzer: Analyzer) -> Stmt:
    """Loops that fill sums with zeros as the instruction that clears them, where there is one."""
    declared = [s for s in statements(body) if isinstance(s, Instr) and s.instruction.clears]
    clears = {s.operands[0].buffer: s.instruction.clears for s in declared}
    return _Clear(analyzer, clears).stmt(body) if clears else body


class _Clear(InContext):
    def __init__(self, analyzer: Analyzer, clears: Mapping[Buffer, Instruction]) -> None:
        super().__init__(analyzer)
        self.clears = clears

    def steps(self, s: Stmt) -> Steps:
        match s:
            case For(body=For(body=Store(buffer, _, value))) if is_const(value, 0):
                if buffer in self.clears:
                    found = match_instruction(s, self.clears[buffer], self.analyzer)
                    if isinstance(found, Instr):
                        return found
            case Instr():
                return s
        return (yield from super().steps(s))


class _Tensorize(InContext):
    def __init__(self, analyzer: Analyzer, target: Target | None) -> None:
        super().__init__(analyzer)
        self.target = target
        self.stage = ""
        self.bits: dict[Buffer, Held] = {}

    def steps(self, s: Stmt) -> Steps:
        match s:
            case Produce(stage, _):
                outer, self.stage = self.stage, stage
                made = yield from super().steps(s)
                self.stage = outer
                return made
            case Tensorize(instruction, where, For() as nest):
                return self.replaced(nest, instruction, where)
        return (yield from super().steps(s))

    def replaced(self, nest: For, instruction: Instruction, line: str) -> Stmt:
        if instruction.tensor_map and instruction.windows:
            found = match_box(_Declared(self.analyzer).stmt(nest), instruction, self.analyzer)
            if isinstance(found, str):
                raise self.refused(nest, instruction, line, found)
            return found
        if instruction.boxed == 0:
            # What holds of all of a box or of none of it is no matter of where the tensor ends.
            condition, whole = _lifted(_Simplified(self.analyzer).stmt(nest))
            with self.analyzer.assume(condition):
                found = match_box(whole, instruction, self.analyzer)
            if isinstance(found, str):
                raise self.refused(nest, instruction, line, found)
            return _under(condition, found)
        if instruction.tensor_map:
            found = match_box(_Simplified(self.analyzer).stmt(nest), instruction, self.analyzer)
            if isinstance(found, Instr):
                return found
            # Where guards leave one index of a dimension, it does not tell where a box begins.
            again = match_box(_Plain(self.analyzer).stmt(nest), instruction, self.analyzer)
            if isinstance(again, Instr):
                return again
            raise self.refused(nest, instruction, line, found)
        parts = _parts(nest)
        if len(parts) == 2 and _initialises(*parts):
            first, update = parts
        elif len(parts) == 1:
            first, update = None, parts[0]
        else:
            first, update = None, nest
        if instruction.overwrites and first is None:
            problem = (
                "it writes sums of its own loops alone, without adding to what is there: declare "
                "how it adds as the third of its statements, or tensorize outside of all loops of "
                "the reduction"
            )
            raise self.refused(nest, instruction, line, problem)
        condition, whole = _lifted(_Simplified(self.analyzer).stmt(update))
        chosen, other = const(True), None
        if isinstance(instruction.update.value, Load):
            chosen, whole, other = _divided(whole)
        found = match_instruction(whole, instruction, self.analyzer)
        if isinstance(found, Instr) and _of_fragments(found):
            return nest
        problem = found if isinstance(found, str) else self.hold(found)
        if isinstance(found, Instr) and not problem:
            made = found if other is None else If(chosen, found, other)
            return seq(first, _under(condition, made))
        raise self.refused(nest, instruction, line, str(problem))

    def refused(
        self, nest: For, instruction: Instruction, line: str, problem: str
    ) -> LoweringError:
        return LoweringError(
            f"the loops cannot be tensorized with {instruction.name}: {problem}",
            stage=self.stage,
            axis=nest.var.name,
            where=line,
            mend=f"It stands for loops over its axes of its declaration, {instruction.update}",
        )

    def hold(self, instr: Instr) -> str:
        """Note how its fragments are to be held; why that cannot be, or nothing."""
        declared: Instruction = instr.instruction
        if declared.group > 1 and self.target is not None and self.target.kind != "sim":
            lacks = declared.lacks(self.target.kind, self.target.arch)
            if lacks:
                return lacks
        for access, argument in zip(instr.operands, declared.operands, strict=True):
            if not argument.fragment:
                continue
            found = _wanted(instr, access, argument, self.analyzer)
            if isinstance(found, str):
                return found
            known = self.bits.get(access.buffer, found)
            both = joined(known, found)
            if both is None:
                return (
                    f"fragment {access.buffer.name!r} is held otherwise by another instruction: "
                    "copy it with cache_read into a fragment of its own"
                )
            self.bits[access.buffer] = both
        return ""


def _of_fragments(instr: Instr) -> bool:
    """Whether all that an instruction says is loops over elements of fragments, which become those
    of each thread."""
    operands = zip(instr.operands, instr.instruction.operands, strict=True)
    return any(o.buffer.scope == "fragment" and not known.fragment for o, known in operands)


def _wanted(instr: Instr, access: Access, argument: Argument, analyzer: Analyzer) -> Held | str:
    own, extents = instr.instruction.axes_of(argument)
    return spread(access, [instr.axes[k] for k in own], extents, argument.fragment, analyzer)


class _Simplified(InContext):
    """Indices in their simplest form, where those of split axes fold: (k * 4 + j) // 4 is k."""

    def expr(self, e: Expr) -> Expr:
        e = super().expr(e)
        return Load(e.buffer, self.simple(e.indices), e.predicate) if isinstance(e, Load) else e

    def steps(self, s: Stmt) -> Steps:
        s = yield from super().steps(s)
        match s:
            case Store(value=Select(condition=condition) as value):
                decided = type(value)(
                    self.analyzer.simplify(condition), value.on_true, value.on_false
                )
                return replace(s, indices=self.simple(s.indices), value=decided)
            case Store():
                return replace(s, indices=self.simple(s.indices))
            case If(condition, then, None):
                return If(self.analyzer.simplify(condition), then)
        return s

    def simple(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(self.analyzer.simplify(i) for i in indices)


class _Declared(_Simplified):
    """Indices of what is read as they were declared, which tell where windows are."""

    def expr(self, e: Expr) -> Expr:
        return e


class _Plain(_Simplified):
    """As simple as they are wherever the loops go, guards or not."""

    def under(self, condition: Expr, s: Stmt) -> Steps:
        return (yield self.steps(s))

    def expr_under(self, condition: Expr, e: Expr) -> Expr:
        return self.expr(e)


def _lifted(nest: Stmt) -> tuple[Expr, Stmt]:
    """What holds for all iterations of a nest or for none, and the nest without that guard.

    The rows of a padded image, say, that a whole tile reads or does not.
    """
    match nest:
        case For(var, low, extent, _, body):
            condition, inner = _lifted(body)
            out: list[Expr] = []
            kept: list[Expr] = []
            for part in conjuncts(condition):
                (kept if uses(part, {var}) else out).append(part)
            inner = _under(logical_and(*kept), inner)
            fixed = isinstance(low, IntImm) and isinstance(extent, IntImm)
            if not fixed:  # without iterations nothing would have been computed
                return const(True), nest
            return logical_and(*out), nest if not out else replace(nest, body=inner)
        case Remark(body=body):
            condition, inner = _lifted(body)
            return condition, with_body(nest, inner)
        case If(condition, then, None) if pure(condition):
            further, inner = _lifted(then)
            return logical_and(condition, further), inner
    return const(True), nest


def _divided(nest: Stmt) -> tuple[Expr, Stmt, Stmt | None]:
    """Where a nest stores one of two values, and the choice is one for all iterations: when it is
    the first, and the nest that stores that one, and the other.

    What a padded image holds, say: elements of the image, or zeros.
    """
    loops: list[For] = []
    body = nest
    while isinstance(body, For):
        loops.append(body)
        body = body.body
    if not isinstance(body, Store) or not isinstance(body.value, Select):
        return const(True), nest, None
    condition, yes, no = body.value.condition, body.value.on_true, body.value.on_false
    if not pure(condition) or uses(condition, {loop.var for loop in loops}):
        return const(True), nest, None

    def storing(value: Expr, innermost: ForKind) -> Stmt:
        made: Stmt = replace(body, value=value)
        for loop in reversed(loops):
            made = replace(loop, kind=innermost if loop is loops[-1] else loop.kind, body=made)
        return made

    kind = loops[-1].kind if loops else ForKind.SERIAL
    return condition, storing(yes, kind), copy(storing(no, ForKind.VECTORIZED))


def _under(condition: Expr, s: Stmt) -> Stmt:
    return s if is_const(condition, 1) else If(condition, s)


def _parts(s: Stmt) -> list[Stmt]:
    """The statements inside a nest of loops, each in loops of its own."""
    match s:
        case For(_, _, _, _, body):
            found = _parts(body)
            if len(found) == 1:
                return [s]
            return [copy(replace(s, body=part)) for part in found]
        case Remark(body=body):
            return _parts(body)
        case Seq(stmts):
            return [part for child in stmts for part in _parts(child)]
    return [s]


def _initialises(first: Stmt, update: Stmt) -> bool:
    """Whether all of ``first`` may run before all of ``update``: it only fills what that adds to.

    A stage stores an element once an iteration of its loops, so no iteration of ``first`` undoes
    what another one of ``update`` has done.
    """
    writes = [[s for s in statements(part) if isinstance(s, Store)] for part in (first, update)]
    if not all(len(w) == 1 for w in writes):
        return False
    (fill,), (step,) = writes
    reads = {load.buffer for load in loads(first)}
    return fill.buffer is step.buffer and step.buffer not in reads


def _align(body: Stmt, bits: Mapping[Buffer, Held]) -> Stmt:
    own = set(allocated(body))
    needed = {buffer: buffer.align for buffer in bits if buffer in own}
    for node in walk(body):
        if isinstance(node, Instr):
            for access, argument in zip(node.operands, node.instruction.operands, strict=True):
                if access.buffer in own:
                    least = max(needed.get(access.buffer, 0), argument.align)
                    needed[access.buffer] = least
    made: dict[Buffer, Buffer] = {}
    for buffer, align in needed.items():
        held: Distribution | None = None
        if buffer in bits:
            held = distribution_of(buffer, bits[buffer])
        if align > buffer.align or held is not None:
            made[buffer] = replace(buffer, align=max(align, buffer.align), distribution=held)
    found: Stmt = replace_buffers(body, made) if made else body
    return found
