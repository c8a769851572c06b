"""Accesses to swizzled memory, with neighbours within a chunk of 16 bytes left side by side.

A swizzle moves chunks whole. So a vector inside of one stays a vector, and an operand of an
instruction that takes chunks, or swizzled memory, keeps its place without the swizzle, of which the
instruction makes an address.

>>> from tilewright.lower.ir_builder import axes, func, loop, store
>>> from tilewright.ir.dtype import dtype
>>> from tilewright.ir.expr import Ramp
>>> from tilewright.ir.swizzle import swizzle_of
>>> layout = Layout((const(32), const(1)), swizzle=swizzle_of(128, dtype("float32")))
>>> S = Buffer("S", (const(8), const(32)), dtype("float32"), "shared", layout)
>>> i, j = axes("i j")
>>> lanes = Ramp(j * 4, const(1, j.dtype), 4)
>>> print(open_swizzles(func(Allocate(S, loop(i, 8, loop(j, 8, store(S[i, lanes], 1.0)))))).body)
S = T.allocate([256], 'float32', 'shared')
for i in range(8):
    for j in range(8):
        S[T.Ramp((i * 8 + j ^ i * 8 + j >> 3 & 7) * 4, 1, 4)] = T.Broadcast(T.float32(1), 4)

It stands before buffers become flat, on targets whose vectors are accesses of their own.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.arith.affine import Affine, as_affine
from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.expr import Expr, IntImm, Load, Ramp
from tilewright.ir.func import Func
from tilewright.ir.ops import add, bitand, bitxor, const, floordiv, floormod, mul, shr
from tilewright.ir.stmt import Access, Allocate, For, ForKind, Instr, Stmt, Store
from tilewright.ir.swizzle import CHUNK, width_of
from tilewright.ir.visit import Steps, allocated
from tilewright.lower.context import InContext, analyzer_of

#: Bytes of shared memory whose chunks are permuted alike, and the least numbers that terms which
#: are XORed last are multiples of.
_BLOCK, _LEAST = 128, 2


def open_swizzles(func: Func) -> Func:
    """``func`` over one-dimensional buffers where they were swizzled."""
    if not any(width_of(b) for b in allocated(func.body)):
        return func
    return replace(func, body=_Open(analyzer_of(func)).stmt(func.body))


class _Open(InContext):
    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__(analyzer)
        self.opened: dict[Buffer, Buffer] = {}
        self.written: set[Expr] = set()  # variables of loops around that are written out

    def buffer(self, b: Buffer) -> Buffer:
        """The one-dimensional buffer in place of a swizzled one."""
        if not width_of(b):
            return b
        found = self.opened.get(b)
        if found is None:
            size = self.analyzer.simplify(b.size)
            found = self.opened[b] = Buffer(b.name, (size,), b.dtype, b.scope, None, b.align)
        return found

    def offset(self, b: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """Where an element, or a vector of them, would lie without the swizzle."""
        assert b.layout is not None
        return self.analyzer.simplify(replace(b.layout, swizzle=None).offset(indices))

    def place(self, b: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        own = tuple(map(self.expr, indices))
        width = width_of(b)
        if not width:
            return own
        assert b.layout is not None
        match own[-1]:
            case Ramp(base, IntImm(_, 1), lanes) if self.whole(b.layout, lanes, b.dtype.bytes):
                first = self.offset(b, (*own[:-1], base))
                if self.analyzer.prove(floormod(first, const(lanes, first.dtype)).equal(0)):
                    number = self.analyzer.simplify(floordiv(first, const(lanes, first.dtype)))
                    mask = const((width - CHUNK) // (lanes * b.dtype.bytes), first.dtype)
                    rows = _BLOCK // (lanes * b.dtype.bytes)
                    moved = self.apart(number, rows, mask)
                    if moved is None:
                        moved = bitxor(number, bitand(shr(number, const(3, first.dtype)), mask))
                    at = mul(moved, const(lanes, first.dtype))
                    return (Ramp(at, const(1, first.dtype), lanes),)
        at = self.offset(b, own)
        moved = self.within(at, b, width)
        return (b.layout.swizzled(at) if moved is None else moved,)

    def within(self, at: Expr, b: Buffer, width: int) -> Expr | None:
        """A place under the swizzle as that of its block of 128 bytes, added to one within it, so
        that of many places that differ in their blocks few are computed; None where the two parts
        are not proved."""
        form, t, block = as_affine(at), at.dtype, _BLOCK // b.dtype.bytes
        far = {atom: k for atom, k in form.terms.items() if k % block == 0}
        rest = {atom: k for atom, k in form.terms.items() if k % block}
        within = form.const % block
        near = Affine(rest, within).to_expr(t)
        bound = const(block, t)
        if not self.analyzer.prove(near >= 0) or not self.analyzer.prove(near < bound):
            return None
        # Blocks are permuted alike after eight of them.
        odd = {atom: k % (8 * block) for atom, k in far.items() if k % (8 * block)}
        ahead = form.const - within
        rows = Affine(odd, ahead % (8 * block)).to_expr(t)
        mask = const((width - CHUNK) // b.dtype.bytes, t)
        moved = bitxor(near, bitand(shr(rows, const(3, t)), mask))
        return add(Affine(far, ahead).to_expr(t), moved)

    def apart(self, number: Expr, rows: int, mask: Expr) -> Expr | None:
        """A number of neighbours under the swizzle, of which ``rows`` are in a block of 128 bytes:
        what loops that are written out add within a block comes last, by one more XOR, and so is
        all that is left to compute for each of their iterations. None where that is not proved."""
        form, t = as_affine(number), number.dtype
        far = {atom: k for atom, k in form.terms.items() if k % rows == 0}
        near = {atom: k for atom, k in form.terms.items() if atom not in far}
        written = {atom: k for atom, k in near.items() if atom in self.written}
        own = Affine({atom: k for atom, k in near.items() if atom not in written}).to_expr(t)
        last, block = Affine(written).to_expr(t), Affine(far, form.const).to_expr(t)
        unit = math.gcd(rows, *written.values())
        least = [(own, unit), (last + own, rows)]
        if (
            not written
            or form.const % rows
            or unit < _LEAST
            or not all(self.analyzer.prove(x >= 0) and self.analyzer.prove(x < n) for x, n in least)
        ):
            return None
        moved = bitxor(own, bitand(shr(block, const(3, t)), mask))
        return bitxor(add(block, moved), last)

    def whole(self, layout: Layout, lanes: int, size: int) -> bool:
        """Whether ``lanes`` neighbours of ``size`` bytes, from a multiple of their number on, lie
        in one chunk."""
        step = layout.strides[-1]
        return CHUNK % (lanes * size) == 0 and isinstance(step, IntImm) and step.value == 1

    def expr(self, e: Expr) -> Expr:
        if not isinstance(e, Load) or not width_of(e.buffer):
            return super().expr(e)
        predicate = None if e.predicate is None else self.expr(e.predicate)
        return Load(self.buffer(e.buffer), self.place(e.buffer, e.indices), predicate)

    def steps(self, s: Stmt) -> Steps:
        match s:
            case For(var, kind=ForKind.UNROLLED) if var not in self.written:
                self.written.add(var)
                done = yield self.steps(s)
                self.written.discard(var)
                return done
            case Store(buffer, indices, value, predicate) if width_of(buffer):
                on = None if predicate is None else self.expr(predicate)
                value = self.expr(value)
                return Store(self.buffer(buffer), self.place(buffer, indices), value, on)
            case Allocate(buffer, body):
                return Allocate(self.buffer(buffer), (yield self.steps(body)))
            case Instr(instruction, axes, operands, body):
                return Instr(
                    instruction, axes, tuple(map(self.operand, operands)), (yield self.steps(body))
                )
        return (yield from super().steps(s))

    def operand(self, o: Access) -> Access:
        width = width_of(o.buffer)
        own = tuple(map(self.expr, o.indices))
        if not width:
            return replace(o, indices=own)
        return Access(self.buffer(o.buffer), (self.offset(o.buffer, own),), width)
