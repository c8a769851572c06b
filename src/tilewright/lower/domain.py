"""The moments at which a statement runs, as columns and constraints of a system."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

from tilewright.arith.encode import Instance
from tilewright.arith.system import Form, System, constant, minus, plus
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import int_range
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.func import LaunchAxis
from tilewright.ir.stmt import For, ForKind, If, Let
from tilewright.lower.accesses import Guard, Kernel, Node


def begin(kernel: Kernel, instance: Instance, fresh: Collection[LaunchAxis]) -> None:
    """Give ``instance`` its parameters and its place in the launch.

    Axes in ``fresh`` are free; the others are those of the twin, which there must be then.
    """
    twin = instance.twin
    if twin is None:
        _parameters(kernel, instance)
    for axis in kernel.launch:
        if axis not in fresh and twin is not None:
            instance.values[axis.var] = twin.values[axis.var]
        else:
            _bind(instance, axis.var, IntImm(axis.var.dtype, 0), axis.extent)


def _parameters(kernel: Kernel, instance: Instance) -> None:
    for param in kernel.func.params:
        if not isinstance(param, Buffer):
            continue
        for extent in param.shape:
            if isinstance(extent, Var) and extent not in instance.values:
                instance.bind(extent, 1, int_range(extent.dtype)[1])
    for param in kernel.func.params:  # extents that are expressions of those variables
        if isinstance(param, Buffer):
            for extent in param.shape:
                if not isinstance(extent, (Var, IntImm)):
                    instance.system.require(plus(instance.form(extent), constant(-1)))


def enter(
    kernel: Kernel,
    instance: Instance,
    node: Node,
    guards: tuple[Guard, ...] = (),
    same: Collection[Node] = (),
) -> None:
    """Let ``instance`` be a moment at which ``node`` runs.

    The loops in ``same`` are in the same iteration as those of the twin.
    """
    for above, below in pairwise(node.line):
        match above.stmt:
            case For() as loop:
                if above in same and instance.twin is not None:
                    instance.values[loop.var] = instance.twin.values[loop.var]
                else:
                    _loop(kernel, instance, loop)
            case If(condition, _, _):
                instance.require(condition, below.number == 0)
            case Let(var, value, _):
                instance.define(var, value)
    for subject, fact in guards:
        if isinstance(fact, Expr):
            assert isinstance(subject, Var)
            instance.define(subject, fact)
        else:
            instance.require(subject, fact)


def _loop(kernel: Kernel, instance: Instance, loop: For) -> None:
    axis = kernel.aliases.get(loop.var)
    if axis is not None:
        made = plus(instance.values[axis.var], instance.form(loop.min))
        instance.values[loop.var] = made
        end = plus(instance.form(loop.min), instance.form(loop.extent))
        instance.system.require(plus(minus(end, made), constant(-1)))
    elif loop.kind is not ForKind.THREAD or loop.var not in instance.values:
        _bind(instance, loop.var, loop.min, loop.extent)


def _bind(instance: Instance, var: Var, low: Expr, extent: Expr) -> None:
    if isinstance(low, IntImm) and isinstance(extent, IntImm):
        instance.bind(var, low.value, low.value + extent.value - 1)
        return
    first, last = ends(instance, low, extent)
    system = instance.system
    made = instance.bind(var, system.bounds(first)[0], system.bounds(last)[1])
    system.require(minus(made, first))
    system.require(minus(last, made))


def ends(instance: Instance, low: Expr, extent: Expr) -> tuple[Form, Form]:
    """The first and the last value of a loop variable."""
    first = instance.form(low)
    return first, plus(plus(first, instance.form(extent)), constant(-1))


def value(form: Form, solution: list[int]) -> int:
    """A form at a solution of its system."""
    return sum(c * (solution[k] if k >= 0 else 1) for k, c in form.items())


def values(
    instance: Instance, solution: list[int], variables: Collection[Var]
) -> Mapping[Var, int]:
    """What ``variables`` are at a solution."""
    return {v: value(instance.values[v], solution) for v in variables if v in instance.values}


def can_run(kernel: Kernel, node: Node, condition: tuple[Expr, bool] | None = None) -> bool:
    """Whether ``node`` may run at all (with ``condition`` having that outcome)."""
    system = System()
    instance = Instance(system)
    begin(kernel, instance, kernel.launch)
    enter(kernel, instance, node)
    if condition is not None:
        instance.require(*condition)
    return system.solve() is not None
