"""Expressions as Python closures over NumPy operations, made once a kernel.

A closure takes the frame and gives the value in its active lanes: a NumPy scalar where all threads
have the same, else an array (see :mod:`.values`). What is not chosen is not evaluated: the sides of
IfThenElse, the right operands of And and Or run under narrower frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType
from tilewright.ir.errors import LoweringError
from tilewright.ir.visit import exprs
from tilewright.runtime.narrow_floats import is_narrow, round_to
from tilewright.runtime.sim.findings import Site
from tilewright.runtime.sim.frame import Frame
from tilewright.runtime.sim.shuffle import SHUFFLES, shuffle
from tilewright.runtime.sim.values import BINARY, Array, cast, function, numpy_type

Code: TypeAlias = Callable[[Frame], Array]

#: Nodes without effects whose values are kept until a variable in them changes.
_PURE = (E.Var, E.IntImm, E.Binary, E.Compare, E.Not, E.Cast, E.Select, E.Ramp, E.Broadcast)


def _column(x: Array) -> Array:
    """A scalar's value beside vectors: one row a thread."""
    return x[:, None] if np.ndim(x) == 1 else x


def _elements(x: Array, lanes: int) -> Array:
    """What a condition, of a vector or of all of its elements alike, is for each element."""
    return x if lanes == 1 or np.ndim(x) == 2 else np.broadcast_to(_row(x), (np.size(x), lanes))


