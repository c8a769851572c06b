"""Fragments that no instruction, or two that disagree, could hold are refused in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.kernels import Launch, buffer, module, store
from tests.support.tensor_programs import from_registers, product

import tilewright
from tilewright import te
from tilewright.ir import stmt as S
from tilewright.ir.distribution import Distribution
from tilewright.ir.errors import LanguageError, LoweringError
from tilewright.runtime.sim import simulate
from tilewright.schedule.stage import Stage
from tilewright.target.instructions import load_pairs, mma_bf16, mma_f16

HELD = Distribution.parse(
    (16, 8), (("lane 2", "lane 3", "lane 4", "slot"), ("slot", "lane 0", "lane 1"))
)


def stages(element: str = "float16"):
    """A product whose result and operands are in fragments, and its stages."""
    schedule, args = from_registers(element)
    by_name = {stage.name: stage for stage in schedule.stages}
    return schedule, list(args), by_name


def refused(match: str, schedule, args, target: str = "sim") -> None:
    with pytest.raises(LoweringError, match=match):
        tilewright.build(schedule, args, target)


def test_a_fragment_that_no_instruction_uses_has_no_holder():
    a, b, c = product(16, 8, 16, "float16")
    s = te.create_schedule(c.op)
    total = s.cache_write(c, "fragment")
    s[c].bind(s[c].op.axis[0], te.thread_axis("blockIdx.x"))
    s[total].compute_at(s[c], s[c].op.axis[0])
    refused("no instruction says which thread holds what of 'C.fragment'", s, [a, b, c])


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("opencl", "mma_m16n8k16_f16 has no form in opencl"),
        ("cuda -arch=sm_75", "mma_m16n8k16_f16 needs sm_80, the target is sm_75"),
    ],
)
def test_a_target_without_the_instruction(target, why):
    schedule, args, _ = stages()
    refused(why, schedule, args, target)


def test_an_instruction_for_another_type():
    schedule, args, by_name = stages()
    total: Stage = by_name["C.fragment"]
    axis = next(a for a in total.leaf_iter_vars if total.marks.get(a) and total.mark(a).instruction)
    total.marks[axis].instruction = None
    total.tensorize(axis, mma_bf16)
    refused("it is of float16, not bfloat16", schedule, args)


def test_a_step_that_crosses_bits_that_choose_threads():
    a, b, c = product(16, 8, 48, "float16")
    s = te.create_schedule(c.op)
    total = s.cache_write(c, "fragment")
    left, right = (s.cache_read(x, "fragment", [total]) for x in (a, b))
    s[c].bind(s[c].split(s[c].op.axis[0], 16)[0], te.thread_axis("blockIdx.x"))
    s[total].compute_at(s[c], s[c].leaf_iter_vars[0])
    i, j = s[total].op.axis
    (k,) = s[total].op.reduce_axis
    outer, step = s[total].split(k, 3)
    s[total].reorder(step, i, j, outer)  # a thread's pairs would be three apart
    s[total].tensorize(i, mma_f16)
    for loads in (left, right):
        s[loads].compute_at(s[c], s[c].leaf_iter_vars[0])
    refused("a step of 1 along k.outer is not one bit of one index", s, [a, b, c])


def test_a_fragment_whose_loops_are_bound_to_threads():
    schedule, args, by_name = stages()
    loads: Stage = by_name["A.fragment"]
    loads.bind(loads.op.axis[0], te.thread_axis("threadIdx.x"))
    refused("the loop over .* is bound to threadIdx.x, but the threads that hold", schedule, args)


def test_more_threads_along_x_than_hold_a_fragment():
    schedule, args, by_name = stages()
    again = schedule.cache_read(args[0], "shared", [by_name["A.fragment"].op])
    schedule[again].compute_at(by_name["C"], by_name["C"].leaf_iter_vars[0])
    schedule[again].bind(schedule[again].op.axis[1], te.thread_axis((0, 64), "threadIdx.x"))
    refused("held by the 32 threads along threadIdx.x, which are 64 here", schedule, args)


def test_two_fragments_that_are_held_differently():
    a, b, c = product(16, 8, 16, "float16")
    d = te.compute((16, 8), lambda i, j: c[i, j] + b[j, i].astype("float32"), name="D")
    s = te.create_schedule(d.op)
    s[c].set_scope("fragment")
    left, right = s.cache_read(a, "fragment", [c]), s.cache_read(b, "fragment", [c, d])
    i, _ = s[d].op.axis
    one, i = s[d].split(i, 16)
    s[d].bind(one, te.thread_axis("blockIdx.x"))
    s[c].compute_at(s[d], one)
    s[c].tensorize(s[c].op.axis[0], mma_f16)
    for loads in (left, right):
        s[loads].compute_at(s[d], one)
    refused("'C' and 'B.fragment' are held by the threads in different ways along", s, [a, b, d])


def test_a_thread_that_reads_the_register_of_another_one():
    f, out = buffer("F", (16, 8), scope="fragment"), buffer("Out", (32,))
    held = replace(f, distribution=HELD)
    at = Launch(threadIdx_x=32)
    lane = at.threadx
    fill = store(held, (lane // 4, lane % 4 * 2), 1.0)
    foreign = store(out, (lane,), held[lane // 4, (lane + 1) % 4 * 2])
    m = module(at.func("k", [out], S.Allocate(held, S.seq(fill, foreign))))
    report = simulate(m, [np.zeros(32, "float32")])
    assert {found.kind for found in report.findings} == {"foreign register"}
    assert "reads F[0, 2], which thread 1 of its group holds" in str(report)


@pytest.mark.parametrize(
    ("rows", "places", "pairs"),
    [
        ((2, 2, 2), 8, 4), ((16,), 8, 4), ((1, 4, 4), 16, 4), ((1, 4, 4), 8, 3),
        ((1, 2, 4), 4, 4), ((1, 2, 4), 32, 4),
    ],
)  # fmt: skip
def test_pairs_are_loaded_for_as_many_rows_as_there_are_places_for(rows, places, pairs):
    wanted = "make 16, with 4 or 8 places, or 8, with 16, .* 1, 2 or 4 pairs"
    with pytest.raises(LanguageError, match=wanted):
        load_pairs(rows, places, pairs, "float16")


def test_pairs_are_of_sixteen_bits():
    with pytest.raises(LanguageError, match="float16 or bfloat16, not float32"):
        load_pairs((1, 4, 4), 8, 4, "float32")
