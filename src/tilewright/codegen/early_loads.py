"""Boxes of constants that a kernel asks for before the one before it has ended.

A kernel that begins with tile loads asks for those of constants, as the filters of a network, while
the kernel before it on the stream still runs: nothing writes them then. What other kernels write is
asked for when they have ended. A box completes on the mbarrier of the group that it is of, which is
committed where it was.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load
from tilewright.ir.func import Func
from tilewright.ir.stmt import (
    Allocate,
    For,
    If,
    Instr,
    Let,
    Queue,
    Remark,
    Seq,
    Stmt,
    Store,
    let,
    seq,
    with_body,
)
from tilewright.ir.visit import distinct, statements
from tilewright.target.queues import TILES

#: Scopes of what is a thread's own.
_REGISTERS = ("fragment", "local")


@dataclass(frozen=True)
class EarlyLoads:
    """The loads that a kernel begins with and that read constants alone, each with the number of
    its group; the ``body`` without them; and the constants of which it still reads some."""

    found: tuple[tuple[int, Stmt], ...]
    body: Stmt
    left: frozenset[Buffer]


def early_loads(func: Func) -> EarlyLoads:
    """Those of a kernel whose boxes have maps."""
    params = (func.params[k] for k in func.constants)
    constants = frozenset(p for p in params if isinstance(p, Buffer))
    search = _Search(constants)
    body, _ = search.without(func.body, ())
    return EarlyLoads(tuple(search.found), body, constants & frozenset(_read(body)))


class _Search:
    def __init__(self, constants: Collection[Buffer]) -> None:
        self.constants, self.group = constants, 0
        self.found: list[tuple[int, Stmt]] = []

    def without(self, s: Stmt, names: tuple[Let, ...]) -> tuple[Stmt, bool]:
        """``s`` without its early loads, which ``names`` are around, and whether what follows it
        may have some, too."""
        sources = _sources(s)
        if sources:
            if all(b in self.constants for b in sources):
                self.found.append((self.group, let([(x.var, x.value) for x in names], s)))
                return Seq(()), True
            if not any(b in self.constants for b in sources):
                return s, True
        if _within_registers(s):
            return s, True
        match s:
            case Queue(queue, "commit") if queue == TILES:
                self.group += 1
                return s, True
            case Allocate(_, body) | Remark(body=body):
                inner, on = self.without(body, names)
                return with_body(s, inner), on
            case Let(_, value, body) if not _loads(value):
                inner, on = self.without(body, (*names, s))
                return with_body(s, inner), on
            case Seq(stmts):
                made = list(stmts)
                for k, x in enumerate(stmts):
                    made[k], on = self.without(x, names)
                    if not on:
                        break
                else:
                    return seq(*made), True
                return seq(*made), False
        return s, False


def _sources(s: Stmt) -> list[Buffer]:
    """What the tile loads of a statement read that does nothing else; nothing of any other."""
    match s:
        case Instr(instruction, _, operands, _):
            return [operands[1].buffer] if instruction.queue == TILES else []
        case For(_, low, extent, _, body):
            return [] if _loads(low) or _loads(extent) else _sources(body)
        case If(condition, body, None):
            return [] if _loads(condition) else _sources(body)
        case Remark(body=body):
            return _sources(body)
        case Seq(stmts):
            found = [_sources(x) for x in stmts]
            return [b for each in found for b in each] if all(found) else []
    return []


def _within_registers(s: Stmt) -> bool:
    """Whether a statement stores into registers, and loads from these alone: whatever comes to the
    block's memory does so before it as well as behind it."""
    inner = all(isinstance(x, (For, If, Let, Remark, Seq, Store)) for x in statements(s))
    buffers = {x.buffer for x in distinct(s) if isinstance(x, (Load, Store))}
    return inner and bool(buffers) and all(b.scope in _REGISTERS for b in buffers)


def _loads(e: Expr) -> bool:
    return any(isinstance(x, Load) for x in distinct(e))


def _read(body: Stmt) -> set[Buffer]:
    found = {x.buffer for x in distinct(body) if isinstance(x, Load)}
    for s in statements(body):
        if isinstance(s, Instr):
            found |= {operand.buffer for operand in s.operands}
    return found
