"""No statement reads only what nothing has written.

A read is refuted where no write to its buffer can have come before its first run, or none of
those that can touches what it reads then. Whether every single element was written is not asked
here: threads beyond the edge of an output may compute on garbage that they never store; sim sees
what is really used. Of memory that threads have of their own it is asked
(:mod:`~tilewright.verify.registers`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arith.encode import Instance
from tilewright.arith.system import Form, System, Undecided, minus
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import For
from tilewright.lower.analysis.accesses import Access, Kernel, Node
from tilewright.lower.analysis.domain import begin, ends, enter, value, values
from tilewright.verify.finding import Finding, by_name, place, stages_of, statement
from tilewright.verify.registers import OWN


def uninitialised(kernel: Kernel) -> Iterator[Finding]:
    """One finding for each read that, when first made, provably finds nothing written."""
    order = {node: i for i, node in enumerate(kernel.root.walk())}
    writes: dict[Buffer, list[Access]] = {}
    for access in kernel.accesses:
        if access.write:
            writes.setdefault(access.buffer, []).append(access)
    seen: set[tuple[Node, Buffer]] = set()
    for access in kernel.accesses:
        if access.write or access.buffer not in kernel.homes:
            continue
        if kernel.launch and access.buffer.scope in OWN:
            continue
        if (access.node, access.buffer) in seen:
            continue
        found = _finding(kernel, access, writes.get(access.buffer, []), order)
        if found is not None:
            seen.add((access.node, access.buffer))
            yield found


def _finding(
    kernel: Kernel, read: Access, writes: list[Access], order: dict[Node, int]
) -> Finding | None:
    earlier = [w for w in writes if order[w.node] < order[read.node]]
    if any(w.opaque or (w.indices == read.indices and not w.guards) for w in earlier):
        return None
    later = [w for w in writes if order[w.node] >= order[read.node]]
    system = System()
    lanes = max((subject.dtype.lanes for subject, _ in read.used), default=1)
    instance = Instance(system, max(read.lanes, lanes))
    begin(kernel, instance, kernel.launch)
    enter(kernel, instance, read.node, (*read.guards, *read.used))
    if read.predicate is not None:
        instance.require(read.predicate)
    repeated = {
        x
        for w in later
        for x, y in zip(w.node.ancestors, read.node.ancestors, strict=False)
        if x is y
    }
    for node in repeated:
        if isinstance(node.stmt, For) and node.stmt.var not in kernel.aliases:
            first, _ = ends(instance, node.stmt.min, node.stmt.extent)
            system.require(minus(instance.values[node.stmt.var], first), equal=True)
    element = [instance.form(i) for i in read.indices]
    if not system.settle() or not system.exact:
        return None
    box = [system.bounds(form) for form in element]
    if any(_may_touch(kernel, w, box) for w in earlier):
        return None
    return _refuted(
        kernel, read, instance, element, "nothing has written before",
        "initialise the buffer, or compute the stage that fills it before this one",
    )  # fmt: skip


def _refuted(
    kernel: Kernel, read: Access, instance: Instance, element: list[Form], why: str, mend: str
) -> Finding | None:
    """The finding, with the moment of ``instance``, if there is one at which this is so."""
    try:
        solution = instance.system.solve()
    except Undecided:
        return None
    if solution is None:
        return None
    at = values(instance, solution, [axis.var for axis in (*kernel.blocks, *kernel.threads)])
    loops = [x.stmt.var for x in read.node.ancestors if isinstance(x.stmt, For)]
    at = {**at, **values(instance, solution, loops)}
    where = place(kernel, at)
    touched = ", ".join(str(value(form, solution)) for form in element)
    return Finding(
        "uninitialised",
        f"uninitialised: {statement(read.node)} reads {read.buffer.name}[{touched}], which {why}"
        + (f", at {where}" if where else "")
        + f"; {mend}",
        by_name(at),
        stages=stages_of(read.node),
    )


def _may_touch(kernel: Kernel, write: Access, box: list[tuple[int, int]]) -> bool:
    system = System()
    instance = Instance(system, write.lanes)
    begin(kernel, instance, kernel.launch)
    enter(kernel, instance, write.node, write.guards)
    forms = [instance.form(i) for i in write.indices]
    if not system.settle():
        return False
    spans = [system.bounds(form) for form in forms]
    return all(a[0] <= b[1] and b[0] <= a[1] for a, b in zip(spans, box, strict=True))
