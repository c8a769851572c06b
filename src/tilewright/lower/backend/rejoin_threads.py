"""A barrier behind a branch or a loop that holds one, for compilers that run threads in turn.

An OpenCL compiler for a CPU makes a loop over the threads of each part of a kernel between two
barriers. PoCL takes it that all of them leave the part in one way. Where threads branch behind the
last barrier of an If or of a loop, LLVM lets each side of their branch go on to what follows by
itself, which it may: the part then has two ends, and PoCL lets one thread decide for all, so that
others store nothing, or beyond what they may. A barrier where all threads have met again ends the
part there:

>>> from tilewright.lower.ir_builder import *
>>> from tilewright.ir.stmt import Sync
>>> i, k, n = axes("i k n")
>>> A, B = buffer("A", 4), buffer("B", 4)
>>> held = when(n < 3, Sync("shared"), when(i < 2, store(A[i], 1.0)))
>>> print(rejoin_threads(func(loop(k, 2, held), when(i < 3, store(B[i], A[i])))).body)
for k in range(2):
    if n < 3:
        T.sync('shared')
        if i < 2:
            A[i] = T.float32(1)
    T.sync('shared')
if i < 3:
    B[i] = A[i]

All threads get to it, as they get to the barrier inside. None is put where one follows at once, or
nothing at all.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from tilewright.ir.func import Func
from tilewright.ir.stmt import Allocate, For, If, Let, Remark, Seq, Stmt, Store, Sync, seq
from tilewright.ir.visit import Rewriter, Steps, statements


class _Next(Enum):
    """What follows a statement."""

    END = auto()
    BARRIER = auto()
    MORE = auto()


def rejoin_threads(func: Func) -> Func:
    """``func`` with barriers behind what holds one; see the module's docstring."""
    return replace(func, body=_Rejoin().stmt(func.body)) if _holds(func.body) else func


class _Rejoin(Rewriter):
    def __init__(self) -> None:
        self.next = _Next.END

    def steps(self, s: Stmt) -> Steps:
        follows = self.next
        match s:
            case Seq(stmts):
                made = []
                for x, behind in zip(stmts, (*stmts[1:], None), strict=True):
                    self.next = follows if behind is None else _starts(behind)
                    made.append((yield self.steps(x)))
                self.next = follows
                return seq(*made)
            case For():
                self.next = _Next.MORE
        s = yield from super().steps(s)
        self.next = follows
        apart = isinstance(s, If) or (isinstance(s, For) and _branches_last(s.body))
        return seq(s, Sync("shared")) if follows is _Next.MORE and apart and _holds(s) else s


def _starts(s: Stmt) -> _Next:
    """What a statement is to the one in front of it."""
    while True:
        match s:
            case Seq(stmts):
                s = stmts[0]
            case Remark(body=body) | Allocate(_, body) | Let(_, _, body):
                s = body
            case _:
                return _Next.BARRIER if _is_barrier(s) else _Next.MORE


def _holds(s: Stmt) -> bool:
    return any(_is_barrier(x) for x in statements(s))


def _is_barrier(s: Stmt) -> bool:
    return isinstance(s, Sync) and s.scope == "shared"


def _branches_last(s: Stmt) -> bool:
    """Whether threads may branch behind the last barrier of a statement."""
    order = [*statements(s)]
    last = max((k for k, x in enumerate(order) if _is_barrier(x)), default=-1)
    return any(
        isinstance(x, If) or (isinstance(x, Store) and x.predicate is not None)
        for x in order[last + 1 :]
    )
