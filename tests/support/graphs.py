"""Declarations drawn at random: one to five stages whose values stay exact integers.

Every tensor carries the interval of its values, and whatever would leave what its type holds
exactly is clipped first; so results do not depend on the order of sums and products. Stages whose
integers wrap (``machine_stages``) have the whole range of their type for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tests.support.drawing import Dice, Text

from tilewright.ir.dtype import dtype, int_range

#: The largest integer up to which sums and products are let grow, by type.
LIMITS = {
    "float32": 2**22, "float64": 2**40, "float16": 1024, "int32": 2**24, "int64": 2**30,
    "int16": 2**12, "int8": 100, "uint8": 200, "uint32": 2**24, "bfloat16": 128,
    "uint16": 2**12,
}  # fmt: skip
TYPES = (
    *("float32",) * 9, "int32", "int32", "int8", "int64", "float64", "float16", "uint8", "bfloat16",
    "uint32", "int16",
)  # fmt: skip

Extent = int | str  # "n" is symbolic
CHOICES = ("te.if_then_else", "te.select")
AXES = ("i", "j", "k", "l", "m", "o")


@dataclass(frozen=True)
class Known:
    """A tensor: its name in the text, and what is known of it."""

    name: str
    shape: tuple[Extent, ...]
    type: str
    low: float
    high: float


@dataclass(frozen=True)
class Scalar:
    """A number that a call says: its name in the text, and values to try."""

    name: str
    type: str
    low: int
    high: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Term:
    """An expression as text, of type ``type``, with values from ``low`` to ``high``."""

    text: str
    type: str
    low: float
    high: float

    @property
    def floating(self) -> bool:
        return "float" in self.type


@dataclass
class Axis:
    """An axis that expressions may use."""

    name: str
    extent: Extent


def to_type(t: Term, to: str) -> Term:
    """``t`` as another type; negative values become zero where it has none."""
    t = within(t, LIMITS[to], to.startswith("u"))
    return t if t.type == to else Term(f'te.cast("{to}", {t.text})', to, t.low, t.high)


def within(t: Term, bound: int, positive: bool = False) -> Term:
    """``t`` where its values are small enough, else ``t`` clipped."""
    bound = min(bound, LIMITS[t.type])
    low, high = (0 if positive or t.type.startswith("u") else -bound), bound
    if low <= t.low and t.high <= high:
        return t
    new_low, new_high = min(max(t.low, low), high), max(min(t.high, high), low)
    return Term(f"te.clip({t.text}, {low}, {high})", t.type, new_low, new_high)


def constant(value: int, type: str) -> Term:
    return Term(f'te.const({value}, "{type}")', type, value, value)


@dataclass
class Graph:
    """A declaration being drawn."""

    dice: Dice
    text: Text = field(default_factory=Text)
    inputs: list[Known] = field(default_factory=list)
    made: list[Known] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    outputs: list[str] = field(default_factory=list)
    siblings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    n: int = 0  # a value of the symbolic extent, 0 where there is none
    scalars: list[Scalar] = field(default_factory=list)
    wild: set[str] = field(default_factory=set)  # with values of the whole range of their type
    promised: bool = True  # whether verify has to prove it
    work: int = 600  # elements of a stage, times what it reduces over

    # -- sizes ----------------------------------------------------------------------------

    def size(self, shape: Sequence[Extent]) -> int:
        return math.prod(self.n if e == "n" else int(e) for e in shape)

    def shape(self, rank: int, limit: int) -> tuple[int, ...]:
        """A shape of at most ``limit`` elements."""
        found, left = [], limit
        for _ in range(rank):
            extent = self.dice.number(1, max(1, min(13, left)))
            found.append(extent)
            left //= extent
        return tuple(self.dice.shuffled(found)) if rank > 1 else tuple(found)

    # -- tensors --------------------------------------------------------------------------

    def placeholder(self, shape: Sequence[Extent], type: str) -> Known:
        name = "ABCDEFGHK"[len(self.inputs)] if len(self.inputs) < 9 else self.text.fresh("A")
        kind = "" if type == "float32" else f', "{type}"'
        self.text.do(f'{name} = te.placeholder({_shape(shape)}{kind}, name="{name}")')
        low = 0 if type.startswith("u") else -4
        known = Known(name, tuple(shape), type, low, 4)
        self.inputs.append(known)
        return known

    def wildly(self, shape: Sequence[Extent], type: str) -> Known:
        """An input with values of the whole range of its type."""
        if type == "bool":
            low, high = 0, 1
        else:
            low, high = int_range(dtype(type))
        known = replace(self.placeholder(shape, type), low=low, high=high)
        self.inputs[-1] = known
        self.wild.add(known.name)
        return known

    def scalar(self, type: str, least: int, most: int) -> Scalar:
        """A scalar argument; ``least`` and ``most`` are its bounds where that one is not 0."""
        name = self.text.fresh("p")
        said = f", least={least}, most={most}" if least else f", most={most}" if most else ""
        self.text.do(f'{name} = te.var("{name}", "{type}"{said})')
        low, high = int_range(dtype(type))
        if type == "int64":  # with room for products in 64 bits
            low, high = -(2**30) - 7, 2**30 + 7
        low, high = least or low, most or high
        pool = (0, 1, 2, 3, 5, 8, -1, -2, -3, 12, 100, low, high, low + 1, high - 1, high // 2 + 1)
        values = [min(max(self.dice.pick(pool), low), high) for _ in range(4)]
        self.scalars.append(Scalar(name, type, low, high, tuple(values)))
        return self.scalars[-1]

    def sizes(self, k: int) -> dict[str, int]:
        """What the call ``k`` says of the symbolic extent and of scalars, by name."""
        found = {"n": (self.n, 0, 1, 7)[k % 4]} if self.n else {}
        return found | {p.name: p.values[k % 4] for p in self.scalars}

    def numbers(self, tensors: Iterable[Known]) -> list[Known]:
        """Those of ``tensors`` without infinities and what is not a number: a sum or an argmax of
        these depends on its order, and an integer made of one may be any."""
        return [t for t in tensors if t.name not in self.wild or "float" not in t.type]

    def source(self, rank: int = 0, logical: bool = False) -> Known:
        """A tensor to read, most often the newest one; of conditions only where ``logical``."""
        fits = [
            t
            for t in self.numbers((*reversed(self.made), *self.inputs))
            if len(t.shape) >= rank and (logical or t.type != "bool")
        ]
        if fits and (self.n or not self.dice.chance(10)):
            at = self.dice.number(0, len(fits) - 1) if self.dice.chance(30) else 0
            return fits[at]
        return self.placeholder(self.shape(max(rank, self.dice.number(1, 4)), 200), self.type())

    def other(self, shape: Sequence[int], type: str) -> Known:
        """A tensor of exactly this shape, an old or a new one."""
        fits = [t for t in self.numbers((*self.made, *self.inputs)) if t.shape == tuple(shape)]
        if fits and self.dice.chance(40):
            return self.dice.pick(fits)
        return self.placeholder(shape, type)

    def type(self) -> str:
        return self.dice.pick(TYPES)

    def read(self, t: Known, indices: Sequence[str]) -> Term:
        self.used.add(t.name)
        text = f"{t.name}[{', '.join(indices)}]" if indices else f"{t.name}()"
        if t.type != "bool":
            return Term(text, t.type, t.low, t.high)
        type = self.dice.pick(("float32", "int32", "int8"))
        if self.dice.chance(50):
            return Term(f'te.cast("{type}", {text})', type, 0, 1)
        chosen = f'te.const(3, "{type}"), te.const(2, "{type}")'
        return Term(f"{self.dice.pick(CHOICES)}({text}, {chosen})", type, 2, 3)

    def compute(self, axes: Sequence[Axis], body: Term, name: str = "") -> Known:
        name = name or f"T{len(self.made)}"
        if "axis=" not in body.text and self.dice.chance(4):
            body = Term(f"{_atom(body)} > {self.dice.number(0, 3)}", "bool", 0, 1)
        head = " ".join(["lambda", ", ".join(a.name for a in axes)]).rstrip()
        self.text.do(
            f"{name} = te.compute({_shape([a.extent for a in axes])}, {head}: "
            f'{body.text}, name="{name}")'
        )
        known = Known(name, tuple(a.extent for a in axes), body.type, body.low, body.high)
        self.made.append(known)
        return known

    def pair(self, axes: Sequence[Axis], bodies: Sequence[Term], text: str) -> None:
        """A stage of two outputs."""
        names = [f"T{len(self.made) + k}" for k in range(2)]
        parameters = ", ".join(a.name for a in axes)
        self.text.do(
            f"{names[0]}, {names[1]} = te.compute({_shape([a.extent for a in axes])}, "
            f'lambda {parameters}: {text}, name="{names[0]}")'
        )
        for name, body in zip(names, bodies):
            shape = tuple(a.extent for a in axes)
            self.made.append(Known(name, shape, body.type, body.low, body.high))
            self.siblings[name] = tuple(names)

    # -- indices --------------------------------------------------------------------------

    def index(self, extent: Extent, axes: Sequence[Axis], plain: int = 70) -> str:
        """An expression of ``axes`` that stays in ``0 .. extent - 1``."""
        dice = self.dice
        if extent == "n":
            return next(a.name for a in axes if a.extent == "n")
        assert isinstance(extent, int)
        known = [(a.name, a.extent) for a in axes if isinstance(a.extent, int)]
        fits = [(a, e) for a, e in known if e <= extent]
        same = [a for a, e in fits if e == extent]
        if same and dice.chance(plain):
            return dice.pick(same)
        if fits and not dice.chance(30):
            a, e = dice.pick(fits)
            slack = extent - e
            match dice.number(0, 3):
                case 0:
                    offset = dice.number(0, slack)
                    return f"{a} + {offset}" if offset else a
                case 1:
                    return f"{extent - 1} - {a}"
                case 2 if e > 1 and (extent - 1) // (e - 1) > 1:
                    step = dice.number(2, (extent - 1) // (e - 1))
                    offset = dice.number(0, extent - 1 - step * (e - 1))
                    return f"{a} * {step}" + (f" + {offset}" if offset else "")
            two = [(b, f) for b, f in fits if b != a and e + f - 1 <= extent]
            if two:
                return f"{a} + {dice.pick(two)[0]}"
            return a
        if known and dice.chance(70):
            a, e = dice.pick(known)
            if dice.chance(50):
                return f"{a} % {extent}" if e > extent else f"{a} % {dice.number(1, extent)}"
            return f"{a} // {-(-e // extent) + dice.number(0, 1)}"
        return str(dice.number(0, extent - 1))

    def operand(self, axes: Sequence[Axis], type: str) -> Term:
        """A read of some tensor, in bounds for all values of ``axes``, as ``type``."""
        dice = self.dice
        if not axes:
            return constant(dice.number(0, 3), type)
        plain = [a for a in axes if a.extent != "n"]
        if plain and dice.chance(50):
            used = dice.some(plain, 60) or plain[-1:]
            shape = [a.extent for a in used]
            t = self.other(shape, type)
            return to_type(self.read(t, [a.name for a in used]), type)
        symbolic = any(a.extent == "n" for a in axes)
        fits = [
            t for t in self.numbers((*self.made, *self.inputs)) if symbolic or "n" not in t.shape
        ]
        if not fits:
            return constant(1, type)
        t = dice.pick(fits)
        return to_type(self.read(t, [self.index(e, axes) for e in t.shape]), type)

    # -- arithmetic -----------------------------------------------------------------------

    def combine(self, a: Term, b: Term) -> Term:
        """An operation on two terms of one type."""
        limit = LIMITS[a.type]
        unsigned = a.type.startswith("u")
        match self.dice.number(0, 6):
            case 0 | 1:
                a, b = within(a, limit // 2), within(b, limit // 2)
                return Term(f"{_atom(a)} + {_atom(b)}", a.type, a.low + b.low, a.high + b.high)
            case 2 if not unsigned:
                a, b = within(a, limit // 2), within(b, limit // 2)
                return Term(f"{_atom(a)} - {_atom(b)}", a.type, a.low - b.high, a.high - b.low)
            case 3:
                text = f"te.max({a.text}, {b.text})"
                return Term(text, a.type, max(a.low, b.low), max(a.high, b.high))
            case 4:
                text = f"te.min({a.text}, {b.text})"
                return Term(text, a.type, min(a.low, b.low), min(a.high, b.high))
            case 5:
                choose = self.dice.pick(CHOICES)
                text = f"{choose}({_atom(a)} > {_atom(b)}, {a.text}, {b.text})"
                return Term(text, a.type, min(a.low, b.low), max(a.high, b.high))
        return times(a, b)

    def unary(self, t: Term, axes: Sequence[Axis]) -> Term:
        """An operation on one term."""
        dice, limit = self.dice, LIMITS[t.type]
        unsigned = t.type.startswith("u")
        axes = axes or [Axis("0", "")]
        c = dice.number(1, 3)
        match dice.number(0, 13):
            case 0:
                t = within(t, limit - 4)
                return Term(f"{_atom(t)} + {c}", t.type, t.low + c, t.high + c)
            case 1:
                return Term(f"te.max({t.text}, {c})", t.type, max(t.low, c), max(t.high, c))
            case 2:
                return times(t, constant(c, t.type))
            case 3 if not unsigned:
                t = within(t, limit)
                return Term(f"-{_atom(t)}", t.type, -t.high, -t.low)
            case 4 if not unsigned:
                t = within(t, limit)
                high = max(abs(t.low), abs(t.high))
                return Term(f"te.abs({t.text})", t.type, 0, high)
            case 5 if not t.floating:
                k = c + 1
                return Term(f"{_atom(t)} // {k}", t.type, t.low // k, t.high // k)
            case 6 if not t.floating:
                return Term(f"{_atom(t)} % {c + 1}", t.type, 0, c)
            case 6 if t.floating:
                name = dice.pick(("floor", "ceil", "round", "trunc"))
                return Term(f"te.{name}({t.text})", t.type, t.low, t.high)
            case 7:
                choose = dice.pick(CHOICES)
                high = max(t.high, c)
                text = f"{choose}({_atom(t)} > {c - 1}, {t.text}, {c})"
                return Term(text, t.type, min(t.low, c), high)
            case 8:
                a = dice.pick(axes)
                if a.extent != "n" and isinstance(a.extent, int):
                    t = within(t, limit - 16)
                    text = f"{_atom(t)} + {a.name}.astype({t.type!r})"
                    return Term(text, t.type, t.low, t.high + a.extent - 1)
            case 9:
                a = dice.pick(axes)
                if isinstance(a.extent, int):
                    at = dice.number(0, a.extent)
                    text = f"te.if_then_else({a.name} < {at}, {t.text}, {c})"
                    return Term(text, t.type, min(t.low, c), max(t.high, c))
            case 10:
                return to_type(to_type(t, self.type()), t.type)
            case 11:
                return Term(f"({_atom(t)} > {c}).astype({t.type!r})", t.type, 0, 1)
            case 12 if not t.floating:
                return self.bits(t, c)
            case 13 if t.type in ("float32", "float64"):
                t = within(t, 64)
                text = f"te.fma({t.text}, {t.text}, te.const({c}, {t.type!r}))"
                return Term(text, t.type, c, c + _size(t) ** 2)
        return t

    def bits(self, t: Term, c: int) -> Term:
        """An operation on the bits of an integer, or a division that truncates."""
        unsigned = t.type.startswith("u")
        match self.dice.number(0, 5):
            case 0:
                return Term(f"{_atom(t)} & {c}", t.type, 0, c)
            case 1:
                return Term(f"{_atom(t)} >> 1", t.type, t.low // 2, t.high // 2)
            case 2 if not unsigned:
                t = within(t, LIMITS[t.type] // 2)
                return Term(f"{_atom(t)} << 1", t.type, t.low * 2, t.high * 2)
            case 3:
                return Term(f"te.popcount({t.text})", t.type, 0, 64)
            case 4:
                t = within(t, LIMITS[t.type])
                most = _size(t)
                return Term(f"te.truncdiv({t.text}, {c + 1})", t.type, -most, most)
            case 5:
                return Term(f"te.truncmod({t.text}, {c + 1})", t.type, -c, c)
        return t

    def expression(self, t: Term, axes: Sequence[Axis]) -> Term:
        """A few operations on ``t``."""
        for _ in range(self.dice.number(0, 2)):
            if self.dice.chance(40):
                t = self.combine(t, self.operand(axes, t.type))
            else:
                t = self.unary(t, axes)
        return t


def times(a: Term, b: Term) -> Term:
    """The product, of factors clipped to where it is exact."""
    limit = LIMITS[a.type]
    if max(_size(a), 1) * max(_size(b), 1) > limit:
        half = math.isqrt(limit)
        a, b = within(a, half), within(b, half)
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Term(f"{_atom(a)} * {_atom(b)}", a.type, min(ends), max(ends))


def _size(t: Term) -> float:
    return max(abs(t.low), abs(t.high))


def _atom(t: Term) -> str:
    """The text as an operand."""
    simple = t.text.replace("_", "").replace(".", "").isalnum()
    depth, outside = 0, False
    for c in t.text:
        depth += (c in "([") - (c in ")]")
        outside = outside or (c == " " and depth == 0)
    return t.text if simple or (not outside and not t.text.startswith("-")) else f"({t.text})"


def _shape(shape: Sequence[Extent]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
