"""What threads did with shared memory comes before what others do there by another way.

Tensor cores and TMA go to shared memory through a proxy of their own: a fence of the thread that
stored, in front of the barrier behind which they go there, puts its stores before them. So does it
with what the thread read of a tile that TMA then fills again. A barrier alone does not: the thread
may pass it with its loads still on their way, which was seen on a GPU that had been idle. A fence
stands in front of every barrier that such accesses lead to, or of the filling where one thread does
both, and of no other: it waits for all that its thread has under way.

>>> from tilewright.lower.ir_builder import axes, buffer, func, loop, store
>>> from tilewright.target.instruction import Argument, Axis, decl_instruction
>>> from tilewright.ir.stmt import Access
>>> add = decl_instruction("doc_add", (Axis("i", 4),), (Argument("C", ("i",), "float32"),
...     Argument("A", ("i",), "float32")), lambda c, a: c + a, queue="wgmma")
>>> k, i = axes("k i")
>>> S, C = buffer("S", 4, scope="shared"), buffer("C", 4, scope="local")
>>> use = Instr(add, (i,), (Access(C, (i,)), Access(S, (i,))), store(C[i], C[i] + S[i]))
>>> loops = loop(k, 8, use, Sync("shared"))
>>> print(proxy_fences(func(store(S[0], 1.0), Sync("shared"), loops)).body)
S[0] = T.float32(1)
T.queue('wgmma', 'proxy')
T.sync('shared')
for k in range(8):
    with T.instruction('doc_add', C[i], S[i]):
        C[i] = C[i] + S[i]
    T.sync('shared')
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.ir.func import Func
from tilewright.ir.stmt import (
    Allocate,
    For,
    If,
    Instr,
    Let,
    Queue,
    Remark,
    Stmt,
    Store,
    Sync,
    seq,
    with_body,
)
from tilewright.ir.stmt import Seq as Sequence
from tilewright.ir.visit import loads, statements
from tilewright.target.queues import QUEUES

#: Queues whose instructions may not see yet what threads stored, or come before what they read.
_Unseen = frozenset[str]


def proxy_fences(func: Func) -> Func:
    """``func`` with fences before barriers; it stands after barriers and waits were inserted."""
    fences = _Fences(func.body)
    return replace(func, body=fences.visit(func.body, frozenset())[0]) if fences.used_by else func


class _Fences:
    def __init__(self, body: Stmt) -> None:
        self.used_by: dict[Buffer, str] = {}
        #: How often a statement to come fills a buffer otherwise than threads write.
        self.fillings: Counter[Buffer] = Counter()
        for s in statements(body):
            if isinstance(s, Instr) and s.instruction.queue:
                queue = QUEUES[s.instruction.queue]
                # One that is apart also writes there, after threads did.
                for access in s.operands[0 if queue.apart else 1 :] if queue.proxy else ():
                    if access.buffer.scope == "shared":
                        self.used_by[access.buffer] = queue.name
                        self.fillings[access.buffer] += queue.apart
        self.loops = 0  # around the statement that is visited
        self.late: _Unseen = frozenset()  # of copies that end when threads wait for them

    def visit(self, s: Stmt, unseen: _Unseen) -> tuple[Stmt, _Unseen]:
        """``s`` with its fences, and what is not seen after it."""
        match s:
            case Store(buffer, _):
                return s, unseen | self.users(buffer) | self.readers(s)
            case Instr(instruction, _, operands, _):
                if instruction.queue and QUEUES[instruction.queue].apart:
                    self.filled(s)
                    # No barrier stands here where who fills it is the thread that used it.
                    return seq(*self.fences(unseen), s), unseen
                users = self.users(operands[0].buffer)
                if instruction.queue:  # what it stores is there when it was waited for
                    self.late |= users
                    return s, unseen
                return s, unseen | users | self.readers(s)
            case Queue(queue, "wait", _) if not QUEUES[queue].proxy:
                return s, unseen | self.late
            case Sync("shared" | "cluster"):
                return seq(*self.fences(unseen), s), frozenset()
            case Sequence(stmts):
                made = []
                for x in stmts:
                    part, unseen = self.visit(x, unseen)
                    made.append(part)
                return seq(*made), unseen
            case If(condition, then, orelse):
                unseen |= self.readers(condition)
                yes, one = self.visit(then, unseen)
                no, other = (None, unseen) if orelse is None else self.visit(orelse, unseen)
                return If(condition, yes, no), one | other
            case For(_, _, _, _, body):
                self.loops += 1
                while True:
                    late = self.late
                    inner, after = self.visit(body, unseen)
                    if after <= unseen and late == self.late:
                        break
                    unseen |= after
                self.loops -= 1
                self.filled(s)
                return replace(s, body=inner), unseen
            case Let(_, value, body):
                inner, unseen = self.visit(body, unseen | self.readers(value))
                return replace(s, body=inner), unseen
            case Allocate(_, body) | Remark(body=body):
                inner, unseen = self.visit(body, unseen)
                return with_body(s, inner), unseen
        return s, unseen | self.readers(s)

    def users(self, buffer: Buffer) -> _Unseen:
        return frozenset({self.used_by[buffer]} if buffer in self.used_by else ())

    def readers(self, node: Stmt | Expr) -> _Unseen:
        """Queues that are to fill what is read."""
        if not +self.fillings:
            return frozenset()
        found = {load.buffer for load in loads(node)}
        return frozenset(self.used_by[b] for b in found if self.fillings[b])

    def filled(self, s: Stmt) -> None:
        """``s`` has been passed, for good where no loop comes back to it."""
        for x in statements(s) if not self.loops else ():
            if isinstance(x, Instr) and x.instruction.queue:
                self.fillings[x.operands[0].buffer] -= QUEUES[x.instruction.queue].apart

    def fences(self, unseen: _Unseen) -> list[Stmt]:
        return [Queue(queue, "proxy") for queue in sorted(unseen)]


def beside_threads(body: Stmt) -> set[Buffer]:
    """The shared memory where units go by another way than threads."""
    return {
        access.buffer
        for s in statements(body)
        if isinstance(s, Instr) and s.instruction.queue and QUEUES[s.instruction.queue].proxy
        for access in s.operands
        if access.buffer.scope == "shared"
    }
