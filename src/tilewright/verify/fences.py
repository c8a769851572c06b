"""Units that go to shared memory by another way than threads find there what threads did, and in
registers, too.

Between a thread's access and the unit's come, in this order, a fence of that thread and a barrier:
else TMA fills what a thread has not read yet, or a tensor core reads what it has not
stored yet, whatever the barriers of the races say (PTX ISA, "Async proxy"). Between a thread's
access to registers and that of a unit that goes on in the background comes a fence of its own (PTX
ISA, "wgmma.fence").
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.ir.func import Func
from tilewright.ir.stmt import Allocate, For, If, Instr, Let, Queue, Remark, Seq, Stmt, Sync
from tilewright.ir.text import stmt_text
from tilewright.ir.visit import loads, statements, stores
from tilewright.lower.async_.proxy_fences import beside_threads
from tilewright.target.queues import QUEUES
from tilewright.verify.finding import Finding

#: What became of what threads did: nothing yet; it was fenced off, which is enough for a unit that
#: the thread itself sends there (races find others); a barrier came before the fence, and so it
#: takes another one behind.
_OPEN, _FENCED, _PASSED, _LATE = range(4)
#: What was done to a buffer, whether it was a store, and what became of it.
_Access = tuple[Buffer, bool, int]
_State = frozenset[_Access]
_AFTER_FENCE = {_OPEN: _FENCED, _FENCED: _FENCED, _PASSED: _LATE, _LATE: _LATE}
_AFTER_BARRIER = {_OPEN: _PASSED, _PASSED: _PASSED}


def unfenced(func: Func) -> Iterator[Finding]:
    """One finding for each instruction, and buffer, that a fence or the barrier behind it lacks."""
    beside, registers = beside_threads(func.body), set(_registers(func.body))
    late = {
        (s.operands[0].buffer, True, _OPEN)
        for s in statements(func.body)
        if isinstance(s, Instr) and _late(s) and s.operands[0].buffer in beside
    }
    if beside or registers:
        paths = _Paths(beside, registers, frozenset(late))
        paths.behind(func.body, frozenset())
        yield from paths.found.values()


class _Paths:
    """Goes the ways through a kernel."""

    def __init__(self, beside: set[Buffer], registers: set[Buffer], late: _State) -> None:
        self.beside, self.registers, self.late = beside, registers, late
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
                return self.behind(then, state) | other
            case For(_, low, extent, _, body):
                state = self.after(extent, self.after(low, state))
                while not (more := self.behind(body, state)) <= state:
                    state |= more
                return state
            case Let(_, value, body):
                return self.behind(body, self.after(value, state))
            case Allocate(_, body) | Remark(body=body):
                return self.behind(body, state)
            case Queue(_, "proxy", _):
                return frozenset(
                    (b, stored, now if b in self.registers else _AFTER_FENCE[now])
                    for b, stored, now in state
                )
            case Queue(_, "fence", _):
                return frozenset(access for access in state if access[0] not in self.registers)
            case Queue(queue, "wait", _) if not QUEUES[queue].proxy:
                return state | self.late
            case Sync("shared" | "cluster"):
                left = ((b, stored, _AFTER_BARRIER.get(now)) for b, stored, now in state)
                return frozenset((b, stored, now) for b, stored, now in left if now is not None)
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
        read = {(load.buffer, False, _OPEN) for load in loads(node)}
        done = read | {(store.buffer, True, _OPEN) for store in stores(node)}
        every = self.beside | self.registers
        return state | {access for access in done if access[0] in every}

    def check(self, s: Instr, state: _State) -> None:
        fills = QUEUES[s.instruction.queue].apart
        touched = [x.buffer for x in (s.operands[:1] if fills else s.operands[1:])]
        order = {x.buffer: k for k, x in enumerate(s.operands)}
        known = (access for access in state if access[0] in order)
        for buffer, stored, now in sorted(known, key=lambda x: (order[x[0]], *x[1:])):
            if buffer in self.registers:
                self.found.setdefault((s, buffer), _of_registers(s, buffer))
            elif buffer in touched and now != _FENCED and (stored or fills):
                self.found.setdefault((s, buffer), _finding(s, buffer, stored, fills))


def _registers(body: Stmt) -> Iterator[Buffer]:
    """Registers of instructions that find there what threads did behind a fence alone."""
    for s in statements(body):
        if isinstance(s, Instr) and s.instruction.queue and QUEUES[s.instruction.queue].fence:
            yield from (x.buffer for x in s.operands if x.buffer.scope in ("local", "fragment"))


def _late(s: Instr) -> bool:
    """Whether it stores for its thread in the background: what it stored is there, and can be
    fenced off, when it was waited for."""
    queue = s.instruction.queue
    return bool(queue) and not QUEUES[queue].proxy


def _finding(s: Instr, buffer: Buffer, stored: bool, fills: bool) -> Finding:
    did, does = "stored" if stored else "read", "fills" if fills else "reads"
    return Finding(
        "unfenced",
        f"unfenced: `{_text(s)}` {does} {buffer.name} by another way than threads, of which one "
        f"{did} a part with no fence and barrier behind it; put such a fence and a barrier between",
    )


def _of_registers(s: Instr, buffer: Buffer) -> Finding:
    return Finding(
        "unfenced",
        f"unfenced: `{_text(s)}` uses registers of {buffer.name} that a thread has used since the "
        f"last fence of the queue {s.instruction.queue!r}; put a fence between",
    )


def _text(s: Instr) -> str:
    return " ".join(stmt_text(s).split())[:120]
