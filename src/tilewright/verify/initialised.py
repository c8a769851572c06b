"""No statement reads only what nothing has written.

A read is refuted where no write to its buffer can have come before its first run, or none of
those that can touches what it reads then. Whether every single element was written is not asked
here: threads beyond the edge of an output may compute on garbage that they never store; sim sees
what is really used.

Registers are a thread's own. Where every write to a local buffer is at an index of the thread, as
in ``B[threadIdx.x] = ...``, a read at another index is refuted: what lies there, another thread
wrote into its own registers.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arith.encode import Instance
from tilewright.arith.system import Form, System, Undecided, constant, minus, plus, times
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.stmt import For
from tilewright.ir.visit import exprs
from tilewright.lower.accesses import Access, Kernel, Node
from tilewright.lower.domain import begin, ends, enter, value, values
from tilewright.verify.finding import Finding, by_name, place, stages_of, statement


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
        if (access.node, access.buffer) in seen:
            continue
        own = writes.get(access.buffer, [])
        found = _finding(kernel, access, own, order) or _of_another_thread(kernel, access, own)
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
    instance = Instance(system, read.lanes)
    begin(kernel, instance, kernel.launch)
    enter(kernel, instance, read.node, read.guards)
    if read.predicate is not None:
        instance.require(read.predicate)
    repeated = {x for w in later for x, y in zip(w.node.way, read.node.way, strict=False) if x is y}
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
    loops = [x.stmt.var for x in read.node.way if isinstance(x.stmt, For)]
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


def _of_another_thread(kernel: Kernel, read: Access, writes: list[Access]) -> Finding | None:
    """The finding for a read of registers beyond the indices at which its thread writes them."""
    if read.buffer.scope != "local" or not writes or any(w.opaque for w in (read, *writes)):
        return None
    places = [_places_of_thread(kernel, w) for w in writes]
    if not all(places):
        return None
    system = System()
    instance = Instance(system, read.lanes)
    begin(kernel, instance, kernel.launch)
    enter(kernel, instance, read.node, read.guards)
    if read.predicate is not None:
        instance.require(read.predicate)
    element = [instance.form(i) for i in read.indices]
    for own in places:
        apart = [minus(element[d], instance.form(index)) for d, index in own]
        beyond = [plus(form, constant(-1)) for a in apart for form in (a, times(a, -1))]
        system.choose([(form, False)] for form in beyond)
    if not system.settle() or not system.exact:
        return None
    return _refuted(
        kernel, read, instance, element, "its thread does not write",
        f"keep {read.buffer.name} in shared memory, or let every thread compute all that it reads",
    )  # fmt: skip


def _places_of_thread(kernel: Kernel, write: Access) -> list[tuple[int, Expr]]:
    """The dimensions in which a thread writes at one index of its own, and that index."""
    fixed = {axis.var for axis in (*kernel.blocks, *kernel.threads)}
    threads = {axis.var for axis in kernel.threads}
    found = []
    for d, index in enumerate(write.indices):
        named = {e for e in exprs(index) if isinstance(e, Var)}
        known = not any(isinstance(e, Load) for e in exprs(index)) and index.dtype.lanes == 1
        if known and named <= fixed and named & threads:
            found.append((d, index))
    return found
