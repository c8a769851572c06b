"""Blocks of a cluster copy the same boxes to the same places, in the same order; and read one
another's memory while that is there.

One block copies a box to the memory of all, and each waits for as many bytes as it would have
copied itself: so all of them come to the copy, on the same way, with the same box. What they do
with the memory before is looked at in :mod:`.races`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arith import Analyzer
from tilewright.ir.expr import NE, Broadcast, Expr, IntImm, Var
from tilewright.ir.ops import const, floormod, is_const, sub
from tilewright.ir.stmt import Instr, Queue, Sync
from tilewright.ir.text import expr_text
from tilewright.lower.analysis.accesses import Access, Kernel, Node
from tilewright.lower.analysis.barriers import Barriers
from tilewright.lower.analysis.clusters import AXIS
from tilewright.lower.analysis.domain import can_run
from tilewright.lower.analysis.uniform import Divergence, differs, divergence
from tilewright.target.instructions.tma_load import MOST_BLOCKS
from tilewright.target.queues import QUEUES
from tilewright.verify.finding import Finding, by_name, place, stages_of, statement


def apart(kernel: Kernel) -> Iterator[Finding]:
    """What blocks of a cluster do not do alike, or do to memory that they share."""
    yield from _memory(kernel)
    if kernel.cluster == 1:
        return
    yield from _incomplete(kernel)
    known: dict[Node, Divergence | None] = {}
    seen: set[tuple[Node, Expr]] = set()
    for node in kernel.root.walk():
        if not _is_collective(node):
            continue
        for above in node.ancestors:
            if above not in known:
                known[above] = found = divergence(kernel, above, "cluster")
                if found is not None:
                    yield _finding(kernel, node, found, f"stands under {statement(above)}")
    for access in kernel.accesses:
        found = _other(kernel, access) if access.cluster > 1 else None
        if found is not None and (found.node, found.expression) not in seen:
            seen.add((found.node, found.expression))
            yield _finding(kernel, access.node, found, "copies a box to all")


def _memory(kernel: Kernel) -> Iterator[Finding]:
    """What is wrong with memory of scope "cluster".

    A block writes its own element of the first dimension alone, and others read that between two
    barriers of the cluster: no block passes the first before all have begun, nor ends before all
    have come to the second. That nothing is read while it is written is looked at in :mod:`.races`.
    """
    homes = [b for b in kernel.homes if b.scope == "cluster"]
    if not homes:
        return
    axis = next((axis for axis in kernel.launch if axis.tag == AXIS), None)
    count = axis.extent.value if axis is not None and isinstance(axis.extent, IntImm) else 0
    if axis is None or not 1 < count <= MOST_BLOCKS or kernel.cluster > 1:
        yield Finding(
            "cluster",
            f"{homes[0].name} is memory of a cluster, of all blocks along {AXIS}, of which there "
            f"are {count or 'an unknown number'}: bind an axis of 2 to {MOST_BLOCKS} iterations to "
            f"{AXIS}, others to blockIdx.y, and let no blocks share copies",
        )
        return
    for buffer in homes:
        if not is_const(buffer.shape[0], count):
            yield Finding(
                "cluster",
                f"{buffer.name} has {buffer.shape[0]} elements in the first dimension, one for "
                f"each of {count} blocks of a cluster: make the axis that is bound to {AXIS} the "
                "first one of the stage",
            )
    met = Barriers(kernel, ("cluster",))
    for access in kernel.accesses:
        if access.buffer.scope != "cluster":
            continue
        if access.opaque or access.queue:
            what = "uses memory of a cluster, which threads alone read and write"
            yield Finding("cluster", f"{statement(access.node)} {what}", proved=False)
        elif _is_own(kernel, access, axis.var):
            continue
        elif access.write:
            yield Finding(
                "cluster",
                f"could not prove that {statement(access.node)} writes no other block's memory, as "
                f"`{expr_text(access.indices[0])}` is not the number of the block in its cluster: "
                f"bind the first axis of the stage to {AXIS}",
                proved=False,
                stages=stages_of(access.node),
            )
        else:
            for meets, has, where in (
                (met.ahead, "may not have begun", "in front of"),
                (met.after, "may have ended", "behind"),
            ):
                if not meets(access.node, kernel.root):
                    yield Finding(
                        "cluster",
                        f"{statement(access.node)} reads memory of another block, which {has}: put "
                        f"T.sync('cluster') {where} it",
                        stages=stages_of(access.node),
                    )


def _is_own(kernel: Kernel, access: Access, block: Var) -> bool:
    """Whether a block, the ``block``-th one, uses its own element alone; where a condition lets
    one block run, an index may be its number."""
    index = access.indices[0]
    index = index.value if isinstance(index, Broadcast) else index
    if index.dtype.lanes > 1:
        return False
    apart = sub(index, block)
    if is_const(apart, 0):
        return True
    other = NE(apart, IntImm(apart.dtype, 0))
    return not can_run(kernel, access.node, (other, True), access.guards)


def _incomplete(kernel: Kernel) -> Iterator[Finding]:
    """Blocks that are too few for a cluster."""
    extents = [axis.extent for axis in kernel.launch if axis.tag == AXIS]
    extent = next(iter(extents), const(1))
    left = Analyzer().simplify(floormod(extent, kernel.cluster))  # whatever variables are
    sizes = {access.cluster for access in kernel.accesses} - {1}
    if len(sizes) > 1:
        yield Finding(
            "cluster",
            f"boxes are copied to clusters of {' and '.join(map(str, sorted(sizes)))} blocks: a "
            "kernel has clusters of one size",
        )
    if not is_const(left, 0) or is_const(extent, 0):
        count = extent if isinstance(extent, IntImm) else "it is not known how many"
        yield Finding(
            "cluster",
            f"{count} blocks along {AXIS} are no clusters of {kernel.cluster}: split an axis that "
            f"they divide, and fuse it last into {AXIS}",
        )


def _is_collective(node: Node) -> bool:
    """Whether all blocks of a cluster come to a statement together."""
    match node.stmt:
        case Instr(instruction):
            return bool(instruction.cluster > 1)
        case Queue(queue, "commit" | "wait"):
            return QUEUES[queue].apart
        case Sync(_, _, split):
            return split
    return False


def _other(kernel: Kernel, access: Access) -> Divergence | None:
    """An index or a condition of a copy to all blocks that differs between them."""
    parts = [(index, access.guards) for index in access.indices]
    for k, (subject, fact) in enumerate(access.guards):
        if isinstance(fact, bool):
            parts.append((subject, access.guards[:k]))
    tried = (differs(kernel, access.node, part, guards, "cluster") for part, guards in parts)
    return next((found for found in tried if found is not None), None)


def _finding(kernel: Kernel, node: Node, found: Divergence, what: str) -> Finding:
    text = expr_text(found.expression)
    mend = (
        "let the blocks of a cluster differ in what the box does not depend on, or let every block "
        "copy boxes for itself"
    )
    stages = stages_of(node, found.node)
    if found.first is None or found.second is None:
        return Finding(
            "cluster",
            f"could not prove that all blocks of a cluster copy alike: {statement(node)} {what}, "
            f"and `{text}` depends on what is not known here; {mend}",
            proved=False,
            stages=stages,
        )
    return Finding(
        "cluster",
        f"{statement(node)} {what}, and `{text}` is not the same for {place(kernel, found.first)} "
        f"and {place(kernel, found.second)}, which are of one cluster; {mend}",
        by_name(found.first),
        by_name(found.second),
        stages=stages,
    )
