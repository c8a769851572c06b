"""Programs drawn at random mean the same before and after every pass on loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.interpreter import interpret
from tests.support.well_formed import check

from tilewright.ir import Buffer, Func, ops
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Let, Stmt, seq
from tilewright.lower.backend.common_subexpressions import common_subexpressions
from tilewright.lower.backend.flatten import flatten
from tilewright.lower.build.inject_vthread import inject_vthread
from tilewright.lower.build.lazy_select import lazy_select
from tilewright.lower.ir_builder import allocate, buffer, func, loop, store, when
from tilewright.lower.loops.drop_guards import drop_guards
from tilewright.lower.loops.group_guards import group_guards
from tilewright.lower.loops.hoist_guards import hoist_guards
from tilewright.lower.loops.partition_loops import partition_loops
from tilewright.lower.loops.simplify import simplify
from tilewright.lower.loops.trim_loops import trim_loops
from tilewright.lower.loops.unroll import unroll
from tilewright.lower.loops.vectorize import vectorize

KINDS = ("serial", "serial", "unrolled", "parallel", "vectorized", "vectorized", "vthread")
GPU_KINDS = ("thread", "thread", "vthread")


class Drawing:
    """One program: a padded, strided window sum over two split axes, scheduled at random."""

    def __init__(self, draw: Callable[..., Any], target: str) -> None:
        self.draw, self.target = draw, target

    def pick(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    def axis(self, name: str) -> tuple[Expr, Expr, list[tuple[Var, int, str]], int]:
        """An axis split in two: its value, its guard, its loops with their kinds, its extent."""
        n, factor = self.draw(st.integers(1, 9)), self.draw(st.integers(1, 5))
        outer, inner = Var.make(f"{name}o"), Var.make(f"{name}i")
        parts = -(-n // factor)
        if self.pick(True, False, False):  # strided, as by virtual threads
            value = inner * parts + outer
        else:
            value = outer * factor + inner
        kinds = KINDS if self.target == "llvm" else (*KINDS, *GPU_KINDS)
        loops = [(outer, parts, self.pick(*kinds)), (inner, factor, self.pick(*kinds))]
        return value, value < n, loops, n

    def program(self) -> Func:
        i, i_guard, i_loops, height = self.axis("i")
        j, j_guard, j_loops, width = self.axis("j")
        (d, e), (kh, kw) = (Var.make("d"), Var.make("e")), (self.pick(1, 2, 3), self.pick(1, 3, 5))
        stride, pad = self.pick(1, 2), self.pick(0, 1, 2)
        rows, columns = self.draw(st.integers(1, 9)), self.draw(st.integers(1, 9))
        A, W = buffer("A", rows, columns, type="int32"), buffer("W", kh, kw, type="int32")
        C = buffer("C", height, width, type="int32")
        y, x = i * stride + d - pad, j * stride + e - pad
        inside = ops.logical_and(y >= 0, y < rows, x >= 0, x < columns)
        choose = self.pick(ops.if_then_else, ops.select)
        value = choose(inside, A[y, x], 0)
        if self.pick(True, False):
            value = value * W[d, e]

        loops = self.draw(st.permutations(i_loops + j_loops))
        guard = ops.logical_and(i_guard, j_guard)
        local = self.pick(True, False)
        if local:
            acc = buffer("acc", 1, type="int32", scope="local")
            place: Any = acc[0]
        else:
            place = C[i, j]
        update: Stmt = store(place, place + value)
        if self.pick(True, False):
            update = when(guard, update)
        for var, extent in ((e, kw), (d, kh)):
            update = loop(var, extent, update, kind=self.pick("serial", "serial", "unrolled"))
        body: Stmt = seq(store(place, 0), update)
        if local:
            last: Any = ops.maximum(acc[0], 1) if self.pick(True, False) else acc[0]
            body = allocate(acc, body, self.guarded(guard, store(C[i, j], last)))
        else:
            body = when(guard, body)
            if self.pick(True, False):
                flag = C[i, j] > 3
                more: Stmt = when(flag, store(C[i, j], C[i, j] - 2), store(C[i, j], C[i, j] * 3))
                body = when(guard, body, more)
        if self.pick(True, False, False):
            t = Var.make("t")
            body = Let(t, i * 2 + j, seq(body, self.guarded(guard, store(C[i, j], C[i, j] + t))))
        tags = ["threadIdx.x", "threadIdx.y", "threadIdx.z", "blockIdx.x"]
        for var, extent, kind in reversed(loops):
            tag = tags.pop(0) if kind == "thread" else ""
            body = loop(var, extent, body, kind="serial" if tag else kind, tag=tag)
        return func(body, target=self.target)

    def guarded(self, guard: Expr, s: Stmt) -> Stmt:
        return when(guard, s)


class Drawn:
    """A program that hypothesis prints as a program."""

    def __init__(self, func: Func) -> None:
        self.func = func

    def __repr__(self) -> str:
        return f"for {self.func.target}:\n{self.func}"


@st.composite
def programs(draw: Callable[..., Any]) -> Drawn:
    program = lazy_select(Drawing(draw, draw(st.sampled_from(("llvm", "cuda")))).program())
    return Drawn(simplify(program) if draw(st.booleans()) else program)


def arrays_for(f: Func) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return {p.name: rng.integers(-4, 5, p.constant_shape).astype("int32") for p in f.params}


def agree(before: Func, after: Func) -> None:
    check("the passes", after)
    arrays = arrays_for(before)
    ranks = {p.name: len(p.shape) for p in after.params if isinstance(p, Buffer)}
    flat = {n: a.ravel() if ranks[n] == 1 else a for n, a in arrays.items()}
    expected, got = interpret(before, arrays), interpret(after, flat)
    for name in arrays:
        same = np.array_equal(got[name].ravel(), expected[name].ravel())
        assert same, f"{name} differs after\n{after}"


PASSES = (
    simplify, hoist_guards, group_guards, trim_loops, partition_loops, inject_vthread, vectorize,
    unroll, common_subexpressions, flatten,
)  # fmt: skip


ALL = (
    simplify, inject_vthread, simplify, trim_loops, drop_guards, hoist_guards, group_guards,
    partition_loops, unroll, vectorize, simplify, common_subexpressions, flatten,
)  # fmt: skip


@pytest.mark.parametrize("step", PASSES, ids=lambda f: f.__name__)
@given(drawn=programs())
@settings(max_examples=max(10, settings().max_examples // 5))
def test_a_pass_keeps_the_meaning(step: Callable[[Func], Func], drawn: Drawn) -> None:
    agree(drawn.func, step(drawn.func))


@given(drawn=programs())
@settings(max_examples=2 * settings().max_examples)
def test_all_passes_keep_the_meaning(drawn: Drawn) -> None:
    made = drawn.func
    for step in ALL:
        made = step(made)
        check(step.__name__, made)
    agree(drawn.func, made)
