"""Every access lies within its buffer, whenever it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.arith.encode import Instance
from tilewright.arith.system import Form, System
from tilewright.ir.expr import Var
from tilewright.ir.func import LaunchAxis
from tilewright.ir.stmt import For
from tilewright.ir.text import expr_text
from tilewright.lower.analysis.accesses import Access, Guard, Kernel, Node
from tilewright.lower.analysis.beyond import beyond
from tilewright.lower.analysis.domain import begin, enter, value, values
from tilewright.verify.finding import Finding, by_name, place, stages_of, statement

#: Of what is not decided at once, cases that are looked at, and iterations of a loop that makes
#: some.
_CASES, _LONG = 16, 16


def out_of_bounds(kernel: Kernel) -> Iterator[Finding]:
    """One finding for each access that leaves its buffer, with where it does.

    Loops, ifs, the conditions of ``if_then_else``, ``and`` and ``or``, and predicates count as
    guards; both branches of a ``Select`` are evaluated. Symbolic extents may be 0.
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
        found = beyond(instance, access)
        if found is not None and found[1] is None and not _leaves(kernel, access, instance):
            continue
        if found is not None:
            indices = [instance.form(i) for i in access.indices]
            yield _finding(kernel, access, *found, instance, indices)


def _leaves(kernel: Kernel, access: Access, instance: Instance) -> bool:
    """Whether an access, of which that is undecided, may leave its buffer in one of the cases that
    the values of the loops around it make, the outermost first. A case that is undecided is divided
    by the next loop."""
    loops = (node.stmt.var for node in access.node.ancestors if isinstance(node.stmt, For))
    bounds = [(var, *instance.system.bounds(instance.values[var])) for var in loops]
    ranges = [(var, range(low, high + 1)) for var, low, high in bounds if 0 < high - low < _LONG]
    looked, waiting = 0, [dict[Var, int]()]
    while waiting:
        case = waiting.pop()
        if len(case) == len(ranges):
            return True
        var, numbers = ranges[len(case)]
        looked += len(numbers)
        if looked > _CASES:
            return True
        for number in numbers:
            one = {**case, var: number}
            found = beyond(_moment(kernel, access, one), access)
            if found is not None and found[1] is not None:
                return True
            if found is not None:
                waiting.append(one)
    return False


def _moment(kernel: Kernel, access: Access, fixed: Mapping[Var, int] | None = None) -> Instance:
    instance = Instance(System(), access.lanes)
    instance.fixed = fixed or {}
    begin(kernel, instance, kernel.launch)
    enter(kernel, instance, access.node, access.guards)
    if access.predicate is not None:
        instance.require(access.predicate)
    instance.system.settle()
    return instance


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
    if any(v.least == 0 and number == 0 for v, number in _extents(kernel, instance, solution)):
        mend += ", or, where that extent is never 0, say te.var(..., least=1)"
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
    loops = [x.stmt.var for x in node.ancestors if isinstance(x.stmt, For)]
    return [*hardware, *(v for v in loops if v not in hardware)]


def _symbols(kernel: Kernel, instance: Instance, solution: list[int]) -> str:
    return ", ".join(f"{v.name} = {n}" for v, n in _extents(kernel, instance, solution))


def _extents(kernel: Kernel, instance: Instance, solution: list[int]) -> list[tuple[Var, int]]:
    """The symbolic extents of the kernel with their values at a solution."""
    own = dict.fromkeys(v for p in kernel.func.params if not isinstance(p, Var) for v in p.shape)
    found = [v for v in own if isinstance(v, Var) and v in instance.values]
    return [(v, value(instance.values[v], solution)) for v in found]
