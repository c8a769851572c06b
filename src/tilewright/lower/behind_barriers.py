"""What is done with shared memory behind each barrier of a block, before another one is come to."""

from __future__ import annotations

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load
from tilewright.ir.stmt import Allocate, Attr, For, If, Let, Seq, Stmt, Store, Sync
from tilewright.ir.visit import children, distinct, statements

#: Buffers, with whether they are written.
Accesses = frozenset[tuple[Buffer, bool]]


def behind_barriers(body: Stmt) -> dict[Sync, Accesses]:
    """The accesses behind every barrier of the block, whichever way the program takes."""
    found: dict[Sync, Accesses] = {}
    _before(body, frozenset(), found)
    return found


def _before(s: Stmt, after: Accesses, found: dict[Sync, Accesses]) -> Accesses:
    """What is done from the beginning of ``s`` to a barrier; ``after`` is that behind ``s``."""
    match s:
        case Sync("shared"):
            found[s] = found.get(s, frozenset()) | after
            return frozenset()
        case Seq(stmts):
            for x in reversed(stmts):
                after = _before(x, after, found)
            return after
        case If(condition, then, orelse):
            other = after if orelse is None else _before(orelse, after, found)
            return _loads(condition) | _before(then, after, found) | other
        case For(_, low, extent, _, body):
            entered = after
            while True:
                again = entered | _before(body, entered, found)
                if again == entered:
                    return _loads(low) | _loads(extent) | entered
                entered = again
        case Let(_, value, body):
            return _loads(value) | _before(body, after, found)
        case Allocate(_, body) | Attr(_, _, body):
            return _before(body, after, found)
    return after | _accesses(s)


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
