"""What a random program is judged by: it blames no program that is right, and misses no fault."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from tests.support.declared import declared
from tests.support.drawing import Seeded
from tests.support.drawn_programs import Case, judge
from tests.support.fuzzing import ALL
from tests.support.graph_stages import draw_graph
from tests.support.machine_stages import not_numbers

from tilewright import lower, te
from tilewright.lower.build.stage_nest import StageNest
from tilewright.runtime.sim import simulate


def test_tiles_may_copy_what_nobody_wrote_where_no_output_needs_it() -> None:
    D, E = te.placeholder((5,), name="D"), te.placeholder((12,), "int32", name="E")
    T = te.compute((12,), lambda i: D[E[i]], name="T")
    s = te.create_schedule(T.op)
    tile = s.cache_write(T, "local")
    (axis,) = s[tile].op.axis
    copy = s.reindex(D, tile, [axis], "")
    outer, inner = s[T].split(T.op.axis[0], factor=7)
    s[T].reorder(inner, outer)
    s[tile].compute_at(s[T], inner)
    s[copy].compute_at(s[T], inner)
    s[T].parallel(inner)
    s[tile].vectorize(axis)
    case = Case([D, E], [T], wild={"E"})
    assert case.illegal, "E has numbers that are no index of D, where the copy is zero"
    found = simulate(lower(s, [D, E, T], "llvm"), case.call(case.blank())).findings
    assert [x.kind for x in found] == ["uninitialised read"]
    assert judge(case, s, "llvm").kind == "right"


def test_a_guard_that_hides_a_read_beyond_a_tensor_is_found() -> None:
    A = te.placeholder((9,), name="A")
    B = te.compute((4,), lambda i: A[i - 1], name="B")
    s = te.create_schedule(B.op)
    copy = s.cache_read(A, "local", [B])
    s[copy].compute_at(s[B], B.op.axis[0])
    s[copy].align_bounds(copy.op.axis[0], 3, 2)
    with patch.object(StageNest, "_read_within", lambda self: True):
        assert judge(Case([A], [B]), s, "llvm").kind == "missed"


def test_no_stage_reads_what_is_not_a_number() -> None:
    # An integer made of it is another one on every machine.
    reads = outputs = 0
    for seed in range(60):
        graph = draw_graph(Seeded(seed), ((not_numbers, 40), *ALL), symbolic=0)
        case, names = Case.of(graph), graph.text.names
        known = {names[t.name]: a for t, a in zip(graph.inputs, case.inputs)}
        sizes = {names[name]: value for name, value in graph.sizes(0).items()}
        for t in graph.made if case.defined else ():
            (value,) = declared([names[t.name]], known, sizes)
            wrong = "float" in t.type and bool(np.isnan(value).any())
            assert not (wrong and t.name in graph.used), f"seed {seed}: {t.name} is read"
            reads += t.name in graph.used
            outputs += wrong
    assert reads
    assert outputs
