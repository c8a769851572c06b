"""What a cost model reads off lowered loops, as a vector of one length for every program.

Counts are a thread's (on a CPU: of the whole program), weighted by the loops around them, and
enter as logarithms: launches, memory of each scope, reads and writes of each scope with how
neighbouring threads or iterations step through memory, arithmetic, conditions, barriers, and how
much code unrolling makes. It is in the spirit of the features of AutoTVM (Chen et al., "Learning to
optimize tensor programs", NeurIPS 2018, section 3.1).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import (
    Add,
    Binary,
    Call,
    Div,
    Expr,
    IntImm,
    Load,
    Max,
    Min,
    Mul,
    Ramp,
    Select,
    Sub,
    Var,
)
from tilewright.ir.func import Func, Module
from tilewright.ir.stmt import Allocate, AllReduce, For, ForKind, If, Instr, Stmt, Store, Sync
from tilewright.ir.visit import Steps, children, run, uses

_SCOPES = ("global", "shared", "local")
_STEPS = ("same", "next", "far")
#: The names of the features, in their order.
NAMES = (
    "kernels", "blocks", "threads", "warps_partial", "parallel",
    *(f"bytes_{scope}" for scope in _SCOPES),
    *(f"{access}_{scope}_{step}" for access in ("read", "write") for scope in _SCOPES
      for step in _STEPS),
    "read_bytes_global", "arithmetic", "vector_arithmetic", "conditions", "barriers", "reductions",
    "loop_steps", "code", "depth", "unrolled", "lanes", "arithmetic_per_read",
)  # fmt: skip
_ARITHMETIC = (Add, Sub, Mul, Div, Min, Max)


def loop_features(module: Module) -> list[float]:
    """As many numbers as :data:`NAMES`, rounded so that their JSON is short."""
    counts: Counter[str] = Counter()
    for func in module.funcs:
        _Count(counts, func).run()
    for buffer in module.workspaces:
        counts["bytes_global"] += _bytes(buffer)
    counts["kernels"] = len(module.funcs)
    reads = sum(counts[f"read_global_{step}"] for step in _STEPS)
    ratio = counts["arithmetic"] / (1 + reads)
    found = [math.log2(1 + counts[name]) for name in NAMES[:-1]]
    return [round(x, 4) for x in (*found, math.log2(1 + ratio))]


def _constant(e: Any) -> int:
    return e.value if isinstance(e, IntImm) else 1


def _bytes(buffer: Buffer) -> int:
    return math.prod(_constant(e) for e in buffer.shape) * buffer.dtype.bytes


def _scope(buffer: Buffer) -> str:
    return buffer.scope if buffer.scope in _SCOPES else "shared"


class _Count:
    """One kernel's counts, added to those of the module."""

    def __init__(self, counts: Counter[str], func: Func) -> None:
        self.counts, self.func = counts, func
        self.near: Var | None = None  # what neighbouring threads, or iterations, differ in
        self.memo: dict[tuple[Expr, Var | None], list[tuple[str, float]]] = {}

    def run(self) -> None:
        blocks = threads = 1
        for axis in self.func.launch:
            extent = _constant(axis.extent)
            if axis.tag.startswith("blockIdx"):
                blocks *= extent
            else:
                threads *= extent
            if axis.tag == "threadIdx.x":
                self.near = axis.var
        self.counts["blocks"] = max(self.counts["blocks"], blocks)
        self.counts["threads"] = max(self.counts["threads"], threads)
        self.counts["warps_partial"] += -threads % 32
        run(self.stmt(self.func.body, 1.0, 1.0, 0))

    def stmt(self, s: Stmt, times: float, copies: float, depth: int) -> Steps:
        """Count ``s``, which runs ``times`` times and is written out ``copies`` times."""
        c = self.counts
        c["depth"] = max(c["depth"], depth)
        match s:
            case For():
                yield self._loop(s, times, copies, depth)
                return
            case Store():
                c["code"] += int(copies)
                lanes = s.value.dtype.lanes
                c["lanes"] = max(c["lanes"], lanes)
                self._access("write", s.buffer, s.indices, times)
                self._exprs((s.value, *s.indices), times)
                return
            case If():
                c["conditions"] += int(times)
                self._exprs((s.condition,), times)
            case Allocate():
                if self.func.launch or s.buffer.scope != "global":
                    c[f"bytes_{_scope(s.buffer)}"] += _bytes(s.buffer)
            case Sync():
                c["barriers"] += int(times)
            case AllReduce():
                c["reductions"] += int(times)
            case Instr():
                c["code"] += int(copies)
        for child in children(s):
            if isinstance(child, Stmt):
                yield self.stmt(child, times, copies, depth)

    def _loop(self, s: For, times: float, copies: float, depth: int) -> Steps:
        extent = _constant(s.extent)
        outer = self.near
        if s.kind is ForKind.PARALLEL:
            self.counts["parallel"] = max(self.counts["parallel"], extent)
        elif s.kind is ForKind.UNROLLED:
            copies *= extent
            self.counts["unrolled"] = max(self.counts["unrolled"], extent)
        elif s.kind is ForKind.SERIAL:
            self.counts["loop_steps"] += int(times * extent)
        if not self.func.launch:
            self.near = s.var  # the innermost loop that holds a statement
        yield self.stmt(s.body, times * extent, copies, depth + 1)
        self.near = outer

    def _access(self, access: str, buffer: Buffer, indices: tuple[Expr, ...], times: float) -> None:
        self.counts[f"{access}_{_scope(buffer)}_{self._step(indices)}"] += int(times)

    def _step(self, indices: tuple[Expr, ...]) -> str:
        """How the address changes from one thread, or iteration, to the next."""
        if not indices or self.near is None:
            return "same"
        if any(uses(i, {self.near}) for i in indices[:-1]):
            return "far"
        last = indices[-1].base if isinstance(indices[-1], Ramp) else indices[-1]
        if not uses(last, {self.near}):
            return "next" if isinstance(indices[-1], Ramp) else "same"
        return "next" if self._alone(last) else "far"

    def _alone(self, e: Expr) -> bool:
        """Whether the variable is a summand by itself."""
        if isinstance(e, Add):
            return self._alone(e.a) or self._alone(e.b)
        return e is self.near or e == self.near

    def _exprs(self, found: tuple[Expr, ...], times: float) -> None:
        for e in found:
            key = (e, self.near)
            if key not in self.memo:
                self.memo[key] = self._tally(e)
            for name, count in self.memo[key]:
                self.counts[name] += int(count * times)

    def _tally(self, root: Expr) -> list[tuple[str, float]]:
        """What one evaluation of an expression counts."""
        tally: Counter[str] = Counter()
        stack: list[Any] = [root]
        while stack:
            e = stack.pop()
            if isinstance(e, Load):
                tally[f"read_{_scope(e.buffer)}_{self._step(e.indices)}"] += 1
                if _scope(e.buffer) == "global":
                    tally["read_bytes_global"] += e.dtype.bytes * e.dtype.lanes
            elif isinstance(e, Select):
                tally["conditions"] += 1
            elif isinstance(e, Call) or (isinstance(e, Binary) and isinstance(e, _ARITHMETIC)):
                if e.dtype.is_float:
                    tally["arithmetic"] += e.dtype.lanes
                    tally["vector_arithmetic"] += e.dtype.lanes > 1
            stack.extend(children(e))
        return list(tally.items())
