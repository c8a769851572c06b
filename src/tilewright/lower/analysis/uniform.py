"""Where the threads of a block run alike: what a barrier may stand under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.arith import Analyzer
from tilewright.arith.encode import Instance
from tilewright.arith.system import System, Undecided, constant, minus, plus, times
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import For, ForKind, If, Let
from tilewright.ir.visit import exprs, substitute, uses
from tilewright.lower.analysis.accesses import Guard, Kernel, Node
from tilewright.lower.analysis.domain import begin, enter, values
from tilewright.lower.analysis.runners import Runners, differ


@dataclass(frozen=True, slots=True, eq=False)
class Divergence:
    """Two threads for which ``expression`` differs; without values where it merely may differ."""

    expression: Expr
    node: Node
    first: Mapping[Var, int] | None = None
    second: Mapping[Var, int] | None = None


def divergence(kernel: Kernel, node: Node, scope: str = "shared") -> Divergence | None:
    """Why threads of a block (a warp; blocks of a cluster; "members", threads of blocks that share
    memory of scope "cluster") that reach ``node`` may not go on alike; None if they do.

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
    """Two threads of a block (a warp, all blocks of a cluster), or two blocks of a cluster, for
    which ``e``, evaluated at ``node``, differs."""
    if not _varies(kernel, e, _varying(kernel, node, guards, scope), scope):
        return None
    system = System()
    one = Instance(system)
    begin(kernel, one, kernel.launch)
    enter(kernel, one, node, guards)
    two = Instance(system, 1, one)
    others = {"cluster": kernel.blocks, "members": kernel.members}
    begin(kernel, two, others.get(scope, kernel.threads))
    enter(kernel, two, node, guards, node.ancestors)
    if e.dtype.is_bool:
        one.require(e, True)
        two.require(e, False)
    else:
        apart = minus(one.form(e), two.form(e))
        beyond = [plus(form, constant(-1)) for form in (apart, times(apart, -1))]
        system.choose([[(form, False)] for form in beyond])
    runners: dict[str, Runners] = {"warp": "warp", "cluster": "cluster", "members": "members"}
    differ(kernel, system, one, two, runners.get(scope, "threads"))
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


def _is_alike(kernel: Kernel, e: Expr, varying: set[Var]) -> bool:
    """Whether an expression says itself that it is the same for the blocks of a cluster, where
    constraints may be too weak: in a product, or in a quotient by what is no constant."""
    az, own = Analyzer(), kernel.cluster_vars()
    if varying != own:
        return False
    places: dict[Expr, Expr] = {}
    ranks = set[Var]()
    for axis in kernel.blocks:
        if axis.var in own:
            cluster, rank = Var.make("cluster", axis.var.dtype), Var.make("rank", axis.var.dtype)
            az.bind(cluster, const(0, axis.var.dtype), axis.extent)
            az.bind(rank, 0, kernel.cluster)
            places[axis.var] = cluster * kernel.cluster + rank
            ranks.add(rank)
    return not uses(az.simplify(substitute(e, places)), ranks)


def _varying(kernel: Kernel, node: Node, guards: tuple[Guard, ...], scope: str) -> set[Var]:
    """Variables that may differ between two threads, or blocks, at ``node``."""
    found = kernel.thread_vars() if scope != "cluster" else set[Var]()
    if scope in ("cluster", "members"):
        found |= kernel.cluster_vars()
    for above in node.ancestors:
        match above.stmt:
            case Let(var, value, _) if _varies(kernel, value, found, scope):
                found.add(var)
            case For(var, low, extent) if any(
                _varies(kernel, e, found, scope) for e in (low, extent)
            ):
                found.add(var)
    for subject, fact in guards:
        if not isinstance(fact, Expr) or not isinstance(subject, Var):
            continue
        if _varies(kernel, fact, found, scope):
            found.add(subject)
    return found


def _varies(kernel: Kernel, e: Expr, variables: set[Var], scope: str) -> bool:
    """Whether ``e`` may differ between threads: by an index, or by what only one thread sees; or
    between blocks, by what only one block sees."""
    beyond = ("shared",) if scope in ("cluster", "members") else ()
    own = ("local", "fragment", "warp", *beyond)
    parts = list(exprs(e))
    if any(isinstance(x, Load) and x.buffer.scope in own for x in parts):
        return True
    if not any(x in variables for x in parts if isinstance(x, Var)):
        return False
    return scope != "cluster" or not _is_alike(kernel, e, variables)
