"""Misuse of rolling_update and of compute_with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.correctness.test_rolling_updates import Softmax, softmax
from tests.support.misuse import cannot_lower, refuses

import tilewright
from tilewright import te
from tilewright.ir.errors import ScheduleError
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule

POWERS = "Let each term be exp2(x - w), or exp"


def split(
    p: Softmax, own: int = 4, with_total: bool = False
) -> tuple[Schedule, IterVar, IterVar, IterVar]:
    """A schedule, the steps of the weighted sum, and those of the maximum, ``own`` at a time, and
    of the other sum, which may go along already."""
    s = te.create_schedule(p.out.op)
    weighted = s[p.weighted]
    weighted.compute_at(s[p.out], s[p.out].op.axis[0])
    turn, _ = weighted.split(weighted.op.reduce_axis[0], factor=4)
    weighted.reorder(turn, *weighted.op.axis)
    s[p.powers].compute_inline()
    along, beside = (
        s[t].split(s[t].op.reduce_axis[0], factor=n)[0] for t, n in ((p.largest, own), (p.total, 4))
    )
    if with_total:
        s[p.total].compute_with(beside, weighted, turn)
    return s, turn, along, beside


def of_terms(term: Callable[[Any, Any, Any, Any], Any], **more: Any) -> Callable[[], None]:
    """A rolling update of a sum over j whose terms are ``term(M, x, i, j)``."""
    x = te.placeholder((4, 8), name="x")
    j, k = te.reduce_axis((0, 8), "j"), te.reduce_axis((0, 8), "k")
    m = te.compute((4,), lambda i: te.max(x[i, j], axis=j), name="M")
    where = more.pop("where", None)
    condition = None if where is None else (lambda i: where(m, x, i, k))
    total = te.compute(
        (4,),
        lambda i: te.sum(
            term(m, x, i, k), axis=k, where=None if condition is None else condition(i), **more
        ),
        name="S",
    )
    s = te.create_schedule(total.op)
    return lambda: s[m].rolling_update(j, s[total], k)


class TestRollingUpdate:
    @pytest.mark.parametrize(
        ("term", "why"),
        [
            (lambda m, x, i, j: x[i, j] * m[i], "a term has the factor M[i]"),
            (lambda m, x, i, j: te.exp(x[i, j] - m[i]) + 1.0, "a term has the factor"),
            (lambda m, x, i, j: te.exp(m[i] - x[i, j]), "a term has the factor"),
            (lambda m, x, i, j: te.exp(x[i, j] - m[i]) * m[i], "a term has the factor"),
            (lambda m, x, i, j: te.exp(x[i, j] - m[i] * x[i, 0]), "not of one element"),
            (lambda m, x, i, j: te.exp(x[i, j] - m[i] * i.astype("float32")), "of loops as well"),
            (lambda m, x, i, j: te.exp(x[i, j] - m[j % 4]), "each of its terms has another"),
            (lambda m, x, i, j: te.exp2((x[i, j] - m[i]) * -1.0), "its terms grow as M goes on"),
            (lambda m, x, i, j: te.exp(x[i, j] + 1.0 - m[i] * -2.0), "its terms grow as M goes on"),
        ],
    )
    def test_terms_that_are_no_powers(self, term: Any, why: str) -> None:
        refuses(of_terms(term), why, stage="M", mend=POWERS)

    def test_a_condition_on_the_stage(self) -> None:
        act = of_terms(lambda m, x, i, j: te.exp(x[i, j] - m[i]), where=lambda m, x, i, j: m[i] > 0)
        refuses(act, "which terms it has depends on the stage", stage="M", mend=POWERS)

    def test_a_sum_that_begins_with_something(self) -> None:
        act = of_terms(lambda m, x, i, j: te.exp(x[i, j] - m[i]), init=1.0)
        refuses(act, "it is no sum from 0 on", stage="M", mend=POWERS)

    def test_a_product(self) -> None:
        x = te.placeholder((8,), name="x")
        j, k = te.reduce_axis((0, 8), "j"), te.reduce_axis((0, 8), "k")
        m = te.compute((1,), lambda i: te.max(x[j], axis=j), name="M")
        total = te.compute((1,), lambda i: te.prod(te.exp(x[k] - m[i]), axis=k), name="S")
        s = te.create_schedule(total.op)
        refuses(lambda: s[m].rolling_update(j, s[total], k), "no sum from 0 on, but prod",
                stage="M", mend=POWERS)  # fmt: skip

    def test_a_stage_that_is_no_reduction(self) -> None:
        p = softmax()
        s, turn, along, _ = split(p)
        refuses(
            lambda: s[p.powers].rolling_update(along, s[p.weighted], turn),
            "Stage(Powers) is no reduction", stage="Powers", mend="with loops of reductions",
        )  # fmt: skip

    def test_a_loop_over_results(self) -> None:
        p = softmax()
        s, _, along, _ = split(p)
        column = s[p.weighted].op.axis[1]
        refuses(
            lambda: s[p.largest].rolling_update(along, s[p.weighted], column),
            "not a loop of the reduction", stage="Weighted", axis="e", mend="op.reduce_axis",
        )  # fmt: skip

    def test_a_loop_of_another_stage(self) -> None:
        p = softmax()
        s, turn, _, _ = split(p)
        refuses(
            lambda: s[p.largest].rolling_update(turn, s[p.weighted], turn),
            "does not belong to this stage", stage="Largest", axis="jw.outer", mend="Its loops",
        )  # fmt: skip

    def test_loops_of_different_lengths(self) -> None:
        p = softmax()
        s, turn, along, _ = split(p, own=2, with_total=True)
        cause = lambda: s[p.largest].rolling_update(along, s[p.weighted], turn)  # noqa: E731
        cause()
        cannot_lower(
            s, p.args, "llvm", "has 7 iterations, and that over 'jw.outer' of Weighted 4",
            cause=cause, stage="Largest", axis="j.outer", mend="by the same factor",
        )  # fmt: skip

    def test_a_loop_inside_of_another_of_the_sum(self) -> None:
        p = softmax(keys=16)
        s, _, along, beside = split(p)
        inner = s[p.weighted].leaf_iter_vars[-1]
        s[p.largest].rolling_update(along, s[p.weighted], inner)
        cause = lambda: s[p.total].compute_with(beside, s[p.weighted], inner)  # noqa: E731
        cause()
        cannot_lower(
            s, p.args, "llvm", "stands outside of that over 'jw.inner'", cause=cause,
            stage="Total", axis="jt.outer", mend="Reorder the loops of the sum",
        )  # fmt: skip

    def test_a_reader_outside_of_the_loop(self) -> None:
        p = softmax()
        s, turn, along, _ = split(p, with_total=True)
        cause = lambda: s[p.largest].rolling_update(along, s[p.weighted], turn)  # noqa: E731
        cause()
        s[p.powers].compute_at(s[p.out], s[p.out].op.axis[0])
        cannot_lower(
            s, p.args, "llvm", "stage 'Powers' reads it from outside of there", cause=cause,
            stage="Largest", axis="jw.outer", mend="Compute Powers inside that axis too",
        )  # fmt: skip


class TestComputeWith:
    def test_a_stage_that_it_reads(self) -> None:
        p = softmax()
        s, turn, along, _ = split(p)
        refuses(
            lambda: s[p.largest].compute_with(along, s[p.weighted], turn),
            "Weighted is computed of Largest", stage="Largest", axis="j.outer",
            mend="Compute it at a loop of what reads it",
        )  # fmt: skip

    def test_itself(self) -> None:
        p = softmax()
        s, turn, _, _ = split(p)
        refuses(
            lambda: s[p.weighted].compute_with(turn, s[p.weighted], turn),
            "Weighted is computed of Weighted", stage="Weighted", axis="jw.outer",
            mend="Compute it at a loop of what reads it",
        )  # fmt: skip

    def test_another_one_beside_that_it_reads(self) -> None:
        x = te.placeholder((4, 8), name="x")
        i, j, k = (te.reduce_axis((0, 8), n) for n in "ijk")
        first = te.compute((4,), lambda r: te.sum(x[r, i], axis=i), name="First")
        other = te.compute((4,), lambda r: te.sum(x[r, j] * 2.0, axis=j), name="Other")
        last = te.compute((4,), lambda r: te.sum(x[r, k] * first[r], axis=k), name="Last")
        out = te.compute((4,), lambda r: other[r] + last[r], name="Out")
        s = te.create_schedule(out.op)
        s[first].compute_with(i, s[other], j)
        refuses(
            lambda: s[last].compute_with(k, s[other], j), "Last is computed of First",
            stage="Last", axis="k", mend="or after what it reads",
        )  # fmt: skip

    def test_loops_around_the_one_that_it_goes_along_with(self) -> None:
        p = softmax()
        s, turn, along, beside = split(p)
        s[p.largest].rolling_update(along, s[p.weighted], turn)
        cause = lambda: s[p.total].compute_with(beside, s[p.weighted], turn)  # noqa: E731
        cause()
        s[p.weighted].reorder(s[p.weighted].op.axis[1], turn)
        cannot_lower(
            s, p.args, "llvm", "all of the reduction would be done again", cause=cause,
            stage="Total", axis="jt.outer", mend="Reorder the loops of the other reduction",
        )  # fmt: skip

    def test_threads_that_share_the_reduction(self) -> None:
        p = softmax()
        s, turn, along, beside = split(p)
        s[p.largest].rolling_update(along, s[p.weighted], turn)
        cause = lambda: s[p.total].compute_with(beside, s[p.weighted], turn)  # noqa: E731
        cause()
        s[p.total].bind(s[p.total].leaf_iter_vars[-1], te.thread_axis("threadIdx.x"))
        for tensor in (p.largest, p.powers, p.weighted, p.total):
            s[tensor].set_scope("local")
        cannot_lower(
            s, p.args, "sim", "threads share the reduction of Total", cause=cause, stage="Total",
            axis="jt.outer", mend="Use rfactor",
        )  # fmt: skip

    def test_the_other_sum_is_no_sum_of_powers(self) -> None:
        p = softmax()
        k = te.reduce_axis((0, 13), "k")
        x = p.args[0]
        odd = te.compute((5,), lambda i: te.sum(x[i, k] * p.largest[i], axis=k), name="Odd")
        s = te.create_schedule([p.out.op, odd.op])
        turn = s[p.weighted].op.reduce_axis[0]
        s[p.weighted].reorder(turn, *s[p.weighted].op.axis)
        s[p.total].compute_with(s[p.total].op.reduce_axis[0], s[p.weighted], turn)
        s[p.largest].rolling_update(s[p.largest].op.reduce_axis[0], s[p.weighted], turn)
        s[p.powers].compute_inline()
        s[odd].compute_with(k, s[p.weighted], turn)
        with pytest.raises(ScheduleError, match="Odd has summed cannot be turned into"):
            tilewright.lower(s, [*p.args, odd], "llvm")
