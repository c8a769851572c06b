"""Pipelines that go on across the iterations of a loop further out."""

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.ir.errors import LoweringError
from tilewright.lower.pipeline import lower
from tilewright.target.instructions import copy_async


def sums_of_rows(stages, over, columns=50, step=8, asynchronous=True, rows=12):
    """Twice the sums of rows of a tensor, in steps; a block goes through three rows."""
    x = te.placeholder((rows, columns), "float32", name="X")
    kept = te.compute((rows, columns), lambda i, j: x[i, j], name="S")
    k = te.reduce_axis((0, columns), name="k")
    y = te.compute((rows,), lambda i: te.sum(kept[i, k] * 2.0, axis=k), name="Y")
    s = te.create_schedule(y.op)
    sums = s.cache_write(y, "local")
    (i,) = s[y].op.axis
    block, turn = s[y].split(i, 3)
    turn, lane = s[y].split(turn, 1)
    s[y].bind(block, te.thread_axis("blockIdx.x"))
    s[y].bind(lane, te.thread_axis((0, 1), "threadIdx.x"))
    s[sums].compute_at(s[y], lane)
    (k,) = s[sums].op.reduce_axis
    part, k = s[sums].split(k, step)
    s[kept].set_scope("shared")
    s[kept].compute_at(s[sums], part)
    if asynchronous:
        s[kept].tensorize(s[kept].split(s[kept].op.axis[1], 2)[1], copy_async(2, "float32"))
    s[kept].pipeline(stages, over={"rows": turn, "none": None, "block": block}[over])
    return s, [x, y]


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("columns", [48, 50, 10])
def test_sums_are_right_whatever_is_filled_ahead(stages, asynchronous, columns):
    s, args = sums_of_rows(stages, "rows", columns, asynchronous=asynchronous)
    x = np.random.default_rng(0).integers(-9, 9, (12, columns)).astype("float32")
    y = np.full(12, 77, "float32")
    tilewright.build(s, args, "sim")(x, y)
    np.testing.assert_array_equal(y, 2 * x.sum(1))


def test_what_is_filled_first_is_filled_once_a_block():
    """Without `over`, each row begins with tiles that nothing else hides."""
    text = {
        over: str(lower(*sums_of_rows(2, over, 48), "cuda -arch=sm_80").funcs[0].body)
        for over in ("rows", "none")
    }
    first = {over: t.index("T.instruction") < t.index("for i") for over, t in text.items()}
    assert first == {"rows": True, "none": False}


def test_a_loop_that_is_gone_on_over_stays_whole():
    """Its last iteration, of a row that the last block lacks, has no copies of its own."""
    s, args = sums_of_rows(3, "rows", 48, rows=11)
    body = str(lower(s, args, "cuda -arch=sm_80").funcs[0].body)
    assert body.count("T.allocate([3, 1, 8]") == 1
    x = np.random.default_rng(0).integers(-9, 9, (11, 48)).astype("float32")
    y = np.full(11, 77, "float32")
    tilewright.build(s, args, "sim")(x, y)
    np.testing.assert_array_equal(y, 2 * x.sum(1))


def test_an_axis_that_is_no_serial_loop_around_is_refused():
    s, args = sums_of_rows(2, "block")
    with pytest.raises(LoweringError, match="no serial loop around the stage"):
        lower(s, args, "cuda -arch=sm_80")


def test_registers_cannot_be_filled_across_loops():
    s, args = sums_of_rows(2, "rows", 48, asynchronous=False)
    (kept,) = (stage for stage in s.stages if stage.name == "S")
    kept.set_scope("local")
    with pytest.raises(LoweringError, match="registers are chosen by constants"):
        lower(s, args, "cuda -arch=sm_80")
