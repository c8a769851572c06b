"""Two runners of one program: threads, blocks, or iterations of a PARALLEL loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from tilewright.arith.encode import Instance
from tilewright.arith.system import Constraint, Form, System, constant, minus, number, plus, times
from tilewright.ir.buffer import WARP
from tilewright.ir.expr import Expr, IntImm
from tilewright.ir.func import LaunchAxis
from tilewright.ir.stmt import For
from tilewright.lower.analysis.accesses import Kernel
from tilewright.lower.analysis.barriers import Order
from tilewright.lower.analysis.domain import ends

#: Who runs two conflicting accesses: threads of a block, of a warp, or of different warps; those
#: along x that share memory of scope "warp"; blocks of a grid, or of a cluster, with any of their
#: threads; threads of all blocks of a cluster that share memory of scope "cluster"; iterations of
#: a PARALLEL loop; a thread and the producer that copies boxes in place of one, maybe the same; any
#: two threads of a block, or one and the same; a thread itself.
Runners: TypeAlias = Literal[
    "threads",
    "warp",
    "warps",
    "row",
    "blocks",
    "cluster",
    "members",
    "iterations",
    "producer",
    "any",
    "self",
]


def fresh(kernel: Kernel, runners: Runners) -> tuple[LaunchAxis, ...]:
    """The axes along which two runners may differ."""
    if runners in ("iterations", "self"):
        return ()
    if runners == "members":
        return kernel.members
    return kernel.launch if runners in ("blocks", "cluster") else kernel.threads


def follow(system: System, one: Instance, two: Instance, order: Order, runners: Runners) -> None:
    """Let the moments ``one`` and ``two`` lie in ``order``."""
    for node, instance, which in (
        *((n, one, -1) for n in order.last),
        *((n, two, 0) for n in order.first),
    ):
        loop = node.stmt
        assert isinstance(loop, For)
        if not (loop.min.exact and loop.extent.exact):
            continue  # what was read in front of the loop may be written in it
        end = ends(instance, loop.min, loop.extent)[which]
        system.require(minus(instance.values[loop.var], end), equal=True)
    if order.carried is not None and runners != "iterations":
        loop = order.carried.stmt
        assert isinstance(loop, For)
        apart = minus(two.values[loop.var], one.values[loop.var])
        system.require(plus(apart, constant(-max(order.by, 1))), equal=order.by > 0)
    elif order.carried is not None:
        loop = order.carried.stmt
        assert isinstance(loop, For)
        apart = minus(two.values[loop.var], one.values[loop.var])
        system.choose([[_above(apart)], [_above(times(apart, -1))]])


def _above(form: Form) -> Constraint:
    """``form >= 1``"""
    return plus(form, constant(-1)), False


def differ(
    kernel: Kernel,
    system: System,
    one: Instance,
    two: Instance,
    runners: Runners,
    symmetric: bool = False,
) -> None:
    """Let the runners be two and not one; if ``symmetric``, the second is the later in number."""
    if runners in ("iterations", "producer", "any", "self"):
        return
    if runners == "cluster":
        _clusters(kernel, system, one, two)
        return
    axes = {"blocks": kernel.blocks, "members": kernel.members}.get(runners, kernel.threads)
    apart = [(minus(two.values[x.var], one.values[x.var]), x.extent) for x in axes]
    if runners == "row":
        for axis, (form, _) in zip(axes, apart, strict=True):
            if axis.tag != "threadIdx.x":
                system.require(form, equal=True)
        apart = [pair for axis, pair in zip(axes, apart, strict=True) if axis.tag == "threadIdx.x"]
    linear = _linear(one, apart)
    alternatives: list[list[Constraint]] = []
    if linear is not None:
        alternatives = [[_above(linear)], [_above(times(linear, -1))]]
    else:  # extents are symbolic: the first axis that differs decides
        equal: list[Constraint] = []
        for form, _ in apart:
            alternatives += [[*equal, _above(form)], [*equal, _above(times(form, -1))]]
            equal.append((form, True))
    if symmetric:
        alternatives = alternatives[::2]
    if runners == "warps":
        alternatives = _warps_differ(kernel, system, one, linear)
    elif runners in ("warp", "row") and linear is not None:
        size = kernel.warp_size if runners == "warp" else WARP
        place = _warp(system, _linear(one, _threads(kernel, one, runners)) or {}, size)
        other = plus(place, linear)
        system.require(other)
        system.require(minus(constant(size - 1), other))
    system.choose(alternatives)


def _clusters(kernel: Kernel, system: System, one: Instance, two: Instance) -> None:
    """Let two blocks be different ones of a cluster."""
    own = kernel.cluster_vars()
    for axis in kernel.blocks:
        first, apart = one.values[axis.var], minus(two.values[axis.var], one.values[axis.var])
        if axis.var not in own:
            system.require(apart, equal=True)
            continue
        other = plus(_warp(system, first, kernel.cluster), apart)
        system.require(other)
        system.require(minus(constant(kernel.cluster - 1), other))
        system.choose([[_above(apart)], [_above(times(apart, -1))]])


def _linear(one: Instance, apart: Sequence[tuple[Form, Expr]]) -> Form | None:
    """The difference of the linear indices, None where extents are symbolic."""
    total: Form = {}
    stride = 1
    for form, extent in apart:
        total = plus(total, form, stride)
        size = number(one.form(extent))
        if size is None:
            return total if form is apart[-1][0] else None
        stride *= size
    return total


def rows_are_warps(kernel: Kernel) -> bool:
    """Whether 32 neighbours along x, of which there may be fewer, are always of one warp."""
    x, *others = kernel.threads
    size = x.extent.value if isinstance(x.extent, IntImm) else 0
    fits = not others or (size > 0 and (size % WARP == 0 or WARP % size == 0))
    return kernel.warp_size >= WARP and x.tag == "threadIdx.x" and fits


def _threads(kernel: Kernel, one: Instance, runners: Runners) -> list[tuple[Form, Expr]]:
    """The indices that count the threads of a warp, with their extents."""
    axes = [x for x in kernel.threads if runners != "row" or x.tag == "threadIdx.x"]
    return [(one.values[x.var], x.extent) for x in axes]


def _warp(system: System, index: Form, size: int) -> Form:
    """What is left of ``index`` when it is divided by ``size``."""
    least, greatest = system.bounds(index)
    warp = system.column("warp", least // size, greatest // size)
    place = minus(index, times(warp, size))
    system.require(place)
    system.require(minus(constant(size - 1), place))
    return place


def _warps_differ(
    kernel: Kernel, system: System, one: Instance, linear: Form | None
) -> list[list[Constraint]]:
    if linear is None:
        return [[]]
    index = _linear(one, _threads(kernel, one, "warps")) or {}
    place = _warp(system, index, kernel.warp_size)
    other = plus(place, linear)
    beyond = plus(other, constant(-kernel.warp_size))
    return [[(beyond, False)], [(minus(constant(-1), other), False)]]
