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

from dataclasses import replace

from tilewright.ir.func import Func
from tilewright.ir.stmt import Allocate, Attr, For, If, Instr, Let, Seq, Stmt, Sync, seq
from tilewright.lower.accesses import Kernel, Node, collect
from tilewright.lower.barriers import Barriers
from tilewright.lower.dependence import Conflict, Dependences
from tilewright.lower.uniform import divergence


def insert_barriers(func: Func) -> Func:
    """``func`` with the block barriers that it lacks.

    Conflicts that no barrier can prevent (within one statement, say) are left to verify, which
    names them.
    """
    if not func.launch:
        return func
    kernel = collect(func)
    if all(access.buffer.scope == "local" for access in kernel.accesses):
        return func
    dependences = Dependences(kernel)
    before = _needed(dependences, *_sufficient(kernel, dependences))
    return replace(func, body=_rebuild(kernel.root, before)) if before else func


def _sufficient(kernel: Kernel, dependences: Dependences) -> tuple[list[Node], set[Conflict]]:
    """Nodes in front of which barriers prevent conflicts, and the conflicts that none prevents."""
    uniform = _Uniform(kernel)
    chosen: list[Node] = []
    hopeless: set[Conflict] = set()
    while True:
        found = dependences.between_threads(frozenset(chosen))
        conflict = next((c for c in found if c not in hopeless), None)
        if conflict is None:
            return chosen, hopeless
        spot = _spot(kernel, dependences, uniform, conflict, frozenset(chosen))
        if spot is None:
            hopeless.add(conflict)
        else:
            chosen.append(spot)


def _spot(
    kernel: Kernel,
    dependences: Dependences,
    uniform: _Uniform,
    conflict: Conflict,
    chosen: frozenset[Node],
) -> Node | None:
    """The outermost place at which a barrier separates ``early`` from every later ``late``.

    At each level it stands directly in front of what leads to ``late``: the latest place that can
    separate the two, which also separates the most others.
    """
    early, late = conflict.early, conflict.late
    meet = next(
        (
            i
            for i, (x, y) in enumerate(zip(early.node.line, late.node.line, strict=False))
            if x is not y
        ),
        len(late.node.way),
    )
    for node in late.node.line[: meet + 1]:
        if node in chosen or not uniform.may_precede(node):
            continue
        barriers = Barriers(kernel, ("shared",), chosen | {node})
        orders = barriers.orders(early.node, late.node)
        if not any(
            (forward or early is late)
            and dependences.conflict(early, late, order, conflict.runners)
            for order, forward in orders
        ):
            return node
    return None


class _Uniform:
    """Where a barrier may stand: reached by all threads alike, and between statements."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.known: dict[Node, bool] = {}

    def may_precede(self, node: Node) -> bool:
        """Whether a barrier may stand directly in front of ``node``."""
        parent = node.parent
        if parent is None:
            return True
        found = self.known.get(parent)
        if found is None:
            found = (
                self.may_precede(parent)
                and not isinstance(parent.stmt, Instr)
                and divergence(self.kernel, parent) is None
            )
            self.known[parent] = found
        return found


def _needed(
    dependences: Dependences, chosen: list[Node], hopeless: set[Conflict]
) -> frozenset[Node]:
    """``chosen`` without those that the others make unnecessary, the innermost tried first."""
    needed = frozenset(chosen)
    for node in sorted(chosen, key=lambda node: -len(node.way)):
        fewer = needed - {node}
        if all(conflict in hopeless for conflict in dependences.between_threads(fewer)):
            needed = fewer
    return needed


def _rebuild(node: Node, before: frozenset[Node]) -> Stmt:
    children = [_rebuild(child, before) for child in node.children]
    made: Stmt
    match node.stmt:
        case Seq():
            made = seq(*children)
        case If(condition, _, _):
            made = If(condition, *children)
        case For() | Allocate() | Let() | Attr() as s:
            made = replace(s, body=children[0])
        case s:
            made = s
    return seq(Sync("shared"), made) if node in before else made
