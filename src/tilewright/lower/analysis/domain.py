"""The moments at which a statement runs, as columns and constraints of a system."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from tilewright.arith.encode import Instance
from tilewright.arith.spans import greatest_extent
from tilewright.arith.system import Form, System, Undecided, constant, minus, plus
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import int_range
from tilewright.ir.expr import Expr, IntImm, Load, Min, Var
from tilewright.ir.func import LaunchAxis
from tilewright.ir.stmt import For, ForKind, If, Let
from tilewright.ir.visit import contents, exprs, substitute
from tilewright.lower.analysis.accesses import Guard, Kernel, Node

#: Variables with the kind, beginning and extent of their loop, or None and what they stand for.
Surroundings = tuple[tuple[Var, ForKind | None, tuple[Expr, ...]], ...]


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
                instance.bind(extent, extent.least, greatest_extent(extent))
    for param in kernel.func.params:  # scalars of which something is said
        if isinstance(param, Var) and param not in instance.values and param.dtype.is_int:
            low, high = int_range(param.dtype)
            most = high if param.most is None else param.most
            instance.bind(param, param.least or low, most)
    for param in kernel.func.params:  # extents that are expressions of those variables
        if isinstance(param, Buffer):
            for extent in param.shape:
                if not isinstance(extent, (Var, IntImm)):
                    instance.system.require(instance.form(extent))


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
                if above in same and instance.twin is not None and loop.kind is not ForKind.THREAD:
                    instance.values[loop.var] = instance.twin.values[loop.var]
                else:
                    low = _before(kernel, instance, above, loop.min)
                    extent = _before(kernel, instance, above, loop.extent)
                    _loop(kernel, instance, loop.var, loop.kind, low, extent)
            case If(condition, _, _):
                condition = _before(kernel, instance, above, condition)
                instance.require(condition, below.number == 0)
            case Let(var, value, _):
                instance.define(var, _before(kernel, instance, above, value))
    for subject, fact in guards:
        if isinstance(fact, Expr):
            assert isinstance(subject, Var)
            instance.define(subject, fact)
        else:
            instance.require(subject, fact)


def _before(kernel: Kernel, instance: Instance, node: Node, e: Expr) -> Expr:
    """``e``, evaluated at ``node``, with names for what it reads that is written below: there the
    same read may give another number."""
    changed = kernel.changed(node)
    if e.exact or changed.isdisjoint(contents(e)[1]):
        return e
    names: dict[Expr, Expr] = {}
    for x in exprs(e):
        if isinstance(x, Load) and x.buffer in changed:
            names[x] = var = Var.make(x.buffer.name, x.dtype, exact=False)
            if x.dtype.is_int or x.dtype.is_bool:
                instance.values[var] = instance.unknown(x)
    made: Expr = substitute(e, names)
    return made


def surroundings(node: Node, guards: tuple[Guard, ...], parts: Iterable[Expr]) -> Surroundings:
    """The loops and definitions around ``node`` that say what the variables of ``parts`` may be,
    the outermost first; no conditions."""
    needed = {v for part in parts for v in exprs(part) if isinstance(v, Var)}
    found: list[tuple[Var, ForKind | None, tuple[Expr, ...]]] = []

    def keep(var: Var, kind: ForKind | None, *by: Expr) -> None:
        if var in needed:
            needed.update(v for e in by for v in exprs(e) if isinstance(v, Var))
            found.append((var, kind, by))

    for subject, fact in reversed(guards):
        if isinstance(fact, Expr):
            assert isinstance(subject, Var)
            keep(subject, None, fact)
    for above in reversed(node.ancestors):
        match above.stmt:
            case For(var, low, extent, kind):
                keep(var, kind, low, extent)
            case Let(var, value, _):
                keep(var, None, value)
    return tuple(reversed(found))


def surround(kernel: Kernel, instance: Instance, found: Surroundings) -> None:
    """Let ``instance`` be any moment within these loops and definitions.

    What a variable was read from memory may be written since, so it is any number.
    """
    for var, kind, by in found:
        if kind is None and by[0].exact:
            instance.define(var, *by)
        elif kind is None:
            if var.dtype.is_int or var.dtype.is_bool:
                instance.values[var] = instance.unknown(by[0])
        else:
            _loop(kernel, instance, var, kind, *by)


def _loop(
    kernel: Kernel, instance: Instance, var: Var, kind: ForKind, low: Expr, extent: Expr
) -> None:
    axis = kernel.aliases.get(var)
    if axis is not None:
        made = plus(instance.values[axis.var], instance.form(low))
        instance.values[var] = made
        end = plus(instance.form(low), instance.form(extent))
        instance.system.require(plus(minus(end, made), constant(-1)))
    elif kind is not ForKind.THREAD or var not in instance.values:
        _bind(instance, var, low, extent)


def _bind(instance: Instance, var: Var, low: Expr, extent: Expr) -> None:
    if isinstance(low, IntImm) and isinstance(extent, IntImm):
        instance.bind(var, low.value, low.value + extent.value - 1)
        return
    first, last = ends(instance, low, extent)
    system = instance.system
    made = instance.bind(var, system.bounds(first)[0], system.bounds(last)[1])
    system.require(minus(made, first))
    system.require(minus(last, made))
    for part in _parts(extent):  # rows of their own: each on its own bounds products and quotients
        system.require(minus(plus(first, instance.form(part)), plus(made, constant(1))))


def _parts(extent: Expr) -> list[Expr]:
    """Of a minimum, what it is the least of."""
    found: list[Expr] = []
    waiting: list[Expr] = [extent] if isinstance(extent, Min) else []
    while waiting:
        part = waiting.pop()
        if isinstance(part, Min):
            waiting += [part.b, part.a]
        else:
            found.append(part)
    return found


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


def can_run(
    kernel: Kernel, node: Node, condition: tuple[Expr, bool] | None = None,
    guards: tuple[Guard, ...] = (),
) -> bool:  # fmt: skip
    """Whether ``node`` may run at all, under ``guards`` (with ``condition`` having that outcome).

    True where that is undecided.
    """
    system = System()
    instance = Instance(system)
    begin(kernel, instance, kernel.launch)
    enter(kernel, instance, node, guards)
    if condition is not None:
        instance.require(*condition)
    try:
        return system.solve() is not None
    except Undecided:
        return True
