"""The stages of a drawn graph: maps, padding, windows, reductions, products, argmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tests.support.drawing import Dice
from tests.support.graphs import (
    AXES,
    LIMITS,
    Axis,
    Extent,
    Graph,
    Known,
    Term,
    constant,
    times,
    to_type,
    within,
)

ARGMAX = (
    "argmax = te.comm_reducer(lambda a, b: (te.if_then_else(te.any(a[1] > b[1], "
    "te.all(a[1] == b[1], a[0] <= b[0])), a[0], b[0]), te.max(a[1], b[1])), "
    'lambda t0, t1: (te.const(2**30, t0), te.min_value(t1)), name="argmax")'
)


def axes_of(shape: Sequence[Extent]) -> list[Axis]:
    return [Axis(name, extent) for name, extent in zip(AXES, shape)]


# -- elementwise and copies ---------------------------------------------------------------


def elementwise(g: Graph) -> None:
    """A function of one element, with other tensors broadcast to it."""
    t = g.source(logical=True)
    axes = axes_of(t.shape)
    g.compute(axes, g.expression(g.read(t, [a.name for a in axes]), axes))


def rearranged(g: Graph) -> None:
    """Transposed, sliced, repeated, reversed: any shape, each index within bounds."""
    t, dice = g.source(logical=True), g.dice
    shape: list[Extent] = [e for e in t.shape if e == "n" or not dice.chance(15)]
    shape = [e if e == "n" or dice.chance(70) else dice.number(1, 7) for e in shape]
    if (len(shape) < 4 and dice.chance(25)) or not shape:
        shape.append(dice.number(1, 6))
    if dice.chance(40):
        shape = dice.shuffled(shape)
    if g.size(shape) > 400:
        shape = list(t.shape)
    axes = axes_of(shape)
    body = g.read(t, [g.index(e, axes) for e in t.shape])
    g.compute(axes, g.expression(body, axes))


def reshaped(g: Graph) -> None:
    """The same elements in another shape: flattened, or one dimension as two."""
    t, dice = g.source(logical=True), g.dice
    lead: list[Extent] = [e for e in t.shape if e == "n"]
    inner = [e for e in t.shape if isinstance(e, int)]
    if t.shape[: len(lead)] != tuple(lead) or not inner:
        rearranged(g)
        return
    total, left = g.size(inner), g.size(inner)
    shape: list[int] = []
    while left > 1 and len(shape) < 2 and dice.chance(60):
        divisor = dice.pick([d for d in range(1, left + 1) if left % d == 0 and d <= 13] or [1])
        shape.append(divisor)
        left //= divisor
    shape.append(left)
    axes = axes_of([*lead, *shape])
    flat, step = [], total
    for a, e in zip(axes[len(lead) :], shape):
        step //= e
        flat.append(f"{a.name} * {step}" if step > 1 else a.name)
    text, indices, step = " + ".join(flat), [a.name for a in axes[: len(lead)]], total
    for k, e in enumerate(inner):
        step //= e
        index = f"({text}) // {step}" if step > 1 else f"({text})"
        indices.append(f"{index} % {e}" if k else index)
    g.compute(axes, g.expression(g.read(t, indices), axes))


def pair(g: Graph) -> None:
    """Two outputs of one stage."""
    t = g.source(logical=True)
    axes = axes_of(t.shape)
    read = g.read(t, [a.name for a in axes])
    one, two = g.expression(read, axes), g.expression(g.operand(axes, read.type), axes)
    g.pair(axes, (one, two), f"({one.text}, {two.text})")


def gathered(g: Graph) -> None:
    """Elements at indices that another tensor holds."""
    t, dice = g.source(logical=True), g.dice
    places = [k for k, e in enumerate(t.shape) if isinstance(e, int)]
    if not places:
        elementwise(g)
        return
    place = dice.pick(places)
    last = int(t.shape[place]) - 1
    shape = list(t.shape)
    shape[place] = dice.number(1, 6)
    axes = axes_of(shape)
    indices = [a.name for a in axes]
    where = g.read(g.other([int(shape[place])], dice.pick(("int32", "int64"))), [indices[place]])
    index = where.text if "int" in where.type else f'te.cast("int32", {where.text})'
    indices[place] = f"te.clip({index}, 0, {last})"
    g.compute(axes, g.expression(g.read(t, indices), axes))


def joined(g: Graph) -> None:
    """Two tensors one after the other in one dimension."""
    t, dice = g.source(), g.dice
    places = [k for k, e in enumerate(t.shape) if isinstance(e, int)]
    if not places or "n" in t.shape:
        elementwise(g)
        return
    place = dice.pick(places)
    more = dice.number(1, 4)
    shape = [*t.shape]
    first = int(shape[place])
    shape[place] = more
    other = g.other([int(e) for e in shape], t.type)
    shape[place] = first + more
    axes = axes_of(shape)
    here = [a.name for a in axes]
    there = [*here]
    there[place] = f"{here[place]} - {first}"
    a, b = g.read(t, here), to_type(g.read(other, there), t.type)
    text = f"te.if_then_else({here[place]} < {first}, {a.text}, {b.text})"
    g.compute(axes, Term(text, t.type, min(a.low, b.low), max(a.high, b.high)))


# -- padding and windows ------------------------------------------------------------------


def _padded(g: Graph, t: Known, indices: Sequence[str], pads: Sequence[tuple[int, int]]) -> Term:
    """A read of ``t`` at ``indices - before``, and a constant outside."""
    conditions, shifted = [], []
    for index, extent, (before, after) in zip(indices, t.shape, pads):
        if before:
            conditions.append(f"{index} >= {before}")
        if after:
            conditions.append(f"{index} < {before + int(extent)}")
        shifted.append(f"{index} - {before}" if before else index)
    read = g.read(t, shifted)
    if not conditions:
        return read
    fill = g.dice.pick((0, 0, 0, 1))
    choose = g.dice.pick(("te.if_then_else", "te.if_then_else", "te.select"))
    text = f"{choose}(te.all({', '.join(conditions)}), {read.text}, te.const({fill}, {t.type!r}))"
    return Term(text, t.type, min(t.low, fill), max(t.high, fill))


def _pads(g: Graph, t: Known, places: Sequence[int]) -> list[tuple[int, int]]:
    dice = g.dice
    found = []
    for k in range(len(t.shape)):
        even = dice.number(0, 2) if k in places else 0
        found.append((even, even if not dice.chance(30) else dice.number(0, 2) * (k in places)))
    return found


def padded(g: Graph) -> None:
    """A border of a constant."""
    t = g.source()
    places = [k for k, e in enumerate(t.shape) if e != "n"][-2:]
    pads = _pads(g, t, places)
    shape = [e if e == "n" else int(e) + sum(p) for e, p in zip(t.shape, pads)]
    axes = axes_of(shape)
    g.compute(axes, _padded(g, t, [a.name for a in axes], pads))


def window(g: Graph) -> None:
    """A window that slides over one or two dimensions: pooling, depthwise or dense convolution."""
    t, dice = g.source(2), g.dice
    places = [k for k, e in enumerate(t.shape) if e != "n"][-dice.number(1, 2) :]
    if not places:
        elementwise(g)
        return
    pads = _pads(g, t, places) if dice.chance(60) else [(0, 0)] * len(t.shape)
    shape: list[Extent] = list(t.shape)
    axes = axes_of(shape)
    reduced, indices = [], [a.name for a in axes]
    for k in places:
        whole = int(t.shape[k]) + sum(pads[k])
        taps = dice.number(1, min(4, whole))
        step = dice.pick((1, 1, 2, 3))
        dilation = dice.pick((1, 1, 2)) if taps > 1 else 1
        if (taps - 1) * dilation + 1 > whole:
            dilation = 1
        extent = (whole - (taps - 1) * dilation - 1) // step + 1
        axes[k].extent = extent
        r = Axis(g.text.fresh("r"), taps)
        g.text.do(f'{r.name} = te.reduce_axis((0, {taps}), "{r.name}")')
        reduced.append(r)
        moved = f"{indices[k]} * {step}" if step > 1 else indices[k]
        indices[k] = f"{moved} + " + (f"{r.name} * {dilation}" if dilation > 1 else r.name)
    channels = [k for k in range(len(t.shape)) if k not in places and t.shape[k] != "n"]
    weights = list(reduced)
    if channels and dice.chance(70):
        weights.insert(0, axes[channels[0]])  # depthwise
        if (
            dice.chance(30)
            and g.size([a.extent for a in axes]) * int(axes[channels[0]].extent) < g.work
        ):
            rc = Axis(g.text.fresh("r"), axes[channels[0]].extent)
            g.text.do(f'{rc.name} = te.reduce_axis((0, {rc.extent}), "{rc.name}")')
            indices[channels[0]] = rc.name
            axes[channels[0]].extent = dice.number(1, 4)
            reduced.insert(0, rc)
            weights.insert(1, rc)
    if not any(sum(p) for p in pads):
        term = g.read(t, indices)
    else:
        term = _padded(g, t, indices, pads)
    if g.dice.chance(70):
        kernel = g.other([int(a.extent) for a in weights], t.type)
        term = times(term, to_type(g.read(kernel, [a.name for a in weights]), term.type))
    _reduce(g, term, axes, reduced)


# -- reductions ---------------------------------------------------------------------------


def _reduce(g: Graph, term: Term, axes: Sequence[Axis], reduced: Sequence[Axis]) -> None:
    """``term`` reduced over ``reduced``, in some way."""
    dice = g.dice
    count = g.size([a.extent for a in reduced])
    if dice.chance(20) and not term.floating:
        term = to_type(term, dice.pick(("int32", "float32")))
    kind = dice.pick(("sum", "sum", "sum", "max", "min", "prod"))
    limit = LIMITS[term.type]
    where, init = "", ""
    names = [a.name for a in reduced]
    if dice.chance(20):
        r = dice.pick(reduced)
        a = dice.pick(axes) if axes else r
        condition = dice.pick((
            f"{r.name} >= {dice.number(0, 2)}",
            f"{r.name} + {a.name} < {dice.number(1, 9)}",
            f"({r.name} + {a.name}) % 2 == 0",
            f"te.any({r.name} < {dice.number(0, 2)}, {a.name} > 1)",
        ))  # fmt: skip
        where = f", where={condition}"
    start = 0
    if dice.chance(10):
        start = dice.number(0, 3)
        init = f", init={start}"
    if kind == "sum":
        term = within(term, (limit - 4) // count)
        low, high = count * min(term.low, 0) + start, count * max(term.high, 0) + start
    elif kind == "prod":
        bound = 1
        while (bound + 1) ** count * 4 <= limit and bound < 4:
            bound += 1
        term = within(term, bound)
        high = max(abs(term.low), abs(term.high), 1) ** count * (start if init else 1)
        low = 0 if term.low >= 0 else -high
    else:
        low, high = term.low, term.high
        if init:
            low, high = min(low, start), max(high, start)
        elif where:  # nothing may be left
            low, high = (float("-inf"), high) if kind == "max" else (low, float("inf"))
    body = f"te.{kind}({term.text}, axis=[{', '.join(names)}]{where}{init})"
    g.compute(axes, Term(body, term.type, low, high))


def reduction(g: Graph) -> None:
    """A reduction over one or two dimensions."""
    t, dice = g.source(logical=True), g.dice
    places = [k for k, e in enumerate(t.shape) if e != "n"]
    over = sorted(dice.shuffled(places)[: dice.number(1, 2)])
    if not over or (len(over) == len(t.shape) and len(over) > 1):
        over = over[:1]
    if not over:
        elementwise(g)
        return
    if t.shape[0] == "n" and dice.chance(20):
        over = [0]
    keep = [t.shape[k] for k in range(len(t.shape)) if k not in over]
    if not keep and not dice.chance(30):
        keep = [1]
    axes = axes_of(keep)
    rest, indices, reduced = iter(axes), [], []
    for k, e in enumerate(t.shape):
        if k in over:
            r = Axis(g.text.fresh("r"), e)
            first = dice.number(0, int(e) - 1) if e != "n" and dice.chance(10) else 0
            g.text.do(f'{r.name} = te.reduce_axis(({first}, {e}), "{r.name}")')
            reduced.append(r)
            indices.append(r.name)
        else:
            indices.append(next(rest).name)
    term = g.read(t, indices)
    if dice.chance(40):
        term = g.combine(term, g.operand([*axes, *reduced], term.type))
    _reduce(g, term, axes, reduced)


def product(g: Graph) -> None:
    """A matrix product over the last dimension, or over the last but one."""
    t, dice = g.source(2), g.dice
    depth = t.shape[-1]
    if depth == "n":
        elementwise(g)
        return
    columns = dice.number(1, 9)
    while columns > 1 and g.size(t.shape) * columns > 2 * g.work:
        columns //= 2
    lead = t.shape[:-1]
    axes = axes_of([*lead, columns])
    r = Axis(g.text.fresh("r"), depth)
    g.text.do(f'{r.name} = te.reduce_axis((0, {depth}), "{r.name}")')
    left = g.read(t, [*(a.name for a in axes[:-1]), r.name])
    turned = dice.chance(50)
    shape, indices = [int(depth), columns], [r.name, axes[-1].name]
    if turned:
        shape, indices = shape[::-1], indices[::-1]
    right = to_type(g.read(g.other(shape, t.type), indices), t.type)
    _reduce_sum(g, times(left, right), axes, r)


def _reduce_sum(g: Graph, term: Term, axes: Sequence[Axis], r: Axis) -> None:
    count = g.size([r.extent])
    if term.type in ("int8", "uint8", "float16", "bfloat16") and g.dice.chance(70):
        term = to_type(term, "int32" if "int" in term.type else "float32")
    term = within(term, LIMITS[term.type] // count)
    low, high = count * min(term.low, 0), count * max(term.high, 0)
    g.compute(axes, Term(f"te.sum({term.text}, axis={r.name})", term.type, low, high))


def argmax(g: Graph) -> None:
    """The largest value over a dimension or two, and where it is."""
    t, dice = g.source(), g.dice
    places = [k for k, e in enumerate(t.shape) if e != "n"]
    over = sorted(dice.shuffled(places)[: dice.number(1, 2)])
    if not over:
        elementwise(g)
        return
    if "argmax" not in g.text.names:
        g.text.do(ARGMAX)
    keep = [t.shape[k] for k in range(len(t.shape)) if k not in over] or [1]
    axes = axes_of(keep)
    rest, indices, number = iter(axes), [], ""
    reduced = []
    for k, e in enumerate(t.shape):
        if k not in over:
            indices.append(next(rest).name)
            continue
        r = g.text.fresh("r")
        g.text.do(f'{r} = te.reduce_axis((0, {e}), "{r}")')
        reduced.append(r)
        indices.append(r)
        number = f"{number} * {e} + {r}" if number else r
    value = g.read(t, indices)
    where = f", where={reduced[0]} < {dice.number(1, 9)}" if dice.chance(15) else ""
    text = f"argmax(({number}, {value.text}), axis=[{', '.join(reduced)}]{where})"
    place = Term("", "int32", 0, 2**30 if where else 200)
    best = Term("", t.type, float("-inf") if where else t.low, t.high)
    g.pair(axes, (place, best), text)


Stages: TypeAlias = tuple[tuple[Callable[[Graph], None], int], ...]

STAGES: Stages = (
    (elementwise, 4), (rearranged, 3), (padded, 3), (window, 5), (reduction, 4), (product, 3),
    (reshaped, 2), (joined, 1), (pair, 1), (argmax, 1), (gathered, 1),
)  # fmt: skip


def draw_graph(dice: Dice, stages: Stages = STAGES, symbolic: int = 12) -> Graph:
    """A graph of one to five stages by weight; ``symbolic`` of a hundred have an extent n."""
    g = Graph(dice)
    choices = tuple(f for f, weight in stages for _ in range(weight))
    if dice.chance(symbolic):
        g.n = dice.number(1, 5)
        g.text.do('n = te.var("n")')
        shape = g.shape(dice.number(1, 3), 60)
        g.placeholder(("n", *shape), g.type())
    for _ in range(dice.pick((1, 1, 2, 2, 2, 3, 3, 4, 5))):
        dice.pick(choices)(g)
    unused = [t.name for t in g.made if t.name not in g.used]
    unused = [
        name
        for name in unused
        if not any(other in g.used for other in g.siblings.get(name, ())) or dice.chance(0)
    ]
    if len(g.made) > 1 and dice.chance(10):
        unused.append(dice.pick(g.made).name)
    g.outputs = [t.name for t in g.made if _whole(g, t.name, unused)]
    return g


def _whole(g: Graph, name: str, wanted: Sequence[str]) -> bool:
    """An output of an operation is one where any of the operation's is."""
    return any(other in wanted for other in g.siblings.get(name, (name,)))


__all__ = ["constant", "draw_graph"]
