"""Where the threads of a block run alike: what a barrier may stand under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.arith.encode import Instance
from tilewright.arith.system import System, Undecided, constant, minus, plus, times
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.stmt import For, ForKind, If, Let
from tilewright.ir.visit import exprs
from tilewright.lower.analysis.accesses import Guard, Kernel, Node
from tilewright.lower.analysis.domain import begin, enter, values
from tilewright.lower.analysis.runners import differ


@dataclass(frozen=True, slots=True, eq=False)
class Divergence:
    """Two threads for which ``expression`` differs; without values where it merely may differ."""

    expression: Expr
    node: Node
    first: Mapping[Var, int] | None = None
    second: Mapping[Var, int] | None = None


def divergence(kernel: Kernel, node: Node, scope: str = "shared") -> Divergence | None:
    """Why threads of a block (a warp) that reach ``node`` may not go on alike; None if they do.

    Only the condition of an If and the bounds of a loop divide threads.
    """
    match node.stmt:
        case If(condition, _, _):
            return differs(kernel, node, condition, (), scope)
        case For(_, low, extent, kind, _, _, _) if kind is not ForKind.THREAD:
            return differs(kernel, node, low, (), scope) or differs(kernel, node, extent, (), scope)
    return None


def differs(
    kernel: Kernel, node: Node, e: Expr, guards: tuple[Guard, ...], scope: str
) -> Divergence | None:
    """Two threads of a block (a warp) for which ``e``, evaluated at ``node``, differs."""
    if not _varies(e, _varying(kernel, node, guards)):
        return None
    system = System()
    one = Instance(system)
    begin(kernel, one, kernel.launch)
    enter(kernel, one, node, guards)
    two = Instance(system, 1, one)
    begin(kernel, two, kernel.threads)
    enter(kernel, two, node, guards, [x for x in node.ancestors if isinstance(x.stmt, For)])
    if e.dtype.is_bool:
        one.require(e, True)
        two.require(e, False)
    else:
        apart = minus(one.form(e), two.form(e))
        beyond = [plus(form, constant(-1)) for form in (apart, times(apart, -1))]
        system.choose([[(form, False)] for form in beyond])
    differ(kernel, system, one, two, "warp" if scope == "warp" else "threads")
    try:
        solution = system.solve()
    except Undecided:
        return Divergence(e, node)
    if solution is None:
        return None
    if not system.exact:
        return Divergence(e, node)
    axes = [axis.var for axis in (*kernel.blocks, *kernel.threads)]
    return Divergence(e, node, values(one, solution, axes), values(two, solution, axes))


def _varying(kernel: Kernel, node: Node, guards: tuple[Guard, ...]) -> set[Var]:
    """Variables that may differ between two threads at ``node``."""
    found = kernel.thread_vars()
    for above in node.ancestors:
        match above.stmt:
            case Let(var, value, _) if _varies(value, found):
                found.add(var)
            case For(var, low, extent, _, _, _, _) if _varies(low, found) or _varies(extent, found):
                found.add(var)
    for subject, fact in guards:
        if isinstance(fact, Expr) and isinstance(subject, Var) and _varies(fact, found):
            found.add(subject)
    return found


def _varies(e: Expr, variables: set[Var]) -> bool:
    """Whether ``e`` may differ between threads: by an index, or by what only one thread sees."""
    return any(
        x in variables if isinstance(x, Var) else x.buffer.scope in ("local", "fragment", "warp")
        for x in exprs(e)
        if isinstance(x, (Var, Load))
    )
