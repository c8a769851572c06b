"""Declarations without a meaning are refused, in words that say what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import te, topi, tvm
from tilewright.codegen.c import c_source
from tilewright.codegen.opencl import generate as generate_opencl
from tilewright.ir.errors import LanguageError, TargetError, TilewrightError
from tilewright.lower.pipeline import lower


@pytest.fixture
def a() -> Any:
    return te.placeholder((4, 6), name="A")


@pytest.fixture
def k() -> Any:
    return te.reduce_axis((0, 6), "k")


def refused(do: Callable[[], Any], *parts: str) -> None:
    """The message has all of ``parts``, and the traceback leads to the line of ``do``."""
    with pytest.raises(LanguageError) as caught:
        do()
    for part in parts:
        assert part in str(caught.value)
    assert isinstance(caught.value, TilewrightError)
    assert any(entry.path.samefile(__file__) for entry in caught.traceback)


class TestShapes:
    @pytest.mark.parametrize("extent", [0, -3])
    def test_an_extent_that_is_not_positive(self, extent: int) -> None:
        refused(
            lambda: te.placeholder((2, extent), name="A"),
            f"placeholder A has an extent of {extent}", "extents are positive",
        )  # fmt: skip
        refused(
            lambda: te.compute((extent,), lambda i: i, name="B"),
            f"compute B has an extent of {extent}", "extents are positive",
        )  # fmt: skip

    @pytest.mark.parametrize("extent", [2.5, "4", None, True])
    def test_an_extent_that_is_no_integer(self, extent: Any) -> None:
        refused(
            lambda: te.placeholder((2, extent), name="A"),
            f"placeholder A has an extent of {extent!r}", "integers, or made by te.var",
        )  # fmt: skip

    def test_a_type_that_there_is_not(self) -> None:
        with pytest.raises(ValueError, match="unknown type 'float8'"):
            te.placeholder((2,), "float8")

    def test_the_float8_that_has_infinities(self) -> None:
        with pytest.raises(ValueError, match="did you mean float8_e4m3fn"):
            te.placeholder((2,), "float8_e4m3")

    def test_arithmetic_on_float8(self) -> None:
        a = te.placeholder((4,), "float8_e4m3fn", name="A")
        for do in (
            lambda: a[0] + a[1], lambda: a[0] * 2, lambda: -a[0], lambda: te.exp(a[0]),
            lambda: a[0] < 1.0, lambda: te.max(a[0], axis=te.reduce_axis((0, 4), "k")),
            lambda: te.abs(a[0]),
        ):  # fmt: skip
            refused(do, "float8_e4m3fn, which is for memory alone", '.astype("float32")')
        assert te.if_then_else(te.var("n") < 1, a[0], 0).dtype == "float8_e4m3fn"
        assert (a[0] * te.const(2.0, "float16")).dtype == "float16"

    @pytest.mark.parametrize("target", ["opencl", "c"])
    def test_float8_where_there_is_none(self, target: str) -> None:
        a = te.placeholder((4,), "float8_e5m2", name="A")
        b = te.compute((4,), lambda i: a[i].astype("float32"), name="B")
        s = te.create_schedule(b.op)
        if target == "opencl":
            s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
        module = lower(s, [a, b], "llvm" if target == "c" else target)
        with pytest.raises(TargetError, match=f"float8_e5m2 cannot be written in {target}"):
            {"c": c_source, "opencl": generate_opencl}[target](module)

    def test_elements_that_are_vectors(self) -> None:
        mend = "declare float32, with a last dimension of 2, and vectorize"
        for do in (
            lambda: te.placeholder((2,), "float32x2", name="A"),
            lambda: te.compute((2,), lambda i: te.cast("float32x2", i), name="A"),
            lambda: te.compute((2,), lambda i: (te.cast("float32x2", i), i), name="A"),
        ):
            refused(do, "the elements of tensor A", "float32x2", mend)

    @pytest.mark.parametrize("domain", [(0, 0), (5, 2)])
    def test_an_empty_reduction(self, domain: tuple[int, int]) -> None:
        refused(lambda: te.reduce_axis(domain, "k"), "reduce axis k is empty", str(domain))

    @pytest.mark.parametrize("domain", [5, (1, 2, 3), (0.0, 3.0), "4", None])
    def test_a_domain_that_is_none(self, domain: Any) -> None:
        refused(
            lambda: te.reduce_axis(domain, "k"),
            "the domain of reduce axis k is (begin, end), two integers", repr(domain),
        )  # fmt: skip

    def test_threads_that_are_none(self) -> None:
        refused(lambda: te.thread_axis((0, 0), "threadIdx.x"), "thread axis threadIdx.x is empty")


class TestIndices:
    def test_too_many(self, a: Any) -> None:
        for do in (lambda: a[1, 2, 3], lambda: a[1][2, 3], lambda: a(1, 2, 3)):
            refused(do, "tensor A has 2 dimensions, (4, 6), got 3 indices", "leave out 1 of them")

    def test_too_few(self, a: Any) -> None:
        refused(
            lambda: a[1] + 1.0, "tensor A, which has 2 dimensions", "no index in dimension 1",
            "give an index for each",
        )  # fmt: skip

    def test_a_slice_where_an_element_is_needed(self, a: Any) -> None:
        for do, where in ((lambda: a[1, :] + 1.0, 1), (lambda: a[:, 2] + 1.0, 0)):
            refused(do, f"it has a slice in dimension {where}", "te.reduce_axis")
        refused(lambda: te.compute((4,), lambda i: a[i, :]), "a slice in dimension 1")

    def test_none(self, a: Any) -> None:
        said = "tensor A has 2 dimensions: index it, as in A[i, j]"
        refused(lambda: te.exp(a), said)
        refused(lambda: te.compute((4,), lambda i: a + 1.0), said)

    def test_a_float(self, a: Any) -> None:
        refused(lambda: a[1.0, 2], "an index of tensor A is 1.0", ".astype('int32')")
        refused(lambda: a[0, a[1, 2]], "an index of tensor A is A[1, 2]", ".astype('int32')")

    def test_a_condition(self, a: Any) -> None:
        i = te.var("i")
        refused(lambda: a[i > 3, 2], "an index of tensor A is i > 3", ".astype('int32')")

    def test_a_slice_with_a_step(self, a: Any) -> None:
        refused(lambda: a[0, ::2], "a slice of tensor A has step 2", "index with i * step")

    def test_a_loop_over_a_tensor(self, a: Any) -> None:
        refused(lambda: list(a), "tensor A cannot be iterated over", "te.compute", "te.reduce_axis")
        refused(lambda: sum(a), "tensor A cannot be iterated over")


class TestTruth:
    """Python's and, or, not, if and chained comparisons ask for a truth that there is not yet."""

    @pytest.mark.parametrize(
        "ask",
        [
            lambda i: i > 1 and i < 3, lambda i: i > 1 or i < 3, lambda i: not i > 1,
            lambda i: 1 if i > 1 else 2, lambda i: 0 <= i < 4, lambda i: bool(i),
            lambda i: max(i, 3), lambda i: abs(i) if i else i,
        ],
    )  # fmt: skip
    def test_of_an_expression(self, ask: Callable[[Any], Any]) -> None:
        with pytest.raises(
            TypeError, match=r"no truth value.*te.all / te.any.*te.if_then_else.*te.max"
        ):
            te.compute((4,), ask, name="B")

    def test_of_a_comparison_of_axes_is_whether_they_are_the_same(self, k: Any) -> None:
        """So that axes can stand in lists and dictionaries."""
        other = te.reduce_axis((0, 6), "k")
        assert k in [other, k]
        assert k not in [other]


