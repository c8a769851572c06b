"""Writing LLVM IR as text: typed values, blocks and functions.

Text, because it is several times faster to write than llvmlite's objects, and the IR's own
assembler checks it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

#: What floating-point instructions may do: fuse a multiplication with the addition of its product
#: (``contract``) and ignore the sign of zero (``nsz``). Sums are never reordered, so the same
#: machine always gives the same bits.
FLAGS = "contract nsz"


class Value(NamedTuple):
    """An operand: its LLVM type and how it is written. ``str()`` gives both."""

    type: str
    text: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def vector_type(element: str, lanes: int) -> str:
    """``float`` or ``<8 x float>``."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def split_type(type: str) -> tuple[str, int]:
    """The element type and the number of lanes."""
    if type[0] != "<":
        return type, 1
    lanes, _, element = type[1:-1].partition(" x ")
    return element, int(lanes)


def mangled(type: str) -> str:
    """The type as written in the name of an overloaded intrinsic."""
    element, lanes = split_type(type)
    short = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"


def literal(type: str, value: int | float) -> Value:
    """A constant, in every lane of a vector type."""
    element, lanes = split_type(type)
    if element in ("float", "double", "half"):
        text = _float_text(element, float(value))
    elif element == "i1":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return Value(type, text if lanes == 1 else f"splat ({element} {text})")


