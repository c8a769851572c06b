"""Misuse of split, fuse, reorder, tile, bind, env_threads and of what marks a loop."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.misuse import cannot_lower, refuses

from tilewright import te
from tilewright.ir.errors import LanguageError, ScheduleError
from tilewright.schedule import Schedule
from tilewright.target.instructions import dot


def matmul() -> tuple[Schedule, Any, Any, Any]:
    a, b = te.placeholder((8, 6), name="A"), te.placeholder((6, 10), name="B")
    k = te.reduce_axis((0, 6), "k")
    c = te.compute((8, 10), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
    return te.create_schedule(c.op), a, b, c


@pytest.fixture
def stage() -> Any:
    s, _, _, c = matmul()
    return s[c]


def threads(tag: str = "threadIdx.x") -> Any:
    return te.thread_axis(tag)


PRIMITIVES: dict[str, Any] = {
    "split": lambda stage, axis: stage.split(axis, 2),
    "fuse": lambda stage, axis: stage.fuse(axis, axis),
    "reorder": lambda stage, axis: stage.reorder(axis),
    "bind": lambda stage, axis: stage.bind(axis, threads()),
    "parallel": lambda stage, axis: stage.parallel(axis),
    "vectorize": lambda stage, axis: stage.vectorize(axis),
    "unroll": lambda stage, axis: stage.unroll(axis),
    "pragma": lambda stage, axis: stage.pragma(axis, "unroll_explicit", True),
    "tensorize": lambda stage, axis: stage.tensorize(axis, dot(4)),
}


class TestAxes:
    """What is no loop of the stage is refused by every primitive alike."""

    @pytest.mark.parametrize("name", PRIMITIVES)
    def test_an_axis_of_another_stage(self, name: str, stage: Any) -> None:
        _, other, _ = te.compute((3, 4, 5), lambda x, y, z: x + y + z, name="other").op.axis
        with pytest.raises(ScheduleError, match=f"{name}: the axis does not belong") as caught:
            PRIMITIVES[name](stage, other)
        assert (caught.value.stage, caught.value.axis) == ("C", "y")
        assert caught.value.mend == "Its loops are now i, j, k"
        assert __file__ in caught.value.where

    @pytest.mark.parametrize("name", PRIMITIVES)
    def test_an_axis_that_was_split(self, name: str, stage: Any) -> None:
        i = stage.op.axis[0]
        stage.split(i, 4)
        with pytest.raises(ScheduleError, match=f"{name}: the axis was already split or fused"):
            PRIMITIVES[name](stage, i)

    @pytest.mark.parametrize("name", PRIMITIVES)
    @pytest.mark.parametrize("thing", [None, 3, "i"])
    def test_what_is_no_axis(self, name: str, thing: Any, stage: Any) -> None:
        with pytest.raises(
            ScheduleError, match=f"{name} takes an axis of the stage, got {thing!r}"
        ):
            PRIMITIVES[name](stage, thing)

    def test_an_axis_that_was_fused(self, stage: Any) -> None:
        i, j = stage.op.axis
        stage.fuse(i, j)
        refuses(
            lambda: stage.split(i, 2), "split: the axis was already split or fused",
            stage="C", axis="i", mend="Its loops are now i.j.fused, k",
        )  # fmt: skip

    def test_the_variable_of_an_axis(self, stage: Any) -> None:
        refuses(
            lambda: stage.split(stage.op.axis[0].var, 2), "split takes an axis of the stage",
            stage="C", mend="Pass the axis itself",
        )  # fmt: skip

    def test_a_placeholder_has_no_loops(self) -> None:
        s, a, _, c = matmul()
        refuses(
            lambda: s[a].split(c.op.axis[0], 2), "does not belong to this stage, but to 'C'",
            stage="A", axis="i", mend="It has no loops: schedule the stage that reads it",
        )  # fmt: skip
        c_inner = s[c].split(c.op.axis[0], 2)[1]
        refuses(
            lambda: s[a].vectorize(c_inner), "does not belong to this stage, but to 'C'",
            stage="A", axis="i.inner", mend="s.cache_read(it, scope, [...])",
        )  # fmt: skip


class TestSplit:
    @pytest.mark.parametrize("factor", [0, -4])
    def test_by_less_than_one(self, factor: int, stage: Any) -> None:
        i = stage.op.axis[0]
        for do in (lambda: stage.split(i, factor), lambda: stage.split(i, nparts=factor)):
            refuses(
                do, f"split by {factor}", stage="C", axis="i", mend="Split by a positive number"
            )

    @pytest.mark.parametrize("factor", [2.0, "4", True])
    def test_by_what_is_no_integer(self, factor: Any, stage: Any) -> None:
        refuses(
            lambda: stage.split(stage.op.axis[0], factor), "split needs an integer",
            stage="C", axis="i", mend="Split by a whole number",
        )  # fmt: skip

    def test_with_both(self, stage: Any) -> None:
        refuses(
            lambda: stage.split(stage.op.axis[1], 2, 4), "factor or nparts, and both are given",
            stage="C", axis="j", mend="Write split(axis, factor=n)",
        )  # fmt: skip

    def test_with_neither(self, stage: Any) -> None:
        refuses(
            lambda: stage.split(stage.op.axis[1]), "factor or nparts, and neither is given",
            stage="C", axis="j", mend="Write split(axis, factor=n)",
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("mark", "said"),
        [
            (lambda s, i: s.bind(i, threads()), "bound to threadIdx.x"),
            (lambda s, i: s.vectorize(i), "vectorized"),
            (lambda s, i: s.parallel(i), "parallel"),
            (lambda s, i: s.unroll(i), "unrolled"),
            (lambda s, i: s.pragma(i, "auto_unroll_max_step", 8), "pragma auto_unroll_max_step"),
            (lambda s, i: s.tensorize(i, dot(4)), "tensorized with dot_f32_4"),
        ],
    )
    def test_after_a_mark(self, mark: Any, said: str, stage: Any) -> None:
        i, j = stage.op.axis
        mark(stage, i)
        refuses(lambda: stage.split(i, 2), said, stage="C", axis="i", mend="Call split first")
        refuses(lambda: stage.fuse(i, j), said, stage="C", axis="i", mend="Call fuse first")

    def test_after_prefetch(self) -> None:
        s, a, _, c = matmul()
        s[c].prefetch(a, c.op.axis[0], 1)
        refuses(
            lambda: s[c].split(c.op.axis[0], 2), "already prefetched along",
            stage="C", axis="i", mend="Call split first",
        )  # fmt: skip

    def test_tile_says_what_split_says(self, stage: Any) -> None:
        refuses(
            lambda: stage.tile(*stage.op.axis, 4, 0), "split by 0",
            stage="C", axis="j", mend="Split by a positive number",
        )  # fmt: skip


class TestFuse:
    def test_loops_that_are_not_adjacent(self, stage: Any) -> None:
        i, j = stage.op.axis
        outer, inner = stage.split(i, 2)
        assert inner in stage.leaf_iter_vars
        refuses(
            lambda: stage.fuse(outer, j), "i.outer does not stand directly outside of j",
            stage="C", axis="j", mend="The loops are i.outer, i.inner, j, k; reorder them first",
        )  # fmt: skip

    def test_in_the_wrong_order(self, stage: Any) -> None:
        i, j = stage.op.axis
        outer, _ = stage.split(i, 2)
        refuses(
            lambda: stage.fuse(j, outer), "j does not stand directly outside of i.outer",
            stage="C", axis="i.outer", mend="reorder them first",
        )  # fmt: skip

    def test_an_axis_with_itself(self, stage: Any) -> None:
        i = stage.op.axis[0]
        refuses(
            lambda: stage.fuse(i, i), "i does not stand directly outside of i",
            stage="C", axis="i", mend="reorder them first",
        )  # fmt: skip

    def test_data_with_a_reduction(self, stage: Any) -> None:
        refuses(
            lambda: stage.fuse(stage.op.axis[1], stage.op.reduce_axis[0]),
            "j is a data axis and k a reduce axis",
            stage="C", axis="k", mend="Fuse data axes with data axes",
        )  # fmt: skip


class TestReorder:
    def test_an_axis_twice(self, stage: Any) -> None:
        i, j = stage.op.axis
        refuses(
            lambda: stage.reorder(i, j, i), "the axis is named twice",
            stage="C", axis="i", mend="Name every axis once",
        )  # fmt: skip

    def test_a_list(self, stage: Any) -> None:
        refuses(
            lambda: stage.reorder(list(stage.op.axis)), "reorder takes an axis of the stage",
            stage="C", mend="Its loops are now i, j, k",
        )  # fmt: skip


class TestBind:
    def test_twice(self, stage: Any) -> None:
        i = stage.op.axis[0]
        stage.bind(i, threads())
        refuses(
            lambda: stage.bind(i, threads("threadIdx.y")), "already bound to threadIdx.x",
            stage="C", axis="i", mend="Split the axis",
        )  # fmt: skip

    def test_two_axes_to_one_tag(self, stage: Any) -> None:
        i, j = stage.op.axis
        stage.bind(i, threads())
        refuses(
            lambda: stage.bind(j, threads()), "threadIdx.x already carries axis i",
            stage="C", axis="j", mend="Fuse the two axes first",
        )  # fmt: skip

    @pytest.mark.parametrize("thing", [None, 3, "threadIdx.x"])
    def test_to_what_is_no_thread_axis(self, thing: Any, stage: Any) -> None:
        refuses(
            lambda: stage.bind(stage.op.axis[0], thing), "an axis made by te.thread_axis",
            stage="C", axis="i", mend='te.thread_axis("threadIdx.x")',
        )  # fmt: skip

    def test_to_an_axis_of_the_stage(self, stage: Any) -> None:
        refuses(
            lambda: stage.bind(*stage.op.axis), "an axis made by te.thread_axis, got data axis j",
            stage="C", axis="i", mend="te.thread_axis",
        )  # fmt: skip

    @pytest.mark.parametrize("tag", ["blockIdx.x", "vthread"])
    def test_a_reduction_to_what_does_not_share(self, tag: str, stage: Any) -> None:
        refuses(
            lambda: stage.bind(stage.op.reduce_axis[0], threads(tag)),
            f"a reduction cannot be spread over {tag}",
            stage="C", axis="k", mend="Bind it to threadIdx, or use rfactor",
        )  # fmt: skip

    @pytest.mark.parametrize("mark", ["vectorize", "parallel", "unroll"])
    def test_what_is_marked(self, mark: str, stage: Any) -> None:
        i = stage.op.axis[0]
        getattr(stage, mark)(i)
        refuses(
            lambda: stage.bind(i, threads()), "bind: the axis is already",
            stage="C", axis="i", mend="Split the axis, and bind one part",
        )  # fmt: skip

    def test_another_extent_than_the_threads_have(self) -> None:
        s, a, b, c = matmul()

        def bind() -> None:
            s[c].bind(c.op.axis[0], te.thread_axis((0, 32), "threadIdx.x"))

        bind()
        cannot_lower(
            s, [a, b, c], "sim", "has 8 iterations, but is bound to threadIdx.x of extent 32",
            cause=bind, stage="C", axis="i", mend="Split the axis by 32",
        )  # fmt: skip

    @pytest.mark.parametrize("tag", ["threadIdx", "threadIdx.w", "thread", ""])
    def test_there_is_no_such_tag(self, tag: str) -> None:
        with pytest.raises(LanguageError, match="unknown thread tag .*: use blockIdx.x"):
            te.thread_axis(tag)


class TestEnvThreads:
    def test_without_an_extent(self, stage: Any) -> None:
        refuses(
            lambda: stage.env_threads([threads()]), "takes thread axes with extents",
            stage="C", mend="te.thread_axis((0, 32)",
        )  # fmt: skip

    def test_what_is_no_thread(self, stage: Any) -> None:
        refuses(
            lambda: stage.env_threads(stage.op.axis[0]), "takes thread axes with extents",
            stage="C", mend="te.thread_axis((0, 32)",
        )  # fmt: skip

    def test_virtual(self, stage: Any) -> None:
        refuses(
            lambda: stage.env_threads([te.thread_axis((0, 2), "vthread")]), "virtual threads",
            stage="C", mend="Bind an axis",
        )  # fmt: skip

    def test_one_tag_twice(self, stage: Any) -> None:
        one, two = (te.thread_axis((0, 4), "threadIdx.x") for _ in range(2))
        refuses(
            lambda: stage.env_threads([one, two]), "threadIdx.x is in use in this stage already",
            stage="C", mend="Use every thread axis once",
        )  # fmt: skip

    def test_with_bind(self, stage: Any) -> None:
        thread = te.thread_axis((0, 8), "threadIdx.x")
        stage.bind(stage.op.axis[0], thread)
        refuses(
            lambda: stage.env_threads([thread]), "threadIdx.x is in use",
            stage="C", mend="by bind or by env_threads",
        )  # fmt: skip

    def test_and_then_bind(self, stage: Any) -> None:
        stage.env_threads([te.thread_axis((0, 8), "threadIdx.x")])
        refuses(
            lambda: stage.bind(stage.op.axis[0], threads()), "env_threads launches threadIdx.x",
            stage="C", axis="i", mend="Use bind or env_threads",
        )  # fmt: skip

    def test_of_a_placeholder(self) -> None:
        s, a, _, _ = matmul()
        refuses(
            lambda: s[a].env_threads([te.thread_axis((0, 8), "threadIdx.x")]),
            "the stage is a placeholder",
            stage="A", mend="s.cache_read",
        )  # fmt: skip


class TestMarks:
    @pytest.mark.parametrize("primitive", ["parallel", "vectorize"])
    def test_of_a_reduction(self, primitive: str, stage: Any) -> None:
        refuses(
            lambda: getattr(stage, primitive)(stage.op.reduce_axis[0]),
            f"{primitive}: the iterations of a reduction depend on one another",
            stage="C", axis="k", mend="Use rfactor on it first, or mark a data axis",
        )  # fmt: skip

    @pytest.mark.parametrize("first", ["parallel", "vectorize", "unroll"])
    @pytest.mark.parametrize("second", ["parallel", "vectorize", "unroll"])
    def test_that_contradict(self, first: str, second: str, stage: Any) -> None:
        i = stage.op.axis[0]
        getattr(stage, first)(i)
        if first == second:
            getattr(stage, second)(i)
            return
        refuses(
            lambda: getattr(stage, second)(i), f"{second}: the axis is already",
            stage="C", axis="i", mend=f"Split the axis, and {second} one of its parts",
        )  # fmt: skip

    @pytest.mark.parametrize("primitive", ["parallel", "vectorize", "unroll"])
    def test_of_a_bound_axis(self, primitive: str, stage: Any) -> None:
        i = stage.op.axis[0]
        stage.bind(i, threads("blockIdx.x"))
        refuses(
            lambda: getattr(stage, primitive)(i), "already bound to blockIdx.x",
            stage="C", axis="i", mend="Split the axis",
        )  # fmt: skip

    @pytest.mark.parametrize("key", ["auto_unroll", "", "unrol_explicit"])
    def test_an_unknown_pragma(self, key: str, stage: Any) -> None:
        refuses(
            lambda: stage.pragma(stage.op.axis[0], key, 1), f"unknown pragma {key!r}",
            stage="C", axis="i", mend="The pragmas are auto_unroll_max_step, unroll_explicit",
        )  # fmt: skip

    @pytest.mark.parametrize("value", [None, "16", 2.5])
    def test_a_pragma_without_a_number(self, value: Any, stage: Any) -> None:
        refuses(
            lambda: stage.pragma(stage.op.axis[0], "auto_unroll_max_step", value),
            "takes a number of steps", stage="C", axis="i", mend="Give an integer",
        )  # fmt: skip

    def test_prefetch_of_what_is_not_read(self) -> None:
        s, _, _, c = matmul()
        other = te.placeholder((3,), name="other")
        refuses(
            lambda: s[c].prefetch(other, c.op.axis[0], 1), "the stage does not read Tensor(other",
            stage="C", axis="i", mend="It reads A, B",
        )  # fmt: skip

    @pytest.mark.parametrize("offset", [1.5, "1", None])
    def test_prefetch_so_many_iterations_ahead(self, offset: Any) -> None:
        s, a, _, c = matmul()
        refuses(
            lambda: s[c].prefetch(a, c.op.axis[0], offset), "no number of iterations",
            stage="C", axis="i", mend="Give an integer",
        )  # fmt: skip


class TestTensorize:
    def test_with_what_is_no_instruction(self, stage: Any) -> None:
        refuses(
            lambda: stage.tensorize(stage.op.axis[0], "dp4a"), "takes an instruction declared",
            stage="C", axis="i", mend="tilewright.target.instructions",
        )  # fmt: skip

    def test_a_bound_axis(self, stage: Any) -> None:
        i = stage.op.axis[0]
        stage.bind(i, threads())
        refuses(
            lambda: stage.tensorize(i, dot(4)), "already bound to threadIdx.x",
            stage="C", axis="i", mend="tensorize the inner part",
        )  # fmt: skip

    def test_and_then_vectorize(self, stage: Any) -> None:
        i = stage.op.axis[0]
        stage.tensorize(i, dot(4))
        refuses(
            lambda: stage.vectorize(i), "already tensorized with dot_f32_4",
            stage="C", axis="i", mend="Split the axis",
        )  # fmt: skip

    def test_loops_that_compute_something_else(self) -> None:
        s, a, b, c = matmul()

        def mark() -> None:
            s[c].tensorize(c.op.reduce_axis[0], dot(6))

        mark()
        cannot_lower(
            s, [a, b, c], "llvm", "cannot be tensorized with dot_f32_6: ",
            cause=mark, stage="C", axis="k", mend="its declaration",
        )  # fmt: skip
