"""A pipelined buffer is filled iterations ahead of its use."""

import numpy as np
import pytest
from tests.support.interpreter import interpret

from tilewright.ir import Buffer, Func
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, IntImm, Load
from tilewright.ir.stmt import FillAhead, For, Stmt
from tilewright.ir.visit import allocated, loads, walk
from tilewright.lower.async_.pipeline_loops import pipeline_loops
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store


def marked(b: Buffer, fill: Stmt, stages: int = 2) -> FillAhead:
    return FillAhead(b, stages, None, fill)


def tiled_sum(
    steps: int | Expr, scope: str, low: int = 0, kind: str = "serial", stages: int = 2
) -> Func:
    """B[j] += A[k, j] through a tile of two rows, for k from ``low``."""
    k, i, j = axes("k i j")
    a, b, s = buffer("A", 9, 4), buffer("B", 4), buffer("S", 4, scope=scope)
    fill = marked(s, loop(i, 4, store(s[i], a[k, i] * 2.0)), stages)
    use = loop(j, 4, store(b[j], b[j] + s[j]))
    return func(loop(k, steps, allocate(s, fill, use), min=low, kind=kind))


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("scope", ["shared", "local"])
@pytest.mark.parametrize(("steps", "low"), [(4, 0), (5, 0), (5, 3), (2, 1), (1, 2), (9, 0)])
def test_the_result_is_what_it_was(steps: int, low: int, scope: str, stages: int) -> None:
    before = tiled_sum(steps, scope, low, stages=stages)
    arrays = {"A": np.arange(36, dtype="float32").reshape(9, 4), "B": np.ones(4, "float32")}
    after = pipeline_loops(before)
    assert (interpret(after, arrays)["B"] == interpret(before, arrays)["B"]).all()
    (copies,) = allocated(after.body)
    held = stages if scope == "local" else min(stages, steps)
    assert copies.constant_shape == ((held, 4) if steps > 1 else (4,))
    assert not any(isinstance(s, FillAhead) for s in walk(after.body))


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("scope", ["shared", "local"])
@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_a_symbolic_number_of_steps(n: int, scope: str, stages: int) -> None:
    (steps,) = axes("n")
    before = tiled_sum(steps, scope, stages=stages)
    arrays = {"A": np.arange(36, dtype="float32").reshape(9, 4), "B": np.ones(4, "float32")}
    found = interpret(pipeline_loops(before), arrays, {"n": n})["B"]
    assert (found == interpret(before, arrays, {"n": n})["B"]).all()


def test_registers_are_chosen_by_constants() -> None:
    for steps, stages in ((4, 2), (5, 2), (5, 3)):
        kernel = pipeline_loops(tiled_sum(steps, "local", stages=stages))
        reads = [e for e in loads(kernel.body) if e.buffer.name == "S"]
        assert reads
        assert all(isinstance(e.indices[0], IntImm) for e in reads)


def test_every_variable_keeps_one_binding() -> None:
    kernel = pipeline_loops(tiled_sum(5, "local"))
    bound = [s.var for s in walk(kernel.body) if isinstance(s, For)]
    assert len(bound) == len(set(bound))


def test_two_buffers_of_one_loop_and_one_of_a_loop_inside() -> None:
    k, i, j = axes("k i j")
    a, b, c = buffer("A", 6, 4), buffer("B", 6, 4), buffer("C", 4)
    s, r, u = (
        buffer("S", 4, scope="shared"),
        buffer("R", 4, scope="shared"),
        buffer("U", 1, scope="local"),
    )
    fill_s = marked(s, loop(i, 4, store(s[i], a[k, i])))
    (i2,) = axes("i")
    fill_r = marked(r, loop(i2, 4, store(r[i2], b[k, i2])))
    inner = allocate(u, marked(u, store(u[0], s[j] * r[j])), store(c[j], c[j] + u[0]))
    before = func(loop(k, 6, allocate(s, allocate(r, fill_s, fill_r, loop(j, 4, inner)))))
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-9, 9, (6, 4)).astype("float32") for n in "AB"}
    arrays["C"] = np.zeros(4, "float32")
    after = pipeline_loops(before)
    assert (interpret(after, arrays)["C"] == interpret(before, arrays)["C"]).all()
    assert sorted(b.constant_shape or () for b in allocated(after.body)) == [(2, 1), (2, 4), (2, 4)]
    assert any(isinstance(e, Load) for e in loads(after.body))


@pytest.mark.parametrize("steps", [1, 4, 5, 6, 7, 8])
def test_buffers_of_different_numbers_of_copies(steps: int) -> None:
    k, i = axes("k i")
    a, c = buffer("A", 9, 4), buffer("C", 4)
    s, r = buffer("S", 4, scope="shared"), buffer("R", 1, scope="local")
    fill_s = marked(s, loop(i, 4, store(s[i], a[k, i])), 3)
    fill_r = marked(r, store(r[0], a[k, 1] + 1.0), 2)
    (j,) = axes("j")
    use = loop(j, 4, store(c[j], c[j] * 2.0 + s[j] * r[0]))
    before = func(loop(k, steps, allocate(s, allocate(r, fill_s, fill_r, use))))
    arrays = {"A": np.arange(36, dtype="float32").reshape(9, 4), "C": np.ones(4, "float32")}
    after = pipeline_loops(before)
    assert (interpret(after, arrays)["C"] == interpret(before, arrays)["C"]).all()


def test_outside_of_a_loop_there_is_nothing_to_do() -> None:
    i, j = axes("i j")
    a, b, s = buffer("A", 4), buffer("B", 4), buffer("S", 4, scope="shared")
    body = allocate(s, marked(s, loop(i, 4, store(s[i], a[i]))), loop(j, 4, store(b[j], s[j])))
    after = pipeline_loops(func(body))
    assert [x.constant_shape for x in allocated(after.body)] == [(4,)]
    assert not any(isinstance(x, FillAhead) for x in walk(after.body))


def test_a_tile_of_what_the_loop_itself_writes_cannot_be_computed_ahead() -> None:
    k, i, j = axes("k i j")
    b, s = buffer("B", 4), buffer("S", 4, scope="shared")
    fill = marked(s, loop(i, 4, store(s[i], b[i])))
    use = loop(j, 4, store(b[j], b[j] + s[j]))
    with pytest.raises(LoweringError, match=r"'S'.*iterations of 'k' ahead.*reads 'B'"):
        pipeline_loops(func(loop(k, 4, allocate(s, fill, use))))


def test_a_doubled_buffer_is_not_used_outside_of_its_loop() -> None:
    k, i = axes("k i")
    a, b, s = buffer("A", 4, 4), buffer("B", 4), buffer("S", 4, scope="shared")
    fill = marked(s, loop(i, 4, store(s[i], a[k, i])))
    with pytest.raises(LoweringError, match="outside of the loop"):
        pipeline_loops(func(allocate(s, loop(k, 4, fill), store(b[0], s[0]))))