def _float_text(element: str, value: float) -> str:
    if element == "half":
        return f"0xH{half_bits(value):04X}"
    if element == "float" and not math.isnan(value):
        value = round_to_float32(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def half_bits(value: float) -> int:
    """The nearest float16, as its bits."""
    try:
        data = struct.pack("<e", value)
    except OverflowError:
        data = struct.pack("<e", math.copysign(math.inf, value))
    return int.from_bytes(data, "little")


def round_to_float32(value: float) -> float:
    """The nearest value that float32 has."""
    try:
        found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return found


def opaque(value: str, low: int | None = None, high: int | None = None, type: str = "i64") -> str:
    """The text of an integer of which LLVM knows no more than its least and greatest value, where
    they are given for an i64, not how it was computed.

    LLVM's loop strength reduction tries the parts of each address in every arrangement, which takes
    longer than the rest of compiling a loop where addresses have many.
    """
    known = ""
    if low is not None and high is not None and -(2**63) <= low <= high < 2**63 - 1:
        known = f"range(i64 {low}, {high + 1}) "
    return f'call {known}{type} asm "", "=r,0"({type} {value})'


def constant(value: Value) -> int | None:
    """The integer that a scalar value is, None where it is computed."""
    text = value.text
    return int(text) if text[0] in "-0123456789" and value.type[0] == "i" else None


class Builder:
    """Adds instructions at the end of the current block of the current function."""

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.declarations: dict[str, str] = {}
        self.globals: list[str] = []
        self.symbols: set[str] = set()  # external functions that the code calls
        self.metadata: list[str] = []
        self.lines: list[str] = []
        self.prologue: list[str] = []  # instructions at the start of the function
        self.block = "entry"
        self._count = 0

    # Instructions

    def name(self) -> str:
        """A fresh register."""
        self._count += 1
        return f"%v{self._count}"

    def op(self, type: str, text: str) -> Value:
        """An instruction that gives a value."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return Value(type, name)

    def do(self, text: str) -> None:
        """An instruction without a value."""
        self.lines.append(f"  {text}")

    def binary(self, opcode: str, a: Value, b: Value) -> Value:
        return self.op(a.type, f"{opcode} {a}, {b.text}")

    def compare(self, opcode: str, a: Value, b: Value) -> Value:
        """``opcode`` is like "icmp slt" or "fcmp olt"."""
        return self.op(vector_type("i1", split_type(a.type)[1]), f"{opcode} {a}, {b.text}")

    def convert(self, opcode: str, a: Value, to: str) -> Value:
        return self.op(to, f"{opcode} {a} to {to}") if a.type != to else a

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        if condition.type != "i1" or a.text != b.text:
            return self.op(a.type, f"select {condition}, {a}, {b}")
        return a

    def call(
        self, type: str, symbol: str, args: Sequence[Value], flags: str = "", external: bool = False
    ) -> Value:
        """A call; the function is declared by its arguments."""
        self.declare(type, symbol, [a.type for a in args], external)
        text = f"call {flags}{' ' if flags else ''}{type} @{symbol}({', '.join(map(str, args))})"
        if type == "void":
            self.do(text)
            return Value("void", "")
        return self.op(type, text)

    def declare(self, type: str, symbol: str, args: Sequence[str], external: bool = False) -> None:
        """Make ``symbol`` known; ``external`` ones are looked up when the code is loaded."""
        if external:
            self.symbols.add(symbol)
        self.declarations.setdefault(
            symbol, f"declare {type} @{symbol}({', '.join(args)})" + (" nounwind" * external)
        )

    def intrinsic(self, name: str, *args: Value, type: str = "", flags: str = "") -> Value:
        """An intrinsic overloaded on the type of its first argument, which is also its result's."""
        type = type or args[0].type
        return self.call(type, f"llvm.{name}.{mangled(args[0].type)}", args, flags)

    def splat(self, a: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if lanes == 1 or a.type[0] == "<":
            return a
        type = vector_type(a.type, lanes)
        if a.text[0] not in "%@":
            return Value(type, f"splat ({a})")
        one = self.op(type, f"insertelement {type} poison, {a}, i64 0")
        return self.op(type, f"shufflevector {one}, {type} poison, <{lanes} x i32> zeroinitializer")

    def shuffle(self, a: Value, b: Value, picks: Sequence[int]) -> Value:
        """Lanes of two vectors by number, those of the second after those of the first."""
        if len(picks) == 1:  # LLVM's vector of one element is none of ours
            other, k = divmod(picks[0], split_type(a.type)[1])
            return self.lane(b if other else a, k)
        type = vector_type(split_type(a.type)[0], len(picks))
        mask = ", ".join(f"i32 {k}" for k in picks)
        return self.op(type, f"shufflevector {a}, {b}, <{len(picks)} x i32> <{mask}>")

    def join(self, parts: Sequence[Value]) -> Value:
        """The lanes of several vectors, none longer than the first, as one vector."""
        made, unset = parts[0], "poison"
        for part in parts[1:]:
            before, more = split_type(made.type)[1], split_type(part.type)[1]
            if before == 1:
                made = self.shuffle(self.splat(made, 2), self.splat(part, 2), (0, 2))
                continue
            if more == 1:
                part = self.splat(part, before)
            elif more < before:  # LLVM shuffles vectors of one type
                part = self.shuffle(
                    part, Value(part.type, unset), [k % more for k in range(before)]
                )
            made = self.shuffle(made, part, range(before + more))
        return made

    def lane(self, a: Value, index: int) -> Value:
        if a.type[0] != "<":
            return a
        return self.op(split_type(a.type)[0], f"extractelement {a}, i64 {index}")

    def gather(self, values: Sequence[Value]) -> Value:
        """Scalars as a vector."""
        made = Value(vector_type(values[0].type, len(values)), "poison")
        for index, value in enumerate(values):
            made = self.op(made.type, f"insertelement {made}, {value}, i64 {index}")
        return made

    def element(self, type: str, pointer: Value, offset: Value, there: bool = True) -> Value:
        """The address of an element of ``type``; a vector of offsets gives a vector of them.

        ``there`` says that the element is one of the array's, which an address under a mask need
        not be.
        """
        if offset.text == "0":
            return pointer
        lanes, bounds = split_type(offset.type)[1], " inbounds" if there else ""
        return self.op(
            vector_type("ptr", lanes), f"getelementptr{bounds} {type}, {pointer}, {offset}"
        )

    # Blocks

    def label(self, hint: str = "b") -> str:
        """A fresh label."""
        self._count += 1
        return f"{hint}{self._count}"

    def start(self, label: str) -> None:
        """Continue in a new block."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: Value, yes: str, no: str, weights: str = "") -> None:
        self.do(f"br {condition}, label %{yes}, label %{no}{weights}")

    def phi(self, *incoming: tuple[Value, str]) -> Value:
        """The value by the block that control came from."""
        pairs = ", ".join(f"[ {value.text}, %{label} ]" for value, label in incoming)
        return self.op(incoming[0][0].type, f"phi {incoming[0][0].type} {pairs}")

    def note(self, text: str) -> str:
        """A metadata node, as ``!3``."""
        number = len(self.metadata)
        self.metadata.append(f"!{number} = {text.replace('SELF', f'!{number}')}")
        return f"!{number}"

    # Functions

    def begin(self) -> tuple[list[str], list[str], str, int]:
        """Start a function inside which another may be under way; :meth:`end` takes the result."""
        outer = self.lines, self.prologue, self.block, self._count
        self.lines, self.prologue, self.block, self._count = [], [], "start", 0
        return outer

    def end(self, head: str, outer: tuple[list[str], list[str], str, int], after: str) -> None:
        """Finish the function that ``head`` declares and return to the one around it.

        ``after`` is what stands between its prologue and the block "start".
        """
        body = [f"{head} {{", "entry:", *self.prologue, after, "start:", *self.lines]
        self.functions.append("\n".join([*body, "}"]))
        self.lines, self.prologue, self.block, self._count = outer

    def early(self, text: str) -> Value:
        """An instruction at the start of the function that gives a pointer."""
        self._count += 1
        name = f"%e{self._count}"
        self.prologue.append(f"  {name} = {text}")
        return Value("ptr", name)

    def text(self) -> str:
        """The module so far."""
        defined = "\n\n".join(self.functions)
        declared = "\n".join(
            line for symbol, line in self.declarations.items() if f" @{symbol}(" in defined
        )
        parts = ["\n".join(self.globals), defined, declared, "\n".join(self.metadata)]
        return "\n\n".join(part for part in parts if part) + "\n"
