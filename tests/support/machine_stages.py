"""Stages about the machine: integers that wrap, indices made of data, guards that read memory.

What verify has to prove of them it proves for all data; a stage that reads out of bounds for some,
or whose proof would need more than intervals of wrapped values, takes back the graph's promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.support.drawing import Dice
from tests.support.graph_stages import Stages, axes_of
from tests.support.graphs import CHOICES, Axis, Extent, Graph, Known, Term, constant, times, to_type

from tilewright.ir.dtype import dtype, int_range
from tilewright.ir.values import common_type

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
ARITHMETIC = ("{} + {}", "{} - {}", "{} * {}", "te.min({}, {})", "te.max({}, {})")
BITS = ("({}) & ({})", "({}) | ({})", "({}) ^ ({})", "({}) << ({})", "({}) >> ({})")
DIVISION = ("te.floordiv({}, {})", "te.floormod({}, {})", "te.truncdiv({}, {})",
            "te.truncmod({}, {})", "({}) // ({})", "({}) % ({})")  # fmt: skip
COMPARISON = ("<", "<=", ">", ">=", "==", "!=")


def whole(text: str, type: str) -> Term:
    """An expression of which nothing is known but its type."""
    return Term(f"({text})", type, *int_range(dtype(type)))


def promoted(a: Term, b: Term) -> str:
    """The type in which both meet."""
    return str(common_type(dtype(a.type), dtype(b.type)))


# -- integers that wrap -------------------------------------------------------------------


def _literal(dice: Dice, type: str) -> Term:
    low, high = int_range(dtype(type))
    value = dice.pick((0, 1, 2, 3, 7, 8, 31, 32, 40, 100, high, low, high // 2 + 1, -1, -2))
    value = min(max(value, low), high)
    return Term(f'te.const({value}, "{type}")', type, value, value)


def _leaf(g: Graph, axes: Sequence[Axis]) -> Term:
    dice = g.dice
    fits = [t for t in (*g.made, *g.inputs) if t.type in INTEGERS and _reads(t, axes)]
    match dice.number(0, 7):
        case 0:
            return _literal(dice, dice.pick(INTEGERS))
        case 1:
            type = dice.pick(INTEGERS)
            return whole(f'te.cast("{type}", {axes[0].name})', type)
        case 2 | 3 if fits:
            t = dice.pick(fits)
            return g.read(t, [a.name for a in axes])
        case 4 if g.scalars:
            p = dice.pick(g.scalars)
            return Term(p.name, p.type, p.low, p.high)
    type = dice.pick(INTEGERS)
    return g.read(g.wildly([a.extent for a in axes], type), [a.name for a in axes])


def _reads(t: Known, axes: Sequence[Axis]) -> bool:
    return t.shape == tuple(a.extent for a in axes)


def wrapping(g: Graph, axes: Sequence[Axis], depth: int) -> Term:
    """Integer arithmetic on data of all types, which meet as they like."""
    dice = g.dice
    if depth == 0:
        return _leaf(g, axes)
    a = wrapping(g, axes, depth - 1)
    match dice.number(0, 9):
        case 0:
            type = dice.pick(INTEGERS)
            return whole(f'te.cast("{type}", {a.text})', type)
        case 1:
            form = dice.pick(("-({})", "~({})", "te.popcount({})", "te.abs({})"))
            return whole(form.format(a.text), a.type)
        case 2:
            low, high = sorted((_literal(dice, a.type), _literal(dice, a.type)), key=_low)
            return whole(f"te.clip({a.text}, {low.text}, {high.text})", a.type)
    b = wrapping(g, axes, dice.number(0, depth - 1))
    type = promoted(a, b)
    match dice.number(0, 5):
        case 0 | 1:
            form = dice.pick(ARITHMETIC)
        case 2:
            form = dice.pick(BITS)
        case 3 | 4:
            form = dice.pick(DIVISION)
        case _:
            other = wrapping(g, axes, 0)
            compare = dice.pick(COMPARISON)
            text = f"{dice.pick(CHOICES)}({a.text} {compare} {b.text}, {b.text}, {other.text})"
            return whole(text, promoted(b, other))
    if b.low == b.high == 0 and form in DIVISION:  # that is an error when it is written
        b = whole(f"({b.text} | 1)", b.type)
    return whole(form.format(a.text, b.text), type)


def _low(t: Term) -> float:
    return t.low


def _shape(g: Graph) -> list[Extent]:
    """A shape of one to three extents, of the symbolic one too where there is one."""
    shape: list[Extent] = list(g.shape(g.dice.number(1, 3), 120))
    if g.n and g.dice.chance(50):
        shape[0] = "n"
    return shape


def machine_integers(g: Graph) -> None:
    """Integers of all types under all operations, with operands at the ends of their ranges."""
    axes = axes_of(_shape(g))
    g.compute(axes, wrapping(g, axes, g.dice.number(1, 4)))


def machine_sum(g: Graph) -> None:
    """A sum, product, maximum or minimum of integers, of which the first two wrap."""
    dice = g.dice
    t = g.wildly(_shape(g), dice.pick(INTEGERS))
    axes = axes_of(t.shape)
    indices, k = [a.name for a in axes], dice.number(0, len(axes) - 1)
    r = g.text.fresh("r")
    g.text.do(f'{r} = te.reduce_axis((0, {axes.pop(k).extent}), "{r}")')
    indices[k] = r
    term = g.read(t, indices)
    if dice.chance(40):
        to = dice.pick(INTEGERS)
        term = whole(f'te.cast("{to}", {term.text})', to)
    kind = dice.pick(("sum", "sum", "prod", "max", "min"))
    g.compute(axes or [Axis("x", 1)], whole(f"te.{kind}({term.text}, axis={r})", term.type))


def spread(g: Graph) -> None:
    """Values cast and combined that are the same along a dimension."""
    dice = g.dice
    rows, columns = dice.number(1, 9), dice.pick((4, 8, 9, 16))
    t = g.placeholder((rows,), g.type())
    axes = axes_of([rows, columns] if dice.chance(70) else [columns, rows])
    index = next(a.name for a in axes if a.extent == rows)
    term = to_type(g.read(t, [index]), g.type())
    if dice.chance(50):
        other = g.placeholder((rows,), g.type())
        term = g.combine(term, to_type(g.read(other, [index]), term.type))
    g.compute(axes, to_type(term, g.type()))


def not_numbers(g: Graph) -> None:
    """Maxima and minima of floating-point values some of which are not numbers: an output has such
    in it, or there are numbers instead, which other stages read."""
    dice = g.dice
    type = dice.pick(("float32", "float64", "float16"))
    t = g.placeholder(_shape(g), type)
    g.wild.add(t.name)
    axes = axes_of(t.shape)
    text = g.read(t, [a.name for a in axes]).text
    for _ in range(dice.number(1, 3)):
        other = g.operand(axes, type) if dice.chance(50) else constant(dice.number(-3, 3), type)
        first, second = dice.shuffled([text, other.text])
        text = f"te.{dice.pick(('max', 'min'))}({first}, {second})"
    if dice.chance(30):
        text = f"te.select({text} {dice.pick(COMPARISON)} 1, {text}, te.const(2, {type!r}))"
    if dice.chance(50):
        known = g.compute(axes, Term(f"te.clip({text}, -9, 9)", type, -9, 9))
        g.wild.add(known.name)
        return
    number = f"te.select({text} > -9, {text}, te.const(-9, {type!r}))"
    g.compute(axes, Term(f"te.min({number}, 9)", type, -9, 9))


# -- indices made of data -----------------------------------------------------------------


def _table(g: Graph) -> Known:
    """What is read at places that data say."""
    fits = [t for t in g.numbers(g.made) if len(t.shape) == 1 and t.shape[0] not in ("n", 1)]
    if fits and g.dice.chance(50):
        return g.dice.pick(fits)
    return g.placeholder((g.dice.pick((3, 2, 5, 8, 13, 100, 200, 300)),), g.type())


def _place(g: Graph, axes: Sequence[Axis]) -> Term:
    """An integer of data, a little arithmetic on it, which may wrap."""
    dice = g.dice
    x = g.read(g.wildly([a.extent for a in axes], dice.pick(INTEGERS)), [a.name for a in axes])
    if dice.chance(30):
        to = dice.pick(("int32", "int64", "int16"))
        x = whole(f'te.cast("{to}", {x.text})', to)
    c, d = dice.number(1, 4), dice.number(0, 3)
    match dice.number(0, 9):
        case 0:
            return whole(f"{x.text} * {c} + {d}", x.type)
        case 1:
            return whole(f"{x.text} + {x.text}", x.type)
        case 2:
            return whole(f"{x.text} << {d}", x.type)
        case 3:
            return whole(f"{x.text} >> {dice.pick((1, 3, 31, 40))}", x.type)
        case 4:
            return whole(f"{x.text} - {c}", x.type)
        case 5:
            return whole(f"{x.text} // {c + 1}", x.type)
        case 6:
            other = _place(g, axes) if dice.chance(30) else whole(axes[0].name, "int32")
            return whole(f"{x.text} {dice.pick('+-*')} {other.text}", promoted(x, other))
    return x


def _one_table(g: Graph, axes: Sequence[Axis]) -> Term:
    dice = g.dice
    t, e = _table(g), _place(g, axes)
    size = int(t.shape[0])
    wide = e.text if int_range(dtype(e.type))[1] >= size else f'te.cast("int32", {e.text})'
    zero = constant(0, t.type).text
    read = g.read(t, [wide])
    last = size - 1
    form = dice.number(0, 10)
    if form <= 2 and "+" not in wide and "*" not in wide and "<<" not in wide and "- " not in wide:
        guard = f"te.all({wide} >= 0, {wide} < {size})"
        return replace(read, text=f"{dice.pick(CHOICES)}({guard}, {read.text}, {zero})")
    if form == 3:
        return g.read(t, [f"te.clip({wide}, 0, {last})"])
    if form == 4:
        return g.read(t, [f"te.floormod({wide}, {size})"])
    if form == 5:
        return g.read(t, [f"te.min(te.max({wide}, 0), {last})"])
    g.promised = False
    match form:
        case 0 | 1 | 2 | 6:
            guard = f"te.all({wide} >= 0, {wide} < {size})"
        case 7:
            guard = f"{wide} < {size}"
        case 8:
            guard = f"te.all({wide} >= 0, {wide} + {wide} < {size})"
            read = g.read(t, [f"{wide} + {wide}"])
        case 9:
            return g.read(t, [f"te.min({wide}, {last})"])
        case _:
            return g.read(t, [f"te.truncmod({wide}, {size})"])
    return replace(read, text=f"te.if_then_else({guard}, {read.text}, {zero})")


def data_index(g: Graph) -> None:
    """Reads at indices that are computed from data, guarded well or badly."""
    axes = axes_of(_shape(g))
    term = _one_table(g, axes)
    if g.dice.chance(20):
        term = g.combine(term, to_type(_one_table(g, axes), term.type))
    g.compute(axes, term)


def guarded_guard(g: Graph) -> None:
    """A guard that reads memory, which another guard keeps in bounds."""
    dice = g.dice
    t = g.source(1)
    if "n" in t.shape:
        data_index(g)
        return
    axes = axes_of(t.shape)
    a = dice.pick(axes)
    offset, extent = dice.number(0, 3), int(a.extent)
    shifted = f"{a.name} + {offset}" if dice.chance(50) else f"{a.name} - {offset}"
    inside = f"{shifted} < {extent}" if "+" in shifted else f"{shifted} >= 0"
    mask = g.placeholder((extent,), dice.pick(("int32", "float32", "int8")))
    guard = f"te.all({inside}, {g.read(mask, [shifted]).text} > {dice.number(-2, 2)})"
    indices = [shifted if b is a else b.name for b in axes]
    read = g.read(t, indices)
    text = f"te.if_then_else({guard}, {read.text}, {constant(1, read.type).text})"
    g.compute(axes, Term(text, read.type, min(read.low, 1), max(read.high, 1)))


def masked_reduction(g: Graph) -> None:
    """A reduction over the elements that a tensor marks."""
    dice = g.dice
    shape = g.shape(dice.number(1, 2), 60)
    t, names = g.placeholder(shape, g.type()), []
    for extent in shape:
        names.append(g.text.fresh("r"))
        g.text.do(f'{names[-1]} = te.reduce_axis((0, {extent}), "{names[-1]}")')
    at = [dice.pick([r for r, e in zip(names, shape) if e <= extent]) for extent in shape]
    mask = g.read(dice.pick((t, g.placeholder(shape, "int8"))), at)
    bound = dice.pick((str(dice.number(-2, 3)), f'te.cast("{mask.type}", {dice.pick(names)})'))
    term = to_type(g.read(t, names), "int32" if "int" in t.type else "float32")
    kind = dice.pick(("sum", "max", "min"))
    if mask.type.startswith("u"):
        bound = "2"
    text = f"te.{kind}({term.text}, axis=[{', '.join(names)}], where={mask.text} <= {bound})"
    low, high = (-400.0, 400.0) if kind == "sum" else (float("-inf"), float("inf"))
    g.compute([Axis("i", dice.number(1, 4))], Term(text, term.type, low, high))


# -- extents that depend ------------------------------------------------------------------


def dependent_reduction(g: Graph) -> None:
    """A reduction that is longer or shorter from element to element."""
    dice = g.dice
    rows, columns = dice.number(1, 9), dice.number(1, 9)
    most = dice.number(0, 2)
    length, reach = dice.pick((
        ("i + 1", rows), (f"{rows} - i", rows), ("i % 3 + 1", 3), ("i // 2 + 1", rows),
        ("te.min(i + 1, 4)", 4), ("i", rows), (f"te.max({rows - 1} - i, 0)", rows),
        ("i + j + 1", rows + columns),
    ))  # fmt: skip
    axes = axes_of([rows, columns])
    if "j" not in length and dice.chance(60):
        axes = axes[:1]
    name = g.text.fresh("r")
    t = g.placeholder((reach + most, *(int(a.extent) for a in axes[1:])), g.type())
    read = g.read(t, [f'({name} := te.reduce_axis((0, {length}), "{name}"))',
                      *(a.name for a in axes[1:])])  # fmt: skip
    kind = dice.pick(("sum", "sum", "max"))
    low, high = (reach * t.low, reach * t.high) if kind == "sum" else (float("-inf"), t.high)
    if t.type in ("int8", "uint8"):
        read = to_type(read, "int32")
    g.compute(axes, Term(f"te.{kind}({read.text}, axis={name})", read.type, low, high))


def symbolic_index(g: Graph) -> None:
    """Indices into a tensor of a symbolic extent, which may be zero."""
    if not g.n:
        chosen(g)
        return
    fits = g.numbers((*g.made, *g.inputs))
    fits = [t for t in fits if t.shape == ("n",) and t.type != "bool"]
    t = g.dice.pick(fits) if fits else g.placeholder(("n",), g.type())
    dice = g.dice
    axes = axes_of([dice.pick((4, 7, "n"))])
    i = axes[0].name
    shifted = f"{i} % 5 * 3 - {dice.number(0, 3)}"
    index, guard = dice.pick((
        (f"te.clip({i}, 0, n - 1)", ""), (f"te.min({i}, n - 1)", ""), (f"{i} % n", ""),
        (f"te.clip({i}, 0, n - 1)", "n > 0"), (f"{i} % n", "n > 0"), (i, f"{i} < n"),
        (shifted, f"te.all({shifted} >= 0, {shifted} < n)"),
        (f"n - 1 - {i}", f"{i} < n"), (f"{i} // 2", f"{i} < n"),
    ))  # fmt: skip
    read = g.read(t, [index])
    if guard:
        text = f"te.if_then_else({guard}, {read.text}, {constant(1, read.type).text})"
        read = Term(text, read.type, min(read.low, 1), max(read.high, 1))
    else:
        g.promised = False
    g.compute(axes, read)


def mirrored(g: Graph) -> None:
    """A stage of a symbolic extent, read from both of its ends."""
    if not g.n:
        chosen(g)
        return
    dice = g.dice
    (axis,) = axes_of(["n"])
    t = g.placeholder(("n",), dice.pick(("float32", "int32")))
    g.compute([axis], times(g.read(t, ["i"]), constant(dice.number(1, 3), t.type)))
    made = g.made[-1]
    axes = axes_of([dice.pick(("n", 3)), "n"] if dice.chance(70) else ["n"])
    k = axes[-1].name if dice.chance(50) or axes[0].extent != "n" else axes[0].name
    last = g.read(made, [f"n - 1 - {k}"])
    term = Term(f"{last.text} + {g.read(made, [k]).text}", t.type, 2 * made.low, 2 * made.high)
    g.compute(axes, term)


# -- deep and shared ----------------------------------------------------------------------


def deep(g: Graph) -> None:
    """Sums of up to 400 terms written out, values shared on up to 60 levels, chains of stages."""
    dice = g.dice
    t = g.placeholder((dice.number(4, 40),), dice.pick(("float32", "int32", "int64")))
    axes = axes_of(t.shape)
    n, count = t.shape[0], dice.pick((30, 60, 120, 250, 400))
    match dice.number(0, 3):
        case 0:
            text = f"reduce(lambda e, q: e + {t.name}[(i + q) % {n}], range({count}), {t.name}[i])"
        case 1:
            text = (f"reduce(lambda e, q: te.max(e - 1, te.min(e, q)), "
                    f"range({count // 6}), {t.name}[i])")  # fmt: skip
        case 2:
            text = (f"reduce(lambda e, q: te.if_then_else(e > q, e - 1, te.min(e, 3)), "
                    f"range({count // 12}), {t.name}[i])")  # fmt: skip
        case _:
            g.compute(axes, g.read(t, ["i"]))
            for _ in range(count // 4):
                last = g.made[-1]
                g.compute(axes, Term(f"te.max({g.read(last, ['i']).text}, 1)", t.type, -4, 4))
            return
    g.used.add(t.name)
    g.compute(axes, Term(text, t.type, -4.0 * (count + 1), 4.0 * (count + 1)))


# -- choices by position ------------------------------------------------------------------


def chosen(g: Graph) -> None:
    """A choice by position between two reads at indices with remainders."""
    t = g.placeholder((g.dice.pick((2, 8, 20)),), g.type())
    axes = axes_of(_shape(g))
    known = [a for a in axes if isinstance(a.extent, int)]
    if not known:
        machine_integers(g)
        return
    one, two = (to_type(g.read(t, [_remainder(g, known, t)]), t.type) for _ in range(2))
    a = g.dice.pick(known)
    condition = g.dice.pick((
        f"{g.dice.number(0, 9)} - {a.name} >= {g.dice.number(-9, 3)}",
        f"{a.name} * 3 + 1 <= {g.dice.number(0, 12)}",
        f"{a.name} % 4 < 2", f"{a.name} == {g.dice.number(0, 4)}",
    ))  # fmt: skip
    text = f"{g.dice.pick(CHOICES)}({condition}, {one.text}, {two.text})"
    g.compute(axes, Term(text, t.type, t.low, t.high))


def _remainder(g: Graph, axes: Sequence[Axis], t: Known) -> str:
    dice, size = g.dice, t.shape[0]
    a, b = dice.pick(axes).name, dice.pick(axes).name
    inner = dice.pick((
        f"{a} * {dice.number(1, 5)} + {dice.number(0, 3)}", f"-{a}", f"{a} - {b}",
        f"{a} // 2 - {b} // 3 + {a} - 3", f"{a} * {b}",
    ))  # fmt: skip
    return f"({inner}) % {size}"


MACHINE: Stages = (
    (machine_integers, 6), (machine_sum, 2), (data_index, 6), (guarded_guard, 2),
    (masked_reduction, 2), (dependent_reduction, 2), (symbolic_index, 3), (chosen, 3), (deep, 1),
    (spread, 2), (not_numbers, 1), (mirrored, 1),
)  # fmt: skip
