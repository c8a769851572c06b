"""Misuse of what places, copies and keeps stages, and of schedules themselves."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.misuse import cannot_lower, refuses

from tilewright import te
from tilewright.ir.errors import ScheduleError
from tilewright.schedule import Schedule


def chain() -> tuple[Schedule, Any, Any, Any, Any]:
    """A -> B -> C -> D, and D reads B too; an elementwise step each."""
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((16,), lambda i: b[i] * 2.0, name="C")
    d = te.compute((16,), lambda i: c[i] + b[15 - i], name="D")
    return te.create_schedule(d.op), a, b, c, d


def sums() -> tuple[Schedule, Any, Any, Any]:
    a = te.placeholder((8, 6), name="A")
    k = te.reduce_axis((0, 6), "k")
    b = te.compute((8,), lambda i: te.sum(a[i, k], k), name="B")
    c = te.compute((8,), lambda i: b[i] + 1.0, name="C")
    return te.create_schedule(c.op), a, b, c


def library() -> tuple[Schedule, Any, Any, Any]:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    c = te.extern((8,), [b], lambda i, o: te.call_extern("int32", "f", i[0], o[0]), name="C")
    d = te.compute((8,), lambda i: c[i] + 1.0, name="D")
    return te.create_schedule(d.op), b, c, d


class TestComputeAt:
    def test_a_stage_that_does_not_read_it(self) -> None:
        a = te.placeholder((16,), name="A")
        b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
        c = te.compute((16,), lambda i: a[i] * 2.0, name="C")
        s = te.create_schedule([b.op, c.op])
        d = s.cache_write(b, "local")
        refuses(
            lambda: s[d].compute_at(s[c], c.op.axis[0]), "C does not read B.local",
            stage="B.local", axis="i", mend="Compute a stage at one of its consumers",
        )  # fmt: skip

    def test_its_producer(self) -> None:
        s, _, b, c, _ = chain()
        refuses(
            lambda: s[c].compute_at(s[b], b.op.axis[0]), "B does not read C",
            stage="C", axis="i", mend="one of its consumers",
        )  # fmt: skip

    def test_itself(self) -> None:
        s, _, b, _, _ = chain()
        refuses(
            lambda: s[b].compute_at(s[b], b.op.axis[0]), "cannot be computed inside itself",
            stage="B", mend="one of its consumers",
        )  # fmt: skip

    def test_an_output(self) -> None:
        a = te.placeholder((16,), name="A")
        b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
        c = te.compute((16,), lambda i: b[i] * 2.0, name="C")
        s = te.create_schedule([b.op, c.op])
        refuses(
            lambda: s[b].compute_at(s[c], c.op.axis[0]), "the stage is an output",
            stage="B", mend="s.cache_write",
        )  # fmt: skip

    def test_a_placeholder(self) -> None:
        s, a, b, _, _ = chain()
        refuses(
            lambda: s[a].compute_at(s[b], b.op.axis[0]), "the stage is a placeholder",
            stage="A", mend="Use s.cache_read",
        )  # fmt: skip

    def test_an_extern_stage(self) -> None:
        s, _, c, d = library()
        refuses(
            lambda: s[c].compute_at(s[d], d.op.axis[0]), "an extern stage is computed whole",
            stage="C", mend="Attach the stages that read it",
        )  # fmt: skip

    @pytest.mark.parametrize("thing", [None, "C", 3])
    def test_at_what_is_no_stage(self, thing: Any) -> None:
        s, _, b, c, _ = chain()
        refuses(
            lambda: s[b].compute_at(thing, c.op.axis[0]), "takes a stage and an axis of it",
            stage="B", mend="Write s[A].compute_at(s[B], axis)",
        )  # fmt: skip

    def test_at_an_axis_of_another_stage(self) -> None:
        s, _, b, c, _ = chain()
        refuses(
            lambda: s[b].compute_at(s[c], b.op.axis[0]),
            "the axis does not belong to this stage, but to 'B'",
            stage="C", axis="i", mend="Its loops are now i",
        )  # fmt: skip

    def test_at_an_inlined_stage(self) -> None:
        s, _, b, c, _ = chain()
        s[c].compute_inline()
        refuses(
            lambda: s[b].compute_at(s[c], c.op.axis[0]), "stage 'C' is inlined",
            stage="B", axis="i", mend="a consumer that has loops",
        )  # fmt: skip

    def test_at_a_stage_that_is_inlined_afterwards(self) -> None:
        s, a, b, c, d = chain()

        def attach() -> None:
            s[b].compute_at(s[c], c.op.axis[0])

        attach()
        s[c].compute_inline()
        cannot_lower(
            s, [a, d], "llvm", "stage 'C', at whose axis it is computed, is inlined",
            cause=attach, stage="B", axis="i", mend="a consumer that has loops",
        )  # fmt: skip

    def test_where_another_consumer_does_not_see_it(self) -> None:
        s, a, b, c, d = chain()

        def attach() -> None:
            s[b].compute_at(s[c], c.op.axis[0])

        attach()
        cannot_lower(
            s, [a, d], "llvm", "but stage 'D' reads it from outside of there",
            cause=attach, stage="B", axis="i", mend="Compute D inside that axis too, or B further",
        )  # fmt: skip

    def test_inside_the_place_where_it_is_read(self) -> None:
        s, a, b, c, d = chain()
        outer, inner = s[d].split(d.op.axis[0], 4)

        def attach() -> None:
            s[b].compute_at(s[d], inner)

        attach()
        s[c].compute_at(s[d], outer)
        cannot_lower(
            s, [a, d], "llvm", "inside the place where stage 'C' reads it",
            cause=attach, stage="B", axis="i.inner", mend="Compute it at an outer axis",
        )  # fmt: skip


class TestComputeInline:
    def test_a_reduction(self) -> None:
        s, _, b, _ = sums()
        refuses(
            lambda: s[b].compute_inline(), "a reduction cannot be inlined",
            stage="B", mend="Use compute_at, with set_scope('local')",
        )  # fmt: skip

    def test_an_output(self) -> None:
        s, _, _, c = sums()
        refuses(
            lambda: s[c].compute_inline(), "the stage is an output",
            stage="C", mend="Inline its producers",
        )  # fmt: skip

    def test_a_placeholder(self) -> None:
        s, a, _, _ = sums()
        refuses(
            lambda: s[a].compute_inline(), "the stage is a placeholder",
            stage="A", mend="Use s.cache_read",
        )  # fmt: skip

    def test_an_extern_stage(self) -> None:
        s, _, c, _ = library()
        refuses(
            lambda: s[c].compute_inline(), "an extern stage has no expression",
            stage="C", mend="Leave it at the root",
        )  # fmt: skip

    def test_what_an_extern_stage_reads(self) -> None:
        s, b, c, d = library()
        s[b].compute_inline()
        (a,) = b.op.inputs
        cannot_lower(
            s, [a, d], "llvm", "one of them is inlined",
            cause=c.op.where, stage="C", mend="Leave out compute_inline",
        )  # fmt: skip


class TestCacheRead:
    def test_for_a_stage_that_does_not_read_it(self) -> None:
        s, a, b, c, _ = chain()
        refuses(
            lambda: s.cache_read(a, "shared", [c]), "the stage does not read A",
            stage="C", mend="It reads B",
        )  # fmt: skip
        assert [t.name for t in s[b].op.inputs] == ["A"]

    def test_twice_for_one_reader(self) -> None:
        s, a, b, _, _ = chain()
        s.cache_read(a, "shared", [b])
        refuses(
            lambda: s.cache_read(a, "local", [b]), "the stage does not read A",
            stage="B", mend="It reads A.shared",
        )  # fmt: skip

    def test_in_front_of_what_it_copies_or_behind_a_reader(self) -> None:
        s, a, b, c, _ = chain()
        refuses(
            lambda: s.cache_read(b, "shared", [c], before=a),
            "a copy of what B computes cannot be in front of", stage="A", mend="not behind C",
        )  # fmt: skip
        refuses(
            lambda: s.cache_read(a, "shared", [b], before=c),
            "a copy of what A computes cannot be in front of", stage="C", mend="not behind B",
        )  # fmt: skip

    def test_for_nobody(self) -> None:
        s, a, *_ = chain()
        refuses(
            lambda: s.cache_read(a, "shared", []), "needs at least one reader",
            stage="A", mend="Pass the tensors that read it",
        )  # fmt: skip

    def test_for_an_extern_stage(self) -> None:
        s, b, c, _ = library()
        refuses(
            lambda: s.cache_read(b, "local", [c]), "an extern stage reads its inputs as they are",
            stage="C", mend="Leave it out of the readers",
        )  # fmt: skip

    @pytest.mark.parametrize("thing", [None, "A"])
    def test_of_what_is_no_tensor(self, thing: Any) -> None:
        s, _, b, _, _ = chain()
        refuses(
            lambda: s.cache_read(thing, "local", [b]), "takes a tensor",
            mend="Pass an output of the operation",
        )  # fmt: skip

    def test_into_an_unknown_memory(self) -> None:
        s, a, b, _, _ = chain()
        refuses(
            lambda: s.cache_read(a, "texture", [b]), "unknown scope 'texture'",
            mend="The scopes are global, cluster, shared, warp, fragment, local",
        )  # fmt: skip


class TestCacheWrite:
    @pytest.mark.parametrize(
        "schedule",
        [
            lambda stage: stage.unroll(stage.op.axis[0]),
            lambda stage: stage.parallel(stage.op.axis[0]),
        ],
    )
    def test_after_scheduling(self, schedule: Any) -> None:
        s, _, b, _ = sums()
        schedule(s[b])
        refuses(
            lambda: s.cache_write(b, "local"), "the stage was already scheduled",
            stage="B", mend="Call cache_write before bind",
        )  # fmt: skip

    def test_after_another_stage_was_computed_there(self) -> None:
        s, _, b, c = sums()
        s[b].compute_at(s[c], c.op.axis[0])
        refuses(
            lambda: s.cache_write(c, "local"), "stage 'B' is computed at an axis of this stage",
            stage="C", axis="i", mend="Call cache_write before compute_at",
        )  # fmt: skip

    def test_of_a_placeholder(self) -> None:
        s, a, _, _ = sums()
        refuses(
            lambda: s.cache_write(a, "local"), "not the result of te.compute",
            stage="A", mend="Use s.cache_read",
        )  # fmt: skip

    def test_of_one_of_several_outputs(self) -> None:
        a = te.placeholder((8,), name="A")
        b, _ = te.compute((8,), lambda i: (a[i] + 1.0, a[i] * 2.0), name="B")
        s = te.create_schedule(b.op)
        refuses(
            lambda: s.cache_write(b, "local"), "has 2 outputs, of which 1 were given",
            stage="B", mend="Pass all of them as a list",
        )  # fmt: skip

    def test_into_an_unknown_memory(self) -> None:
        s, _, b, _ = sums()
        refuses(
            lambda: s.cache_write(b, "register"), "unknown scope 'register'",
            mend="The scopes are global, cluster, shared, warp, fragment, local",
        )  # fmt: skip


class TestRfactor:
    def test_of_what_is_no_reduction(self) -> None:
        s, _, _, c = sums()
        refuses(
            lambda: s.rfactor(c, c.op.axis[0]), "the stage is not a reduction",
            stage="C", mend="Pass the tensor that te.sum makes",
        )  # fmt: skip

    def test_of_a_data_axis(self) -> None:
        s, _, b, _ = sums()
        refuses(
            lambda: s.rfactor(b, b.op.axis[0]), "not a reduction axis",
            stage="B", axis="i", mend="The reduction's loops are k",
        )  # fmt: skip

    @pytest.mark.parametrize("times", [0, 2])
    def test_of_no_axis_and_of_one_twice(self, times: int) -> None:
        s, _, b, _ = sums()
        refuses(
            lambda: s.rfactor(b, [b.op.reduce_axis[0]] * times),
            f"rfactor: got {times} axes, of which {min(times, 1)} are different",
            stage="B", mend="each once",
        )  # fmt: skip

    def test_of_an_axis_that_was_split(self) -> None:
        s, _, b, _ = sums()
        k = b.op.reduce_axis[0]
        s[b].split(k, 2)
        refuses(
            lambda: s.rfactor(b, k), "rfactor: the axis was already split",
            stage="B", axis="k", mend="Its loops are now i, k.outer, k.inner",
        )  # fmt: skip

    @pytest.mark.parametrize("place", [2, -3, 7])
    def test_into_a_dimension_that_there_is_not(self, place: int) -> None:
        s, _, b, _ = sums()
        refuses(
            lambda: s.rfactor(b, b.op.reduce_axis[0], place), "the new stage has 2 dimensions",
            stage="B", axis="k", mend="factor_axis is from 0 to 1, or from -2 to -1",
        )  # fmt: skip

    def test_after_a_loop_was_marked(self) -> None:
        s, _, b, _ = sums()
        s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
        refuses(
            lambda: s.rfactor(b, b.op.reduce_axis[0]), "already bound to blockIdx.x",
            stage="B", axis="i", mend="Call rfactor first",
        )  # fmt: skip

    def test_after_a_data_axis_was_split(self) -> None:
        s, _, b, _ = sums()
        s[b].split(b.op.axis[0], 4)
        refuses(
            lambda: s.rfactor(b, b.op.reduce_axis[0]), "a data axis was split or fused",
            stage="B", axis="i", mend="Call rfactor first",
        )  # fmt: skip

    def test_after_another_stage_was_computed_there(self) -> None:
        a = te.placeholder((8, 6), name="A")
        b = te.compute((8, 6), lambda i, j: a[i, j] + 1.0, name="B")
        k = te.reduce_axis((0, 6), "k")
        c = te.compute((8,), lambda i: te.sum(b[i, k], k), name="C")
        s = te.create_schedule(c.op)
        s[b].compute_at(s[c], k)
        refuses(
            lambda: s.rfactor(c, k), "stage 'B' is computed at an axis of this stage",
            stage="C", axis="k", mend="Call rfactor before compute_at",
        )  # fmt: skip


class TestStorage:
    @pytest.mark.parametrize("which", ["input", "output"])
    def test_set_scope_of_an_argument(self, which: str) -> None:
        s, a, _, c = sums()
        tensor = a if which == "input" else c
        refuses(
            lambda: s[tensor].set_scope("shared"), "cannot be in shared memory",
            stage=tensor.name, mend="Use s.cache_read or s.cache_write",
        )  # fmt: skip

    def test_an_unknown_scope(self) -> None:
        s, _, b, _ = sums()
        refuses(
            lambda: s[b].set_scope("cache"), "unknown scope 'cache'",
            stage="B", mend="The scopes are global, cluster, shared, warp, fragment, local",
        )  # fmt: skip

    @pytest.mark.parametrize("primitive", ["storage_align", "align_bounds"])
    def test_an_axis_that_is_none_of_the_tensor(self, primitive: str) -> None:
        s, _, b, _ = sums()
        outer, _ = s[b].split(b.op.axis[0], 4)
        refuses(
            lambda: getattr(s[b], primitive)(outer, 4, 1), "one of op.axis",
            stage="B", axis="i.outer", mend="They are i",
        )  # fmt: skip
        refuses(
            lambda: getattr(s[b], primitive)(0, 4, 1), "one of op.axis", stage="B", mend="They are"
        )

    @pytest.mark.parametrize(("factor", "offset"), [(0, 0), (-8, 0), (8, -1), (8.0, 0), ("8", 0)])
    def test_storage_align_by_what_is_no_stride(self, factor: Any, offset: Any) -> None:
        s, _, b, _ = sums()
        refuses(
            lambda: s[b].storage_align(b.op.axis[0], factor, offset), "no stride is a multiple of",
            stage="B", axis="i", mend="Give a positive factor",
        )  # fmt: skip

    def test_storage_align_of_an_output(self) -> None:
        s, _, _, c = sums()
        refuses(
            lambda: s[c].storage_align(c.op.axis[0], 8, 1), "lies as the caller has it",
            stage="C", axis="i", mend="Use s.cache_read or s.cache_write",
        )  # fmt: skip

    @pytest.mark.parametrize(("factor", "offset"), [(0, 0), (-4, 0), (2.0, 0), (4, None)])
    def test_align_bounds_to_what_is_no_group(self, factor: Any, offset: Any) -> None:
        s, _, b, _ = sums()
        refuses(
            lambda: s[b].align_bounds(b.op.axis[0], factor, offset), "there are no groups of",
            stage="B", axis="i", mend="Give a positive factor",
        )  # fmt: skip

    @pytest.mark.parametrize("which", ["input", "output"])
    def test_double_buffer_of_an_argument(self, which: str) -> None:
        s, a, _, c = sums()
        tensor = a if which == "input" else c
        refuses(
            lambda: s[tensor].double_buffer(), "an argument or output of the program",
            stage=tensor.name, mend="double_buffer the copy",
        )  # fmt: skip

    @pytest.mark.parametrize("stages", [1, 0, -2, True, 2.0])
    def test_a_pipeline_of_no_copies(self, stages: object) -> None:
        s, _, b, _ = sums()
        refuses(
            lambda: s[b].pipeline(stages), "leave nothing to be computed ahead",
            stage="B", mend="Give the number of copies",
        )  # fmt: skip

    def test_double_buffer_of_a_stage_at_the_root(self) -> None:
        s, a, b, c = sums()

        def twice() -> None:
            s[b].double_buffer()

        twice()
        cannot_lower(
            s, [a, c], "llvm", "the stage is computed once, at the root",
            cause=twice, stage="B", mend="with compute_at()",
        )  # fmt: skip

    @pytest.mark.parametrize("which", ["input", "output"])
    def test_rolling_buffer_of_an_argument(self, which: str) -> None:
        s, a, _, c = sums()
        tensor = a if which == "input" else c
        refuses(
            lambda: s[tensor].rolling_buffer(), "an argument or output of the program",
            stage=tensor.name, mend="roll the copy",
        )  # fmt: skip

    @pytest.mark.parametrize("ahead", [-1, 1.5, True, None])
    def test_rolling_buffer_so_far_ahead(self, ahead: Any) -> None:
        s, _, b, _ = sums()
        refuses(
            lambda: s[b].rolling_buffer(ahead), "is no number of iterations",
            stage="B", mend="how many iterations earlier",
        )  # fmt: skip

    def test_rolling_buffer_of_a_stage_at_the_root(self) -> None:
        s, a, b, c = sums()

        def roll() -> None:
            s[b].rolling_buffer()

        roll()
        cannot_lower(
            s, [a, c], "llvm", "not computed in a loop of another",
            cause=roll, stage="B", mend="Use compute_at",
        )  # fmt: skip

    def test_rolling_buffer_at_a_parallel_axis(self) -> None:
        s, a, b, c = sums()
        i = s[c].op.axis[0]
        s[c].parallel(i)
        s[b].compute_at(s[c], i)

        def roll() -> None:
            s[b].rolling_buffer()

        roll()
        cannot_lower(
            s, [a, c], "llvm", "do not follow one another",
            cause=roll, stage="B", axis="i", mend="serial or unrolled axis",
        )  # fmt: skip

    @pytest.mark.parametrize("narrow", ["float16", "int32"])
    def test_a_cached_copy_of_a_narrower_type(self, narrow: str) -> None:
        s, a, b, _ = sums()
        refuses(
            lambda: s.cache_read(a, "local", [b], narrow), f"a copy in {narrow} does not hold",
            stage=a.name, mend="Types that do: float64",
        )  # fmt: skip

    @pytest.mark.parametrize("thing", [None, "x == 0"])
    def test_a_store_predicate_that_is_no_condition(self, thing: Any) -> None:
        s, _, b, _ = sums()
        refuses(
            lambda: s[b].set_store_predicate(thing), "takes a condition",
            stage="B", mend="Write it as thread.var.equal(0)",
        )  # fmt: skip


class TestSchedules:
    @pytest.mark.parametrize("thing", [None, "B", 3, [None]])
    def test_of_what_is_no_operation(self, thing: Any) -> None:
        refuses(
            lambda: te.create_schedule(thing), "takes operations or tensors",
            mend="Pass the output: te.create_schedule(out.op)",
        )  # fmt: skip

    def test_of_nothing(self) -> None:
        refuses(lambda: te.create_schedule([]), "given no output", mend="Pass the operations")

    def test_of_a_placeholder(self) -> None:
        a = te.placeholder((3,), name="A")
        refuses(
            lambda: te.create_schedule(a.op), "'A' is a placeholder, which is not computed",
            stage="A", mend="Pass what te.compute made",
        )  # fmt: skip

    def test_a_tensor_of_another_schedule(self) -> None:
        s, *_ = sums()
        other = te.compute((3,), lambda i: i, name="other")
        refuses(lambda: s[other], "is not part of this schedule", mend="Its stages are A, B, C")
        refuses(lambda: s["B"], "'B' is not part of this schedule", mend="Its stages are A, B, C")

    def test_a_cycle(self) -> None:
        s, b, c, d = library()
        assert s[d] in s.stages
        c.op.reads = (d,)
        with pytest.raises(ScheduleError, match="'D' reads 'C' reads 'D'") as caught:
            te.create_schedule(d.op)
        assert (caught.value.stage, caught.value.where) == ("C", c.op.where)
        assert "placeholder" in caught.value.mend
        assert b.op.axis

    def test_a_chain_longer_than_pythons_stack_is_no_cycle(self) -> None:
        tensor = te.placeholder((3,), name="A")
        for _ in range(3000):
            tensor = te.compute((3,), lambda i, t=tensor: t[i] + 1.0, name="B")
        assert len(te.create_schedule(tensor.op).stages) == 3001
