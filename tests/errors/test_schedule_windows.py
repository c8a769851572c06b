"""Misuse of skew, pad_to, reindex, guard_by_zeros, partition and in_tf32."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.misuse import refuses

import tilewright
from tilewright import te
from tilewright.schedule import Schedule


class Windows:
    """``Y[n, i] = sum(X[n, i + k] * F[k], k)``, ``F`` read through an inlined stage or not."""

    def __init__(self, type: str = "float32", reducer: Any = te.sum, where: Any = None) -> None:
        self.x = te.placeholder((4, 20), type, name="X")
        self.f = te.placeholder((5,), type, name="F")
        self.k = te.reduce_axis((0, 5), "k")
        self.y = te.compute(
            (4, 16),
            lambda n, i: reducer(
                self.x[n, i + self.k] * self.f[self.k],
                axis=self.k,
                where=None if where is None else where(n, i, self.k),
            ),
            name="Y",
        )
        self.s: Schedule = te.create_schedule(self.y.op)
        self.stage: Any = self.s[self.y]
        self.n, self.i = self.stage.op.axis

    def banded(self) -> tuple[Any, Any, Any]:
        """The sums over tiles, and the copies of both factors."""
        _, inner = self.stage.split(self.i, 8)
        self.stage.skew(self.k, inner)
        total = self.s.cache_write(self.y, "local")
        n, tile, i = self.s[total].op.axis
        (j,) = self.s[total].op.reduce_axis
        matrix = self.s.reindex(self.f, total, [i, j])
        return total, matrix, self.s.reindex(self.x, total, [n, tile, j])


@pytest.fixture
def w() -> Windows:
    return Windows()


class TestSkew:
    def test_loops_over_skewed_data(self, w: Windows) -> None:
        w.stage.skew(w.n, by=w.i)
        refuses(
            lambda: tilewright.lower(w.s, [w.x, w.f, w.y]), "loops over a data axis that was",
            stage="Y", axis="n", mend="Call s.cache_write",
        )  # fmt: skip

    def test_by_itself(self, w: Windows) -> None:
        refuses(
            lambda: w.stage.skew(w.n, by=w.n), "an axis does not go by itself",
            stage="Y", axis="n", mend="Name another data axis",
        )  # fmt: skip

    def test_by_an_axis_of_the_reduction(self, w: Windows) -> None:
        outer, inner = w.stage.split(w.k, 2)
        refuses(
            lambda: w.stage.skew(inner, by=outer), "it goes by a data axis, and 'k.outer' is one",
            stage="Y", axis="k.inner", mend="The data axes are n, i",
        )  # fmt: skip

    def test_by_what_is_no_loop_any_more(self, w: Windows) -> None:
        w.stage.split(w.i, 8)
        refuses(
            lambda: w.stage.skew(w.k, by=w.i), "skew: the axis was already split or fused",
            stage="Y", axis="i", mend="Its loops are now n, i.outer, i.inner, k",
        )  # fmt: skip

    def test_twice(self, w: Windows) -> None:
        w.stage.skew(w.k, by=w.i)
        refuses(
            lambda: w.stage.skew(w.k, by=w.n), "skew: the axis was already skewed",
            stage="Y", axis="k", mend="Its loops are now n, i, k.skewed",
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("how", "problem"),
        [
            ({"scale": 0}, "scale=0, which is an integer of 1 or more"),
            ({"step": -1}, "step=-1, which is an integer of 1 or more"),
            ({"offset": -2}, "offset=-2, which is an integer of 0 or more"),
            ({"scale": True}, "scale=True"),
            ({"step": 1.5}, "step=1.5"),
        ],
        ids=str,
    )
    def test_by_no_such_distance(self, w: Windows, how: dict[str, Any], problem: str) -> None:
        refuses(
            lambda: w.stage.skew(w.k, by=w.i, **how), f"skew: {problem}",
            stage="Y", axis="k", mend="Give the factors with which both axes stand in the index",
        )  # fmt: skip

    def test_an_axis_that_is_marked(self, w: Windows) -> None:
        w.stage.unroll(w.k)
        refuses(
            lambda: w.stage.skew(w.k, by=w.i), "skew: the axis is already unrolled",
            stage="Y", axis="k", mend="Call skew first",
        )  # fmt: skip

    def test_more_positions_than_the_type_of_axes_counts(self, w: Windows) -> None:
        refuses(
            lambda: w.stage.skew(w.k, by=w.i, scale=2**29), "the axis would have 8053063685",
            stage="Y", axis="k", mend="Split the data axis first, and skew by the inner part",
        )  # fmt: skip

    def test_rfactor_of_its_loop(self, w: Windows) -> None:
        j = w.stage.skew(w.k, by=w.i)
        refuses(
            lambda: w.s.rfactor(w.y, j), "rfactor: the reduction was skewed by a data axis",
            stage="Y", axis="k.skewed", mend="Use s.cache_write first",
        )  # fmt: skip

    def test_a_domain_that_depends_on_another_axis(self) -> None:
        x = te.placeholder((8, 8), name="X")
        r = te.reduce_axis((0, 8), "r")
        q = te.reduce_axis((0, r.var + 1), "q")
        y = te.compute((8,), lambda i: te.sum(x[i, q], axis=[r, q]), name="Y")
        s = te.create_schedule(y.op)
        s[y].pad_to(s[y].op.axis[0], 4)
        refuses(
            lambda: s.cache_write(y, "local"), "the domain of an axis depends on another one",
            stage="Y", axis="q", mend="Reduce over a rectangle",
        )  # fmt: skip


class TestPadTo:
    @pytest.mark.parametrize("whole", [0, -8, 2.0, True, None])
    def test_no_such_tiles(self, w: Windows, whole: Any) -> None:
        refuses(
            lambda: w.stage.pad_to(w.i, whole), f"pad_to: there are no tiles of {whole!r}",
            stage="Y", axis="i", mend="Give a positive integer",
        )  # fmt: skip

    def test_an_axis_that_was_padded(self, w: Windows) -> None:
        w.stage.pad_to(w.i, 8)
        refuses(
            lambda: w.stage.split(w.i, 8), "split: the axis was already padded",
            stage="Y", axis="i", mend="Its loops are now n, i.padded, k",
        )  # fmt: skip

    def test_an_axis_that_is_bound(self, w: Windows) -> None:
        w.stage.bind(w.i, te.thread_axis("threadIdx.x"))
        refuses(
            lambda: w.stage.pad_to(w.i, 8), "pad_to: the axis is already bound to threadIdx.x",
            stage="Y", axis="i", mend="Call pad_to first",
        )  # fmt: skip

    def test_rfactor_beside_it(self, w: Windows) -> None:
        w.stage.pad_to(w.i, 8)
        refuses(
            lambda: w.s.rfactor(w.y, w.k), "rfactor: a data axis was padded",
            stage="Y", axis="i", mend="Call rfactor first",
        )  # fmt: skip


class TestReindex:
    def test_what_the_stage_does_not_read(self, w: Windows) -> None:
        other = te.placeholder((3,), name="other")
        y = te.compute((3,), lambda i: other[i] + w.y[i, 0], name="Z")
        s = te.create_schedule(y.op)
        refuses(
            lambda: s.reindex(w.x, y, [y.op.axis[0]]), "the stage does not read X",
            stage="Z", mend="It reads other, Y",
        )  # fmt: skip

    def test_an_index_that_does_not_follow(self, w: Windows) -> None:
        refuses(
            lambda: w.s.reindex(w.x, w.y, [w.n, w.i]),
            "reads 'X' at i + k, which does not follow from n, i",
            stage="Y", mend="Give axes of which each index is a sum of multiples",
        )  # fmt: skip

    def test_half_an_index(self, w: Windows) -> None:
        refuses(
            lambda: w.s.reindex(w.f, w.y, [w.k.var * 2]), "reads 'F' at k, which does not follow",
            stage="Y", mend="Give axes of which each index is a sum of multiples",
        )  # fmt: skip

    def test_a_loop_that_is_no_axis(self, w: Windows) -> None:
        outer, _ = w.stage.split(w.i, 8)
        refuses(
            lambda: w.s.reindex(w.f, w.y, [outer]), "is not made of axes of the declaration",
            stage="Y", axis="i.outer", mend="s.cache_write makes axes of the loops",
        )  # fmt: skip

    def test_several_indices(self) -> None:
        x = te.placeholder((20,), name="X")
        y = te.compute((16,), lambda i: x[i] + x[i + 1], name="Y")
        s = te.create_schedule(y.op)
        refuses(
            lambda: s.reindex(x, y, [y.op.axis[0]]), "reads 'X' at 2 different indices",
            stage="Y", mend="Use s.cache_read",
        )  # fmt: skip

    def test_another_scope(self, w: Windows) -> None:
        refuses(
            lambda: w.s.reindex(w.f, w.y, [w.k], "heap"), "unknown scope 'heap'",
            stage="Y", mend="The scopes are",
        )  # fmt: skip

    @pytest.mark.parametrize(("first", "extent"), [(1, 5), (0, 4), (-3, 7)])
    def test_a_range_that_lacks_a_value(self, w: Windows, first: int, extent: int) -> None:
        whole = te.Range.from_extent(first, extent)
        refuses(
            lambda: w.s.reindex(w.f, w.y, [(w.k, whole)]), "k is not known to lie in the",
            stage="Y", mend="Give a range that has all of its values",
        )  # fmt: skip

    def test_a_range_beyond_an_index_from_memory(self) -> None:
        x, at = te.placeholder((9,), name="X"), te.placeholder((4,), "int32", name="At")
        y = te.compute((4,), lambda i: x[at[i]], name="Y")
        s = te.create_schedule(y.op)
        whole = te.Range.from_extent(0, 8)
        refuses(
            lambda: s.reindex(x, y, [(y.op.axis[0], whole)]), "reads what is not ",
            stage="Y", mend="Give no range to an axis that stands in what an index is read from",
        )  # fmt: skip

    def test_an_extent_that_nothing_bounds(self) -> None:
        n = te.var("n")
        x = te.placeholder((n,), name="X")
        k = te.reduce_axis((0, 3), "k")
        y = te.compute((n - 2,), lambda i: te.sum(x[i + k], axis=k), name="Y")
        s = te.create_schedule(y.op)
        at = y.op.axis[0].var + k.var
        refuses(
            lambda: s.reindex(x, y, [at]), "nothing is known of how large i + k gets",
            stage="Y", mend="Give its axes one by one",
        )  # fmt: skip


class TestGuardByZeros:
    def test_floats_without_a_promise(self, w: Windows) -> None:
        total, matrix, _ = w.banded()
        refuses(
            lambda: w.s[total].guard_by_zeros(matrix), "zero times what is not finite is NaN",
            stage="Y.local", mend="Write finite=True",
        )  # fmt: skip

    def test_a_maximum(self) -> None:
        w = Windows(reducer=te.max)
        total, matrix, _ = w.banded()
        refuses(
            lambda: w.s[total].guard_by_zeros(matrix, finite=True), "the stage is no sum",
            stage="Y.local", mend="Keep the condition",
        )  # fmt: skip

    def test_no_factor(self, w: Windows) -> None:
        total, _, _ = w.banded()
        refuses(
            lambda: w.s[total].guard_by_zeros(w.f, finite=True), "'F' is no factor",
            stage="Y.local", mend="Factors that are read as they are: F.reindexed, X.reindexed",
        )  # fmt: skip

    def test_a_factor_that_is_not_zero(self, w: Windows) -> None:
        total, _, image = w.banded()
        refuses(
            lambda: w.s[total].guard_by_zeros(image, finite=True), "no operand is known to be zero",
            stage="Y.local", mend="Use s.reindex on the factor",
        )  # fmt: skip

    def test_a_condition_of_neither_factor(self) -> None:
        w = Windows(where=lambda n, i, k: n + i < 12)
        total, matrix, image = w.banded()
        refuses(
            lambda: w.s[total].guard_by_zeros(matrix, image, finite=True),
            "does not hold, no operand is known to be zero",
            stage="Y.local", mend="Use s.reindex on the factor",
        )  # fmt: skip

    def test_another_factor_that_would_be_read_beyond_its_tensor(self, w: Windows) -> None:
        _, inner = w.stage.split(w.i, 8)
        w.stage.skew(w.k, inner)
        total = w.s.cache_write(w.y, "local")
        image = w.s.reindex(w.x, total, [*w.s[total].op.axis, *w.s[total].op.reduce_axis])
        refuses(
            lambda: w.s[total].guard_by_zeros(image, finite=True), "would read what is not there",
            stage="Y.local", mend="Use s.reindex on the other factors too",
        )  # fmt: skip

    def test_over_a_loop_that_is_no_axis(self, w: Windows) -> None:
        total, matrix, image = w.banded()
        axis = w.s[matrix].op.axis[0]
        refuses(
            lambda: w.s[total].guard_by_zeros(matrix, image, over=axis, finite=True),
            "over takes axes of the declaration",
            stage="Y.local", axis="ax0", mend="They are n.c, i.outer.c, i.inner.c, k.skewed",
        )  # fmt: skip

    def test_after_the_loops(self, w: Windows) -> None:
        total, matrix, image = w.banded()
        w.s[total].split(w.s[total].op.axis[2], 4)
        refuses(
            lambda: w.s[total].guard_by_zeros(matrix, image, finite=True),
            "guard_by_zeros: the stage was already scheduled",
            stage="Y.local", mend="Call guard_by_zeros before split",
        )  # fmt: skip

    def test_over_axes_for_what_is_no_operand(self, w: Windows) -> None:
        total, matrix, image = w.banded()
        axis = w.s[total].op.axis[2]
        refuses(
            lambda: w.s[total].guard_by_zeros(matrix, over={image: [axis]}, finite=True),
            "which is no operand", stage="Y.local", mend="Name it among the operands",
        )  # fmt: skip


class TestPartition:
    def test_a_sum(self, w: Windows) -> None:
        refuses(
            lambda: w.s.partition(w.y, w.i, [8]), "does not make its elements one by one",
            stage="Y", mend="of a sum, s.rfactor",
        )  # fmt: skip

    def test_after_the_loops(self, w: Windows) -> None:
        copy = w.s.cache_read(w.x, "local", [w.y])
        _, i = w.s[copy].op.axis
        w.s[copy].split(i, 4)
        refuses(
            lambda: w.s.partition(copy, i, [8]), "partition: the stage was already scheduled",
            stage="X.local", mend="Call partition first",
        )  # fmt: skip

    def test_with_a_stage_at_its_axis(self, w: Windows) -> None:
        copy = w.s.cache_read(w.x, "local", [w.y])
        again = w.s.cache_read(copy, "local", [w.y])
        n, i = w.s[again].op.axis
        w.s[copy].compute_at(w.s[again], n)
        refuses(
            lambda: w.s.partition(again, i, [8]), "is computed at an axis of this stage",
            stage="X.local.local", axis="ax0", mend="Call partition before compute_at",
        )  # fmt: skip

    def test_an_axis_of_another_stage(self, w: Windows) -> None:
        copy = w.s.cache_read(w.x, "local", [w.y])
        refuses(
            lambda: w.s.partition(copy, w.i, [8]), "along an axis of the declaration",
            stage="X.local", axis="i", mend="Such axes are ax0, ax1",
        )  # fmt: skip

    def test_an_axis_of_symbolic_extent(self) -> None:
        n = te.var("n")
        x = te.placeholder((n,), name="X")
        y = te.compute((n,), lambda i: x[i], name="Y")
        s = te.create_schedule(y.op)
        refuses(
            lambda: s.partition(y, y.op.axis[0], [8]), "that has a constant extent",
            stage="Y", axis="i", mend="Such axes are none",
        )  # fmt: skip

    @pytest.mark.parametrize("points", [[], [0], [20], [25], [-1], [8, 8], [9, 4], [2.5], [True]])
    def test_points_that_do_not_rise_within(self, w: Windows, points: Any) -> None:
        copy = w.s.cache_read(w.x, "local", [w.y])
        refuses(
            lambda: w.s.partition(copy, w.s[copy].op.axis[1], points), "parts do not begin at",
            stage="X.local", axis="ax1", mend="Give integers that rise, above 0 and below 20",
        )  # fmt: skip


class TestInTF32:
    @pytest.mark.parametrize("terms", [0, 2, 4, None])
    def test_another_number_of_terms(self, w: Windows, terms: Any) -> None:
        refuses(
            lambda: w.s.in_tf32(w.y, terms), "the sum of 1 or of 3 of TF32",
            stage="Y", mend="Give 3, or 1",
        )  # fmt: skip

    def test_a_maximum(self) -> None:
        w = Windows(reducer=te.max)
        refuses(
            lambda: w.s.in_tf32(w.y, 3), "the stage is no sum",
            stage="Y", mend="Pass the tensor that te.sum makes",
        )  # fmt: skip

    def test_another_type(self) -> None:
        w = Windows("float64")
        refuses(
            lambda: w.s.in_tf32(w.y, 3), "is no product of two elements of float32",
            stage="Y", mend="Sum products of what is read as it is",
        )  # fmt: skip

    def test_twice(self, w: Windows) -> None:
        w.s.in_tf32(w.y, 3)
        refuses(
            lambda: w.s.in_tf32(w.y, 3), "is no product of two elements of float32",
            stage="Y", mend="Sum products of what is read as it is",
        )  # fmt: skip

    def test_after_the_loops(self, w: Windows) -> None:
        w.stage.split(w.i, 8)
        refuses(
            lambda: w.s.in_tf32(w.y, 3), "in_tf32: the stage was already scheduled",
            stage="Y", mend="Call in_tf32 first",
        )  # fmt: skip