class ExpressionCompiler:
    """Turns the expressions of one kernel into closures.

    ``slots`` numbers the variables in a frame's ``env``, ``places`` the buffers in its
    ``memories``. With ``profile`` floating-point operations are counted.
    """

    def __init__(self, kernel: str, profile: bool) -> None:
        self.kernel, self.profile = kernel, profile
        self.slots: dict[E.Var, int] = {}
        self.places: dict[Buffer, int] = {}
        self.site: Site | None = None
        self._memo: dict[E.Expr, Code] = {}

    def slot(self, var: E.Var) -> int:
        """The place of a variable in ``env``, given out here."""
        return self.slots.setdefault(var, len(self.slots))

    def place(self, buffer: Buffer) -> int:
        """The place of a buffer's memory; raises :class:`LoweringError` for an unknown one."""
        found = self.places.get(buffer)
        if found is None:
            raise LoweringError(
                f"kernel {self.kernel!r} accesses {buffer.name}, which is neither a parameter nor "
                "allocated around the access"
            )
        return found

    def enter(self, site: Site) -> None:
        """Compile for another statement: closures report its site."""
        self.site = site
        self._memo.clear()

    def expr(self, e: E.Expr) -> Code:
        """The closure for ``e`` at the current site."""
        found = self._memo.get(e)
        if found is None:
            found = self._memo[e] = self._remember(e, self._expr(e))
        return found

    def _remember(self, e: E.Expr, code: Code) -> Code:
        """Keep values of pure integer arithmetic between evaluations."""
        leaf = isinstance(e, (E.Var, E.IntImm, E.Broadcast))
        if leaf or not (e.dtype.is_int or e.dtype.is_bool):
            return code
        nodes = list(exprs(e))
        if not all(isinstance(node, _PURE) for node in nodes):
            return code
        slots = tuple(self.slot(node) for node in nodes if isinstance(node, E.Var))
        return lambda frame: frame.remembered(e, slots, code)

    def _expr(self, e: E.Expr) -> Code:
        match e:
            case E.Var():
                if e not in self.slots:
                    raise LoweringError(f"kernel {self.kernel!r} uses {e.name}, which is not bound")
                slot = self.slots[e]
                return lambda frame: frame.variable(slot)
            case E.IntImm(t, value) | E.FloatImm(t, value):
                constant = self._constant(t, value)
                return lambda frame: constant
            case E.And() | E.Or():
                return self._short_circuit(e)
            case E.Not(a):
                inner = self.expr(a)
                return lambda frame: ~inner(frame)
            case E.Binary(a, b) | E.Compare(a, b):
                return self._binary(e, self.expr(a), self.expr(b))
            case E.Cast(t, value):
                inner, source = self.expr(value), value.dtype
                return lambda frame: cast(inner(frame), source, t)
            case E.IfThenElse(c, a, b):
                return self._if_then_else(e)
            case E.Select(c, a, b):
                reads = any(isinstance(x, E.Load) for x in exprs(e))
                return self._select(self.expr(c), self.expr(a), self.expr(b), e.dtype.lanes, reads)
            case E.Load():
                return self._load(e)
            case E.Ramp(base, stride, lanes):
                steps = np.arange(lanes, dtype=numpy_type(e.dtype))[None]
                first, step = self.expr(base), self.expr(stride)
                return lambda f: _row(first(f)) + _row(step(f)) * steps
            case E.Broadcast(value, lanes):
                inner = self.expr(value)

                def spread(frame: Frame) -> Array:
                    column = _row(inner(frame.spreading()))
                    return np.broadcast_to(column, (len(column), lanes))

                return spread
            case E.Lane(vector, index):
                inner = self.expr(vector)

                def lane(frame: Frame) -> Array:
                    found = inner(frame)
                    return found[0, index] if len(found) == 1 else found[:, index]

                return lane
            case E.Concat(values):
                parts = [self.expr(value) for value in values]

                def concat(frame: Frame) -> Array:
                    columns = np.broadcast_arrays(*(_row(part(frame)) for part in parts))
                    return np.concatenate(columns, axis=1)

                return concat
            case E.Call():
                return self._call(e)
            case E.LetExpr(var, value, body):
                slot, bound = self.slot(var), self.expr(value)
                inner = self.expr(body)

                def let(frame: Frame) -> Array:
                    frame.bind(slot, bound(frame))
                    return inner(frame)

                return let
        raise LoweringError(
            f"kernel {self.kernel!r} holds {e}, a {type(e).__name__}, which no program may: it "
            "is not lowered"
        )

    def _constant(self, t: DType, value: Any) -> Array:
        kind = numpy_type(t)
        if t.is_int:
            return np.array(value % (1 << t.bits), f"uint{t.bits}").astype(kind)[()]
        made = np.array(value, np.float64 if t.is_float else kind).astype(kind)[()]
        return round_to(made, t) if is_narrow(t) else made

    def _binary(self, e: Any, a: Code, b: Code) -> Code:
        compute = BINARY[type(e)]
        if is_narrow(e.dtype):
            return self._counted(e, lambda f: round_to(compute(a(f), b(f)), e.dtype))
        return self._counted(e, lambda f: compute(a(f), b(f)))

    def _counted(self, e: E.Expr, code: Code, operations: int = 1) -> Code:
        """``code``, counting floating-point operations where wanted."""
        if not self.profile or not e.dtype.is_float:
            return code
        operations *= e.dtype.lanes

        def counted(frame: Frame) -> Array:
            cost = frame.batch.cost
            if cost is not None:
                cost.report.flops += operations * frame.n
            return code(frame)

        return counted

    @property
    def _here(self) -> Site:
        assert self.site is not None
        return self.site

    def _short_circuit(self, e: E.Binary) -> Code:
        left, right = self.expr(e.a), self.expr(e.b)
        both = isinstance(e, E.And)

        def logical(frame: Frame) -> Array:
            a = left(frame)
            open_ = a if both else ~a  # where the right operand decides
            if np.ndim(a) == 0:
                return right(frame) if open_ else a
            if open_.all():
                return right(frame)
            if not open_.any():
                return a
            if a.ndim == 2:
                b = _under(frame, open_, right)
                return np.where(open_, b, not both)
            out = a.copy()
            out[open_] = right(frame.narrow(open_))
            return out

        return logical

    def _select(self, c: Code, a: Code, b: Code, lanes: int, reads: bool) -> Code:
        def select(frame: Frame) -> Array:
            found: Array = np.where(c(frame), a(frame), b(frame))
            return found[()]

        def blend(frame: Frame) -> Array:
            # Both values are read whole; what is not chosen of them may be undefined.
            condition = c(frame)
            if lanes > 1:
                chosen = _elements(condition, lanes)
            else:
                chosen = np.broadcast_to(condition, (frame.n,))
            on_true = a(frame.keeping(chosen))
            found: Array = np.where(condition if lanes == 1 else chosen, on_true,
                                    b(frame.keeping(~chosen)))  # fmt: skip
            return found[()]

        return blend if reads or lanes > 1 else select

    def _if_then_else(self, e: E.Select) -> Code:
        c, a, b = self.expr(e.condition), self.expr(e.on_true), self.expr(e.on_false)
        kind = numpy_type(e.dtype)
        lanes = e.dtype.lanes

        def choose(frame: Frame) -> Array:
            condition = c(frame)
            if condition.ndim == 0:
                return a(frame) if condition else b(frame)
            if condition.all():
                return a(frame)
            if not condition.any():
                return b(frame)
            if condition.ndim == 2:
                on_true = _under(frame, condition, a)
                return np.where(condition, on_true, _under(frame, ~condition, b))
            shape = (frame.n, lanes) if lanes > 1 else (frame.n,)
            out = np.empty(shape, kind)
            out[condition] = a(frame.narrow(condition))
            other = ~condition
            out[other] = b(frame.narrow(other))
            return out

        return choose

    def indices(self, indices: tuple[E.Expr, ...]) -> Callable[[Frame], list[Array]]:
        """The index values, shaped to go together."""
        codes = [self.expr(i) for i in indices]
        if all(i.dtype.lanes == 1 for i in indices):
            return lambda frame: [code(frame) for code in codes]
        return lambda frame: [_column(code(frame)) for code in codes]

    def predicate(self, predicate: E.Expr | None, lanes: int) -> Callable[[Frame], Array | None]:
        """Which elements of an access of ``lanes`` elements a thread are wanted; None: all."""
        if predicate is None:
            if lanes == 1:
                return lambda frame: None
            return lambda f: f.mask if f.mask is not None and f.mask.shape[1] == lanes else None
        code = self.expr(predicate)

        def wanted(frame: Frame) -> Array | None:
            keep = _elements(code(frame), lanes)
            if lanes > 1 and frame.mask is not None and frame.mask.shape[1] == lanes:
                keep = keep & frame.mask
            return None if keep.all() else keep

        return wanted

    def _load(self, e: E.Load) -> Code:
        place, site = self.place(e.buffer), self._here
        indices = self.indices(e.indices)
        what = (e.buffer, e.indices)
        wanted = self.predicate(e.predicate, e.dtype.lanes)

        def load(frame: Frame) -> Array:
            keep = wanted(frame)
            return frame.memories[place].read(frame, indices(frame), keep, site, what)

        if e.dtype.lanes == 1 and e.predicate is None:

            def element(frame: Frame) -> Array:
                return frame.memories[place].read(frame, indices(frame), None, site, what)

            return element
        return load

    def _call(self, e: E.Call) -> Code:
        if e.name in SHUFFLES:
            value, argument = (self.expr(arg) for arg in e.args)
            return shuffle(e.name, value, argument, e.args[0].dtype, self._here)
        if e.name == "prefetch":  # a hint touches nothing
            return lambda frame: np.int32(0)
        compute = function(e.name)
        if compute is None:
            raise LoweringError(
                f"kernel {self.kernel!r} calls {e.name!r}, which sim cannot run: it knows the "
                "functions of te and those of the C library's math.h; run it on target 'llvm'"
            )
        args = [self.expr(arg) for arg in e.args]
        half = e.args[0].dtype.is_float and e.args[0].dtype.bits == 16 and e.dtype.is_float
        kind, narrow = numpy_type(e.dtype), is_narrow(e.dtype)

        def call(frame: Frame) -> Array:
            values = [arg(frame) for arg in args]
            if half:
                values = [value.astype(np.float32) for value in values]
            found = compute(*values)
            if narrow:
                return round_to(found, e.dtype)
            return found.astype(kind) if found.dtype != kind else found

        return self._counted(e, call, 2 if e.name == "fma" else 1)


def _row(x: Array) -> Array:
    """A scalar's value as a vector of one lane."""
    return np.reshape(x, (-1, 1))


def _under(frame: Frame, mask: Array, code: Code) -> Array:
    """The vector that ``code`` gives, evaluated only for the elements of ``mask``."""
    if not mask.any():
        return np.zeros((1, 1), np.bool_)
    rows = mask.any(axis=1)
    if rows.all():
        return code(frame.masked(mask))
    if len(mask) == 1:
        return code(frame.masked(mask))
    found = code(frame.narrow(rows).masked(mask[rows]))
    out = np.zeros((frame.n, mask.shape[1]), found.dtype)
    out[rows] = found
    return out
