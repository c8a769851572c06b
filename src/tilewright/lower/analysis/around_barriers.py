"""What is done with shared memory on either side of each barrier of a block, up to another one."""

from __future__ import annotations

from collections.abc import Container

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, IntImm, Load
from tilewright.ir.stmt import Allocate, For, If, Let, Remark, Seq, Stmt, Store, Sync
from tilewright.ir.visit import children, distinct, statements

#: Buffers, with whether they are written.
Accesses = frozenset[tuple[Buffer, bool]]
_Found = dict[Stmt, Accesses]

_NONE: Accesses = frozenset()


def around_barriers(body: Stmt, open: Container[Stmt] = ()) -> tuple[_Found, _Found]:
    """The accesses before, and behind, every barrier of the block, whichever way the program takes;
    those on the other side of a barrier that is ``open`` count, too, but of the copies that it
    frees, which it keeps apart itself."""
    sides = _Side(open, forward=True), _Side(open, forward=False)
    for side in sides:
        side.through(body, _NONE)
    return sides[0].found, sides[1].found


class _Side:
    """Of all barriers one side: a walk towards them, forward or backward, with what was met since
    the last one."""

    def __init__(self, open: Container[Stmt], forward: bool) -> None:
        self.open, self.forward = open, forward
        self.found: _Found = {}

    def through(self, s: Stmt, met: Accesses) -> Accesses:
        match s:
            case Sync("shared" | "cluster"):
                self.found[s] = self.found.get(s, _NONE) | met
                left = (x for x in met if x[0] not in s.frees)
                return frozenset(left) if s in self.open else _NONE
            case Seq(stmts):
                for x in stmts if self.forward else reversed(stmts):
                    met = self.through(x, met)
                return met
            case If(condition, then, orelse):
                read = _loads(condition)
                begin = met | read if self.forward else met
                other = begin if orelse is None else self.through(orelse, begin)
                return self.through(then, begin) | other | (_NONE if self.forward else read)
            case For(_, low, extent, _, body):
                read = _loads(low) | _loads(extent)
                met |= read
                while True:
                    once = self.through(body, met)
                    if once <= met:
                        other = once if _runs(extent) else met
                        return other if self.forward else other | read
                    met |= once
            case Let(_, value, body):
                return self.through(body, met | _loads(value)) | _loads(value)
            case Allocate(_, body) | Remark(body=body):
                return self.through(body, met)
        return met | _accesses(s)


def _runs(extent: Expr) -> bool:
    """Whether a loop has an iteration, whatever comes."""
    return isinstance(extent, IntImm) and extent.value > 0


def _accesses(s: Stmt) -> Accesses:
    """Those of a statement without barriers in it."""
    made: set[tuple[Buffer, bool]] = set()
    for x in statements(s):
        if isinstance(x, Store) and x.buffer.scope == "shared":
            made.add((x.buffer, True))
        for child in children(x):
            if isinstance(child, Expr):
                made |= _loads(child)
    return frozenset(made)


def _loads(e: Expr) -> Accesses:
    return frozenset(
        (x.buffer, False) for x in distinct(e) if isinstance(x, Load) and x.buffer.scope == "shared"
    )
