"""Pragmas mark the loops that they allow to unroll."""

from __future__ import annotations

from tilewright.ir.stmt import For, ForKind, Pragma, Sync
from tilewright.ir.visit import walk
from tilewright.lower.ir_builder import axes, buffer, func, loop, store
from tilewright.lower.loops.unroll import unroll

i, j, k = axes("i j k")
A = buffer("A", 64)


def kinds(limit: int, *extents: int) -> str:
    """The kinds of the loops of a nest, from the outside: u(nrolled) or s(erial)."""
    body = store(A[i], 1.0)
    for n, (var, extent) in enumerate(zip((i, j, k), extents, strict=False)):
        pragma = ((Pragma.AUTO_UNROLL_MAX_STEP, limit),) if n == len(extents) - 1 else ()
        body = loop(var, extent, body, annotations=pragma)
    loops = [s for s in walk(unroll(func(body)).body) if isinstance(s, For)]
    return "".join("u" if s.kind is ForKind.UNROLLED else "s" for s in loops)


def test_loops_unroll_from_the_inside_while_the_steps_allow() -> None:
    assert kinds(12, 3, 4, 5) == "suu"
    assert kinds(11, 3, 4, 5) == "ssu"
    assert kinds(60, 3, 4, 5) == "uuu"
    assert kinds(0, 3, 4, 5) == "sss"


def test_steps_count_every_store() -> None:
    def unrolled(limit: int) -> str:
        pragma = ((Pragma.AUTO_UNROLL_MAX_STEP, limit),)
        body = loop(i, 4, store(A[i], 1.0), store(A[i], 2.0), annotations=pragma)
        return repr(unroll(func(body)))

    assert "unrolled" not in unrolled(7)
    assert "unrolled" in unrolled(8)


def test_a_loop_with_a_barrier_or_of_unknown_length_stays() -> None:
    pragma = ((Pragma.AUTO_UNROLL_MAX_STEP, 100),)
    barrier = func(loop(i, 4, store(A[i], 1.0), Sync("shared"), annotations=pragma))
    assert unroll(barrier) is barrier
    symbolic = func(loop(i, j, store(A[i], 1.0), annotations=pragma))
    assert unroll(symbolic) is symbolic
