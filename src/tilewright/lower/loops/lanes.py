"""The body of a loop for all its iterations at once: what differs between them becomes a vector.

A part that has no form as a vector becomes a loop around that part, one lane after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.arith.conditions import conjuncts
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Broadcast, Expr, IntImm, Load, Ramp, Var
from tilewright.ir.stmt import (
    Allocate,
    For,
    ForKind,
    If,
    Let,
    Remark,
    Seq,
    Stmt,
    Store,
    seq,
    with_body,
)
from tilewright.ir.tf32 import TF32_FUNCTIONS
from tilewright.ir.visit import Steps, run, stores
from tilewright.lower.analysis.varying import dependent, mentions
from tilewright.lower.context import in_bounds, pure, reads_in_bounds
from tilewright.lower.loops.lane_private import iterations_are_private
from tilewright.lower.substitution import copy, widen

#: Functions of vectors, lane by lane.
_LANEWISE = frozenset(
    [
        *ops.FLOAT_FUNCTIONS,
        "pow",
        "fma",
        "abs",
        "popcount",
        "isnan",
        *TF32_FUNCTIONS,
        *ops.BITS_FUNCTIONS,
    ]
)


def on_vectors(analyzer: Analyzer, loop: For, whole: bool = False) -> Stmt | None:
    """All iterations of ``loop``, whose extent is constant, at once.

    None where they depend on one another or have no form as vectors; with ``whole``, also where a
    part would have to be done under a mask or lane by lane.
    """
    variables, buffers = dependent(loop.var, loop.body)
    with analyzer.scope():
        analyzer.bind(loop.var, loop.min, loop.extent)
        if not iterations_are_private(analyzer, loop.var, loop.body, buffers):
            return None
        try:
            return _Lanes(analyzer, loop, variables, buffers, whole).stmt(loop.body)
        except _Scalar:
            return None


class _Scalar(Exception):
    """Something has no form as a vector."""


class _Lanes:
    """Rewrites the body of one loop for all its iterations at once.

    ``values`` says what the variables that differ between lanes are, ``mask`` in which lanes the
    current statement is done (``condition``: the same, of one lane). With ``whole``, nothing is
    done under masks or lane by lane.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        loop: For,
        variables: set[Expr],
        buffers: set[Buffer],
        whole: bool,
    ) -> None:
        assert isinstance(loop.extent, IntImm)
        self.whole = whole
        self.analyzer, self.loop, self.lanes = analyzer, loop, loop.extent.value
        one = ops.const(1, loop.var.dtype)
        self.values: dict[Expr, Expr] = {loop.var: Ramp(loop.min, one, self.lanes)}
        self.variables, self.buffers = variables, buffers
        #: What others may write to meanwhile, so that a lane that is off must not even read it.
        self.shared = {s.buffer for s in stores(loop.body) if s.buffer.scope != "local"}
        self.own: dict[Buffer, Buffer] = {}
        self.mask: Expr | None = None
        self.condition: Expr | None = None
        #: What the current statement has read already, with the parts of the mask it did so under.
        self.read: tuple[tuple[set[Expr], Load], ...] = ()

    # Statements.

    def stmt(self, s: Stmt) -> Stmt:
        """``s`` on vectors, or a loop around it where that cannot be."""
        found: Stmt = run(self.steps(s))
        return found

    def steps(self, s: Stmt) -> Steps:
        """What :meth:`stmt` does."""
        own = dict(self.own)
        try:
            return (yield self.vector(s))
        except _Scalar:
            self.own = own
            return self.serial(s)

    def serial(self, s: Stmt) -> Stmt:
        """``s`` for one lane after the other."""
        if (
            self.whole
            or len(self.values) > 1
            or (self.condition is not None and not pure(self.condition))
        ):
            raise _Scalar
        loop = self.loop
        lane = Var.make(loop.var.name, loop.var.dtype)
        mine: Stmt = copy(s if self.condition is None else If(self.condition, s), {loop.var: lane})
        mine = widen(mine, self.own, lambda indices: (*indices, lane - loop.min))
        return For(lane, loop.min, loop.extent, ForKind.SERIAL, mine)

    def vector(self, s: Stmt) -> Steps:
        self.read = ()  # statements before this one may have written
        if not mentions(s, self.variables, self.buffers):
            if self.mask is not None:
                raise _Scalar
            return s
        match s:
            case Seq(stmts):
                parts = []
                for x in stmts:
                    parts.append((yield self.steps(x)))
                return seq(*parts)
            case Remark(body=body):
                return with_body(s, (yield self.steps(body)))
            case Store(buffer, indices, value, None):
                place = self.indices(buffer, indices)
                if all(i.dtype.lanes == 1 for i in place):
                    raise _Scalar
                target = self.own.get(buffer, buffer)
                return Store(target, place, _wide(self.expr(value), self.lanes), self.mask)
            case If(condition, then, orelse):
                if not self.varies(condition):
                    found = self.expr(condition)
                    with self.assuming(condition):
                        made = yield self.steps(then)
                    if orelse is None:
                        return If(found, made)
                    with self.assuming(ops.logical_not(condition)):
                        return If(found, made, (yield self.steps(orelse)))
                return (yield self.masked(condition, then, orelse))
            case For(var, low, extent) if not self.varies(low) and not self.varies(extent):
                low, extent = self.expr(low), self.expr(extent)
                with self.analyzer.scope():
                    self.analyzer.bind(var, low, extent)
                    return replace(s, min=low, extent=extent, body=(yield self.steps(s.body)))
            case Let(var, value, body):
                if not self.varies(value):
                    return Let(var, self.expr(value), (yield self.steps(body)))
                bound = self.analyzer.simplify(_wide(self.expr(value), self.lanes))
                if isinstance(bound, Ramp):  # in its place, a contiguous access is seen as one
                    with self.standing_for(var, bound):
                        return (yield self.vector(body))
                vector = Var.of(var.name, bound)
                with self.standing_for(var, vector):
                    return Let(vector, bound, (yield self.vector(body)))
            case Allocate(buffer, body):
                if any(map(self.varies, buffer.shape)) or buffer.layout is not None:
                    raise _Scalar
                if buffer in self.buffers:
                    shape = (*buffer.shape, ops.const(self.lanes))
                    self.own[buffer] = buffer = replace(buffer, shape=shape)
                return Allocate(buffer, (yield self.steps(body)))
        raise _Scalar

    def masked(self, condition: Expr, then: Stmt, orelse: Stmt | None) -> Steps:
        """``If`` whose condition differs between lanes."""
        if self.whole:
            raise _Scalar
        mask = self.analyzer.simplify(_wide(self.expr(condition), self.lanes))
        if isinstance(mask, Broadcast):  # alike in all lanes after all
            with self.assuming(mask.value):
                made = yield self.steps(then)
            return If(mask.value, made, None if orelse is None else (yield self.steps(orelse)))
        # What the condition reads may be written in between.
        name = None if pure(condition) else Var.of("mask", mask)
        on = mask if name is None else name
        with self.where(on, condition):
            made = yield self.steps(then)
        if orelse is not None:
            with self.where(E.Not(on), ops.logical_not(condition)):
                made = seq(made, (yield self.steps(orelse)))
        return made if name is None else Let(name, mask, made)

    @contextmanager
    def where(self, mask: Expr, condition: Expr) -> Iterator[None]:
        """Only the lanes in which ``condition`` holds, that is, those of ``mask``."""
        before = self.mask, self.condition
        if self.mask is not None and self.condition is not None:
            self.mask = E.And(self.mask, mask)
            self.condition = E.And(self.condition, condition)
        else:
            self.mask, self.condition = mask, condition
        try:
            yield
        finally:
            self.mask, self.condition = before

    @contextmanager
    def assuming(self, condition: Expr) -> Iterator[None]:
        """Where ``condition``, which is the same in all lanes, holds."""
        read = self.read  # what is read only here has not been read elsewhere
        with self.analyzer.assume(condition) if pure(condition) else nullcontext():
            yield
        self.read = read

    @contextmanager
    def standing_for(self, var: Var, vector: Expr) -> Iterator[None]:
        self.values[var] = vector
        try:
            yield
        finally:
            del self.values[var]

    # Expressions.

    def varies(self, e: Expr) -> bool:
        return mentions(e, self.variables, self.buffers)

    def both(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        return _wide(self.expr(a), self.lanes), _wide(self.expr(b), self.lanes)

    def under(self, mask: Expr, condition: Expr, e: Expr) -> Expr:
        with self.where(mask, condition):
            return _wide(self.expr(e), self.lanes)

    def expr(self, e: Expr) -> Expr:
        """``e`` in all lanes: a scalar where it is the same in all, else a vector."""
        if not self.varies(e):
            return self.same_in_all(e)
        match e:
            case Var():
                return self.values[e]
            case Load(buffer, indices, None):
                return self.load(e, buffer, self.indices(buffer, indices))
            case E.And(a, b) | E.Or(a, b):
                left = _wide(self.expr(a), self.lanes)
                if isinstance(e, E.And):
                    return E.And(left, self.under(left, a, b))
                return E.Or(left, self.under(E.Not(left), ops.logical_not(a), b))
            case E.FloorDiv(_, b) | E.FloorMod(_, b) | E.TruncDiv(_, b) | E.TruncMod(_, b) if (
                not isinstance(b, IntImm)  # a masked lane might divide by zero
            ):
                raise _Scalar
            case E.Binary(a, b):
                return type(e)(*self.both(a, b))
            case E.Compare(a, b):
                return type(e)(*self.both(a, b))
            case E.Not(a):
                return E.Not(_wide(self.expr(a), self.lanes))
            case E.Cast(t, value):
                return E.Cast(t.with_lanes(self.lanes), _wide(self.expr(value), self.lanes))
            case E.Select(condition, on_true, on_false):
                return self.choice(e, condition, on_true, on_false)
            case E.Call(t, name, args) if name in _LANEWISE:
                vectors = tuple(_wide(self.expr(a), self.lanes) for a in args)
                return E.Call(t.with_lanes(self.lanes), name, vectors)
            case E.LetExpr(var, value, body):
                made = _wide(self.expr(value), self.lanes)
                vector = Var.of(var.name, made)
                with self.standing_for(var, vector):
                    self.variables.add(var)
                    return E.LetExpr(vector, made, _wide(self.expr(body), self.lanes))
        raise _Scalar

    def same_in_all(self, e: Expr) -> Expr:
        """An expression that no lane has for itself, evaluated even where every lane is off."""
        if self.mask is not None and not reads_in_bounds(self.analyzer, e):
            raise _Scalar
        return e

    def choice(self, e: Expr, condition: Expr, on_true: Expr, on_false: Expr) -> Expr:
        lazy = isinstance(e, E.IfThenElse)
        if not self.varies(condition):
            chosen = self.expr(condition)
            if not lazy:
                return E.Select(chosen, *self.both(on_true, on_false))
            with self.assuming(condition):
                first = _wide(self.expr(on_true), self.lanes)
            with self.assuming(ops.logical_not(condition)):
                return E.IfThenElse(chosen, first, _wide(self.expr(on_false), self.lanes))
        mask = self.analyzer.simplify(_wide(self.expr(condition), self.lanes))
        if not lazy:
            return E.Select(mask, *self.both(on_true, on_false))
        if isinstance(mask, Broadcast):
            with self.assuming(mask.value):
                first = _wide(self.expr(on_true), self.lanes)
            with self.assuming(ops.logical_not(mask.value)):
                return E.IfThenElse(mask.value, first, _wide(self.expr(on_false), self.lanes))
        if self.whole:
            raise _Scalar
        first = self.under(mask, condition, on_true)
        other = self.under(E.Not(mask), ops.logical_not(condition), on_false)
        if isinstance(first, Load) and first.predicate is not None and _is_zero(other):
            if set(conjuncts(mask)).issubset(conjuncts(first.predicate)):
                return first  # the lanes that are off are zero
        return E.Select(mask, first, other)

    def indices(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        found = tuple(self.tidy(self.expr(i)) for i in indices)
        if buffer in self.own:
            zero, one = (ops.const(n, self.loop.var.dtype) for n in (0, 1))
            return (*found, Ramp(zero, one, self.lanes))
        return found

    def tidy(self, e: Expr) -> Expr:
        """A ramp where ``e`` is one, and a scalar where all lanes are alike."""
        made = self.analyzer.simplify(e)
        return made.value if isinstance(made, Broadcast) else made

    def load(self, e: Load, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        inside = self.mask is None or (buffer not in self.shared and in_bounds(self.analyzer, e))
        if all(i.dtype.lanes == 1 for i in indices):
            if not inside:
                raise _Scalar
            return Load(buffer, indices, None)
        if inside or self.mask is None:
            return Load(self.own.get(buffer, buffer), indices, None)
        # What a condition has read is read again where it holds: that is the same value, and has
        # to be the same expression, for what is known of the one to be known of the other.
        parts = set(conjuncts(self.mask))
        target = self.own.get(buffer, buffer)
        for under, found in self.read:
            if found.buffer is target and found.indices == indices and under <= parts:
                return found
        made = Load(target, indices, self.mask)
        self.read = (*self.read, (parts, made))
        return made


def _is_zero(e: Expr) -> bool:
    """Whether ``e`` is zero in all lanes, and not the negative zero."""
    if not (isinstance(e, Broadcast) and isinstance(e.value, (IntImm, E.FloatImm))):
        return False
    return e.value.value == 0 and math.copysign(1, e.value.value) > 0


def _wide(e: Expr, lanes: int) -> Expr:
    """A scalar in every lane; a vector as it is."""
    return e if e.dtype.lanes > 1 else Broadcast(e, lanes)
