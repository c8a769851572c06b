"""Blocks of a cluster read one another's shared memory: on sim, and in the proof."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.correctness.test_clusters import HOPPER
from tests.support.changed import changed_in

import tilewright
from tilewright import te
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.func import Func
from tilewright.ir.ops import const
from tilewright.ir.stmt import If, Seq, Stmt, Store, Sync, seq
from tilewright.ir.visit import allocated, statements
from tilewright.lower.pipeline import lower
from tilewright.runtime.sim.program import simulate
from tilewright.verify import check


def _sum(
    split: int = 4, threads: int = 16, wide: int = 64, deep: int = 32, lanes: int = 1
) -> Func:  # fmt: skip
    """The sums of rows of numbers, in parts: a block sums some, and adds some parts."""
    A = te.placeholder((3, wide, deep), "float32", name="A")
    k = te.reduce_axis((0, deep), "k")
    B = te.compute((3, wide), lambda i, j: te.sum(A[i, j, k], axis=k), name="B")
    out = te.compute((3, wide), lambda i, j: B[i, j] * 2.0, name="out")
    s = te.create_schedule(out.op)
    part = s.rfactor(B, s[B].split(k, nparts=split)[0])
    i, j = s[out].op.axis
    s[out].bind(i, te.thread_axis("blockIdx.y"))
    rank, j = s[out].split(j, nparts=split)
    s[out].bind(rank, te.thread_axis("blockIdx.x"))
    j, lane = s[out].split(j, factor=lanes)
    s[out].vectorize(lane)
    s[out].bind(s[out].split(j, factor=threads)[1], te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[out], s[out].leaf_iter_vars[-2])
    s[B].set_scope("local")
    s[B].vectorize(s[B].op.axis[-1])
    s[part].set_scope("cluster")
    s[part].compute_at(s[out], i)
    rank, _, j = s[part].op.axis
    s[part].bind(rank, te.thread_axis("blockIdx.x"))
    s[part].bind(s[part].split(j, factor=threads)[1], te.thread_axis("threadIdx.x"))
    return lower(s, [A, out], HOPPER).funcs[0]


def _findings(func: Func) -> tuple[str, set[str]]:
    """What the proof says of a program, and what kinds of defects sim meets."""
    given, result = (b.constant_shape for b in func.params if isinstance(b, Buffer))
    assert given
    assert result
    a = np.random.default_rng(1).integers(-4, 5, given).astype(np.float32)
    out = np.full(result, np.nan, np.float32)
    report = simulate(tilewright.ir.Module("m", func.params, (func,)), [a, out])
    if not report.findings:
        assert (out == 2 * a.sum(-1)).all()
    return "\n".join(map(str, check(func))), {finding.kind for finding in report.findings}


def barriers_of_clusters(func: Func) -> list[Sync]:
    found = [s for s in statements(func.body) if isinstance(s, Sync) and s.scope == "cluster"]
    assert len(found) == 2
    return found


@pytest.mark.parametrize("split", [2, 8])
def test_a_block_adds_parts_that_others_have(split: int) -> None:
    func = _sum(split, 8)
    assert _findings(func) == ("", set())
    (part,) = (b for b in allocated(func.body) if b.scope == "cluster")
    assert part.constant_shape == (split, 1, 64)
    assert int(part.share) == 64


@pytest.mark.parametrize(("split", "deep"), [(2, 3), (4, 5), (8, 3)])
def test_parts_may_have_different_numbers_of_terms(split: int, deep: int) -> None:
    # Where the first block alone has one more, the number of the block is written 0.
    assert _findings(_sum(split, 8, deep=deep)) == ("", set())


@pytest.mark.parametrize(("wide", "lanes"), [(60, 4), (7, 2)])
def test_vectors_of_which_some_lanes_are_left_out_are_read(wide: int, lanes: int) -> None:
    assert _findings(_sum(4, 8, wide, lanes=lanes)) == ("", set())


@pytest.mark.parametrize("other", [None, Sync("shared")], ids=["none", "of a block"])
def test_they_meet_before_they_read(other: Stmt | None) -> None:
    func = _sum()
    first, _ = barriers_of_clusters(func)
    found, kinds = _findings(changed_in(func, {first: other or Seq(())}))
    assert "no barrier of the cluster between" in found
    assert "put T.sync('cluster') between the two" in found
    assert "which may not have begun" in found
    assert "race between blocks" in kinds


@pytest.mark.parametrize("other", [None, Sync("shared")], ids=["none", "of a block"])
def test_none_ends_before_others_have_read_its_memory(other: Stmt | None) -> None:
    func = _sum()
    _, last = barriers_of_clusters(func)
    found, kinds = _findings(changed_in(func, {last: other or Seq(())}))
    assert "reads memory of another block, which may have ended" in found
    assert kinds == {"read of an ended block"}


def test_they_meet_before_what_was_read_is_written_again() -> None:
    func = _sum()
    _, last = barriers_of_clusters(func)
    writes = next(s for s in statements(func.body) if isinstance(s, Store))
    assert writes.buffer.scope == "cluster"
    loops = [s for s in statements(func.body) if writes in statements(s)]
    again = seq(loops[-2] if len(loops) > 1 else writes, last)
    found, kinds = _findings(changed_in(func, {last: again}))
    assert "no barrier of the cluster between" in found
    assert "race between blocks" in kinds


def test_a_block_writes_no_other_ones_memory() -> None:
    func = _sum()
    (axis,) = (a for a in func.launch if a.tag == "blockIdx.x")
    places = {
        s: Store(s.buffer, ((axis.var + 1) % 4, *s.indices[1:]), s.value)
        for s in statements(func.body)
        if isinstance(s, Store) and s.buffer.scope == "cluster"
    }
    found, kinds = _findings(changed_in(func, places))
    assert "writes no other block's memory" in found
    assert "write to another block" in kinds


def test_all_threads_of_a_cluster_come_to_its_barriers() -> None:
    func = _sum()
    (axis,) = (a for a in func.launch if a.tag == "blockIdx.x")
    _, last = barriers_of_clusters(func)
    found, kinds = _findings(changed_in(func, {last: If(axis.var < 2, last)}))
    assert "divergent barrier" in found
    assert "divergent barrier" in kinds


@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_cluster_is_all_blocks_along_x_and_up_to_eight(count: int) -> None:
    func = _sum()
    launch = tuple(
        replace(a, extent=const(count)) if a.tag == "blockIdx.x" else a for a in func.launch
    )
    found = "\n".join(map(str, check(replace(func, launch=launch))))
    named = "one for each of 3 blocks" if count == 3 else "an axis of 2 to 8 iterations"
    assert named in found


def test_other_machines_have_no_memory_of_clusters() -> None:
    A = te.placeholder((4, 8), "float32", name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((4, 8), lambda i, j: B[3 - i, j], name="C")
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    s[C].bind(i, te.thread_axis("blockIdx.x"))
    s[B].set_scope("cluster")
    s[B].compute_at(s[C], j)
    for target in ("cuda -arch=sm_80", "opencl"):
        with pytest.raises(LoweringError, match="no memory that blocks of a cluster share"):
            lower(s, [A, C], target)