class TestArithmetic:
    def test_a_slash_between_integers(self) -> None:
        i = te.var("i")
        refused(
            lambda: i / 2, "'/' on integers (i / 2) is ambiguous", "use //", "te.truncdiv",
            "convert to a float",
        )  # fmt: skip

    @pytest.mark.parametrize("name", ["floordiv", "floormod", "truncdiv", "truncmod"])
    def test_division_by_zero(self, name: str) -> None:
        refused(lambda: getattr(te, name)(te.var("i"), 0), "by zero: i by 0")

    @pytest.mark.parametrize("name", ["truncdiv", "truncmod"])
    def test_truncated_division_of_floats(self, name: str, a: Any) -> None:
        refused(lambda: getattr(te, name)(a[0, 0], 2.0), "needs integers, got float32")

    @pytest.mark.parametrize(
        ("symbol", "do"),
        [
            ("<<", lambda x: x << 1), (">>", lambda x: x >> 1), ("&", lambda x: x & 1),
            ("|", lambda x: x | 1), ("^", lambda x: x ^ 1),
        ],
    )  # fmt: skip
    def test_bits_of_a_float(self, symbol: str, do: Callable[[Any], Any], a: Any) -> None:
        refused(lambda: do(a[0, 0]), f"{symbol} needs integers or conditions, got float32")

    @pytest.mark.parametrize("type", ["float16", "int64", "bool"])
    def test_bits_that_are_not_as_many(self, a: Any, type: str) -> None:
        refused(lambda: te.reinterpret(type, a[0, 0]), f"reinterpret: float32 as {type}: both are")

    def test_popcount_of_a_float(self, a: Any) -> None:
        refused(lambda: te.popcount(a[0, 0]), "popcount needs an integer, got float32")

    @pytest.mark.parametrize("thing", [None, "x", object(), [1]])
    def test_what_is_no_value(self, thing: Any, a: Any) -> None:
        refused(lambda: a[0, 0] + thing, "cannot be used in an expression")

    def test_a_cast_to_a_type_that_there_is_not(self, a: Any) -> None:
        with pytest.raises(ValueError, match="unknown type 'half'"):
            a[0, 0].astype("half")


