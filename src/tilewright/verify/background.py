"""What is read in the background is not written before its end, nor are sums touched.

What :mod:`~tilewright.lower.analysis.background` finds; and what reads the memory of a block ends
before that does.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.stmt import Instr
from tilewright.lower.analysis.accesses import Access, Kernel, Node
from tilewright.lower.analysis.background import Issued, background, queue_of
from tilewright.lower.analysis.dependence import Conflict
from tilewright.verify.finding import Finding, by_name, place, stages_of, statement


def unawaited(kernel: Kernel) -> Iterator[Finding]:
    """One finding for each instruction, and statement that does not wait for its end."""
    found = background(kernel)
    for early, conflict in found.conflicts:
        yield _finding(kernel, early, conflict)
    for read in found.uneven:
        node = _instruction(read)
        yield Finding(
            "unawaited",
            f"unawaited: {statement(node)} reads registers of {read.buffer.name} in the background "
            "where two branches meet that do not leave as much under way: compilers may fill them "
            f"with other values; wait for the queue {queue_of(node)!r} in each",
            stages=stages_of(node),
        )
    for read in found.on:
        node = _instruction(read)
        yield Finding(
            "unawaited",
            f"unawaited: {statement(node)} may go on when the kernel ends, and with it the memory "
            f"of {read.buffer.name}; wait for the queue {queue_of(node)!r}",
            stages=stages_of(node),
        )


def _instruction(access: Access) -> Node:
    """The instruction that an access is of, or its statement."""
    return next((n for n in access.node.ancestors if isinstance(n.stmt, Instr)), access.node)


def _finding(kernel: Kernel, early: Issued, conflict: Conflict) -> Finding:
    one, two = conflict.early, conflict.late
    node = _instruction(two)
    first, second = statement(early.node), statement(node)
    did, does = ("writes" if access.write else "reads" for access in (one, two))
    scope = "" if one.buffer.scope == "global" else f"{one.buffer.scope} "
    buffer = f"{scope}buffer {one.buffer.name}"
    wait = f"the wait for the queue {early.queue!r}"
    mend = f"put a barrier between {wait} and that" if early.ended else f"put {wait} before that"
    proved = conflict.decided and conflict.exact
    if proved:
        touched = f"[{', '.join(map(str, conflict.element))}] of {buffer}"
    else:
        touched = f"what may be the same of {buffer}, as far as is known here,"
    at = f" at {place(kernel, conflict.late_values)}" if conflict.late_values and proved else ""
    return Finding(
        "unawaited",
        f"unawaited: {first} {did} {touched} in the background, and {second} {does} it{at}, where "
        f"it is not known that the first has ended; {mend}",
        by_name(conflict.early_values) if proved else {},
        by_name(conflict.late_values) if proved else {},
        proved=proved,
        stages=stages_of(early.node, node),
    )
