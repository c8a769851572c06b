"""What a newcomer is likely to write first, and the error."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.ir.errors import (
    ArgumentError,
    LanguageError,
    LoweringError,
    TargetError,
    UnknownTypeError,
    VerificationError,
)

A = te.placeholder((64,), name="A")


def twice():
    B = te.compute((64,), lambda i: A[i] * 2.0, name="B")
    return te.create_schedule(B.op), [A, B]


# -- declarations ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fcompute",
    [
        lambda i: A[i] if i > 0 else 0.0,
        lambda i: A[i] if i == 0 else 0.0,
        lambda i: A[i] if i != 0 else 0.0,
        lambda i: te.if_then_else(i > 0 and i < 63, A[i], 0.0),
        lambda i: te.if_then_else(i == 0 or i == 63, A[i], 0.0),
        lambda i: te.if_then_else(0 < i < 63, A[i], 0.0),
        lambda i: te.if_then_else(not (i > 0), A[i], 0.0),
        lambda i: max(A[i], 0.0),
    ],
)
def test_a_condition_is_no_python_condition(fcompute):
    with pytest.raises(LanguageError, match=r"te\.all / te\.any .* te\.if_then_else for 'if'"):
        te.compute((64,), fcompute)


def test_extents_are_compared_outside_of_declarations():
    n, m = te.var("n"), te.var("m")
    assert n == n
    assert not n == m  # noqa: SIM201
    assert n != m


def test_the_functions_of_math_and_numpy_are_those_of_te():
    with pytest.raises(LanguageError, match=r"use te\.exp"):
        te.compute((64,), lambda i: math.exp(A[i]))
    with pytest.raises(LanguageError, match=r"np\.exp computes with arrays.* te\.exp"):
        te.compute((64,), lambda i: np.exp(A[i]))
    with pytest.raises(LanguageError, match="computes with arrays"):
        te.compute((64,), lambda i: np.ones(3) * A[i])


def test_the_numbers_of_numpy_are_numbers():
    B = te.compute((64,), lambda i: np.float32(2) * A[i] + A[i] * np.float64(3) - np.int64(1))
    assert repr(B.op.body[0]) == "T.float32(2) * A[i] + A[i] * T.float32(3) - T.float32(1)"


def test_a_sum_goes_over_an_axis():
    k = te.reduce_axis((0, 64), name="k")
    with pytest.raises(LanguageError, match=r"te\.sum\(expression, axis=k\)"):
        te.compute((1,), lambda i: sum(A[k]))


def test_an_expression_indexes_no_python_list():
    with pytest.raises(LanguageError, match="make an array a te.placeholder"):
        te.compute((3,), lambda i: [1.0, 2.0, 3.0][i])
    with pytest.raises(LanguageError, match="and a loop an axis"):
        te.compute((64,), lambda i: next(A[j] for j in range(i)))


def test_a_literal_fits_the_type_of_its_operand():
    b = te.placeholder((4,), "int8", name="b")
    with pytest.raises(LanguageError, match=r"300 is beyond the range of b\[i\], .* of int8"):
        te.compute((4,), lambda i: b[i] + 300)
    u = te.placeholder((4,), "uint8", name="u")
    with pytest.raises(LanguageError, match="-1 is beyond the range"):
        te.compute((4,), lambda i: u[i] - -1)
    C = te.compute((4,), lambda i: ~u[i], name="C")
    found = np.zeros(4, "uint8")
    tilewright.build(te.create_schedule(C.op), [u, C])(np.array([0, 1, 254, 255], "uint8"), found)
    np.testing.assert_array_equal(found, [255, 254, 1, 0])


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda: te.const("one", "float32"), "takes a number, got 'one'"),
        (lambda: te.const([1, 2]), "takes a number, got "),
        (lambda: te.const(None), "takes a number, got None"),
        (lambda: te.const(A[0]), "takes a number, got A"),
        (lambda: te.var(3), "the name of a variable is a text, got 3"),
        (lambda: te.var("n", least="one"), "least and most are integers, got 'one'"),
        (lambda: te.placeholder((2,), name=5), "the name of an operation is a text, got 5"),
        (lambda: te.compute((2,), lambda i: A[i], name=["B"]), "the name of an operation is"),
        (lambda: te.reduce_axis((0, 2), name=3), "the name of an axis is a text, got 3"),
        (lambda: te.thread_axis((0, 2), "threadIdx.x", name=3), "the name of an axis is a text"),
        (lambda: te.thread_axis((0, 2), 5), "unknown thread tag 5"),
        (lambda: te.extern((2,), [A], 5), "takes a function of the buffers"),
        (lambda: te.extern((2,), A, lambda i, o: None), "its inputs are a list, got Tensor"),
        (lambda: te.extern((2,), [5], lambda i, o: None), "its inputs are tensors, got 5"),
        (lambda: te.comm_reducer(5, 6), "takes a function of two values, and one of their types"),
        (lambda: te.comm_reducer(lambda a: a, lambda t: 0), "takes a function of two values"),
        (
            lambda: te.comm_reducer(lambda a, b: a + b, lambda: 0)(A[0], te.reduce_axis((0, 2))),
            "called with the types of its values, float32",
        ),
    ],
)
def test_what_is_given_for_another_thing_is_named(mistake, said):
    with pytest.raises(LanguageError, match=said):
        mistake()


def test_how_often_a_kernel_is_timed_is_a_number():
    x = np.zeros(64, "float32")
    with pytest.raises(ArgumentError, match="repeat=many"):
        tilewright.build(*twice()).time(x, x.copy(), repeat="many")


def test_a_type_is_a_name_or_numpys():
    with pytest.raises(UnknownTypeError, match="did you mean float32"):
        te.placeholder((4,), "flaot32")
    assert te.placeholder((4,), np.float16).dtype == "float16"
    assert te.placeholder((4,), np.dtype("int8")).dtype == "int8"


# -- schedules and targets ---------------------------------------------------------------------


def test_primitives_belong_to_stages():
    s, (_, B) = twice()
    with pytest.raises(AttributeError, match=r"write s\[tensor\]\.split"):
        s.split(B.op.axis[0], 8)
    with pytest.raises(AttributeError, match="no attribute 'spilt'"):
        s.spilt


def test_a_name_that_is_misspelt_is_told_what_is_near():
    s, (_, b) = twice()
    with pytest.raises(AttributeError, match=r"did you mean reorder\?"):
        s[b].reoder()
    with pytest.raises(AttributeError, match=r"did you mean cache_read\?"):
        s.cache_reed()
    for module, name in ((te, "compue"), (tilewright, "biuld")):
        with pytest.raises(AttributeError) as caught:
            getattr(module, name)
        assert (caught.value.name, caught.value.obj) == (name, module)  # what Python goes by


def test_the_arguments_of_a_program_are_a_list():
    s, (a, _) = twice()
    with pytest.raises(TargetError, match="the arguments of the schedule in a list"):
        tilewright.build(s, a, "llvm")


def test_a_target_is_spelt_right():
    s, args = twice()
    with pytest.raises(TargetError, match="did you mean 'llvm'"):
        tilewright.build(s, args, "lvm")
    with pytest.raises(TargetError, match="write -threads=N"):
        tilewright.build(s, args, "llvm -threads=two")
    with pytest.raises(TargetError, match="a text such as"):
        tilewright.build(s, args, 42)


def test_arrays_are_passed_to_the_kernel_and_not_to_build():
    s, _ = twice()
    with pytest.raises(LoweringError, match=r"got an array, a ndarray.*to the kernel"):
        tilewright.build(s, [np.ones(64, "float32")] * 2)


def test_a_float_is_passed_in_a_tensor():
    alpha = te.var("alpha", "float32")
    B = te.compute((64,), lambda i: A[i] * alpha, name="B")
    with pytest.raises(LoweringError, match=r"integers.* alpha = te\.placeholder\(\(1,\)"):
        tilewright.build(te.create_schedule(B.op), [alpha, A, B])


# -- proofs ------------------------------------------------------------------------------------


def beyond():
    B = te.compute((64,), lambda i: A[i + 1], name="Beyond")
    return te.create_schedule(B.op), [A, B]


def test_a_refuted_proof_names_the_line_of_the_declaration():
    line = beyond.__code__.co_firstlineno + 1
    with pytest.raises(VerificationError, match=rf"'Beyond' is declared at .*mistakes.py:{line}$"):
        tilewright.build(*beyond())


def test_a_kernel_that_was_not_proved_is_not_taken_for_one_that_was():
    tilewright.build(*beyond(), verify=False)
    with pytest.raises(VerificationError, match="out of bounds"):
        tilewright.build(*beyond())


def test_what_depends_on_memory_is_built_when_clipped_or_not_proved():
    table = te.placeholder((16,), name="table")
    rows = te.placeholder((8,), "int32", name="rows")
    B = te.compute((8,), lambda i: table[rows[i]], name="B")
    with pytest.raises(VerificationError, match=r"clip the index.*verify=False"):
        tilewright.build(te.create_schedule(B.op), [table, rows, B])
    C = te.compute((8,), lambda i: table[te.clip(rows[i], 0, 15)], name="C")
    x, at = np.arange(16, dtype="float32"), np.array([3, 1, 4, 1, 5, 9, 2, 6], "int32")
    for out, verify in ((B, False), (C, True)):
        found = np.zeros(8, "float32")
        kernel = tilewright.build(te.create_schedule(out.op), [table, rows, out], verify=verify)
        kernel(x, at, found)
        np.testing.assert_array_equal(found, x[at])


# -- arguments ---------------------------------------------------------------------------------


def test_arguments_in_another_order_are_told_so():
    M = te.placeholder((4, 8), name="M")
    v = te.placeholder((8,), name="v")
    B = te.compute((4, 8), lambda i, j: M[i, j] * v[j], name="B")
    kernel = tilewright.build(te.create_schedule(B.op), [M, v, B])
    m, x, out = np.ones((4, 8), "float32"), np.ones(8, "float32"), np.ones((4, 8), "float32")
    with pytest.raises(ArgumentError, match="the shape of v, and the arguments are M, v, B"):
        kernel(x, m, out)


@pytest.mark.needs_torch
def test_a_tensor_that_requires_a_gradient_is_detached_first():
    import torch

    kernel = tilewright.build(*twice())
    x, out = torch.ones(64, requires_grad=True), torch.zeros(64)
    with pytest.raises(ArgumentError, match=r"requires a gradient.*\.detach\(\)"):
        kernel(x, out)
    assert not out.any()
    kernel(x.detach(), out)
    with torch.no_grad():
        kernel(x, out)
    assert (out == 2).all()