class TestCompute:
    def test_a_function_of_too_many_or_too_few_indices(self, a: Any) -> None:
        refused(
            lambda: te.compute((4, 6), lambda i: a[i, 0], name="B"),
            "compute B has 2 dimensions, but its function takes 1 indices: write lambda i, j: ...",
        )
        refused(
            lambda: te.compute((4,), lambda i, j: a[i, j], name="B"),
            "compute B has 1 dimensions, but its function takes 2 indices",
        )

    def test_an_array_in_the_place_of_a_tensor(self) -> None:
        array = np.zeros((4, 6))
        for declare in (
            lambda: te.compute((4,), lambda i: array[i, 0], name="B"),
            lambda: topi.nn.relu(array),  # type: ignore[arg-type]
        ):
            refused(declare, "make it a te.placeholder, and pass the array to the kernel")
        with pytest.raises(IndexError, match="tuple index out of range"):  # the caller's own
            te.compute((4,), lambda *i: i[1], name="B")

    def test_parameters_with_a_default_are_no_indices(self, a: Any) -> None:
        b = te.compute((4,), lambda i, column=2: a[i, column], name="B")
        assert [axis.name for axis in b.op.axis] == ["i"]
        c = te.compute((4, 6), lambda i, j=0: a[i, j], name="C")
        assert [axis.name for axis in c.op.axis] == ["i", "j"]

    def test_names_for_other_axes_than_there_are(self, a: Any) -> None:
        refused(
            lambda: te.compute((4, 6), lambda *i: a[i], name="B", varargs_names=["x"]),
            "compute B has 2 dimensions, but 1 names for its axes",
        )

    def test_a_function_without_a_value(self) -> None:
        refused(
            lambda: te.compute((4,), lambda i: None, name="B"),
            "compute B: its function returns None, not an expression",
        )
        refused(lambda: te.compute((4,), lambda i: (), name="B"), "compute B", "no value")

    def test_a_reduction_inside_of_an_expression(self, a: Any, k: Any) -> None:
        for f in (
            lambda i: te.sum(a[i, k], k) + 1.0,
            lambda i: te.exp(te.sum(a[i, k], k)),
            lambda i: te.if_then_else(i > 0, te.sum(a[i, k], k), 0.0),
            lambda i: te.max(te.sum(a[i, k], k), 0.0),
        ):
            refused(
                lambda f=f: te.compute((4,), f, name="B"),
                "compute B: a reduction stands inside a larger expression",
                "Compute the reduction as a stage of its own",
            )

    def test_a_reduction_of_a_reduction(self, a: Any, k: Any) -> None:
        m = te.reduce_axis((0, 4), "m")
        refused(
            lambda: te.compute((), lambda: te.sum(te.sum(a[m, k], k), m), name="B"),
            "compute B: a reduction stands inside",
        )

    def test_outputs_that_are_not_of_one_reduction(self, a: Any, k: Any) -> None:
        for second in (te.max(a[0, k], axis=k), te.sum(a[1, k], k), a[0, 0]):
            refused(
                lambda second=second: te.compute(
                    (4,), lambda i: (te.sum(a[0, k], k), second), name="B"
                ),
                "compute B: several outputs with reductions", "te.comm_reducer",
            )  # fmt: skip

    def test_a_reduction_axis_outside_of_a_reduction(self, a: Any, k: Any) -> None:
        refused(
            lambda: te.compute((4,), lambda i: a[i, k] * 2.0, name="B"),
            "compute B: the reduction axis k stands outside of a reduction over it",
            "te.sum(..., axis=k)",
        )
        other = te.reduce_axis((0, 6), "other")
        refused(
            lambda: te.compute((4,), lambda i: te.sum(a[i, k], other), name="B"),
            "the reduction axis k stands outside",
        )

    def test_an_axis_of_another_tensor(self, a: Any) -> None:
        b = te.compute((4,), lambda x: a[x, 0], name="B")
        refused(
            lambda: te.compute((4,), lambda i: a[i, b.op.axis[0]], name="C"),
            "compute C: x is an axis of something else", "the parameters of its own function",
        )  # fmt: skip


