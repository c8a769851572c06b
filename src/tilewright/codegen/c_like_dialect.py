"""How a language of C's family spells types, constants, operators, functions and accesses.

:class:`Dialect` is plain C99 with scalars only; CUDA C++ and OpenCL C override what differs. A
dialect also notes in ``needs`` which headers and helper functions the text so far relies on.

Vectors. A language may have arithmetic on short vectors (OpenCL's ``float4``, CUDA's ``half2``):
:meth:`Dialect.width` says on how many lanes at once, and a value of more lanes is a list of
subvectors of that width. It may also move several elements by one access: :meth:`Dialect.chunk`
says how many. Both are 1 here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tilewright.codegen.c_like_text import (
    ADD,
    AND,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    EQUALITY,
    MUL,
    OR,
    RELATION,
    SHIFT,
    TERNARY,
    UNARY,
    Code,
    call,
    code,
    double_literal,
    infix,
    single_literal,
)
from tilewright.codegen.total_integers import NAMES, total_division, total_shift
from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.errors import TargetError
from tilewright.ir.func import Func
from tilewright.ir.ops import BITS_FUNCTIONS, FLOAT_FUNCTIONS
from tilewright.target.boxes import TensorMap

#: What a text needs that calls functions of which nothing is known.
FOREIGN = "foreign functions"

LEVELS: dict[type[E.Expr], tuple[str, int]] = {
    E.Add: ("+", ADD), E.Sub: ("-", ADD), E.Mul: ("*", MUL), E.Div: ("/", MUL),
    E.TruncDiv: ("/", MUL), E.TruncMod: ("%", MUL), E.Shl: ("<<", SHIFT), E.Shr: (">>", SHIFT),
    E.BitAnd: ("&", BIT_AND), E.BitOr: ("|", BIT_OR), E.BitXor: ("^", BIT_XOR),
    E.And: ("&&", AND), E.Or: ("||", OR), E.EQ: ("==", EQUALITY), E.NE: ("!=", EQUALITY),
    E.LT: ("<", RELATION), E.LE: ("<=", RELATION), E.GT: (">", RELATION), E.GE: (">=", RELATION),
}  # fmt: skip

#: Operators whose result is outside of a narrow integer's range, where C computes it as int.
_WIDENING = (E.Add, E.Sub, E.Mul, E.Shl, E.TruncDiv)
_UINT32 = dtype("uint32")


@dataclass(frozen=True)
class Launch:
    """What is known of the launches of a function: the shape of a block and the number of blocks,
    None where they vary, the bytes of shared memory of a block, and the blocks of a cluster."""

    block: tuple[int, int, int] | None = None
    grid: int | None = None
    shared: int = 0
    cluster: int = 1


def _is_narrow(t: DType) -> bool:
    """Whether C computes it as int."""
    return t.is_int and t.bits < 32 and t.lanes == 1


class Dialect:
    """Plain C99."""

    #: What :meth:`Instruction.emit` receives.
    kind = "c"
    #: The architecture, where instructions depend on it; "" for any.
    arch = ""
    #: Words besides C's that may not name anything.
    reserved: frozenset[str] = NAMES | frozenset(
        f"{name}{suffix}"
        for name in (*FLOAT_FUNCTIONS, "pow", "fma", "fabs", "fmin", "fmax")
        for suffix in ("", "f")
    ) | frozenset("abs llabs isnan floordiv floormod floordiv64 floormod64".split())  # fmt: skip
    #: Whether barriers and memory shared by a block of threads exist.
    is_gpu = False
    types: ClassVar[dict[str, str]] = {
        "bool": "bool", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t",
        "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t",
        "uint64": "uint64_t", "float32": "float", "float64": "double", "handle": "void*",
    }  # fmt: skip
    #: Suffixes of integer constants.
    suffixes: ClassVar[dict[str, str]] = {"int64": "LL", "uint32": "u", "uint64": "ULL"}

    def __init__(self) -> None:
        self.needs: set[str] = set()

    def require(self, *names: str) -> None:
        """Note that the text relies on a header or helper of these names."""
        self.needs.update(names)

    # Types and constants

    def type_name(self, t: DType) -> str:
        """The type of a value; raises :class:`TargetError` where the language has none."""
        found = self.types.get(t)
        if found is None:
            raise TargetError(
                f"{t} cannot be written in {self.kind}: convert to a type that it has"
            )
        return found

    def storage_name(self, t: DType, scope: str) -> str:
        """The type of an element in memory; a bool takes one byte."""
        return self.type_name(t) if not t.is_bool else self.types["uint8"]

    def integer(self, t: DType, value: int) -> Code:
        """An integer or bool constant."""
        if t.is_bool:
            return code("true" if value else "false")
        suffix = self.suffixes.get(t, "")
        if t.kind == "int" and t.bits >= 32 and value == -(2 ** (t.bits - 1)):
            return code(f"-{-value - 1}{suffix} - 1", ADD)  # its magnitude alone has no type
        return code(f"{value}{suffix}", UNARY if value < 0 else 16)

    def floating(self, t: DType, value: float) -> Code:
        """A floating-point constant."""
        if t.bits < 32:
            return self.cast(t, dtype("float32"), self.floating(dtype("float32"), value))
        if math.isnan(value):
            return self.nan(t)
        if math.isinf(value) or (t.bits == 32 and abs(value) >= 3.4028235677973366e38):
            return code(f"-{self.infinity(t)}", UNARY) if value < 0 else self.infinity(t)
        text = single_literal(value) + "f" if t.bits == 32 else double_literal(value)
        return code(text, UNARY if text.startswith("-") else 16)

    def infinity(self, t: DType) -> Code:
        self.require("math")
        return code("INFINITY")

    def nan(self, t: DType) -> Code:
        self.require("math")
        return code("NAN")

    # Operators

    def native(self, node: type[E.Expr], t: DType) -> bool:
        """Whether ``node`` on vectors of type ``t`` (of :meth:`width` lanes) has an operator."""
        return False

    def binary(self, node: type[E.Expr], t: DType, a: Code, b: Code) -> Code:
        """An operator of :data:`LEVELS`, or Min or Max, on operands of type ``t``.

        Min and Max of floats give NaN where either operand is one (IEEE 754-2019 maximum), but
        for the sign of a zero.

        C computes narrow integers as int. What is beyond their range is brought back, so that the
        value of the text is that of the expression; its type may be int.
        """
        if node in (E.Min, E.Max) and t.is_bool:
            return infix(a, "&" if node is E.Min else "|", b, BIT_AND if node is E.Min else BIT_OR)
        if node in (E.Min, E.Max):
            return self.extremum("min" if node is E.Min else "max", t, a, b)
        symbol, level = LEVELS[node]
        narrow = _is_narrow(t) and node in _WIDENING
        if narrow and (node is E.Shl or (node is E.Mul and t == "uint16")):
            a = self.plain_cast(_UINT32, a)  # where an int would overflow
        made = infix(a, symbol, b, level)
        return self.plain_cast(t, made) if narrow else made

    def extremum(self, name: str, t: DType, a: Code, b: Code) -> Code:
        """``min`` or ``max``."""
        return self.choose(infix(a, "<" if name == "min" else ">", b, RELATION), a, b)

    def bound(self, name: str, t: DType, nan: bool) -> str:
        """A function that is ``min`` or ``max`` of x and a number b, of a NaN NaN
        (``x < b ? b : x``), or with not ``nan`` the bound (``x > b ? x : b``); empty where there
        is none. The sign of a zero may be that of either."""
        if nan or t.bits < 32:
            return ""
        self.require("math")
        return f"f{name}" + ("f" if t.bits == 32 else "")

    def nearest(self, to: DType, x: E.Expr) -> E.Expr | None:
        """``x`` rounded to the nearest integer of type ``to``, ties to even, in functions of this
        language that are right for what is known of ``x``; None where there are none."""
        return None

    def saturated(self, to: DType, x: E.Expr) -> tuple[str, E.Expr] | None:
        """What rounds ``x`` and others to the nearest integers of type ``to``, and packs them, by
        name, with the number that it takes in place of ``x``; None where nothing does."""
        return None

    def pack_nearest(self, t: DType, name: str, parts: Sequence[Code]) -> Code:
        """The vector of what :meth:`saturated` has found, by the name of what rounds."""
        raise NotImplementedError

    def choose(self, condition: Code, a: Code, b: Code) -> Code:
        """``condition ? a : b``."""
        text = f"{condition.at(TERNARY + 1)} ? {a.at(TERNARY + 1)} : {b.at(TERNARY)}"
        return code(text, TERNARY)

    def negate(self, t: DType, a: Code) -> Code:
        """``-a``."""
        text = a.at(UNARY)
        return code(f"-({a})" if text.startswith("-") else f"-{text}", UNARY)

    def plain_cast(self, to: DType, x: Code) -> Code:
        """``(to)x``."""
        return code(f"({self.type_name(to)}){x.at(UNARY)}", UNARY)

    def cast(self, to: DType, source: DType, x: Code) -> Code:
        """A conversion of value."""
        if to.is_bool:
            return infix(x, "!=", code("0"), EQUALITY)
        return self.plain_cast(to, x)

    # Functions

    def before_rounding(self, e: E.Expr, to: DType) -> E.Expr:
        """``e``, a float32 about to be rounded to ``to``, a float of 16 bits, in functions of this
        language that are right to a quarter of what rounding costs."""
        return e

    def function(self, name: str, t: DType, args: Sequence[Code]) -> Code:
        """A function of :data:`FLOAT_FUNCTIONS` or :data:`BITS_FUNCTIONS`, or pow, fma, abs,
        popcount, isnan.

        ``t`` is the type of the first argument.
        """
        self.require("math")
        suffix = "f" if t.bits == 32 else ""
        one = self.floating(t, 1.0) if t.is_float else code("1")
        if name == "sigmoid":
            exp = self.function("exp", t, [self.negate(t, args[0])])
            return code(f"{one} / ({one} + {exp})", MUL)
        if name == "rsqrt":
            return code(f"{one} / {self.function('sqrt', t, args)}", MUL)
        if name == "exp10":
            return call(f"pow{suffix}", self.floating(t, 10.0), *args)
        if name == "popcount":
            count = self.popcount(t, args[0])  # an int
            return self.plain_cast(t, count) if t.bits == 64 or t == "uint32" else count
        if name == "isnan":
            return call("isnan", *args)
        if name in BITS_FUNCTIONS:
            return self.bits(t, args[0])
        if name == "abs":
            if t.is_float:
                return call(f"fabs{suffix}", *args)
            return self.total_size(t, args[0])
        return call(f"{name}{suffix}", *args)

    def popcount(self, t: DType, x: Code) -> Code:
        unsigned = dtype(f"uint{t.bits}")
        x = x if t is unsigned else self.plain_cast(unsigned, x)
        return call("__builtin_popcountll" if t.bits == 64 else "__builtin_popcount", x)

    def bits(self, t: DType, x: Code) -> Code:
        """The bits of a float of type ``t`` as an unsigned integer, or of that as a float."""
        name = f"bits_of_float{t.bits}" if t.is_float else f"float_of_bits{t.bits}"
        self.require(name)
        return call(name, x)

    def shuffle(self, name: str, t: DType, value: Code, lane: Code) -> Code:
        """A value of another thread of the warp."""
        raise TargetError(f"{name} needs the warps of a GPU: {self.kind} has none")

    def total_division(self, node: type[E.Expr], t: DType, a: Code, b: Code) -> Code:
        """A division by what may be 0 or -1."""
        name = total_division(node, t)
        self.require(name)
        made = call(name, a, b)
        return self.plain_cast(t, made) if t.bits < 32 else made

    def total_size(self, t: DType, a: Code) -> Code:
        """The absolute value of any integer."""
        if t.kind == "uint":
            return a
        name = "abs_any64" if t.bits == 64 else "abs_any"
        self.require(name)
        made = call(name, a)
        return self.plain_cast(t, made) if t.bits < 32 else made

    def total_shift(self, node: type[E.Expr], t: DType, a: Code, b: Code) -> Code:
        """A shift by any amount."""
        name = total_shift(node, t)
        self.require(name)
        made = call(name, a, b)
        return self.plain_cast(t, made) if t.bits < 32 or t.kind == "int" else made

    def floor_division(self, node: type[E.Expr], t: DType, a: Code, b: Code) -> Code:
        """FloorDiv or FloorMod by a function, where the signs are not known."""
        name = "floordiv" if node is E.FloorDiv else "floormod"
        name += "64" if t.bits == 64 else ""
        self.require(name)
        made = call(name, a, b)
        return self.plain_cast(t, made) if t.bits < 32 else made

    # Memory

    def pointer(self, name: str, offset: Code) -> Code:
        """The address of an element."""
        return code(name) if offset == "0" else code(f"&{name}[{offset}]", UNARY)

    def promises(self, buffer: Buffer, align: int) -> bool:
        """Whether ``buffer`` starts at a multiple of ``align`` bytes."""
        return align <= buffer.dtype.bytes

    def prefetch(self, buffer: Buffer, pointer: Code) -> str:
        """A hint that the element of ``buffer`` at ``pointer`` will be read, as an expression."""
        return call("__builtin_prefetch", pointer)

    def load(self, buffer: Buffer, name: str, offset: Code) -> Code:
        """An element of a buffer."""
        found = code(f"{name}[{offset}]")
        return infix(found, "!=", code("0"), EQUALITY) if buffer.dtype.is_bool else found

    def store(self, buffer: Buffer, name: str, offset: Code, value: Code) -> str:
        """Writing an element, as a statement."""
        return f"{name}[{offset}] = {value};"

    def updates_in_place(self, buffer: Buffer) -> bool:
        """Whether ``name[offset] += value`` means what the load and the store would."""
        return not buffer.dtype.is_bool

    def barrier(self, scope: str) -> Iterable[str]:
        """A barrier among the threads of a block or a warp, as lines."""
        raise TargetError(f"{self.kind} has no barriers")

    def of_block(self, name: str, rank: Code) -> str:
        """An array as the block with that number in the cluster has it."""
        raise TargetError(f"{self.kind} has no memory of clusters")

    #: Bytes of shared memory from which on it is asked for at the launch; 0: never.
    static_shared_limit = 0

    def shared_pool(self, name: str, align: int = 16) -> str:
        """The declaration of the shared memory that the launch asks for."""
        raise NotImplementedError

    def shared_array(self, buffer: Buffer, name: str, size: int, offset: int | None) -> str:
        """The declaration of an array of a block; ``offset`` is in bytes from the pool's start."""
        raise NotImplementedError

    def warp_part(self, buffer: Buffer, name: str, whole: str, size: int, func: Func) -> str:
        """The declaration of this warp's part of an array of a block."""
        raise NotImplementedError

    # Vectors

    def width(self, t: DType) -> int:
        """On how many lanes at once arithmetic of vectors of ``t``'s element type works."""
        return 1

    def chunk(self, buffer: Buffer, lanes: int, aligned: Callable[[int], bool]) -> int:
        """How many of ``lanes`` neighbouring elements one access may move, 1 for one by one.

        ``aligned(k)`` tells whether the first is provably at a multiple of ``k`` elements from
        the start of the buffer, which is at a multiple of 16 bytes.
        """
        return 1

    def vector_name(self, t: DType, lanes: int) -> str:
        """The type of a temporary that holds what an access of ``lanes`` elements moves."""
        raise NotImplementedError

    def begin_early(self) -> Iterable[str]:
        """What a kernel does before it reads constants ahead of :meth:`begin`."""
        return ()

    def begin(self, constants: Mapping[str, int]) -> Iterable[str]:
        """What a kernel does before anything else; ``constants`` are the bytes of those of its
        arguments that hold the same in every call."""
        return ()

    def needs_alignment(self, buffer: Buffer) -> bool:
        """Whether an access of a vector is written as ``aligned`` where its first element is
        provably at a multiple of its lanes."""
        return False

    def load_vector(
        self, buffer: Buffer, name: str, offset: Code, lanes: int, aligned: bool = False
    ) -> Code:
        raise NotImplementedError

    def load_vector_where(
        self, buffer: Buffer, name: str, offset: Code, lanes: int, condition: Code,
        other: Code | None = None,
    ) -> Code | None:  # fmt: skip
        """As :meth:`load_vector` where the condition holds, and ``other`` elsewhere, zeros without;
        None where that is to be a branch."""
        return None

    def store_vector(
        self,
        buffer: Buffer,
        name: str,
        offset: Code,
        lanes: int,
        value: Code,
        aligned: bool = False,
    ) -> str:
        raise NotImplementedError

    def part(self, text: str, t: DType, lanes: int, index: int, width: int) -> Code:
        """Lanes ``index`` to ``index + width - 1`` of a temporary of ``lanes`` lanes."""
        raise NotImplementedError

    def cast_part(self, to: DType, text: str, t: DType, lanes: int, index: int) -> Code | None:
        """Lane ``index`` of a temporary of ``lanes`` lanes of ``t`` as ``to``; None where there is
        no shorter way than to take the lane and convert it."""
        return None

    def pack(self, t: DType, parts: Sequence[Code]) -> Code:
        """A vector of type ``t`` (lanes included) of parts of equal width."""
        raise NotImplementedError

    def splat(self, t: DType, x: Code) -> Code:
        """A scalar in every lane of ``t``."""
        raise NotImplementedError

    def vector_cast(self, to: DType, source: DType, x: Code) -> Code | None:
        """A conversion of all lanes at once, None where there is none."""
        return None

    def vector_function(self, name: str, t: DType, args: Sequence[Code]) -> Code | None:
        """A function of all lanes at once, None where there is none."""
        return None

    # Tensor maps

    def tensor_maps(self, func: Func) -> tuple[TensorMap, ...]:
        """The maps that a function takes, as :mod:`.tensor_maps` has numbered them."""
        return ()

    def map_parameter(self, name: str) -> str:
        """The declaration of a parameter that is a tensor map."""
        raise NotImplementedError

    def begin_loads(
        self, queue: str, barriers: str, count: int, warps: int, whole: bool, maps: Sequence[str],
        cluster: int,
    ) -> Iterable[str]:  # fmt: skip
        """What a kernel does before it copies boxes on a queue: ``barriers`` is shared memory for
        ``count`` of them, and for as many more where ``warps`` arrive on these; ``whole`` is
        whether all warps of a block are, and ``cluster`` the blocks that share some of them."""
        raise NotImplementedError

    def end_loads(self) -> Iterable[str]:
        """What a kernel does last where blocks of a cluster shared boxes."""
        raise NotImplementedError

    def divide_loads(self, queue: str, producer: bool) -> str:
        """A first statement of the part of a ``producer``, or of the others, for each queue."""
        raise NotImplementedError

    def is_consumer(self, threads: int) -> str:
        """Whether a thread is of the first ones of a block, as a condition of whole warps."""
        raise NotImplementedError

    @contextmanager
    def consumers(self, threads: int) -> Iterator[None]:
        """Barriers within are of the first ``threads`` of a block alone."""
        yield

    def free_copies(self) -> str:
        """The statement of a warp that has done with copies, without a barrier of the block."""
        raise NotImplementedError

    # The frame

    def parameter(self, buffer: Buffer, name: str, written: bool) -> str:
        """The declaration of a parameter that points to a buffer."""
        const = "" if written else "const "
        return f"{const}{self.storage_name(buffer.dtype, 'global')}* restrict {name}"

    def shared_asked(self, launch: Launch, boxes: bool) -> int:
        """How much shared memory a block is to ask for, at least what it has; ``boxes`` says
        whether it copies boxes."""
        return launch.shared

    def signature(self, symbol: str, params: Sequence[str], launch: Launch) -> str:
        """The head of a function."""
        return f"void {symbol}({', '.join(params)})"

    def axis(self, tag: str, uniform: bool = False) -> str:
        """The index of this thread along an axis of the launch.

        With ``uniform``, that along y and z is the same in all threads of a warp, and the compiler
        has to know it, since they execute instructions together under conditions on it.
        """
        raise TargetError(f"{self.kind} has no {tag}")

    def variable(self, t: DType, name: str) -> str:
        """The declaration of an immutable value."""
        return f"const {self.type_name(t)} {name}"

    def local_array(self, buffer: Buffer, name: str, size: int) -> str:
        """The declaration of a thread's own array."""
        return f"{self.storage_name(buffer.dtype, 'local')} {name}[{size}];"

    def unroll(self) -> Iterable[str]:
        """Lines before a loop that the compiler is to write out."""
        return ()

    def keep(self) -> Iterable[str]:
        """Lines before a loop that the compiler is not to write out, not in part either."""
        return ()
