"""What rows of a fragment have in common is held alike by the threads that share them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.ir.distribution import Distribution
from tilewright.ir.errors import LoweringError
from tilewright.ir.visit import allocated
from tilewright.runtime.serialize import from_json, to_json
from tilewright.target.instructions import mma_f16

ROWS, COLUMNS, DEPTH = 32, 24, 16


def scheduled(reduction, factor: int = 2, apart: bool = True):
    """A product, a reduction of its rows, and their elements divided by it."""
    a = te.placeholder((ROWS, DEPTH), "float16", name="A")
    b = te.placeholder((COLUMNS, DEPTH), "float16", name="B")
    k = te.reduce_axis((0, DEPTH), "k")
    c = te.compute(
        (ROWS, COLUMNS),
        lambda i, j: te.sum(a[i, k].astype("float32") * b[j, k].astype("float32"), axis=k),
        name="C",
    )
    j = te.reduce_axis((0, COLUMNS), "j")
    row = te.compute((ROWS,), lambda i: reduction(c[i, j], axis=j), name="Row")
    y = te.compute((ROWS, COLUMNS), lambda i, j: c[i, j] - row[i], name="Y")

    s = te.create_schedule(y.op)
    block, _ = s[y].split(y.op.axis[0], 16)
    s[y].bind(block, te.thread_axis("blockIdx.x"))
    tensors = [s.cache_read(x, "fragment", [c]) for x in (a, b)]
    made = [c, row]
    if apart:
        _, part = s[row].split(j, factor=8)
        thread, _ = s[row].split(part, factor=factor)
        made.insert(1, s.rfactor(row, thread, 1))
    for tensor in made:
        s[tensor].set_scope("fragment")
        s[tensor].compute_at(s[y], block)
    jo, ji = s[c].split(c.op.axis[1], 8)
    s[c].reorder(jo, c.op.axis[0], ji, k)
    s[c].tensorize(c.op.axis[0], mma_f16)
    for tensor in tensors:
        s[tensor].compute_at(s[c], jo)
    return s, [a, b, y]


@pytest.mark.parametrize(("reduction", "exact"), [
    (te.sum, np.sum), (te.max, np.max), (te.min, np.min), (te.prod, np.prod),
])  # fmt: skip
def test_a_row_is_reduced_by_the_threads_that_share_it(reduction, exact):
    s, args = scheduled(reduction)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-1, 2, (n, DEPTH)).astype("float16") for n in (ROWS, COLUMNS))
    y = np.empty((ROWS, COLUMNS), "float32")
    tilewright.build(s, args, "sim")(a, b, y)
    c = a.astype("float64") @ b.astype("float64").T
    assert (y == c - exact(c, axis=1, keepdims=True)).all()


def test_it_is_two_shuffles_for_each_row_of_a_thread():
    s, args = scheduled(te.sum)
    text = str(tilewright.lower(s, args, "sim"))
    assert text.count("shuffle_xor") == 2


def test_a_program_is_kept_with_what_its_threads_hold_alike():
    s, args = scheduled(te.max)
    module = tilewright.build(s, args, "sim").module
    text = to_json(module)
    assert to_json(from_json(text)) == text
    held = {b.name: b.distribution for f in from_json(text).funcs for b in allocated(f.body)}
    assert held["Row"].shared == (0, 1)


def test_a_sum_over_all_that_threads_hold_is_refused():
    s, args = scheduled(te.sum, apart=False)
    with pytest.raises(LoweringError, match="split so that its extent is the number of these thr"):
        tilewright.lower(s, args, "sim")


def test_parts_that_threads_do_not_have_are_refused():
    s, args = scheduled(te.sum, factor=4)
    with pytest.raises(LoweringError, match="goes through what several threads hold"):
        tilewright.lower(s, args, "sim")


def test_what_one_thread_has_is_not_stored_as_what_all_have():
    a = te.placeholder((16, DEPTH), "float16", name="A")
    b = te.placeholder((8, DEPTH), "float16", name="B")
    k = te.reduce_axis((0, DEPTH), "k")
    c = te.compute(
        (16, 8),
        lambda i, j: te.sum(a[i, k].astype("float32") * b[j, k].astype("float32"), axis=k),
        name="C",
    )
    row = te.compute((16,), lambda i: c[i, 3] * 2.0, name="Row")
    y = te.compute((16, 8), lambda i, j: c[i, j] - row[i], name="Y")
    s = te.create_schedule(y.op)
    block, _ = s[y].split(y.op.axis[0], 16)
    s[y].bind(block, te.thread_axis("blockIdx.x"))
    for tensor in *(s.cache_read(x, "fragment", [c]) for x in (a, b)), c, row:
        s[tensor].set_scope("fragment")
        s[tensor].compute_at(s[y], block)
    s[c].tensorize(c.op.axis[0], mma_f16)
    with pytest.raises(LoweringError, match="threads hold 'Row' alike, but each a part of 'C'"):
        tilewright.lower(s, [a, b, y], "sim")


def test_lanes_may_hold_elements_alike():
    rows = Distribution.parse((16,), (("lane 2", "lane 3", "lane 4", "slot"),), group=32)
    assert (rows.lanes, rows.slots, rows.shared) == (32, 2, (0, 1))
    whole = Distribution.parse((4, 4), (("lane 0", "lane 1"), ("slot", "slot")))
    assert (whole.lanes, whole.shared) == (4, ())


@pytest.mark.parametrize(("bits", "group"), [
    ((("lane 0", "lane 0"),), 0), ((("lane 1", "slot"),), 0), ((("lane 5", "slot"),), 32),
    ((("lane 0", "slot"),), 24),
])  # fmt: skip
def test_what_is_no_distribution_is_refused(bits, group):
    with pytest.raises(ValueError, match="not a distribution"):
        Distribution.parse((4,), bits, group)
