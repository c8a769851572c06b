"""Expressions of any height, and shared ones, compile to what they say on every target.

They are compiled where the stack is 200 deep, under Python's limit of 1000.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.codegen.cuda import generate
from tilewright.ir.parts import in_parts
from tilewright.lower.pipeline import lower
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.schedule.fingerprint import fingerprint

N = 64
A = np.random.default_rng(0).uniform(0.5, 1.5, N).astype("float32")
TARGETS = [
    "llvm",
    "sim",
    pytest.param("opencl", marks=pytest.mark.needs_opencl),
    pytest.param("cuda", marks=pytest.mark.needs_nvrtc),
]

#: The same functions on expressions, and on arrays of what they are for every element.
EXPRESSIONS = SimpleNamespace(
    sqrt=te.sqrt, select=te.select, choose=te.if_then_else, min=te.min, max=te.max, all=te.all
)
ARRAYS = SimpleNamespace(
    sqrt=np.sqrt,
    select=np.where,
    choose=np.where,
    min=np.minimum,
    max=np.maximum,
    all=lambda *conditions: reduce(np.logical_and, conditions),
)

#: An element, from ``a(k)``, the element k places further on, and its index.
Declaration = Callable[[Any, Callable[[int], Any], Any], Any]


def f32(value: float) -> np.float32:
    return np.float32(value)


def terms(a: Callable[[int], Any], count: int) -> list[Any]:
    return [a(k) * f32(k % 5 - 2) for k in range(count)]


def left_sum(x: Any, a: Any, i: Any) -> Any:
    return reduce(lambda e, term: e + term, terms(a, 1000))


def right_sum(x: Any, a: Any, i: Any) -> Any:
    return reduce(lambda e, term: term + e, terms(a, 300))


def balanced_sum(x: Any, a: Any, i: Any) -> Any:
    row = terms(a, 300)
    while len(row) > 1:
        row = [reduce(lambda p, q: p + q, row[k : k + 2]) for k in range(0, len(row), 2)]
    return row[0]


def shared(x: Any, a: Any, i: Any) -> Any:
    return reduce(lambda e, _: x.sqrt(e * e + e), range(50), a(0))


def shared_in_branches(x: Any, a: Any, i: Any) -> Any:
    """What both branches of a choice use, what one of them uses, and what the condition does."""

    def level(e: Any, k: int) -> Any:
        other = x.choose(e > f32(1.1), e * f32(0.5) + a(k), f32(0.25))
        return x.select(a(k) > f32(1.0), x.sqrt(e) + other, e * f32(0.75) + other * e)

    return reduce(level, range(30), a(0))


def choices(x: Any, a: Any, i: Any) -> Any:
    return reduce(lambda e, k: x.choose(i < k % 70, a(k) + f32(k), e), range(150), a(0))


def choices_in_choices(x: Any, a: Any, i: Any) -> Any:
    return reduce(lambda e, k: x.choose(i < 70 - k % 40, e + a(k), f32(0)), range(150), a(0))


def selections(x: Any, a: Any, i: Any) -> Any:
    return reduce(lambda e, k: x.select(a(k) < f32(0.6), e, a(k) - e), range(150), a(0))


def extrema(x: Any, a: Any, i: Any) -> Any:
    return reduce(lambda e, k: x.min(x.max(e, a(k)) * f32(0.99), f32(1.4)), range(150), a(0))


def conditions(x: Any, a: Any, i: Any) -> Any:
    found = [a(k) * f32(k % 3 + 1) < f32(4.4) for k in range(150)]
    return x.choose(x.all(*found), a(1), a(2))


def index_conditions(x: Any, a: Any, i: Any) -> Any:
    return x.choose(x.all(*[i * (k + 3) % 61 < 60 for k in range(100)]), a(1), f32(0))


DECLARATIONS = [
    left_sum, right_sum, balanced_sum, shared, shared_in_branches, choices, choices_in_choices,
    selections, extrema, conditions, index_conditions,
]  # fmt: skip


def declared(f: Declaration) -> tuple[Any, Any]:
    a = te.placeholder((N,), name="A")
    return a, te.compute((N,), lambda i: f(EXPRESSIONS, lambda k: a[(i + k) % N], i), name="B")


def scheduled(f: Declaration, gpu: bool) -> tuple[Any, list[Any]]:
    a, b = declared(f)
    s = te.create_schedule(b.op)
    if gpu:
        s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    return s, [a, b]


def expected(f: Declaration) -> Any:
    return np.broadcast_to(f(ARRAYS, lambda k: np.roll(A, -k), np.arange(N)), (N,))


def at_depth(depth: int, work: Callable[[], Any]) -> Any:
    """What ``work`` returns when it is called so deep in the stack."""
    return work() if depth == 0 else at_depth(depth - 1, work)


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("f", DECLARATIONS, ids=lambda f: f.__name__)
def test_a_large_expression_computes_what_it_says(f: Declaration, target: str) -> None:
    assert sys.getrecursionlimit() <= 1000
    if target == "cuda":

        def compiled() -> Any:
            s, args = scheduled(f, True)
            return compile_cubin(generate(lower(s, args, "cuda"), "sm_80").text, "sm_80")

        assert at_depth(200, compiled)
        return

    def built() -> Any:
        s, args = scheduled(f, target != "llvm")
        return tilewright.build(s, args, target=target)

    b = np.zeros(N, "float32")
    at_depth(200, built)(A, b)
    np.testing.assert_allclose(b, expected(f), rtol=1e-4, atol=1e-3)


def test_a_guard_keeps_its_reads_in_bounds_across_parts() -> None:
    """Reads that only the outermost of many conditions keeps within the tensor."""
    a = te.placeholder((N,), name="A")

    def element(i: Any) -> Any:
        total = reduce(lambda e, k: e + a[i - 1] * f32(k % 3), range(200), a[i - 1])
        return te.if_then_else(i >= 1, total, 0.0)

    b = te.compute((N,), element, name="B")
    kernel = tilewright.build(te.create_schedule(b.op), [a, b])
    out = np.zeros(N, "float32")
    kernel(A, out)
    factor = 1 + sum(k % 3 for k in range(200))
    np.testing.assert_allclose(out, np.r_[0.0, A[:-1] * factor], rtol=1e-4)


def test_a_reduction_of_a_large_expression_where_a_long_condition_holds() -> None:
    a = te.placeholder((N,), name="A")
    k = te.reduce_axis((0, 8), name="k")

    def element(i: Any) -> Any:
        source = reduce(lambda e, q: e + a[(i + k + q) % N] * f32(q % 3), range(150), a[i])
        holds = te.all(*[(i + k) % (q + 2) < q + 1 for q in range(100)])
        return te.sum(source, axis=k, where=holds)

    b = te.compute((N,), element, name="B")
    kernel = tilewright.build(te.create_schedule(b.op), [a, b])
    out = np.zeros(N, "float32")
    kernel(A, out)
    want = np.zeros(N)
    for i in range(N):
        for m in range(8):
            if all((i + m) % (q + 2) < q + 1 for q in range(100)):
                want[i] += A[i] + sum(A[(i + m + q) % N] * (q % 3) for q in range(150))
    np.testing.assert_allclose(out, want, rtol=1e-4)


def test_what_is_not_large_stays_as_it_is() -> None:
    a = te.placeholder((N,), name="A")
    e = reduce(lambda e, k: e * e + a[k], range(6), a[0])
    assert in_parts((e,)) == ([], (e,))


def test_large_expressions_have_text_and_a_fingerprint_of_their_size() -> None:
    a, b = declared(shared)
    assert len(repr(b.op.body[0])) < 5000
    assert "part0" in repr(b.op.body[0])
    again = declared(shared)
    first = fingerprint(te.create_schedule(b.op), [a, b])
    assert first == fingerprint(te.create_schedule(again[1].op), list(again))


def test_a_stage_inlined_into_two_uses_is_put_in_once() -> None:
    a = te.placeholder((N,), name="A")
    stages = [a]
    for k in range(40):
        stages.append(
            te.compute((N,), lambda i, t=stages[-1]: te.sqrt(t[i] * t[i] + t[i]), name=f"S{k}")
        )
    s = te.create_schedule(stages[-1].op)
    for stage in stages[1:-1]:
        s[stage].compute_inline()
    kernel = tilewright.build(s, [a, stages[-1]])
    out = np.zeros(N, "float32")
    kernel(A, out)
    np.testing.assert_allclose(
        out, reduce(lambda e, _: np.sqrt(e * e + e), range(40), A), rtol=1e-4
    )
