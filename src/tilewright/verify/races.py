"""No two runners touch one element unordered, where one of them writes it."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.buffer import Buffer
from tilewright.ir.visit import uses
from tilewright.lower.analysis.accesses import Access, Kernel, Node
from tilewright.lower.analysis.dependence import Conflict, Dependences
from tilewright.verify.finding import Finding, by_name, place, stages_of, statement

_WHO = {
    "threads": "two threads of a block",
    "warp": "two threads of a warp",
    "warps": "two threads of different warps",
    "row": "two of 32 threads along threadIdx.x",
    "blocks": "two blocks",
    "cluster": "two blocks of a cluster",
    "members": "two threads of a cluster",
    "producer": "a thread and the producer",
    "iterations": "two iterations of a parallel loop",
}


def races(kernel: Kernel) -> Iterator[Finding]:
    """One finding for each buffer and pair of statements that race on it, with the two moments."""
    dependences = Dependences(kernel)
    seen: set[tuple[Node, Node, Buffer]] = set()
    for conflicts in (
        dependences.between_threads(split=kernel.func.producer),
        dependences.with_producer(),
        dependences.between_blocks(),
        dependences.between_clusters(),
        dependences.between_iterations(),
    ):
        for conflict in conflicts:
            early, late, buffer = conflict.early.node, conflict.late.node, conflict.early.buffer
            if (early, late, buffer) not in seen:
                seen.update(((early, late, buffer), (late, early, buffer)))
                yield _finding(kernel, conflict)


def _finding(kernel: Kernel, conflict: Conflict) -> Finding:
    early, late = conflict.early, conflict.late
    scope = "" if early.buffer.scope == "global" else f"{early.buffer.scope} "
    buffer = f"{scope}buffer {early.buffer.name}"
    first, second = statement(early.node), statement(late.node)
    if not conflict.decided or not conflict.exact:
        both = first if early.node is late.node else f"{first} and {second}"
        return Finding(
            "race",
            f"could not prove that {both} are free of races on {buffer} between "
            f"{_WHO[conflict.runners]}: the indices depend on what is not known here; "
            f"{_mend(kernel, conflict)}",
            proved=False,
            stages=stages_of(early.node, late.node),
        )
    one, two = conflict.early_values or {}, conflict.late_values or {}
    touched = f"[{', '.join(map(str, conflict.element))}]"
    between = {
        "blocks": "and blocks do not wait for each other",
        "cluster": "and no barrier between frees it, on which all blocks of the cluster arrive",
        "members": "no barrier of the cluster between",
        "producer": "and no barrier between frees it, on which all threads arrive for the producer",
        "iterations": "and the iterations run in any order",
    }.get(conflict.runners, "no barrier between")
    return Finding(
        "race",
        f"race on {buffer}: {place(kernel, one)} {_verb(early)} {touched} in {first} while "
        f"{place(kernel, two)} {_verb(late)} it in {second}, {between}; {_mend(kernel, conflict)}",
        by_name(one),
        by_name(two),
        stages=stages_of(early.node, late.node),
    )


def _verb(access: Access) -> str:
    return "writes" if access.write else "reads"


def _mend(kernel: Kernel, conflict: Conflict) -> str:
    early, late = conflict.early, conflict.late
    if conflict.runners == "iterations":
        return "run the loop serially, or let every iteration write elements of its own"
    if conflict.runners == "blocks":
        return "let every block write elements of its own, or split the work into two kernels"
    if conflict.runners == "producer":
        return "pipeline the stage, or let the threads that use boxes copy them"
    if conflict.runners == "cluster":
        return "pipeline the stage, or let every block copy boxes for itself"
    writes = [a for a in (early, late) if a.write]
    threads = kernel.thread_vars()
    if all(not any(uses(i, threads) for i in a.indices) for a in writes):
        return (
            "all threads of the block write the same: bind an axis of the stage to threadIdx, or "
            "let one thread write, with set_store_predicate(threadIdx.x.var.equal(0))"
        )
    if conflict.runners == "members" and early.node is not late.node:
        return "put T.sync('cluster') between the two"
    if early.node is late.node:
        return "let every thread touch elements of its own in this statement"
    return "put T.sync('shared') between the two, or let every thread touch elements of its own"
