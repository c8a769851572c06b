"""Buffers that are never alive together share memory, and nothing else changes."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.interpreter import interpret

from tilewright.ir import Buffer, Func
from tilewright.ir.expr import Load, Ramp, Var
from tilewright.ir.func import LaunchAxis
from tilewright.ir.ops import const
from tilewright.ir.stmt import For, If, Produce, Stmt, Store, seq
from tilewright.ir.visit import allocated, loads, stores, walk
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store, when
from tilewright.lower.loops.plan_storage import plan_storage
from tilewright.verify.check import check


def step(into: Buffer, *sources: Buffer) -> Stmt:
    """All of ``into`` as the sum of the first elements of ``sources``, turned around."""
    (i,) = axes("i")
    n = int(into.shape[0])
    value = const(1.0)
    for s in sources:
        value = value + s[(n - 1 - i) % int(s.shape[0])] * 2.0
    return loop(i, n, store(into[i], value))


def local(name: str, n: int = 4, scope: str = "local") -> Buffer:
    return buffer(name, n, scope=scope)


def gpu(body: Stmt, threads: int = 4) -> tuple[Func, Var]:
    made = func(body, target="sim")
    (t,) = (v for v in made.params if isinstance(v, Var))
    params = tuple(p for p in made.params if p is not t)
    launch = (LaunchAxis("threadIdx.x", t, const(threads)),)
    return Func("main", params, made.body, launch, made.target), t


def memory(f: Func) -> int:
    return sum(int(b.size) for b in allocated(f.body))


def run(f: Func) -> np.ndarray:
    arrays = {
        p.name: np.arange(int(p.size), dtype="float32").reshape(p.constant_shape)
        for p in f.params
        if isinstance(p, Buffer)
    }
    return interpret(f, arrays)["B"]


def test_a_chain_of_stages_needs_two_buffers() -> None:
    a, b = buffer("A", 4), buffer("B", 4)
    s, t, u, v = (local(n) for n in "STUV")
    steps = (step(s, a), step(t, s), step(u, t), step(v, u), step(b, v))
    before = func(allocate(s, allocate(t, allocate(u, allocate(v, *steps)))))
    after = plan_storage(before)
    assert (memory(before), memory(after)) == (16, 8)
    assert (run(after) == run(before)).all()


def test_what_goes_from_one_iteration_to_the_next_is_kept() -> None:
    # S is written after T is read, but is read again at the start of the next iteration.
    (k,) = axes("k")
    a, b = buffer("A", 4), buffer("B", 4)
    s, t = local("S"), local("T")
    body = loop(k, 3, step(t, s), step(b, t), step(s, b))
    before = func(allocate(s, allocate(t, step(s, a), body)))
    after = plan_storage(before)
    assert memory(after) == 8
    assert (run(after) == run(before)).all()


def test_what_is_allocated_inside_a_loop_is_dead_at_the_end_of_its_body() -> None:
    (k,) = axes("k")
    a, b = buffer("A", 4), buffer("B", 4)
    s, t = local("S"), local("T")
    body = loop(
        k, 3, allocate(s, step(s, a), store(a[0], s[0])), allocate(t, step(t, a), step(b, t))
    )
    before = func(body)
    after = plan_storage(before)
    assert memory(after) == 4
    (kept,) = [x for x in walk(after.body) if isinstance(x, For) and x.var is k]
    assert allocated(kept)
    assert (run(after) == run(before)).all()


def test_iterations_on_several_cpu_threads_keep_their_own() -> None:
    k, l = axes("k l")
    a, b = buffer("A", 4), buffer("B", 4)
    s, t = local("S"), local("T")
    first = loop(k, 3, allocate(s, step(s, a), step(b, s)), kind="parallel")
    second = loop(l, 3, allocate(t, step(t, a), step(b, t)), kind="parallel")
    after = plan_storage(func(first, second))
    assert memory(after) == 8
    for x in walk(after.body):
        if isinstance(x, For) and x.var in (k, l):
            assert len(allocated(x)) == 1


@pytest.mark.parametrize("scope", ["local", "global", "shared"])
def test_memory_of_a_thread_of_a_cpu_is_not_what_stands_around_the_loop(scope: str) -> None:
    """What was alive before a parallel loop is one for all of its threads, which the proof says."""
    (k,) = axes("k")
    a, b = buffer("A", 4), buffer("B", 4)
    s, t = (buffer(name, 1, scope=scope) for name in "ST")
    inside = [store(t[0], a[k]), store(b[k], t[0])]
    own = loop(k, 4, allocate(t, *inside), kind="parallel")
    after = plan_storage(func(allocate(s, store(s[0], a[0]), store(b[0], s[0])), own))
    assert not check(after)
    alike = func(allocate(t, loop(k, 4, *inside, kind="parallel")))
    assert any(f.kind == "race" for f in check(alike))


def test_registers_of_different_shapes_are_left_alone() -> None:
    a, b = buffer("A", 4), buffer("B", 4)
    s, t = local("S", 4), local("T", 8)
    after = plan_storage(
        func(allocate(s, allocate(t, step(s, a), step(b, s), step(t, a), step(b, t))))
    )
    assert memory(after) == 12


def test_shared_buffers_of_different_shapes_lie_in_one_array_at_the_top() -> None:
    (t,) = axes("t")
    a, b = buffer("A", 4), buffer("B", 4)
    s, u = buffer("S", 64, 2, scope="shared"), buffer("U", 80, scope="shared")
    (k,) = axes("k")
    body = loop(
        k,
        2,
        allocate(s, store(s[t * 16, 1], a[t]), store(b[t], s[t * 16, 1])),
        allocate(u, store(u[79 - t], b[t] * 2.0), store(b[t], u[79 - t])),
    )
    before, _ = gpu(body)
    after = plan_storage(before)
    assert (memory(before), memory(after)) == (208, 128)
    assert allocated(after.body)[0].scope == "shared"
    assert after.body.buffer is allocated(after.body)[0]
    assert (run(after) == run(before)).all()


def test_vectors_into_shared_memory_stay_vectors() -> None:
    (t,) = axes("t")
    a, b = buffer("A", 4), buffer("B", 4)
    s, u = buffer("S", 16, 8, scope="shared"), buffer("U", 80, scope="shared")
    four = Ramp(t * 0 + 4, const(1), 4)
    put = Store(s, (t, four), const(2.0, "float32x4"))
    body = seq(
        allocate(s, put, store(b[t], s[t, 5])),
        allocate(u, store(u[t], a[t]), store(b[t], b[t] + u[t])),
    )
    after = plan_storage(gpu(body)[0])
    (vector,) = [x for x in stores(after.body) if x.value.dtype.lanes == 4]
    assert isinstance(vector.indices[0], Ramp)
    assert (run(after) == [2, 3, 4, 5]).all()


def test_threads_that_went_different_ways_do_not_share() -> None:
    (t,) = axes("t")
    b = buffer("B", 4)
    s, u = local("S", 64, "shared"), local("U", 64, "shared")
    one = allocate(s, store(s[t], 1.0), store(b[t], s[t]))
    two = allocate(u, store(u[t], 2.0), store(b[t], u[t]))
    after = plan_storage(gpu(If(t < 2, one, two))[0])
    assert memory(after) == 128
    uniform = plan_storage(gpu(seq(one, two))[0])
    assert memory(uniform) == 64


def test_a_few_words_of_shared_memory_are_not_worth_a_barrier() -> None:
    (t,) = axes("t")
    b = buffer("B", 4)
    s, u = local("S", 8, "shared"), local("U", 8, "shared")
    one = allocate(s, store(s[t], 1.0), store(b[t], s[t]))
    two = allocate(u, store(u[t], 2.0), store(b[t], u[t]))
    assert memory(plan_storage(gpu(seq(one, two))[0])) == 16


def test_what_nobody_reads_is_not_computed() -> None:
    a, b = buffer("A", 4), buffer("B", 4)
    s, t, u = (local(n) for n in "STU")
    dead = allocate(s, allocate(t, Produce("S", step(s, a)), step(t, s)))
    after = plan_storage(func(dead, allocate(u, when(const(4) > 3, step(b, a)))))
    assert not allocated(after.body)
    assert {x.buffer for x in stores(after.body)} == {b}


def test_symbolic_sizes_are_left_alone() -> None:
    n, i, j = axes("n i j")
    a, b = buffer("A", n), buffer("B", n)
    s, t = (buffer(x, n, scope="local") for x in "ST")
    before = func(
        allocate(s, loop(i, n, store(s[i], a[i])), store(b[0], s[0])),
        allocate(t, loop(j, n, store(t[j], a[j])), store(b[0], t[0])),
    )
    assert plan_storage(before).body is before.body


@st.composite
def programs(draw: st.DrawFn) -> Func:
    """Stages that read what was written before, in loops here and there."""
    a, b = buffer("A", 4), buffer("B", 4)
    names = [local(f"S{k}", draw(st.sampled_from([4, 4, 3]))) for k in range(6)]
    outside = {x for x in names if draw(st.booleans())}
    written = [a, b]

    def block(depth: int, todo: list[Buffer]) -> Stmt:
        made: list[Stmt] = []
        mark = len(written)
        while todo:
            if depth < 2 and draw(st.integers(0, 3)) == 0:
                (k,) = axes("k")
                n = draw(st.integers(1, len(todo)))
                made.append(loop(k, 2, block(depth + 1, todo[:n])))
                todo = todo[n:]
                continue
            s, todo = todo[0], todo[1:]
            sources = draw(st.lists(st.sampled_from(written), min_size=1, max_size=2))
            made.append(step(s, *sources))
            written.append(s)
            if draw(st.booleans()):
                made.append(step(b, draw(st.sampled_from(written)), b))
        own = [x for x in written[mark:] if x not in outside and x in names]
        if depth:  # what is allocated inside of a loop is not visible after it
            for x in own:
                written.remove(x)
            body = seq(*made)
            for x in own:
                placed.add(x)
                body = allocate(x, body)
            return body
        return seq(*made)

    placed: set[Buffer] = set()
    body = seq(block(0, list(names)), step(b, b))
    for x in names:
        if x not in placed:
            body = allocate(x, body)
    return func(body)


@given(programs())
def test_random_programs_compute_what_they_did(before: Func) -> None:
    after = plan_storage(before)
    assert memory(after) <= memory(before)
    assert (run(after) == run(before)).all()


@pytest.mark.parametrize("layers", [3, 6])
def test_nobody_reads_a_buffer_that_is_not_allocated(layers: int) -> None:
    a, b = buffer("A", 4), buffer("B", 4)
    chain = [a, *(local(f"S{k}") for k in range(layers)), b]
    body = seq(*(step(y, x) for x, y in pairwise(chain)))
    for x in chain[1:-1]:
        body = allocate(x, body)
    after = plan_storage(func(body))
    known = {*allocated(after.body), a, b}
    assert {e.buffer for e in loads(after.body)} <= known
    assert any(isinstance(e, Load) for e in loads(after.body))
