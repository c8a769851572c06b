"""Barriers where the race proof needs one, and nowhere else.

What one thread writes to memory that others read (or write) has to be separated from them by a
barrier of the block. Each stands as far out as it can, and none can be left out.

>>> from tilewright.ir import Buffer, Func, LaunchAxis, dtype
>>> from tilewright.ir.expr import Var
>>> from tilewright.ir.ops import const
>>> from tilewright.ir.stmt import Allocate, For, ForKind, Store, seq
>>> A, B = (Buffer(n, (const(8), const(32)), dtype("float32")) for n in "AB")
>>> S = Buffer("S", (const(32),), dtype("float32"), "shared")
>>> k, tx = Var.make("k"), Var.make("threadIdx_x")
>>> body = seq(Store(S, (tx,), A[k, tx]), Store(B, (k, tx), S[31 - tx]))
>>> loop = For(k, const(0), const(8), ForKind.SERIAL, body)
>>> launch = (LaunchAxis("threadIdx.x", tx, const(32)),)
>>> insert_barriers(Func("reverse", (A, B), Allocate(S, loop), launch))
def reverse(A: T.Buffer((8, 32), "float32"), B: T.Buffer((8, 32), "float32")):
    threadIdx_x = T.launch_thread('threadIdx.x', 32)
    S = T.allocate([32], 'float32', 'shared')
    for k in range(8):
        T.sync('shared')
        S[threadIdx_x] = A[k, threadIdx_x]
        T.sync('shared')
        B[k, threadIdx_x] = S[31 - threadIdx_x]

It stands after memory planning, which lets buffers share storage and so makes new conflicts, and
before the proof, which checks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile

from tilewright.ir import ops
from tilewright.ir.func import Func
from tilewright.ir.stmt import (
    Allocate,
    For,
    If,
    Instr,
    Let,
    Remark,
    Seq,
    Stmt,
    Sync,
    seq,
    with_body,
)
from tilewright.ir.visit import allocated
from tilewright.lower.analysis.accesses import Kernel, Node, collect
from tilewright.lower.analysis.barriers import Barriers
from tilewright.lower.analysis.dependence import Conflict, Dependences, freed_between
from tilewright.lower.analysis.uniform import divergence
from tilewright.lower.context import pure


def insert_barriers(func: Func) -> Func:
    """``func`` with the barriers of blocks and clusters that it lacks.

    Where blocks read one another's memory, they meet at the end too: none leaves before.

    Where some threads only exchange values under a condition, the condition moves inwards, so
    that all threads reach the barrier. Conflicts that no barrier can prevent (within one
    statement, say) are left to verify, which names them.
    """
    if not func.launch:
        return func
    if any(b.scope == "cluster" for b in allocated(func.body)):
        func = replace(func, body=seq(func.body, Sync("cluster")))
    while True:
        kernel = collect(func)
        if all(access.buffer.scope in ("local", "fragment") for access in kernel.accesses):
            return func
        # In a cluster, or for a producer, barriers that free copies have to be split: others keep
        # the rest apart.
        choice = _Choice(kernel, kernel.cluster > 1 or func.producer, late=func.producer)
        obstacle = choice.make()
        if obstacle is None:
            before = choice.needed()
            return replace(func, body=_rebuild(kernel.root, before)) if before else func
        func = replace(func, body=_rebuild(kernel.root, {}, obstacle))


class _Choice:
    """The places of the barriers of one kernel: nodes that one stands in front of."""

    def __init__(self, kernel: Kernel, split: bool = False, late: bool = False) -> None:
        self.kernel, self.split, self.late = kernel, split, late
        self.dependences = Dependences(kernel)
        self.chosen: dict[Node, str] = {}  # with the scope of the barrier
        self.hopeless: set[Conflict] = set()  # no barrier prevents these
        self.divided: dict[tuple[Node, str], bool] = {}

    def make(self) -> Node | None:
        """Choose places; or give an If that is in the way and can move inwards."""
        while True:
            conflict = next((c for c in self._left(self.chosen) if c not in self.hopeless), None)
            if conflict is None:
                return None
            spot, obstacle = self._spot(conflict)
            if spot is not None:
                self.chosen[spot] = "cluster" if conflict.runners == "members" else "shared"
            elif obstacle is not None and sunk(obstacle.stmt) is not None:
                return obstacle
            else:
                self.hopeless.add(conflict)

    def _left(self, chosen: Mapping[Node, str]) -> Iterator[Conflict]:
        """The conflicts that barriers at ``chosen`` places do not prevent."""
        return self.dependences.between_threads(
            frozenset(chosen), self.split,
            frozenset(node for node, scope in chosen.items() if scope == "cluster"),
        )  # fmt: skip

    def _spot(self, conflict: Conflict) -> tuple[Node | None, Node | None]:
        """The outermost place at which a barrier separates ``early`` from every later ``late``.

        At each level it stands directly in front of what leads to ``late``: the latest place that
        can separate the two, which also separates the most others. Where threads do not get to
        any such place together, what divides them comes instead. Where it is to be ``late``, it
        stands as near to ``late`` as it can without being met more often: what comes before it in
        the background ends meanwhile.
        """
        early, late = conflict.early, conflict.late
        scopes: tuple[str, ...] = ("cluster", "shared")
        chosen, obstacle, found = frozenset(self.chosen), None, None
        if conflict.runners == "members":
            scopes = ("cluster",)
            chosen = frozenset(node for node in chosen if self.chosen[node] == "cluster")
        freed = freed_between(self.kernel, early, late)
        for node in late.node.line[: _meeting(early.node, late.node) + 1]:
            if found is not None and isinstance(node.ancestors[-1].stmt, (For, If, Instr)):
                break
            if node in chosen:
                continue
            split = early.buffer if self.split else None
            barriers = Barriers(self.kernel, scopes, chosen | {node}, freed, split=split)
            if any(
                (forward or early is late)
                and self.dependences.conflict(early, late, order, conflict.runners)
                for order, forward in barriers.orders(early.node, late.node)
            ):
                continue
            divider = next((x for x in node.ancestors if self._divides(x, scopes[-1])), None)
            if divider is None and not self.late:
                return node, None
            if divider is None:
                found = node
            obstacle = obstacle or divider
        return (found, None) if found is not None else (None, obstacle)

    def _divides(self, node: Node, scope: str) -> bool:
        """Whether only some threads get below ``node``, or no barrier of a ``scope`` may stand
        there."""
        key = node, scope
        if key not in self.divided:
            among = "members" if scope == "cluster" else scope
            self.divided[key] = (
                isinstance(node.stmt, Instr) or divergence(self.kernel, node, among) is not None
            )
        return self.divided[key]

    def needed(self) -> dict[Node, str]:
        """The places without those that others make unnecessary, the innermost tried first."""
        needed = dict(self.chosen)
        for node in sorted(self.chosen, key=lambda node: -len(node.ancestors)):
            fewer = {other: scope for other, scope in needed.items() if other is not node}
            if all(c in self.hopeless for c in self._left(fewer)):
                needed = fewer
        return needed


def _meeting(a: Node, b: Node) -> int:
    """How many nodes the lines of two nodes have in common, at most the ancestors of ``b``."""
    common = takewhile(lambda pair: pair[0] is pair[1], zip(a.line, b.line, strict=False))
    return min(sum(1 for _ in common), len(b.ancestors))


def sunk(s: Stmt) -> Stmt | None:
    """The If ``s`` with its condition moved inwards by a level, None where that is impossible.

    >>> from tilewright.ir import Buffer, dtype
    >>> from tilewright.ir.expr import Var
    >>> from tilewright.ir.ops import const
    >>> from tilewright.ir.stmt import Store
    >>> i = Var.make("i")
    >>> A = Buffer("A", (const(4),), dtype("float32"))
    >>> sunk(If(i < 2, seq(Store(A, (i,), const(0.0)), Store(A, (i + 1,), const(1.0)))))
    if i < 2:
        A[i] = T.float32(0)
    if i < 2:
        A[i + 1] = T.float32(1)
    """
    if not isinstance(s, If) or not pure(s.condition):
        return None
    condition, inner, orelse = s.condition, s.then, s.orelse
    if orelse is not None:
        return seq(If(condition, inner), If(ops.logical_not(condition), orelse))
    match inner:
        case Seq(stmts):
            return seq(*(If(condition, x) for x in stmts))
        case For(_, low, extent, _, body, _, _) if pure(low) and pure(extent):
            return replace(inner, body=If(condition, body))
        case Let(_, value, body) if pure(value):
            return replace(inner, body=If(condition, body))
        case Allocate(_, body) | Remark(body=body):
            return with_body(inner, If(condition, body))
        case If(other, then, None):
            return If(ops.logical_and(condition, other), then)
        case If(other, _, _) if pure(other):
            divided = sunk(inner)
            assert divided is not None
            return If(condition, divided)
    return None


def _rebuild(node: Node, before: Mapping[Node, str], sinking: Node | None = None) -> Stmt:
    """The program with barriers in front of some nodes, and one If moved inwards."""
    if node is sinking:
        made_inward = sunk(node.stmt)
        assert made_inward is not None
        return made_inward
    children = [_rebuild(child, before, sinking) for child in node.children]
    made: Stmt
    match node.stmt:
        case Seq():
            made = seq(*children)
        case If(condition, _, _):
            made = If(condition, *children)
        case For() | Allocate() | Let() | Remark() as s:
            made = with_body(s, children[0])
        case s:
            made = s
    return seq(Sync(before[node]), made) if node in before else made
