"""Compiling takes calls by the size of what is declared: twice as much of it, twice the calls."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any

import pytest

from tilewright import te
from tilewright.codegen.c import c_source
from tilewright.codegen.cuda import generate
from tilewright.lower.pipeline import lower
from tilewright.runtime.serialize import to_json
from tilewright.schedule.fingerprint import fingerprint
from tilewright.verify import verify

N = 64
#: How many times as many calls twice the size may take.
MOST = 2.3


def expression(f: Callable[[Callable[[int], Any], Any], Any]) -> tuple[Any, list[Any]]:
    a = te.placeholder((N,), name="A")
    b = te.compute((N,), lambda i: f(lambda k: a[(i + k) % N], i), name="B")
    return te.create_schedule(b.op), [a, b]


def sum_of_terms(n: int) -> tuple[Any, list[Any]]:
    return expression(lambda a, i: reduce(lambda e, k: e + a(k) * float(k), range(n), a(0)))


def shared(n: int) -> tuple[Any, list[Any]]:
    return expression(lambda a, i: reduce(lambda e, k: te.sqrt(e * e + e), range(n), a(0)))


def choices(n: int) -> tuple[Any, list[Any]]:
    return expression(
        lambda a, i: reduce(
            lambda e, k: te.if_then_else(i * 7 % 61 < k % 61, a(k), e), range(n), a(0)
        )
    )


def selections(n: int) -> tuple[Any, list[Any]]:
    return expression(
        lambda a, i: reduce(
            lambda e, k: te.select(a(k) < 0.6, te.max(e, a(k)), a(k) - e), range(n), a(0)
        )
    )


def conditions(n: int) -> tuple[Any, list[Any]]:
    return expression(
        lambda a, i: te.if_then_else(te.all(*[a(k) < float(k) for k in range(n)]), a(0), a(1))
    )


def chain(n: int) -> tuple[Any, list[Any]]:
    a = te.placeholder((N,), name="A")
    made: list[Any] = []
    for k in range(n):
        last = made[-1] if made else a
        made.append(te.compute((N,), lambda i, t=last: t[i] * t[i] + 1.0, name=f"B{k}"))
    return te.create_schedule(made[-1].op), [a, *made]


def plain(n: int) -> tuple[Any, list[Any]]:
    s, (a, *stages) = chain(n)
    return s, [a, stages[-1]]


def inlined(n: int) -> tuple[Any, list[Any]]:
    s, (a, *stages) = chain(n)
    for stage in stages[:-1]:
        s[stage].compute_inline()
    return s, [a, stages[-1]]


def gathered(n: int) -> tuple[Any, list[Any]]:
    """A shared expression in place of what is read at an index from memory."""
    s, (a, b) = shared(n)
    at = te.placeholder((N,), "int32", name="D")
    c = te.compute((N,), lambda i: b[te.clip(at[i], 0, N - 1)], name="C")
    s = te.create_schedule(c.op)
    s[b].compute_inline()
    return s, [a, at, c]


def attached(n: int) -> tuple[Any, list[Any]]:
    s, (a, *stages) = chain(n)
    for stage in stages[:-1]:
        s[stage].compute_at(s[stages[-1]], stages[-1].op.axis[0])
    return s, [a, stages[-1]]


def nested(n: int) -> tuple[Any, list[Any]]:
    s, (a, *stages) = chain(n)
    for stage, reader in pairwise(stages):
        s[stage].compute_at(s[reader], reader.op.axis[0])
    return s, [a, stages[-1]]


def splits(n: int) -> tuple[Any, list[Any]]:
    a = te.placeholder((1024,), name="A")
    b = te.compute((1024,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    axis = b.op.axis[0]
    for k in range(n):
        axis, _ = s[b].split(axis, factor=1 + k % 2)
    return s, [a, b]


def calls(work: Callable[[], object]) -> int:
    """How many functions of Python are called, but for what other tests left to the collector of
    garbage to be called back."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


def compiled(program: Callable[[int], tuple[Any, list[Any]]], n: int) -> None:
    """All that is done from a declaration to the text of its kernel and its keys."""
    s, args = program(n)
    repr([getattr(stage.op, "body", None) for stage in s.stages])
    fingerprint(s, args)
    module = lower(s, args)
    for func in module.funcs:
        verify(func)
    to_json(module)
    repr(module)
    c_source(module)


@pytest.mark.parametrize(
    ("program", "n"),
    [
        (sum_of_terms, 150), (shared, 80), (choices, 150), (selections, 80), (conditions, 150),
        (plain, 40), (inlined, 150), (gathered, 40), (attached, 60), (nested, 60),
        (splits, 10),
    ],
    ids=lambda x: getattr(x, "__name__", str(x)),
)  # fmt: skip
def test_twice_the_size_takes_twice_the_calls(program: Any, n: int) -> None:
    compiled(program, n)  # what is imported and kept from now on
    once, twice = (calls(lambda size=size: compiled(program, size)) for size in (n, 2 * n))
    assert twice <= MOST * once, (once, twice)


def test_twice_as_many_nested_stages_of_a_kernel_take_twice_the_calls() -> None:
    def kernel(n: int) -> None:
        s, args = nested(n)
        s[args[1]].bind(args[1].op.axis[0], te.thread_axis("threadIdx.x"))
        verify(lower(s, args, "cuda").funcs[0])

    kernel(60)
    once, twice = calls(lambda: kernel(60)), calls(lambda: kernel(120))
    assert twice <= MOST * once, (once, twice)


def test_the_source_of_a_shared_expression_is_as_large_as_its_graph() -> None:
    def size(n: int) -> int:
        s, args = shared(n)
        s[args[1]].bind(args[1].op.axis[0], te.thread_axis("threadIdx.x"))
        return len(generate(lower(s, args, "cuda"), "sm_80").text)

    assert size(160) <= MOST * size(80)
