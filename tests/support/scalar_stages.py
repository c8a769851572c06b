"""Stages about scalars: numbers that a call says and that are the extent of nothing.

They may be negative and anywhere in their type. What verify has to prove of an index it proves for
all of them; a stage that reads out of bounds for some takes back the graph's promise.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.graph_stages import Stages, axes_of
from tests.support.graphs import CHOICES, Axis, Graph, Scalar, Term, constant, to_type

#: In which an index is exact; arithmetic on those of other types wraps around.
_INDEX = ("int32",) * 5 + ("int64",)
_NARROW = ("int8", "uint8", "int16", "uint32")


def scalar(g: Graph, types: Sequence[str] = (*_INDEX, *_NARROW)) -> Scalar:
    """A scalar of one of the types, an old one or a new one."""
    dice = g.dice
    fits = [p for p in g.scalars if p.type in types]
    if fits and dice.chance(60):
        return dice.pick(fits)
    type = dice.pick([t for t in (_NARROW if dice.chance(20) else _INDEX) if t in types])
    least = most = 0
    if dice.chance(25):
        least = dice.pick((0, 1, 2))
        most = least + dice.pick((0, 3, 40))
    return g.scalar(type, least, most)


def _offset(g: Graph, a: Axis) -> str:
    """Index arithmetic on an axis and scalars."""
    dice, i = g.dice, a.name
    p = scalar(g).name
    q = scalar(g).name if dice.chance(30) else str(dice.number(0, 3))
    return dice.pick((
        f"{i} + {p}", f"{i} - {p}", f"{p} - {i}", f"{i} * {p}", f"{i} * {p} + {q}", p,
        f"{i} + {p} - {q}", f"{i} // 2 + {p}", f"{p} * 2 + {i}", f"{p} // 3 + {i}",
        f"{p} % 4 + {i}", f"te.max({p}, {q}) + {i}", f"te.min({i}, {p})", f"{p} * {p} - {i}",
        f"({i} + {p}) // 2", f"({i} + {p}) * 100000", f"te.truncdiv({p} - {i}, 3)",
    ))  # fmt: skip


def _guarded(g: Graph, t_name: str, size: int, x: str) -> tuple[str, str]:
    """An index and the guard that it needs, if any; or one too few."""
    dice = g.dice
    match dice.number(0, 9):
        case 0:
            return f"te.clip({x}, 0, {size - 1})", ""
        case 1:
            return f"({x}) % {size}", ""
        case 2:
            return f"te.min(te.max({x}, 0), {size - 1})", ""
        case 3:
            g.promised = False
            return x, f"{x} < {size}"
        case 4:
            g.promised = False
            return f"te.min({x}, {size - 1})", ""
        case 5:
            g.promised = False
            return f"te.truncmod({x}, {size})", ""
    return x, f"te.all({x} >= 0, {x} < {size})"


def moved(g: Graph) -> None:
    """Reads at indices that scalars move, guarded well or badly."""
    dice = g.dice
    t = g.source(1)
    places = [k for k, e in enumerate(t.shape) if e != "n"]
    if not places:
        limited(g)
        return
    place = dice.pick(places)
    size = int(t.shape[place])
    shape = list(t.shape)
    shape[place] = dice.number(1, 8)
    axes = axes_of(shape)
    index, guard = _guarded(g, t.name, size, _offset(g, axes[place]))
    indices = [a.name for a in axes]
    indices[place] = index
    read = g.read(t, indices)
    if guard:
        text = f"{dice.pick(CHOICES)}({guard}, {read.text}, {constant(1, read.type).text})"
        read = Term(text, read.type, min(read.low, 1), max(read.high, 1))
    g.compute(axes, read)


def _condition(g: Graph, axes: Sequence[Axis]) -> str:
    dice = g.dice
    p, q, i = scalar(g).name, scalar(g).name, dice.pick(axes).name
    return dice.pick((
        f"{i} < {p}", f"{p} <= {i}", f"{p} > {q}", f"{p} > 2", f"{i} + {p} < {q}",
        f"{p} - {i} >= 0", f"te.all({p} >= 0, {i} < {p})", f"({i} + {p}) % 3 == 0",
        f"{i} * {p} < 9", f"te.any({p} < 0, {i} == {q})", f"{i} // te.max({p}, 1) == 1",
    ))  # fmt: skip


def limited(g: Graph) -> None:
    """A choice that scalars make."""
    dice = g.dice
    t = g.source()
    axes = axes_of(t.shape)
    if not axes:
        scaled(g)
        return
    one = g.read(t, [a.name for a in axes])
    two = to_type(g.operand(axes, one.type), one.type)
    text = f"{dice.pick(CHOICES)}({_condition(g, axes)}, {one.text}, {two.text})"
    g.compute(axes, Term(text, one.type, min(one.low, two.low), max(one.high, two.high)))


def scaled(g: Graph) -> None:
    """Values that scalars take part in."""
    dice = g.dice
    t = g.source()
    axes = axes_of(t.shape)
    term = g.read(t, [a.name for a in axes])
    p = scalar(g)
    value = Term(p.name, p.type, p.low, p.high)
    if axes and dice.chance(30) and isinstance(axes[0].extent, int):
        value = Term(f"({p.name} + {axes[0].name})", p.type, p.low, p.high)
    if dice.chance(30) or "float" in term.type:
        value = Term(f"te.clip({value.text}, 0, 7)", p.type, 0, 7)
    g.compute(axes, g.combine(term, to_type(value, term.type)))


def partial_sum(g: Graph) -> None:
    """A reduction as far as scalars say."""
    dice = g.dice
    rows, columns = dice.number(1, 6), dice.number(1, 9)
    t = g.placeholder((rows, columns), dice.pick(("float32", "int32", "int8")))
    (i,) = axes_of([rows])
    # Of 64 bits, what is at most 5 need not be so in 32.
    p, r = scalar(g, ("int32", "int8", "uint8", "int16")), g.text.fresh("r")
    low, high, where = dice.pick((
        ("0", f"te.clip({p.name}, 0, {columns})", ""), ("0", f"te.min({p.name}, {columns})", ""),
        ("0", str(columns), f"{r} < {p.name}"), ("0", str(columns), f"{r} + i >= {p.name}"),
        (f"te.clip({p.name}, 0, {columns})", str(columns), ""),
        ("0", f"te.min(te.max({p.name} - i, 0), {columns})", ""),
        ("0", str(columns), f"te.all({p.name} > 0, {r} % te.max({p.name}, 1) == 0)"),
    ))  # fmt: skip
    low, high = (f'te.cast("int32", {x})' if p.name in x else x for x in (low, high))
    read = g.read(t, ["i", f'({r} := te.reduce_axis(({low}, {high}), "{r}"))'])
    term = to_type(read, "int32" if t.type == "int8" else t.type)
    kind = dice.pick(("sum", "sum", "max"))
    chosen = f", where={where}" if where else ""
    least, most = (-400.0, 400.0) if kind == "sum" else (float("-inf"), float("inf"))
    body = f"te.{kind}({term.text}, axis={r}{chosen})"
    g.compute([i], Term(body, term.type, least, most))


SCALARS: Stages = ((moved, 4), (limited, 2), (scaled, 1), (partial_sum, 1))
