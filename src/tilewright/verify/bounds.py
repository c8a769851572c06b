"""Every access lies within its buffer, whenever it is made."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arith.encode import Instance
from tilewright.arith.system import Form, System, Undecided, constant, minus
from tilewright.ir.expr import Var
from tilewright.ir.func import LaunchAxis
from tilewright.ir.stmt import For
from tilewright.ir.text import expr_text
from tilewright.lower.accesses import Access, Guard, Kernel, Node
from tilewright.lower.domain import begin, enter, value, values
from tilewright.verify.finding import Finding, by_name, place, stages_of, statement


def out_of_bounds(kernel: Kernel) -> Iterator[Finding]:
    """One finding for each access that leaves its buffer, with where it does.

    Loops, ifs, the conditions of ``if_then_else``, ``and`` and ``or``, and predicates count as
    guards; both branches of a ``Select`` are evaluated. Symbolic extents are at least 1.
    """
    moments: dict[tuple[Node, tuple[Guard, ...], object, int], Instance] = {}
    for access in kernel.accesses:
        if access.opaque:
            continue
        key = (access.node, access.guards, access.predicate, access.lanes)
        instance = moments.get(key)
        if instance is None:
            instance = _moment(kernel, access)
            moments[key] = instance
        found = _leaves(kernel, instance, access)
        if found is not None:
            yield found


def _moment(kernel: Kernel, access: Access) -> Instance:
    instance = Instance(System(), access.lanes)
    begin(kernel, instance, kernel.launch)
    enter(kernel, instance, access.node, access.guards)
    if access.predicate is not None:
        instance.require(access.predicate)
    instance.system.settle()
    return instance


def _leaves(kernel: Kernel, instance: Instance, access: Access) -> Finding | None:
    system = instance.system
    if not system.possible:
        return None
    indices = [instance.form(i) for i in access.indices]
    for dimension, (form, extent) in enumerate(zip(indices, access.buffer.shape, strict=True)):
        above = minus(form, instance.form(extent))  # out of bounds where >= 0
        below = minus(constant(-1), form)
        for excess in (above, below):
            if system.bounds(excess)[1] < 0:
                continue
            attempt = system.copy()
            attempt.require(excess)
            try:
                solution = attempt.solve()
            except Undecided:
                return _finding(kernel, access, dimension, None, instance, indices)
            if solution is not None:
                return _finding(kernel, access, dimension, solution, instance, indices)
    return None


def _finding(
    kernel: Kernel,
    access: Access,
    dimension: int,
    solution: list[int] | None,
    instance: Instance,
    indices: list[Form],
) -> Finding:
    buffer = access.buffer
    verb = "writes" if access.write else "reads"
    shape = ", ".join(map(expr_text, buffer.shape))
    mend = (
        "guard the access with if_then_else (a select evaluates both of its values), clip the "
        "index, or make the buffer larger"
    )
    if solution is None or not instance.system.exact:
        return Finding(
            "bounds",
            f"could not prove that {statement(access.node)} {verb} {buffer.name} within its shape "
            f"({shape}): index {expr_text(access.indices[dimension])} of dimension {dimension} "
            f"depends on what is not known here; {mend}, or, where you know that it holds, build "
            "with verify=False",
            proved=False,
            stages=stages_of(access.node),
        )
    at = values(instance, solution, _named(kernel, access.node))
    indices_at = ", ".join(str(value(form, solution)) for form in indices)
    symbols = _symbols(kernel, instance, solution)
    where = ", ".join(x for x in (place(kernel, at), symbols) if x)
    return Finding(
        "bounds",
        f"out of bounds: {statement(access.node)} {verb} {buffer.name}[{indices_at}], outside of "
        f"its shape ({shape})" + (f", at {where}" if where else "") + f"; {mend}",
        by_name(at),
        stages=stages_of(access.node),
    )


def _named(kernel: Kernel, node: Node) -> list[Var]:
    axes: list[LaunchAxis] = [*kernel.blocks, *kernel.threads]
    hardware = [axis.var for axis in axes]
    loops = [x.stmt.var for x in node.way if isinstance(x.stmt, For)]
    return [*hardware, *(v for v in loops if v not in hardware)]


def _symbols(kernel: Kernel, instance: Instance, solution: list[int]) -> str:
    own = {v for p in kernel.func.params if not isinstance(p, Var) for v in p.shape}
    found = [v for v in own if isinstance(v, Var) and v in instance.values]
    return ", ".join(f"{v.name} = {value(instance.values[v], solution)}" for v in found)
