"""Recurrences with several states of any shapes, and schedules of their updates."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright import tvm
from tilewright.tvm import te

pytestmark = pytest.mark.usefixtures("plain_code")

rng = np.random.default_rng(0)


class Cell:
    """A running sum of rows ``[m, n]``, the history of a total of each ``[m]``, and the outer
    products of the row before with ``Y`` ``[m, n, l]``; the first two are read by the third."""

    def __init__(self, m, n, l, rows=1):
        X, Y = te.placeholder((m, n), name="X"), te.placeholder((m, l), name="Y")
        shapes = (m, n), (m,), (m, n, l)
        self.states = [te.placeholder(shape, name=f"state{k}") for k, shape in enumerate(shapes)]
        S, T, P = self.states
        r = te.reduce_axis((0, n), name="r")
        self.firsts = [
            te.compute((rows, n), lambda t, i: X[t, i], name="first0"),
            te.compute((rows,), lambda t: te.const(1, "float32"), name="first1"),
            te.compute((rows, n, l), lambda t, i, j: X[t, i] - Y[t, j], name="first2"),
        ]
        self.row = te.compute((m, n), lambda t, i: S[t - 1, i] * 0.5, name="row")
        self.updates = [
            te.compute((m, n), lambda t, i: self.row[t, i] + X[t, i], name="update0"),
            te.compute((m,), lambda t: te.sum(S[t - 1, r] + T[t - 1], axis=r), name="update1"),
            te.compute(
                (m, n, l),
                lambda t, i, j: P[t - 1, i, j] + self.row[t, i] * Y[t, j] + T[t - 1],
                name="update2",
            ),
        ]
        self.args, self.rows = [X, Y], rows

    def scan(self, *chosen):
        parts = ([x[k] for k in chosen] for x in (self.firsts, self.updates, self.states))
        return te.scan(*parts)

    def check(self, s, outs, chosen, m, n, l, target):
        x, y = (rng.uniform(size=shape).astype("float32") for shape in ((m, n), (m, l)))
        shapes = (m, n), (m,), (m, n, l)
        found = [tvm.nd.array(np.full(shapes[k], 77, "float32")) for k in chosen]
        tvm.build(s, [*self.args, *outs], target)(tvm.nd.array(x), tvm.nd.array(y), *found)
        S, T, P = (np.zeros(shape) for shape in shapes)
        S[: self.rows], T[: self.rows] = x[: self.rows], 1
        P[: self.rows] = x[: self.rows, :, None] - y[: self.rows, None, :]
        for t in range(self.rows, m):
            S[t] = S[t - 1] * 0.5 + x[t]
            T[t] = (S[t - 1] + T[t - 1]).sum()
            P[t] = P[t - 1] + S[t - 1, :, None] * 0.5 * y[t, None, :] + T[t - 1]
        for k, array in zip(chosen, found, strict=True):
            expected = (S, T, P)[k]
            error = np.linalg.norm(array.numpy() - expected)
            assert error <= 1e-5 * np.linalg.norm(expected), k


@pytest.mark.parametrize("chosen", [(0, 1), (1, 0), (0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("target", ["llvm", "sim"])
@pytest.mark.parametrize("size", [(5, 7, 3), (1, 4, 4), (6, 1, 9)])
def test_states_of_different_ranks(chosen, target, size):
    cell = Cell(*size)
    outs = cell.scan(*chosen)
    assert [out.ndim for out in outs] == [(2, 1, 3)[k] for k in chosen]
    assert len(outs[0].op.spatial_axis_) == sum(out.ndim - 1 for out in outs)
    s = te.create_schedule(outs[0].op)
    if target == "sim":  # one block, whose threads wait for one another in every step
        s[cell.row].set_scope("shared")
        for stage in (
            *(cell.firsts[k] for k in chosen),
            cell.row,
            *(cell.updates[k] for k in chosen),
        ):
            inner = s[stage].fuse(*stage.op.axis[1:])
            s[stage].bind(inner, te.thread_axis("threadIdx.x"))
    cell.check(s, outs, chosen, *size, target)


@pytest.mark.parametrize(("n", "l"), [(7, 0), (13, 3)])
def test_symbolic_shapes_of_which_one_may_be_empty(n, l):
    cell = Cell(te.var("m", least=2), te.var("n"), te.var("l"), rows=2)
    outs = cell.scan(0, 1, 2)
    cell.check(te.create_schedule(outs[0].op), outs, (0, 1, 2), 6, n, l, "llvm")


@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_updates_on_threads_and_in_tiles(target):
    cell = Cell(6, 21, 5)
    outs = cell.scan(0, 1, 2)
    s = te.create_schedule([out.op for out in outs])
    s[cell.row].compute_inline()
    if target == "sim":
        for stage in (cell.firsts[1], cell.updates[1]):
            s[stage].bind(s[stage].fuse(), te.thread_axis("threadIdx.x"))
    for stage in (cell.firsts[0], cell.firsts[2], cell.updates[0], cell.updates[2]):
        _, inner = s[stage].split(stage.op.axis[1], factor=8)
        if target == "sim":
            s[stage].bind(inner, te.thread_axis("threadIdx.x"))
        else:
            s[stage].vectorize(inner)
    cell.check(s, outs, (0, 1, 2), 6, 21, 5, target)


def test_inlined_updates_are_stored_by_loops_of_each_state():
    cell = Cell(6, 21, 5)
    outs = cell.scan(0, 2, 1)
    op = outs[0].op
    s = te.create_schedule(op)
    axes = op.spatial_axis_
    s[cell.updates[0]].compute_inline()
    s[cell.updates[2]].compute_inline()
    s[cell.row].compute_inline()
    outer, inner = s[outs[0]].split(axes[0], factor=4)
    s[outs[0]].unroll(inner)
    s[outs[0]].vectorize(axes[2])
    s[outs[0]].reorder(op.scan_axis, axes[2], axes[1], outer, inner)
    s[outs[0]].split(op.scan_axis, factor=2)
    cell.check(s, outs, (0, 2, 1), 6, 21, 5, "llvm")
    text = str(tvm.lower(s, [*cell.args, *outs]))
    loops = re.findall(r"for (scan_v\w+) in", text)
    assert loops == ["scan_v0_i1_outer", "scan_v0_i1_inner", "scan_v1_i2", "scan_v1_i1"]


def test_loops_of_one_state_are_kept_from_those_of_another():
    def scheduled():
        cell = Cell(6, 21, 5)
        outs = cell.scan(0, 2, 1)
        return cell, outs, te.create_schedule(outs[0].op), outs[0].op

    cell, outs, s, op = scheduled()
    s[op].fuse(op.spatial_axis_[0], op.spatial_axis_[1])
    with pytest.raises(tvm.TVMError, match="axes of states of different shapes"):
        tvm.lower(s, [*cell.args, *outs])
    cell, outs, s, op = scheduled()
    s[cell.updates[0]].compute_at(s[op], op.spatial_axis_[0])
    with pytest.raises(tvm.TVMError, match="in the loop of one state of 'scan'"):
        tvm.lower(s, [*cell.args, *outs])
    cell, outs, s, op = scheduled()
    s[op].reorder(op.spatial_axis_[0], op.scan_axis)
    with pytest.raises(tvm.TVMError, match="steps of a scan are its outermost loops"):
        tvm.lower(s, [*cell.args, *outs])


def test_rows_that_differ_are_refused():
    cell = Cell(6, 21, 5)
    other = Cell(7, 21, 5)
    with pytest.raises(tvm.TVMError, match="as many rows.*state1 has 7 and 1, state0 has 6 and 1"):
        te.scan(
            [cell.firsts[0], other.firsts[1]],
            [cell.updates[0], other.updates[1]],
            [cell.states[0], other.states[1]],
        )


def test_a_scan_is_not_written_to_other_memory():
    cell = Cell(6, 21, 5)
    outs = cell.scan(0, 1)
    s = te.create_schedule(outs[0].op)
    with pytest.raises(tvm.TVMError, match="rows of a scan are kept in its result"):
        s.cache_write(list(outs), "local")
