"""The first tiles are asked for before what else a kernel begins with.

What a block has in registers throughout, such as its filters, is made before its loops; so are the
first fillings of a pipeline. Memory takes longest to answer, so these are issued first, and come
while the registers are filled.

>>> from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store
>>> from tilewright.target.instruction import Argument, Axis, decl_instruction
>>> from tilewright.ir.stmt import Access
>>> tile = decl_instruction("doc_tile", (Axis("i", 4),), (Argument("S", ("i",), "float32"),
...     Argument("A", ("i",), "float32")), lambda s, a: a, queue="tma")
>>> i, j = axes("i j")
>>> A, F, C = buffer("A", 4), buffer("F", 4), buffer("C", 4)
>>> S, R = buffer("S", 4, scope="shared"), buffer("R", 4, scope="local")
>>> load = Instr(tile, (i,), (Access(S, (i,)), Access(A, (i,))), store(S[i], A[i]))
>>> kept = loop(j, 4, store(R[j], F[j] * 2.0))
>>> use = loop(j, 4, store(C[j], S[j] * R[j]))
>>> print(hoist_async_copies(func(allocate(R, kept, allocate(S, load, use)))).body)
R = T.allocate([4], 'float32', 'local')
S = T.allocate([4], 'float32', 'shared')
with T.instruction('doc_tile', S[i], A[i]):
    S[i] = A[i]
for j in range(4):
    R[j] = F[j] * T.float32(2)
for j in range(4):
    C[j] = S[j] * R[j]

Of what fills shared memory only that is overtaken which is used behind the copies, too, as filters
are that a block keeps: with more tiles alive at once a kernel might need more memory. Late loads
overtake waits for others, too: those are counted apart. It stands
before memory is planned and barriers are inserted.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import IntImm
from tilewright.ir.func import Func
from tilewright.ir.stmt import (
    Allocate,
    AllReduce,
    For,
    If,
    Instr,
    Queue,
    Remark,
    Seq,
    Stmt,
    Sync,
    seq,
    with_body,
)
from tilewright.ir.visit import allocated, loads, statements, stores
from tilewright.target.queues import LATE_TILES, QUEUES


def hoist_async_copies(func: Func) -> Func:
    """``func`` with leading asynchronous copies of tiles in front of what they can overtake."""
    issued = (s.instruction.queue for s in statements(func.body) if isinstance(s, Instr))
    if not any(queue and QUEUES[queue].apart for queue in issued):
        return func
    return replace(func, body=_early(func.body))


def _early(s: Stmt) -> Stmt:
    """``s`` rewritten outside of loops and branches."""
    match s:
        case Remark(body=body) | Allocate(_, body):
            return with_body(s, _early(body))
        case Seq(stmts):
            made: Stmt = Seq(())
            for x in reversed(stmts):
                made = _after(x, made)
            return made
    return s


def _after(first: Stmt, then: Stmt) -> Stmt:
    """``first`` and ``then``, or what ``then`` begins with, where it can be, before ``first``."""
    first = _early(first)
    memory, lead, rest = _leading(then)
    if not lead or not _overtaken(first, lead, memory, rest):
        return seq(first, then)
    made = seq(*lead, first, rest)
    for buffer in reversed(memory):
        made = Allocate(buffer, made)
    return made


def _leading(s: Stmt) -> tuple[list[Buffer], list[Stmt], Stmt]:
    """The buffers around, and what ``s`` begins with, of copies that are issued and their commits;
    and the rest."""
    if _issues(s):
        return [], [s], Seq(())
    match s:
        case Allocate(buffer, body) if buffer.scope == "shared":
            memory, lead, rest = _leading(body)
            return [buffer, *memory], lead, rest
        case Seq((first, *others)):
            memory, lead, rest = _leading(first)
            if lead and not memory and isinstance(rest, Seq) and not rest.stmts:
                memory, more, rest = _leading(seq(*others))
                return memory, lead + more, rest
            return memory, lead, seq(rest, *others)
    return [], [], s


def _issues(s: Stmt) -> bool:
    """Whether a statement does nothing but issue copies of tiles, or commit them."""
    match s:
        case Instr(instruction, _, _, _):
            return bool(instruction.queue) and QUEUES[instruction.queue].apart
        case Queue(queue, "commit", _):
            return QUEUES[queue].apart
        case Remark(body=body) | If(_, body, None) | For(_, IntImm(), IntImm(), _, body):
            return _issues(body)
        case Seq(stmts):
            return bool(stmts) and all(map(_issues, stmts))
    return False


def _overtaken(first: Stmt, lead: list[Stmt], memory: list[Buffer], rest: Stmt) -> bool:
    """Whether ``lead``, which fills ``memory`` that begins there and which ``rest`` follows, may
    stand before ``first``."""
    filled = {s.buffer for x in lead for s in stores(x)}
    issued = {s.instruction.queue for x in lead for s in statements(x) if isinstance(s, Instr)}
    late = issued == {LATE_TILES} and filled <= set(memory)
    waits = any(
        (isinstance(s, (Sync, Queue)) and not (late and _waits_for_others(s)))
        or isinstance(s, AllReduce)
        or (isinstance(s, Instr) and s.instruction.queue)
        for s in statements(first)
    )
    written = {s.buffer for s in stores(first)}
    touched = written | {load.buffer for load in loads(first)} | set(allocated(first))
    read = {load.buffer for s in lead for load in loads(s)}
    if waits or written & read or filled & touched:
        return False
    shared = {b for b in touched if b.scope == "shared"}
    return not shared or shared <= {load.buffer for load in loads(rest)}


def _waits_for_others(s: Sync | Queue) -> bool:
    """Whether a statement has nothing to do with groups of late loads."""
    return isinstance(s, Sync) or (s.queue != LATE_TILES and s.action == "wait")
