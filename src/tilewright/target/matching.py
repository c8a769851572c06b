"""Whether a nest of loops computes what an instruction declares, and with which operands.

The nest is a store inside loops. Its loops are assigned to the axes of the instruction in every
way that their extents allow, one to an axis or several that make it up, and the store is unified
with the declared one: the same operations on the same types up to the order of sums and products,
and operands whose addresses are affine in the axes, with the strides, the alignment and the
memories that the declaration asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import gcd

from tilewright.arith import Analyzer
from tilewright.arith.affine import as_affine
from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, IntImm, Load, Var
from tilewright.ir.ops import add, const, floordiv, floormod
from tilewright.ir.stmt import Access, For, ForKind, If, Instr, Remark, Seq, Stmt, Store
from tilewright.ir.swizzle import width_of
from tilewright.ir.visit import substitute
from tilewright.target.fragments import spread
from tilewright.target.instruction import Argument, Instruction, stride_along

_COMMUTATIVE = (E.Add, E.Mul, E.Min, E.Max, E.And, E.Or, E.BitAnd, E.BitOr, E.BitXor)
#: A refused operand says more than an expression of another form, however deep that is.
_NEAR = 100
_CHANGEABLE = (ForKind.SERIAL, ForKind.UNROLLED, ForKind.VECTORIZED)


def match_instruction(
    nest: Stmt, instruction: Instruction, analyzer: Analyzer | None = None
) -> Instr | str:
    """``nest`` as ``instruction``, or why it is not, as the end of a sentence.

    ``nest`` is a store in loops from any minimum; the body of the result has them from 0, in the
    order of the declaration. ``analyzer`` knows the variables around it.
    """
    loops: list[For] = []
    body = nest
    while not isinstance(body, Store):
        match body:
            case For(_, _, extent, kind, inner):
                if kind not in _CHANGEABLE:
                    return f"its loop {body.var.name!r} is {kind.value} and must be serial"
                if not isinstance(extent, IntImm):
                    return f"the extent of its loop {body.var.name!r}, {extent}, is not constant"
                loops.append(body)
                body = inner
            case Remark(body=inner):
                body = inner
            case If(condition, _, _):
                return (
                    f"its body runs only where {condition}: split by factors that divide, or pad "
                    "the operands"
                )
            case Seq():
                return "its loops hold more than one statement"
            case _:
                return f"its loops hold no store but {type(body).__name__}"
    if body.predicate is not None:
        return f"its store is masked by {body.predicate}"
    reason = ""
    deepest = -1
    for assignment in _assignments(loops, instruction):
        found = _Matching(instruction, analyzer or Analyzer()).run(body, loops, assignment)
        if isinstance(found, Instr):
            return found
        if found.depth > deepest:
            reason, deepest = found.text, found.depth
    if deepest >= 0:
        return reason
    have = ", ".join(f"{loop.var.name} of {loop.extent}" for loop in loops) or "none"
    want = ", ".join(f"{axis.name} of {axis.extent}" for axis in instruction.axes)
    return f"its loops are {have}, the instruction's axes are {want}"


#: The loops of each axis of an instruction, the outermost first.
Assignment = tuple[tuple[For, ...], ...]


def _assignments(loops: list[For], instruction: Instruction) -> Iterator[Assignment]:
    """The loops of each axis, in every way that gives each axis its extent.

    An axis of extent 1 has none. Several loops of one axis follow each other as they are nested.
    """
    real = [loop for loop in loops if not _is_unit(loop)]

    def assign(k: int, left: tuple[int, ...], chosen: Assignment) -> Iterator[Assignment]:
        if k == len(real):
            if all(n == 1 for n in left):
                yield chosen
            return
        extent = int(real[k].extent)
        for a, n in enumerate(left):
            if n % extent == 0 and n > 1:
                yield from assign(
                    k + 1,
                    (*left[:a], n // extent, *left[a + 1 :]),
                    (*chosen[:a], (*chosen[a], real[k]), *chosen[a + 1 :]),
                )

    axes = instruction.axes
    yield from assign(0, tuple(axis.extent for axis in axes), ((),) * len(axes))


def _is_unit(loop: For) -> bool:
    return isinstance(loop.extent, IntImm) and loop.extent.value == 1


@dataclass(frozen=True)
class _Mismatch:
    text: str
    depth: int  # how much had matched: of several attempts the one that came furthest is reported


@dataclass
class _Matching:
    """One attempt, with the loops assigned to the axes."""

    instruction: Instruction
    analyzer: Analyzer
    axes: tuple[Var, ...] = ()
    best: _Mismatch = field(default_factory=lambda: _Mismatch("the expressions differ", 0))

    def run(self, store: Store, loops: list[For], assignment: Assignment) -> Instr | _Mismatch:
        declared = self.instruction
        self.axes = tuple(
            Var.make(own[0].var.name if len(own) == 1 else axis.name)
            for own, axis in zip(assignment, declared.axes, strict=True)
        )
        values: dict[Expr, Expr] = {loop.var: loop.min for loop in loops if _is_unit(loop)}
        for own, axis in zip(assignment, self.axes, strict=True):
            inner = 1
            for loop in reversed(own):
                digit: Expr = axis
                if len(own) > 1:
                    digit = floordiv(digit, const(inner, axis.dtype))
                    inner *= int(loop.extent)
                    if loop is not own[0]:
                        digit = floormod(digit, loop.extent)
                values[loop.var] = add(digit, loop.min)
        made: Stmt = substitute(store, values)
        assert isinstance(made, Store)
        output = Access(made.buffer, made.indices)
        first = self.bind(declared.buffers[0], output, {}, 1)
        if first is None:
            return self.best
        for binding in self.unify(declared.update.value, made.value, first, 1):
            operands = tuple(binding[b] for b in declared.buffers)
            inputs = {o.buffer for o in operands[1:]}
            if made.buffer in inputs:
                self.note(f"the output {made.buffer.name!r} is also an input", 2 * _NEAR)
                continue
            for axis, spec in reversed(list(zip(self.axes, declared.axes, strict=True))):
                made = For(axis, const(0), const(spec.extent), ForKind.SERIAL, made)
            return Instr(declared, self.axes, operands, made)
        return self.best

    def unify(
        self, want: Expr, have: Expr, binding: Mapping[Buffer, Access], depth: int
    ) -> Iterator[Mapping[Buffer, Access]]:
        """The bindings of operands under which ``want`` is ``have``."""
        if isinstance(want, Load):
            if not isinstance(have, Load) or have.predicate is not None:
                self.note(f"{want.buffer.name} is an operand, the loops have {have}", depth)
                return
            found = self.bind(want.buffer, Access(have.buffer, have.indices), binding, depth)
            if found is not None:
                yield found
            return
        if type(want) is not type(have) or want.dtype != have.dtype:
            self.note(f"it declares {want}, the loops have {have}", depth)
            return
        if isinstance(want, (E.Binary, E.Compare)):
            assert isinstance(have, (E.Binary, E.Compare))
            # Of two orders that both fail, the one in which the loops are written is reported.
            orders = [(have.a, have.b, depth + 1)]
            if isinstance(want, _COMMUTATIVE):
                orders.append((have.b, have.a, depth - 1))
            for a, b, level in orders:
                for partial in self.unify(want.a, a, binding, level):
                    yield from self.unify(want.b, b, partial, level + 1)
            return
        match want, have:
            case E.Cast(_, a), E.Cast(_, b):
                yield from self.unify(a, b, binding, depth + 1)
            case E.Not(a), E.Not(b):
                yield from self.unify(a, b, binding, depth + 1)
            case E.Select(c, t, f), E.Select(c2, t2, f2):
                yield from self.unify_all((c, t, f), (c2, t2, f2), binding, depth + 1)
            case E.Call(_, name, args), E.Call(_, name2, args2) if name == name2 and len(
                args
            ) == len(args2):
                yield from self.unify_all(args, args2, binding, depth + 1)
            case _ if want is have:
                yield binding
            case _:
                self.note(f"it declares {want}, the loops have {have}", depth)

    def unify_all(
        self,
        want: tuple[Expr, ...],
        have: tuple[Expr, ...],
        binding: Mapping[Buffer, Access],
        depth: int,
    ) -> Iterator[Mapping[Buffer, Access]]:
        if not want:
            yield binding
            return
        for partial in self.unify(want[0], have[0], binding, depth):
            yield from self.unify_all(want[1:], have[1:], partial, depth + 1)

    def bind(
        self, operand: Buffer, access: Access, binding: Mapping[Buffer, Access], depth: int
    ) -> Mapping[Buffer, Access] | None:
        """``binding`` with ``operand`` at ``access``, None where it cannot be there."""
        known = binding.get(operand)
        if known is not None:
            if known.buffer is access.buffer and _same(known.indices, access.indices):
                return binding
            self.note(
                f"operand {operand.name} is both {_text(known)} and {_text(access)}", depth + _NEAR
            )
            return None
        argument = self.instruction.operands[self.instruction.buffers.index(operand)]
        reason = self.refuse(argument, access)
        if reason:
            self.note(f"operand {operand.name} cannot be {_text(access)}: {reason}", depth + _NEAR)
            return None
        return {**binding, operand: access}

    def refuse(self, argument: Argument, access: Access) -> str:
        """Why ``access`` is not what the declaration asks of ``argument``; empty if it is."""
        buffer = access.buffer
        if buffer.dtype != argument.dtype:
            return f"it is of {buffer.dtype}, not {argument.dtype}"
        if buffer.scope not in argument.scopes:
            return f"it is in {buffer.scope} memory, not {' or '.join(argument.scopes)}"
        if argument.fragment:
            return self.refuse_fragment(argument, access)
        boxed = self.instruction.boxed
        if boxed is not None and argument is self.instruction.operands[boxed]:
            return ""  # which is a box, or of windows
        width = width_of(buffer)
        strides = None if width is None else stride_along(access, self.axes)
        if strides is None:
            return "its address is not affine in the axes"
        if width not in argument.swizzles:
            return _swizzled_otherwise(width or 0, argument.swizzles)
        for axis, spec, stride in zip(self.axes, self.instruction.axes, strides, strict=True):
            wanted = argument.required_stride(spec.name)
            if wanted is None or spec.extent == 1:
                continue
            if not (isinstance(stride, IntImm) and stride.value == wanted):
                return f"its stride along {axis.name} is {stride}, not {wanted}"
        if argument.align and not self.aligned(argument, access):
            return f"its address is not known to be a multiple of {argument.align} bytes"
        if width and argument.reach and not self.reached(argument, access, width):
            return (
                f"its first element is not known to lie in the first {argument.reach} of the "
                f"{width} bytes of a row"
            )
        return ""

    def refuse_fragment(self, argument: Argument, access: Access) -> str:
        """Why a buffer cannot be held as the declaration asks at ``access``."""
        if access.buffer.constant_shape is None:
            return "its shape is not constant"
        own, extents = self.instruction.axes_of(argument)
        found = spread(
            access, [self.axes[k] for k in own], extents, argument.fragment, self.analyzer
        )
        return found if isinstance(found, str) else ""

    def aligned(self, argument: Argument, access: Access) -> bool:
        """Whether the offset of the first element is a multiple of what is asked for.

        The buffer itself begins at a multiple: allocations are made so, arguments are checked.
        """
        elements = argument.align // access.buffer.dtype.bytes
        zero: dict[Expr, Expr] = dict.fromkeys(self.axes, const(0))
        first = tuple(self.analyzer.simplify(substitute(i, zero)) for i in access.indices)
        for index, stride in zip(first, access.buffer.strides, strict=True):
            known = as_affine(self.analyzer.simplify(stride))
            factor = gcd(*known.terms.values(), known.const)
            form = as_affine(index)
            if any(k * factor % elements for k in (*form.terms.values(), form.const)):
                break
        else:
            return True
        # Indices may be quotients and remainders of one number, whose sum is that number again.
        layout = access.buffer.layout
        plain = access.buffer if layout is None else replace(layout, swizzle=None)
        form = as_affine(self.analyzer.simplify(plain.offset(first)))
        return not any(k % elements for k in (*form.terms.values(), form.const))

    def reached(self, argument: Argument, access: Access, row: int) -> bool:
        """Whether the first element lies near enough to where a row of ``row`` bytes begins."""
        zero: dict[Expr, Expr] = dict.fromkeys(self.axes, const(0))
        layout, size = access.buffer.layout, access.buffer.dtype.bytes
        assert layout is not None
        first = tuple(substitute(i, zero) for i in access.indices)
        offset = self.analyzer.simplify(replace(layout, swizzle=None).offset(first))
        beyond = floormod(offset, const(row // size))
        return self.analyzer.prove(beyond < const(argument.reach // size))

    def note(self, text: str, depth: int) -> None:
        if depth > self.best.depth:
            self.best = _Mismatch(text, depth)


def _same(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return all(x is y or as_affine(x) == as_affine(y) for x, y in zip(a, b, strict=True))


def _swizzled_otherwise(width: int, wanted: tuple[int, ...]) -> str:
    have = f"is swizzled by {width} bytes" if width else "is not swizzled"
    sizes = " or ".join(str(w) if w else "none" for w in wanted)
    return f"its memory {have}, and is to be by {sizes}: say so with swizzle()"


def _text(access: Access) -> str:
    return f"{access.buffer.name}[{', '.join(map(repr, access.indices))}]"
