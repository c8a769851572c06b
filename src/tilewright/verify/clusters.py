"""Blocks of a cluster copy the same boxes to the same places, in the same order.

One block copies a box to the memory of all, and each waits for as many bytes as it would have
copied itself: so all of them come to the copy, on the same way, with the same box. What they do
with the memory before is looked at in :mod:`.races`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.expr import Expr, IntImm
from tilewright.ir.stmt import Instr, Queue, Sync
from tilewright.ir.text import expr_text
from tilewright.lower.analysis.accesses import Access, Kernel, Node
from tilewright.lower.analysis.clusters import AXIS
from tilewright.lower.analysis.uniform import Divergence, differs, divergence
from tilewright.target.queues import QUEUES
from tilewright.verify.finding import Finding, by_name, place, stages_of, statement


def apart(kernel: Kernel) -> Iterator[Finding]:
    """What blocks of a cluster do not do alike."""
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


def _incomplete(kernel: Kernel) -> Iterator[Finding]:
    """Blocks that are too few for a cluster."""
    extents = [axis.extent for axis in kernel.launch if axis.tag == AXIS]
    count = next((x.value for x in extents if isinstance(x, IntImm)), 0)
    sizes = {access.cluster for access in kernel.accesses} - {1}
    if len(sizes) > 1:
        yield Finding(
            "cluster",
            f"boxes are copied to clusters of {' and '.join(map(str, sorted(sizes)))} blocks: a "
            "kernel has clusters of one size",
        )
    if not count or count % kernel.cluster:
        yield Finding(
            "cluster",
            f"{count or 'it is not known how many'} blocks along {AXIS} are no clusters of "
            f"{kernel.cluster}: split an axis that they divide, and fuse it last into {AXIS}",
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