class TestReductions:
    @pytest.mark.parametrize("reduce", [te.sum, te.prod, te.min, te.max])
    def test_over_what_is_no_reduction_axis(self, reduce: Any, a: Any) -> None:
        thing = te.thread_axis("threadIdx.x")
        refused(
            lambda: te.compute((4,), lambda i: reduce(a[i, 0], axis=i), name="B"),
            "a reduction goes over axes made by te.reduce_axis, got i",
        )
        refused(lambda: reduce(a[0, 0], axis=thing), "axes made by te.reduce_axis")
        refused(lambda: reduce(a[0, 0], axis=1), "axes made by te.reduce_axis, got 1")

    def test_over_an_axis_twice(self, a: Any, k: Any) -> None:
        refused(lambda: te.sum(a[0, k], [k, k]), "the same axis twice", "name every axis once")

    def test_over_no_axis(self, a: Any) -> None:
        refused(lambda: te.sum(a[0, 0], []), "a reduction names no axis", "te.reduce_axis")

    def test_max_of_a_pair_and_over_an_axis(self, a: Any, k: Any) -> None:
        refused(lambda: te.max(a[0, k], 1.0, axis=k), "either a second value or an axis")

    def test_max_of_neither(self, a: Any) -> None:
        refused(lambda: te.max(a[0, 0]), "give a second value, or axis= to reduce over")

    def test_a_start_of_too_many_values(self, a: Any, k: Any) -> None:
        refused(
            lambda: te.sum(a[0, k], k, init=(1.0, 2.0)),
            "reducer sum starts from 2 values, but reduces tuples of 1",
        )

    def test_a_start_of_another_type(self, a: Any, k: Any) -> None:
        refused(
            lambda: te.sum(a[0, k], k, init=te.const(1, "int32")),
            "reducer sum starts from 1, of int32", "cast it with .astype('float32')",
        )  # fmt: skip

    def test_a_reducer_that_combines_to_another_type(self, a: Any, k: Any) -> None:
        odd = te.comm_reducer(lambda x, y: x > y, lambda t: te.const(0, t), name="odd")
        refused(lambda: odd(a[0, k], k), "reducer odd combines to", "of bool", "float32 is needed")

    def test_a_reducer_of_tuples_with_one_component(self, a: Any, k: Any) -> None:
        odd = te.comm_reducer(
            lambda x, y: (x[0] + y[0],), lambda s, t: (te.const(0, s), te.const(0, t)), name="odd"
        )
        refused(lambda: odd((k, a[0, k]), k), "reducer odd combines to 1 values", "tuples of 2")

    def test_a_sum_of_conditions_counts_them(self, a: Any, k: Any) -> None:
        assert te.sum(a[0, k] > 0.0, k).dtype == "int32"


class TestExtern:
    def test_without_a_type(self) -> None:
        refused(
            lambda: te.extern((4,), [], lambda i, o: te.call_extern("int32", "f", o[0]), name="E"),
            "extern E: with no inputs, say the dtype",
        )

    def test_with_other_types_than_outputs(self, a: Any) -> None:
        refused(
            lambda: te.extern([(4,), (4,)], [a], lambda i, o: 0, name="E", dtype=["int32"]),
            "extern E has 2 outputs, but 1 types for them",
        )

    def test_of_what_is_no_tensor(self, a: Any) -> None:
        refused(
            lambda: te.extern((4,), [a.op], lambda i, o: 0, name="E", dtype="int32"),
            "extern E: its inputs are tensors, got PlaceholderOp(A)",
        )

    def test_without_a_statement(self, a: Any) -> None:
        refused(
            lambda: te.extern((4,), [a], lambda i, o: None, name="E"),
            "extern E: its function returns None", "te.call_extern",
        )  # fmt: skip


@pytest.mark.parametrize("make", [te.const, tvm.te.const, tvm.tir.const], ids=["te", "tvm", "tir"])
def test_a_constant_that_its_type_does_not_hold(make: Any) -> None:
    for value, type in ((300, "int8"), (-1, "uint8"), (2**31, "int32"), (2**64, "uint64"),
                        (float("nan"), "int32"), (float("inf"), "int64")):  # fmt: skip
        refused(lambda v=value, t=type: make(v, t), "is beyond its range", "name a wider type")
    assert make(-128, "int8").value == -128
    assert make(2**64 - 1, "uint64").value == 2**64 - 1
