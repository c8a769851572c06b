"""Units that go to shared memory by another way than threads find there what threads did.

Between a thread's access and the unit's come, in this order, a fence of that thread and a barrier:
else a copying unit fills what a thread has not read yet, or a tensor core reads what it has not
stored yet, whatever the barriers of the races say (PTX ISA, "Async proxy").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.ir.func import Func
from tilewright.ir.stmt import Allocate, Attr, For, If, Instr, Let, Queue, Seq, Stmt, Sync
from tilewright.ir.text import stmt_text
from tilewright.ir.visit import loads, statements, stores
from tilewright.target.queues import QUEUES
from tilewright.verify.finding import Finding

#: A buffer, and whether what was done to it was a store.
_Key = tuple[Buffer, bool]
#: What threads did, and whether it was fenced off since.
_State = Mapping[_Key, bool]


def unfenced(func: Func) -> Iterator[Finding]:
    """One finding for each instruction, and buffer, that a fence or the barrier behind it lacks."""
    beside = {
        access.buffer
        for s in statements(func.body)
        if isinstance(s, Instr) and s.instruction.queue and QUEUES[s.instruction.queue].proxy
        for access in s.operands
        if access.buffer.scope == "shared"
    }
    late = {
        (s.operands[0].buffer, True)
        for s in statements(func.body)
        if isinstance(s, Instr) and _late(s) and s.operands[0].buffer in beside
    }
    if beside and any(axis.tag.startswith("thread") for axis in func.launch):
        paths = _Paths(beside, late)
        paths.behind(func.body, {})
        yield from paths.found.values()


class _Paths:
    """Goes the ways through a kernel."""

    def __init__(self, beside: set[Buffer], late: set[_Key]) -> None:
        self.beside, self.late = beside, late
        self.found: dict[tuple[Stmt, Buffer], Finding] = {}

    def behind(self, s: Stmt, state: _State) -> _State:
        """What holds behind ``s``."""
        match s:
            case Seq(stmts):
                for x in stmts:
                    state = self.behind(x, state)
                return state
            case If(condition, then, orelse):
                state = self.after(condition, state)
                other = state if orelse is None else self.behind(orelse, state)
                return _either(self.behind(then, state), other)
            case For(_, low, extent, _, body):
                state = self.after(extent, self.after(low, state))
                while (more := _either(state, self.behind(body, state))) != state:
                    state = more
                return state
            case Let(_, value, body):
                return self.behind(body, self.after(value, state))
            case Allocate(_, body) | Attr(_, _, body):
                return self.behind(body, state)
            case Queue(_, "proxy", _):
                return dict.fromkeys(state, True)
            case Queue(queue, "wait", _) if not QUEUES[queue].proxy:
                return {**state, **dict.fromkeys(self.late, False)}
            case Sync("shared"):
                return {key: False for key, fenced in state.items() if not fenced}
            case Instr(instruction, _, _, _) if (
                instruction.queue and QUEUES[instruction.queue].proxy
            ):
                self.check(s, state)
                return state
            case Instr() if _late(s):
                return state
        return self.after(s, state)

    def after(self, node: Stmt | Expr, state: _State) -> _State:
        """What holds where threads have done what ``node`` says."""
        read = {(load.buffer, False) for load in loads(node)}
        done = read | {(store.buffer, True) for store in stores(node)}
        new = {key: False for key in done if key[0] in self.beside}
        return {**state, **new} if new else state

    def check(self, s: Instr, state: _State) -> None:
        fills = QUEUES[s.instruction.queue].apart
        for access in s.operands[:1] if fills else s.operands[1:]:
            stored = (access.buffer, True) in state
            if stored or (fills and (access.buffer, False) in state):
                self.found.setdefault((s, access.buffer), _finding(s, access.buffer, stored, fills))


def _late(s: Instr) -> bool:
    """Whether it stores for its thread in the background: what it stored is there, and can be
    fenced off, when it was waited for."""
    queue = s.instruction.queue
    return bool(queue) and not QUEUES[queue].proxy


def _either(one: _State, other: _State) -> _State:
    """What holds on one way or the other: fenced only what is on all ways where it was done."""
    return {
        key: one.get(key, True) and other.get(key, True) for key in dict.fromkeys([*one, *other])
    }


def _finding(s: Instr, buffer: Buffer, stored: bool, fills: bool) -> Finding:
    did, does = "stored" if stored else "read", "fills" if fills else "reads"
    text = " ".join(stmt_text(s).split())[:120]
    return Finding(
        "unfenced",
        f"unfenced: `{text}` {does} {buffer.name} by another way than threads, of which one {did} "
        "a part with no fence and barrier behind it; put such a fence and a barrier between",
    )
