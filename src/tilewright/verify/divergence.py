"""Threads reach every barrier together: the control flow around it is alike for all of them."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.stmt import Sync
from tilewright.ir.text import expr_text
from tilewright.lower.analysis.accesses import Barrier, Kernel, Node
from tilewright.lower.analysis.uniform import Divergence, differs, divergence
from tilewright.verify.finding import Finding, by_name, place, stages_of, statement


def divergent(kernel: Kernel) -> Iterator[Finding]:
    """One finding for each barrier that some threads of a block (warp, cluster) may not reach."""
    if not kernel.members:
        return
    known: dict[tuple[Node, str], Divergence | None] = {}
    for barrier in kernel.barriers:
        found = None
        for above in barrier.node.ancestors:
            key = (above, barrier.scope)
            if key not in known:
                among = "members" if barrier.scope == "cluster" else barrier.scope
                known[key] = divergence(kernel, above, among)
            found = known[key]
            if found is not None:
                break
        found = found or _inside(kernel, barrier)
        if found is not None:
            yield _finding(kernel, barrier, found)


def _inside(kernel: Kernel, barrier: Barrier) -> Divergence | None:
    """Conditions inside the statement itself, around a call that needs the whole warp."""
    for i, (subject, fact) in enumerate(barrier.guards):
        if isinstance(fact, bool):
            found = differs(kernel, barrier.node, subject, barrier.guards[:i], barrier.scope)
            if found is not None:
                return found
    return None


def _finding(kernel: Kernel, barrier: Barrier, found: Divergence) -> Finding:
    text = expr_text(found.expression)
    if found.node is barrier.node:
        what = f"{statement(barrier.node)} exchanges values between threads under `{text}`"
    else:
        what = f"{statement(barrier.node)} stands under {statement(found.node)}"
    group = barrier.scope if barrier.scope in ("warp", "cluster") else "block"
    if isinstance(barrier.node.stmt, Sync):
        mend = "move the barrier out of it, or make the condition the same for all threads"
    else:
        mend = "let all threads take part, with the identity where one has nothing to add"
    if found.first is None or found.second is None:
        return Finding(
            "divergence",
            f"could not prove that all threads of a {group} meet: {what}, and `{text}` depends on "
            f"what is not known here; {mend}",
            proved=False,
            stages=stages_of(barrier.node, found.node),
        )
    return Finding(
        "divergence",
        f"divergent barrier: {what}, and `{text}` is not the same for "
        f"{place(kernel, found.first)} and {place(kernel, found.second)}; {mend}",
        by_name(found.first),
        by_name(found.second),
        stages=stages_of(barrier.node, found.node),
    )
