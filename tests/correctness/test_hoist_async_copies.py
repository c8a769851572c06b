"""What the first tiles of a kernel may overtake, and what they may not."""

from __future__ import annotations

import pytest

from tilewright.ir.ops import const
from tilewright.ir.stmt import Access, Allocate, If, Instr, Queue, Stmt, Sync, seq
from tilewright.lower.async_.hoist_async_copies import hoist_async_copies
from tilewright.lower.ir_builder import axes, buffer, func, loop, store
from tilewright.target.instruction import Argument, Axis, decl_instruction

_AXES = (Axis("i", 4),)
_OPERANDS = (Argument("S", ("i",), "float32"), Argument("A", ("i",), "float32"))
TILE = decl_instruction("early_tile", _AXES, _OPERANDS, lambda s, a: a, queue="tma")
COPY = decl_instruction("early_copy", _AXES, _OPERANDS, lambda s, a: a, queue="cp.async")

i, j = axes("i j")
A, F, C = buffer("A", 64), buffer("F", 4), buffer("C", 4)
S, T = buffer("S", 4, scope="shared"), buffer("T", 4, scope="shared")
R, N = buffer("R", 4, scope="local"), buffer("N", 4, type="int32", scope="local")


def copied(at=0, instruction=TILE, to=S):
    there = (Access(to, (i,)), Access(A, (i + at,)))
    return Instr(instruction, (i,), there, store(to[i], A[i + at]))


KEPT = loop(j, 4, store(R[j], F[j] * 2.0))
NUMBERS = loop(j, 4, store(N[j], const(3, "int32")))
SCRATCH = Allocate(T, seq(loop(j, 4, store(T[j], F[j])), loop(j, 4, store(R[j], T[j]))))


def overtakes(first: Stmt, lead: Stmt) -> bool:
    use = loop(j, 4, store(C[j], S[j] * R[j]))
    inner = Allocate(S, seq(lead, Queue("tma", "commit"), use))
    made = hoist_async_copies(func(Allocate(R, Allocate(N, seq(first, inner)))))
    text, begins = str(made.body), str(first).strip().splitlines()[0].strip()
    return text.index("early_tile") < text.index(begins)


@pytest.mark.parametrize(
    ("first", "lead", "may"),
    [
        (KEPT, copied(), True),
        (If(F[0] < 2.0, KEPT), copied(), True),
        (loop(j, 4, store(A[j], F[j])), copied(), False),  # what is copied
        (NUMBERS, copied(N[0]), False),  # from where
        (NUMBERS, If(N[0] < 2, copied()), False),  # whether
        (SCRATCH, copied(), False),  # shared memory, of which more would be alive
        (seq(KEPT, Sync("shared")), copied(), False),
        (seq(KEPT, Queue("tma", "wait", 0)), copied(), False),
    ],
)  # fmt: skip
def test_a_tile_overtakes_what_it_has_nothing_to_do_with(first, lead, may):
    assert overtakes(first, lead) is may


def test_a_tile_overtakes_what_is_kept_in_shared_memory():
    kept, use = loop(j, 4, store(T[j], F[j])), loop(j, 4, store(C[j], S[j] * T[j]))
    program = func(Allocate(T, seq(kept, Allocate(S, seq(copied(), use)))))
    text = str(hoist_async_copies(program).body)
    assert text.index("early_tile") < text.index("F[j]")


def test_copies_by_threads_stay():
    use = loop(j, 4, store(C[j], S[j] * R[j]))
    program = func(Allocate(R, seq(KEPT, Allocate(S, seq(copied(0, COPY), use)))))
    assert hoist_async_copies(program) is program


def test_tiles_keep_their_order():
    made = loop(j, 4, store(R[j], F[j]))
    second = Allocate(T, seq(made, copied(4, to=T), Queue("tma", "commit")))
    text = str(
        hoist_async_copies(func(Allocate(R, seq(KEPT, Allocate(S, seq(copied(), second)))))).body
    )
    assert text.index("A[i]") < text.index("A[i + 4]") < text.index("F[j]")
