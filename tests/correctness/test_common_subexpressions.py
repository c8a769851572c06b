"""Index arithmetic that occurs twice is done once."""

from __future__ import annotations

from tilewright.ir.ops import if_then_else
from tilewright.ir.stmt import If, Stmt
from tilewright.lower.backend.common_subexpressions import common_subexpressions
from tilewright.lower.ir_builder import axes, buffer, func, loop, store, when

i, j, k = axes("i j k")
A, C = buffer("A", 512), buffer("C", 512)
I = buffer("I", 64, type="int32")


def shared(*body: Stmt) -> str:
    return repr(common_subexpressions(func(*body)).body)


def test_names_nest() -> None:
    row = i * 8 + j
    made = shared(store(C[row * 3 + k], A[row * 3 + k]), store(A[row], 0.0))
    assert (
        made
        == """\
cse_v0: T.int32 = i * 8 + j
cse_v1: T.int32 = cse_v0 * 3 + k
C[cse_v1] = A[cse_v1]
A[cse_v0] = T.float32(0)"""
    )


def test_names_do_not_reach_into_loops() -> None:
    place = i * 8 + j
    made = shared(store(C[place], 0.0), loop(k, 4, store(C[place], C[place] + A[k])))
    assert made.count("cse_v") == 3  # one name, defined in the loop and used twice
    assert "    cse_v0: T.int32 = i * 8 + j" in made


def test_a_sum_with_a_constant_belongs_to_the_address() -> None:
    assert "cse" not in shared(store(C[i + 1], A[i + 1]))


def test_what_may_fail_or_reads_memory_has_no_name() -> None:
    assert "cse" not in shared(store(C[i // j], A[i // j]), store(C[I[i]], A[I[i]]))


def test_arithmetic_in_branches_is_done_ahead_of_them() -> None:
    place = i * 8 + j
    made = shared(If(i < 3, store(C[place], 1.0), store(A[place], 1.0)))
    assert made.startswith("cse_v0: T.int32 = i * 8 + j\nif i < 3:")
    lazy = shared(when(i < 3, store(C[i], if_then_else(j < 4, A[place], A[place + 1]))))
    assert lazy.startswith("cse_v0")
