"""Functions of Python's syntax under ``te.hybrid.script`` are programs, and run as Python."""

# The names that scripts call, such as output_tensor, mean something in scripts alone.
# ruff: noqa: F821

from __future__ import annotations

import numpy as np
import pytest

from tilewright import tvm
from tilewright.ir.errors import LanguageError
from tilewright.tvm import te

pytestmark = pytest.mark.usefixtures("plain_code")

rng = np.random.default_rng(0)


@te.hybrid.script
def outer_product(n, m, a, b):
    """Docstrings and assertions are for readers."""
    c = output_tensor((n, m), a.dtype)
    for i in range(n):
        for j in range(m):
            assert i < n, "index out of range!"
            c[i, j] = a[i] * b[j]
    return c


@te.hybrid.script
def means_and_signs(a, width, signed):
    count = a.shape[0] - width + 1
    means = output_tensor((count,), a.dtype)
    signs = output_tensor((count,), "int32")
    for i in parallel(count):
        total = 0.0
        for j in const_range(width):
            total += a[i + j]
        total = total / width
        means[i] = total
        if signed:
            signs[i] = 1 if total > 0.0 else -1
        elif 0 < i <= 2 and not i % 2:
            signs[i] = int32(max(a[i], 0.0) * 10.0)
        else:
            signs[i] = i % 2
    return means, signs


@te.hybrid.script
def row_sums(a):
    c = output_tensor((a.shape[0],), a.dtype)
    total = allocate((1,), a.dtype, "local")
    for i in bind("threadIdx.x", a.shape[0]):
        total[0] = 0.0
        for k in range(a.shape[1]):
            total[0] += a[i, k]
        c[i] = sqrt(total[0])
    return c


def run(outs, tensors, arrays, shapes, target="llvm"):
    outs = outs if isinstance(outs, list) else [outs]
    kernel = tvm.build(te.create_schedule(outs[0].op), [*tensors, *outs], target)
    found = [
        tvm.nd.array(np.full(shape, 77, str(t.dtype)))
        for t, shape in zip(outs, shapes, strict=True)
    ]
    kernel(*(tvm.nd.array(a) if isinstance(a, np.ndarray) else a for a in arrays), *found)
    return [f.numpy() for f in found]


def test_a_script_of_any_length_is_a_stage():
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((n,), name="a"), te.placeholder((m,), name="b")
    x, y = rng.normal(size=5).astype("float32"), rng.normal(size=7).astype("float32")
    found = run(outer_product(n, m, a, b), [n, m, a, b], [5, 7, x, y], [(5, 7)])
    np.testing.assert_array_equal(found[0], np.outer(x, y))
    np.testing.assert_array_equal(outer_product(5, 7, x, y), np.outer(x, y))


@pytest.mark.parametrize("signed", [True, False])
def test_a_script_and_python_agree_on_variables_and_branches(signed):
    a = te.placeholder((10,), name="a")
    x = rng.normal(size=10).astype("float32")
    found = run(means_and_signs(a, 3, signed), [a], [x], [(8,), (8,)])
    for f, e in zip(found, means_and_signs(x, 3, signed), strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-5)


def test_a_script_binds_its_loops_to_threads():
    a = te.placeholder((8, 4), name="a")
    x = rng.uniform(size=(8, 4)).astype("float32")
    found = run(row_sums(a), [a], [x], [(8,)], "sim")
    np.testing.assert_allclose(found[0], np.sqrt(x.sum(1)), rtol=1e-5)


@te.hybrid.script
def reversed_by_threads(a):
    b = output_tensor(a.shape, a.dtype)
    row = allocate(a.shape, a.dtype, "shared")
    for i in bind("threadIdx.x", a.shape[0]):
        row[i] = a[i]
        b[i] = row[a.shape[0] - 1 - i]
    return b


def test_threads_read_what_others_wrote_to_shared_memory():
    a, x = te.placeholder((9,), name="a"), rng.normal(size=9).astype("float32")
    found = run(reversed_by_threads(a), [a], [x], [(9,)], "sim")
    np.testing.assert_array_equal(found[0], x[::-1])


@te.hybrid.script
def returns_its_input(a):
    return a


@te.hybrid.script
def loops_while(a):
    b = output_tensor((4,), a.dtype)
    while True:
        b[0] = a[0]
    return b


@te.hybrid.script
def steps_by_two(a):
    b = output_tensor((4,), a.dtype)
    for i in range(0, 4, 2):
        b[i] = a[i]
    return b


@te.hybrid.script
def calls_what_is_not_known(a):
    b = output_tensor((4,), a.dtype)
    for i in range(4):
        b[i] = gamma(a[i])
    return b


@te.hybrid.script
def names_its_arguments(a):
    b = output_tensor((4,), dtype=a.dtype)
    return b


@te.hybrid.script
def returns_early(a):
    b = output_tensor((4,), a.dtype)
    if a.dtype == "float32":
        return b
    b[0] = a[0]
    return b


@te.hybrid.script
def assigns_twice(a):
    b = output_tensor((4,), a.dtype)
    for i in range(4):
        b[0] = b[i] = a[i]
    return b


@te.hybrid.script
def loops_or_else(a):
    b = output_tensor((4,), a.dtype)
    for i in range(4):
        b[i] = a[i]
    else:
        b[0] = 0.0
    return b


@te.hybrid.script
def looks_for_members(a):
    b = output_tensor((4,), a.dtype)
    for i in range(4):
        b[i] = a[i] if i in (1, 2) else 0.0
    return b


@te.hybrid.script
def multiplies_matrices(a):
    b = output_tensor((4,), a.dtype)
    b[0] = 0.0
    b[0] @= a[0]
    return b


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (returns_its_input, "a is returned, but not made by output_tensor"),
        (loops_while, "While is no statement of scripts"),
        (steps_by_two, "loops go over range, const_range"),
        (names_its_arguments, "output_tensor takes its arguments by their places"),
        (returns_early, "a function returns at its end"),
        (assigns_twice, "one name or element is assigned to at a time"),
        (loops_or_else, "loops have no else"),
        (looks_for_members, r"i in \(1, 2\) is no expression of scripts"),
        (multiplies_matrices, r"b\[0\] @ a\[0\] is no expression of scripts"),
        (calls_what_is_not_known, r"gamma\(a\[i\]\) is no expression of scripts"),
    ],
)
def test_what_a_script_cannot_say_names_its_line(script, said):
    with pytest.raises(LanguageError, match=f"line [0-9]+ of the script: {said}"):
        script(te.placeholder((4,), name="a"))


def test_a_script_takes_as_many_arguments_as_it_has():
    with pytest.raises(LanguageError, match="takes 3 arguments, got 1"):
        means_and_signs(te.placeholder((4,), name="a"))
