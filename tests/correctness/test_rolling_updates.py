"""Reductions that go along with the loop of another one: softmax in one pass over its scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.ir.stmt import Allocate, Produce
from tilewright.ir.visit import statements
from tilewright.lower.pipeline import form
from tilewright.schedule import Schedule
from tilewright.schedule.fingerprint import fingerprint


class Softmax(NamedTuple):
    """Rows of x, softmax over each, times v; and the sums of powers."""

    args: Sequence[Any]
    largest: Any
    powers: Any
    weighted: Any
    total: Any
    out: Any


def softmax(
    rows: int = 5, keys: Any = 13, width: int = 3, power: Any = te.exp2, dtype: str = "float32"
) -> Softmax:
    x = te.placeholder((rows, keys), dtype, name="x")
    v = te.placeholder((keys, width), dtype, name="v")
    j, jw, jt = (te.reduce_axis((0, keys), name) for name in ("j", "jw", "jt"))
    largest = te.compute((rows,), lambda i: te.max(x[i, j], axis=j), name="Largest")
    powers = te.compute(
        (rows, keys), lambda i, j: power(x[i, j] * 2 - largest[i] * 2), name="Powers"
    )
    weighted = te.compute(
        (rows, width), lambda i, e: te.sum(powers[i, jw] * v[jw, e], axis=jw), name="Weighted"
    )
    total = te.compute((rows,), lambda i: te.sum(powers[i, jt], axis=jt), name="Total")
    out = te.compute((rows, width), lambda i, e: weighted[i, e] / total[i], name="Out")
    return Softmax([x, v, out], largest, powers, weighted, total, out)


def online(p: Softmax, step: int, threads: bool = False) -> Schedule:
    s = te.create_schedule(p.out.op)
    row, _ = s[p.out].op.axis
    s[p.weighted].compute_at(s[p.out], row)
    turn, own = s[p.weighted].split(s[p.weighted].op.reduce_axis[0], factor=step)
    s[p.weighted].reorder(s[p.weighted].op.axis[0], turn, s[p.weighted].op.axis[1], own)
    along, _ = s[p.largest].split(s[p.largest].op.reduce_axis[0], factor=step)
    s[p.largest].rolling_update(along, s[p.weighted], turn)
    s[p.powers].compute_at(s[p.weighted], turn)
    along, _ = s[p.total].split(s[p.total].op.reduce_axis[0], factor=step)
    s[p.total].compute_with(along, s[p.weighted], turn)
    if threads:
        s[p.out].bind(row, te.thread_axis("threadIdx.x"))
    for tensor in (p.largest, p.powers, p.weighted, p.total):
        s[tensor].set_scope("local")
    return s


def given(p: Softmax, keys: int, scale: float = 3.0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(keys)
    rows, width = (int(n.value) for n in (p.args[0].shape[0], p.args[1].shape[1]))
    kind = str(p.args[0].dtype)
    x = scale * rng.standard_normal((rows, keys))
    v = rng.standard_normal((keys, width))
    return [x.astype(kind), v.astype(kind), np.full((rows, width), np.nan, kind)]


def exact(x: Any, v: Any, base: float) -> Any:
    x, v = x.astype("float64") * 2, v.astype("float64")
    powers = base ** (x - x.max(1, keepdims=True))
    return powers @ v / powers.sum(1, keepdims=True)


@pytest.mark.parametrize("target", ["llvm", "c", "sim"])
@pytest.mark.parametrize(("power", "base"), [(te.exp2, 2.0), (te.exp, np.e)])
@pytest.mark.parametrize(("keys", "step"), [(13, 4), (16, 4), (3, 8), (7, 1)])
def test_a_softmax_in_steps_is_right(target, power, base, keys, step):
    p = softmax(keys=keys, power=power)
    arrays = given(p, keys)
    tilewright.build(online(p, step, target == "sim"), p.args, target)(*arrays)
    wanted = exact(*arrays[:2], base)
    assert np.linalg.norm(arrays[2] - wanted) < 1e-5 * np.linalg.norm(wanted)


def test_as_many_keys_as_a_call_gives():
    keys = te.var("n", least=1)
    p = softmax(keys=keys)
    kernel = tilewright.build(online(p, 4), p.args, "llvm")
    for n in (1, 4, 11):
        arrays = given(p, n)
        kernel(*arrays)
        assert np.allclose(arrays[2], exact(*arrays[:2], 2.0), rtol=1e-4, atol=1e-5)


def test_scores_that_grow_rescale_what_was_summed():
    p = softmax(rows=1, keys=8, width=1)
    x = np.arange(8, dtype="float32")[None] * 40  # every step makes those before vanish
    arrays = [x, np.ones((8, 1), "float32"), np.empty((1, 1), "float32")]
    tilewright.build(online(p, 2), p.args, "llvm")(*arrays)
    assert arrays[2][0, 0] == 1.0


def test_powers_of_one_step_are_kept():
    p = softmax(rows=5, keys=16)
    func = form(online(p, 4), p.args, "llvm")
    kept = [s.buffer for s in statements(func.body) if isinstance(s, Allocate)]
    (powers,) = (b for b in kept if b.name == "Powers")
    assert [int(n) for n in powers.shape] == [1, 4]
    made = [s for s in statements(func.body) if isinstance(s, Produce) and s.stage == "Powers"]
    assert len(made) == 1


def test_a_sum_beside_may_be_an_output():
    p = softmax()
    s = te.create_schedule([p.out.op, p.total.op])
    weighted, powers = s[p.weighted], s[p.powers]
    turn, _ = weighted.split(weighted.op.reduce_axis[0], factor=4)
    weighted.reorder(turn, *weighted.op.axis)
    along, _ = s[p.largest].split(s[p.largest].op.reduce_axis[0], factor=4)
    s[p.largest].rolling_update(along, weighted, turn)
    powers.compute_at(weighted, turn)
    along, _ = s[p.total].split(s[p.total].op.reduce_axis[0], factor=4)
    s[p.total].compute_with(along, weighted, turn)
    arrays = given(p, 13)
    sums = np.empty(5, "float32")
    tilewright.build(s, [*p.args, p.total], "llvm")(*arrays, sums)
    x = arrays[0].astype("float64") * 2
    assert np.allclose(sums, (2 ** (x - x.max(1, keepdims=True))).sum(1), rtol=1e-5)
    assert np.allclose(arrays[2], exact(*arrays[:2], 2.0), rtol=1e-4, atol=1e-5)


def test_a_wider_sum_of_rounded_powers():
    x = te.placeholder((4, 12), "float32", name="x")
    j, k = te.reduce_axis((0, 12), "j"), te.reduce_axis((0, 12), "k")
    largest = te.compute((4,), lambda i: te.max(x[i, j], axis=j), name="M")
    powers = te.compute(
        (4, 12), lambda i, j: te.exp(x[i, j] - te.max(largest[i], te.const(-10.0))), name="P"
    )
    rounded = te.compute((4, 12), lambda i, j: powers[i, j].astype("float16"), name="R")
    total = te.compute((4,), lambda i: te.sum(rounded[i, k].astype("float64"), axis=k), name="S")
    s = te.create_schedule(total.op)
    turn, _ = s[total].split(k, factor=3)
    s[total].reorder(turn, *s[total].op.axis)
    along, _ = s[largest].split(j, factor=3)
    s[largest].rolling_update(along, s[total], turn)
    for tensor in (powers, rounded):
        s[tensor].compute_at(s[total], turn)
    given = np.random.default_rng(0).standard_normal((4, 12)).astype("float32")
    found = np.empty(4)
    tilewright.build(s, [x, total], "llvm")(given, found)
    wanted = np.exp(given - given.max(1, keepdims=True)).sum(1)
    assert np.allclose(found, wanted, rtol=2e-3)


def test_schedules_that_go_along_have_fingerprints_of_their_own():
    p, found = softmax(), []
    for along in (True, False):
        s = online(p, 4)
        if not along:
            s[p.total].compute_at(s[p.out], s[p.out].op.axis[0])
        found.append(fingerprint(s, p.args))
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("limited", "late"),
    # Powers of keys before the first of the largest would be infinite.
    [(x, False) for x in ("lwt", "wt", "lw", "w", "l", "t")]
    + [(x, True) for x in ("lwt", "wt", "w", "t")],
)
def test_iterations_that_add_nothing_are_left_out_where_nothing_else_is_reduced(
    limited: str, late: bool
) -> None:
    """Of the largest, the weighted sum and the total, some are limited to some keys; all of them
    have to be, that nothing is rescaled in other iterations."""
    rows, keys, width, step = 6, 12, 3, 4
    x = te.placeholder((rows, keys), name="x")
    v = te.placeholder((keys, width), name="v")
    j, jw, jt = (te.reduce_axis((0, keys), name) for name in ("j", "jw", "jt"))

    def seen(i: Any, j: Any, name: str) -> Any:
        first = i // 2 * 2 + 1
        where = j // step >= first // step if late else j // step <= first // step
        return where if name in limited else None

    largest = te.compute((rows,), lambda i: te.max(x[i, j], axis=j, where=seen(i, j, "l")))
    powers = te.compute((rows, keys), lambda i, j: te.exp2(x[i, j] - largest[i]), name="Powers")
    weighted = te.compute(
        (rows, width),
        lambda i, e: te.sum(powers[i, jw] * v[jw, e], axis=jw, where=seen(i, jw, "w")),
        name="Weighted",
    )
    total = te.compute((rows,), lambda i: te.sum(powers[i, jt], axis=jt, where=seen(i, jt, "t")))
    out = te.compute((rows, width), lambda i, e: weighted[i, e] / total[i], name="Out")
    p = Softmax([x, v, out], largest, powers, weighted, total, out)
    s = te.create_schedule(out.op)
    block, _ = s[out].split(s[out].op.axis[0], factor=2)
    s[weighted].compute_at(s[out], block)
    turn, own = s[weighted].split(s[weighted].op.reduce_axis[0], factor=step)
    s[weighted].reorder(turn, *s[weighted].op.axis, own)
    along, _ = s[largest].split(s[largest].op.reduce_axis[0], factor=step)
    s[largest].rolling_update(along, s[weighted], turn)
    s[powers].compute_at(s[weighted], turn)
    along, _ = s[total].split(s[total].op.reduce_axis[0], factor=step)
    s[total].compute_with(along, s[weighted], turn)

    kernel = tilewright.build(s, p.args, "llvm")
    a, b, y = given(p, keys)
    kernel(a, b, y)
    first = np.arange(rows)[:, None] // 2 * 2 + 1
    steps = np.arange(keys)[None] // step
    some = steps >= first // step if late else steps <= first // step
    every = np.ones_like(some)
    x64 = a.astype("float64")
    powers64 = np.exp2(x64 - x64.max(1, keepdims=True))
    sums = [(powers64 * (some if name in limited else every)) for name in "wt"]
    wanted = sums[0] @ b / sums[1].sum(1, keepdims=True)
    assert np.allclose(y, wanted, rtol=1e-5)
    loop = re.search(
        r"for jw_outer in range\(([^\n]*)\):", str(tilewright.lower(s, p.args, "llvm"))
    )
    assert loop is not None
    assert (loop[1] != "3") is (limited == "lwt")


@pytest.mark.parametrize("power", [te.exp2, te.exp])
@pytest.mark.parametrize("bounded", [False, True])
def test_rows_without_a_key_in_the_first_steps_are_right(power: Any, bounded: bool) -> None:
    """Row i has the keys from i on, so that steps of a block are of some of its rows alone."""
    rows, keys, width, step = 6, 12, 3, 2
    x = te.placeholder((rows, keys), name="x")
    v = te.placeholder((keys, width), name="v")
    j, jw = (te.reduce_axis((0, keys), name) for name in ("j", "jw"))
    largest = te.compute((rows,), lambda i: te.max(x[i, j], axis=j, where=j >= i))
    level = (lambda m: te.max(m, te.const(-1e30))) if bounded else (lambda m: m)
    powers = te.compute((rows, keys), lambda i, j: power(x[i, j] - level(largest[i])), name="P")
    s, out = _rolled(v, largest, powers, jw, lambda i: jw >= i, step)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("float32") for shape in ((rows, keys), (keys, width)))
    y = np.full((rows, width), np.nan, "float32")
    tilewright.build(s, [x, v, out], "llvm")(a, b, y)
    taken = np.where(np.arange(keys) >= np.arange(rows)[:, None], a.astype("float64"), -np.inf)
    base = 2.0 if power is te.exp2 else np.e
    assert np.allclose(y, base ** (taken - taken.max(1, keepdims=True)) @ b, rtol=1e-5)
    assert ("Select" in str(tilewright.lower(s, [x, v, out], "llvm"))) is not bounded


@pytest.mark.parametrize("names", [("m1", "m2"), ("m", "m")])
def test_conditions_on_tensors_of_one_name_are_not_the_same(names: tuple[str, str]) -> None:
    """The largest is of all keys, what is summed of two thirds of them."""
    rows, keys, width, step = 6, 12, 3, 4
    x = te.placeholder((rows, keys), name="x")
    v = te.placeholder((keys, width), name="v")
    first, second = (te.placeholder((keys // step,), "int32", name=name) for name in names)
    j, jw = (te.reduce_axis((0, keys), name) for name in ("j", "jw"))
    largest = te.compute((rows,), lambda i: te.max(x[i, j], axis=j, where=first[j // step] > 0))
    powers = te.compute((rows, keys), lambda i, j: te.exp2(x[i, j] - largest[i]), name="Powers")
    s, out = _rolled(v, largest, powers, jw, lambda i: second[jw // step] > 0, step)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("float32") for shape in ((rows, keys), (keys, width)))
    some, y = np.array([1, 0, 1], "int32"), np.full((rows, width), np.nan, "float32")
    tilewright.build(s, [x, v, first, second, out], "llvm")(a, b, np.ones(3, "int32"), some, y)
    powers64 = np.exp2(a.astype("float64") - a.max(1, keepdims=True))
    assert np.allclose(y, powers64 * np.repeat(some, step) @ b, rtol=1e-5)


def test_parts_that_begin_with_a_value_are_added_where_nothing_else_is() -> None:
    assert np.allclose(_levelled(True), _levelled(False), rtol=1e-4)


def _levelled(rolls: bool) -> np.ndarray[Any, Any]:
    """Sums of powers under a level that is a sum of parts, in steps with it or behind it."""
    rows, keys, width, step = 6, 12, 3, 4
    x = te.placeholder((rows, keys), name="x")
    v = te.placeholder((keys, width), name="v")
    j, t = te.reduce_axis((0, step), "j"), te.reduce_axis((0, keys // step), "t")
    jw = te.reduce_axis((0, keys), "jw")

    def seen(i: Any, t: Any) -> Any:
        return t <= (i // 2 * 2 + 1) // step

    part = te.compute(
        (rows, keys // step),
        lambda i, t: te.sum(x[i, t * step + j], axis=j, where=seen(i, t), init=1.0),
        name="Part",
    )
    level = te.compute((rows,), lambda i: te.sum(part[i, t], axis=t), name="Level")
    powers = te.compute((rows, keys), lambda i, j: te.exp2(x[i, j] - level[i]), name="Powers")
    weighted = te.compute(
        (rows, width),
        lambda i, e: te.sum(powers[i, jw] * v[jw, e], axis=jw, where=seen(i, jw // step)),
        name="Weighted",
    )
    out = te.compute((rows, width), lambda i, e: weighted[i, e] * te.const(1.0), name="Out")
    s = te.create_schedule(out.op)
    turn = _weighted_in_steps(s, out, weighted, step)
    if rolls:
        s[level].rolling_update(s[level].op.reduce_axis[0], s[weighted], turn)
        for stage in (s[part], s[powers]):
            stage.compute_at(s[weighted], turn)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((rows, keys)).astype("float32") * np.float32(0.3)
    b = rng.standard_normal((keys, width)).astype("float32")
    y = np.full((rows, width), np.nan, "float32")
    tilewright.build(s, [x, v, out], "llvm")(a, b, y)
    return y


def _rolled(
    v: Any, largest: Any, powers: Any, jw: Any, where: Callable[[Any], Any], step: int
) -> tuple[Schedule, Any]:
    """Sums of what is weighted by powers, while the largest of a row is still looked for."""
    shape = (powers.shape[0], v.shape[1])
    weighted = te.compute(
        shape, lambda i, e: te.sum(powers[i, jw] * v[jw, e], axis=jw, where=where(i)), name="Sum"
    )
    out = te.compute(shape, lambda i, e: weighted[i, e] * te.const(1.0), name="Out")
    s = te.create_schedule(out.op)
    turn = _weighted_in_steps(s, out, weighted, step)
    along, _ = s[largest].split(s[largest].op.reduce_axis[0], factor=step)
    s[largest].rolling_update(along, s[weighted], turn)
    s[powers].compute_at(s[weighted], turn)
    return s, out


def _weighted_in_steps(s: Schedule, out: Any, weighted: Any, step: int) -> Any:
    """The loop over steps of what two rows of the output sum."""
    block, _ = s[out].split(s[out].op.axis[0], factor=2)
    s[weighted].compute_at(s[out], block)
    turn, own = s[weighted].split(s[weighted].op.reduce_axis[0], factor=step)
    s[weighted].reorder(turn, *s[weighted].op.axis, own)
    return turn


@pytest.mark.parametrize("scale", [1.442695, 0.5100697])  # whose products round up, and down
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_rows_without_a_score_stay_zero_where_products_are_fused(target, scale):
    """What an element that stays the same is multiplied with is exactly 1."""
    x, v = te.placeholder((2, 8), name="x"), te.placeholder((8, 3), name="v")
    j, jw = te.reduce_axis((0, 8), "j"), te.reduce_axis((0, 8), "jw")
    largest = te.compute((2,), lambda i: te.max(x[i, j], axis=j), name="Largest")
    powers = te.compute(
        (2, 8), lambda i, j: te.exp2(x[i, j] * scale - te.max(largest[i], -1e30) * scale)
    )
    out = te.compute((2, 3), lambda i, e: te.sum(powers[i, jw] * v[jw, e], axis=jw), name="Out")
    s = te.create_schedule(out.op)
    row, e = s[out].op.axis
    turn, own = s[out].split(jw, factor=2)
    s[out].reorder(row, turn, e, own)
    along, _ = s[largest].split(j, factor=2)
    s[largest].rolling_update(along, s[out], turn)
    s[powers].compute_at(s[out], turn)
    scores = np.full((2, 8), -np.inf, "float32")
    scores[1, 5] = 0.0
    found = np.full((2, 3), np.nan, "float32")
    tilewright.build(s, [x, v, out], target)(scores, np.ones((8, 3), "float32"), found)
    assert (found == [[0.0] * 3, [1.0] * 3]).all()
