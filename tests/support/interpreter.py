"""What a program means, by the plainest reading: one scalar at a time, in pure Python.

Threads of a block run one after the other between barriers, virtual threads and vector lanes one
after the other. An access out of bounds and a read of memory that nobody wrote raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tilewright.ir import Buffer, Func
from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.dtype import DType
from tilewright.ir.visit import apply_reducer


class BadAccess(Exception):
    """An access out of bounds, or a read of what nobody wrote."""


Env = dict[E.Var, Any]
Threads = dict[str, tuple[E.Var, int]]  # the hardware axes fixed so far, by tag


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs, "pow": math.pow, "fma": lambda a, b, c: a * b + c, "isnan": math.isnan,
    "popcount": int.bit_count, "sigmoid": _sigmoid, "rsqrt": lambda x: 1 / math.sqrt(x),
    "exp2": lambda x: 2.0**x, "exp10": lambda x: 10.0**x, "round": np.round,
    "nearbyint": np.round, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
}  # fmt: skip

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    E.Add: lambda a, b: a + b, E.Sub: lambda a, b: a - b, E.Mul: lambda a, b: a * b,
    E.Div: lambda a, b: a / b, E.FloorDiv: lambda a, b: a // b if b else 0,
    E.FloorMod: lambda a, b: a % b if b else 0,
    E.TruncDiv: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0,
    E.TruncMod: lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1) if b else 0,
    E.Min: min, E.Max: max,
    E.BitAnd: lambda a, b: a & b, E.BitOr: lambda a, b: a | b, E.BitXor: lambda a, b: a ^ b,
    E.Shl: lambda a, b: a << b, E.Shr: lambda a, b: a >> b,
    E.EQ: lambda a, b: a == b, E.NE: lambda a, b: a != b, E.LT: lambda a, b: a < b,
    E.LE: lambda a, b: a <= b, E.GT: lambda a, b: a > b, E.GE: lambda a, b: a >= b,
}  # fmt: skip


def _convert(value: Any, to: DType) -> Any:
    if to.is_bool:
        return bool(value)
    if to.is_int:
        value = int(value) & (2**to.bits - 1)
        return value - 2**to.bits if to.kind == "int" and value >> (to.bits - 1) else value
    return float(value if to.kind == "bfloat" else np.dtype(str(to)).type(value))


class Interpreter:
    """Runs a function over ``memory``: by buffer, from index to value.

    Buffers of scope "local" are each thread's own: their indices are preceded by the thread's.
    """

    def __init__(self) -> None:
        self.memory: dict[Buffer, dict[tuple[int, ...], Any]] = {}
        self.shapes: dict[Buffer, tuple[int, ...]] = {}
        self.contributions: dict[Any, list[tuple[Any, ...]]] = {}  # contributions to an AllReduce

    # Expressions: the value of one lane.

    def value(self, e: E.Expr, env: Env, threads: Threads, lane: int = 0) -> Any:
        def of(x: E.Expr) -> Any:
            return self.value(x, env, threads, lane)

        match e:
            case E.Var():
                found = env[e]
                return found[lane] if isinstance(found, tuple) else found
            case E.IntImm() | E.FloatImm():
                return e.value
            case E.And(a, b):
                return of(a) and of(b)
            case E.Or(a, b):
                return of(a) or of(b)
            case E.Not(a):
                return not of(a)
            case E.Binary(a, b) | E.Compare(a, b):
                return _BINARY[type(e)](of(a), of(b))
            case E.Cast(t, value):
                return _convert(of(value), t.element)
            case E.IfThenElse(condition, on_true, on_false):
                return of(on_true) if of(condition) else of(on_false)
            case E.Select(condition, on_true, on_false):
                both = of(on_true), of(on_false)
                return both[0] if of(condition) else both[1]
            case E.Load(buffer, indices, predicate):
                if predicate is not None and not of(predicate):
                    return 0
                return self.read(buffer, tuple(map(of, indices)), threads)
            case E.Ramp(base, stride, _):
                return self.value(base, env, threads) + lane * self.value(stride, env, threads)
            case E.Broadcast(value, _):
                return self.value(value, env, threads)
            case E.Lane(vector, index):
                return self.value(vector, env, threads, index)
            case E.Concat(values):
                return self.value(values[lane], env, threads)
            case E.LetExpr(var, value, body):
                lanes = value.dtype.lanes
                return self.value(body, {**env, var: self.lanes(value, env, threads, lanes)},
                                  threads, lane)  # fmt: skip
            case E.Call(_, name, args):
                function = _FUNCTIONS.get(name) or getattr(math, name)
                return function(*map(of, args))
        raise NotImplementedError(f"{type(e).__name__}: {e}")

    def lanes(self, e: E.Expr, env: Env, threads: Threads, lanes: int) -> Any:
        """The value of a scalar, or a tuple of those of a vector's lanes."""
        if lanes == 1:
            return self.value(e, env, threads)
        return tuple(self.value(e, env, threads, lane) for lane in range(lanes))

    # Memory.

    def place(self, buffer: Buffer, index: tuple[int, ...], threads: Threads) -> tuple[int, ...]:
        shape = self.shapes[buffer]
        if not all(0 <= i < n for i, n in zip(index, shape, strict=True)):
            raise BadAccess(f"{buffer}: {index} is out of bounds")
        if buffer.scope != "local":
            return index
        return (*self.own(threads), *index)

    def own(self, threads: Threads) -> tuple[int, ...]:
        return tuple(threads[tag][1] for tag in sorted(threads) if tag.startswith("threadIdx"))

    def read(self, buffer: Buffer, index: tuple[int, ...], threads: Threads) -> Any:
        place = self.place(buffer, index, threads)
        if place not in self.memory[buffer]:
            raise BadAccess(f"{buffer}: {index} is read and was never written")
        return self.memory[buffer][place]

    # Statements: generators that yield at barriers.

    def run(self, s: S.Stmt, env: Env, threads: Threads) -> Iterator[None]:
        match s:
            case S.For(var, low, extent, kind, body, tag):
                start = self.value(low, env, threads)
                span = range(start, start + self.value(extent, env, threads))
                if kind is not S.ForKind.THREAD:
                    for i in span:
                        yield from self.run(body, {**env, var: i}, threads)
                    return
                running = [
                    self.run(body, {**env, var: i}, {**threads, tag: (var, i)}) for i in span
                ]
                if tag.startswith("blockIdx"):
                    for block in running:
                        yield from block
                while running and tag.startswith("threadIdx"):
                    running = [r for r in running if next(r, "done") != "done"]
                    if running:
                        yield
            case S.Store(buffer, indices, value, predicate):
                lanes = max([value.dtype.lanes, *(i.dtype.lanes for i in indices)])
                found = []
                for lane in range(lanes):
                    if predicate is None or self.value(predicate, env, threads, lane):
                        at = tuple(self.value(i, env, threads, lane) for i in indices)
                        stored = self.value(value, env, threads, lane)
                        found.append((self.place(buffer, at, threads), stored))
                self.memory[buffer].update(found)
            case S.If(condition, then, orelse):
                if self.value(condition, env, threads):
                    yield from self.run(then, env, threads)
                elif orelse is not None:
                    yield from self.run(orelse, env, threads)
            case S.Seq(stmts):
                for item in stmts:
                    yield from self.run(item, env, threads)
            case S.Allocate(buffer, body):
                self.allocate(buffer, env, threads)
                yield from self.run(body, env, threads)
            case S.Let(var, value, body):
                bound = self.lanes(value, env, threads, value.dtype.lanes)
                yield from self.run(body, {**env, var: bound}, threads)
            case S.Evaluate():
                pass
            case S.Remark(body=body) | S.Instr(_, _, _, body):
                yield from self.run(body, env, threads)
            case S.Sync():
                yield
            case S.AllReduce():
                yield from self.all_reduce(s, env, threads)
            case _:
                raise NotImplementedError(type(s).__name__)

    def allocate(self, buffer: Buffer, env: Env, threads: Threads) -> None:
        self.shapes[buffer] = tuple(self.value(n, env, threads) for n in buffer.shape)
        memory = self.memory.setdefault(buffer, {})
        own = self.own(threads)
        if buffer.scope == "local":
            for place in [p for p in memory if p[: len(own)] == own]:
                del memory[place]
        elif not own:  # the threads of a block reach one Allocate in turn and share what it makes
            memory.clear()

    def all_reduce(self, s: S.AllReduce, env: Env, threads: Threads) -> Iterator[None]:
        others = tuple(i for _, (var, i) in sorted(threads.items()) if var not in s.axes)
        contribution = self.contributions.setdefault((s, others), [])
        if self.value(s.condition, env, threads):
            contribution.append(tuple(self.value(e, env, threads) for e in s.source))
        yield
        total = s.reducer.identity
        for mine in contribution:
            values = tuple(
                E.FloatImm(e.dtype, v) if e.dtype.is_float else E.IntImm(e.dtype, v)
                for e, v in zip(total, mine, strict=True)
            )
            total = apply_reducer(s.reducer, total, values)
        results = [self.value(e, {}, {}) for e in total]
        first = all(i == 0 for var, i in threads.values() if var in s.axes)
        if s.everywhere or first:
            at = tuple(self.value(i, env, threads) for i in s.indices)
            for buffer, result in zip(s.buffers, results, strict=True):
                self.memory[buffer][self.place(buffer, at, threads)] = result
        yield
        self.contributions.pop((s, others), None)


def interpret(
    func: Func,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    scalars: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray[Any, Any]]:
    """Run ``func`` on ``arrays`` by parameter name; the arrays as they are afterwards."""
    machine = Interpreter()
    env: Env = {p: (scalars or {})[p.name] for p in func.params if isinstance(p, E.Var)}
    buffers = [p for p in func.params if isinstance(p, Buffer)]
    for b in buffers:
        array = arrays[b.name]
        for extent, n in zip(b.shape, array.shape, strict=True):
            if isinstance(extent, E.Var):
                env[extent] = n
    for b in buffers:
        machine.allocate(b, env, {})
        array = arrays[b.name]
        machine.memory[b] = {i: array[i].item() for i in np.ndindex(array.shape)}
    body = func.body
    for axis in reversed(func.launch):
        zero = E.IntImm(axis.var.dtype, 0)
        body = S.For(axis.var, zero, axis.extent, S.ForKind.THREAD, body, axis.tag)
    for _ in machine.run(body, env, {}):
        pass
    results = {}
    for b in buffers:
        results[b.name] = np.array(arrays[b.name])
        for at, stored in machine.memory[b].items():
            results[b.name][at] = stored
    return results
