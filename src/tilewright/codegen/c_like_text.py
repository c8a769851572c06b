"""Parts of C-like source: text that knows its precedence, names, numbers."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

#: How tightly C's operators bind, by the level of the table in the C standard.
ATOM, UNARY, MUL, ADD, SHIFT, RELATION, EQUALITY = 16, 15, 13, 12, 11, 10, 9
BIT_AND, BIT_XOR, BIT_OR, AND, OR, TERNARY = 8, 7, 6, 5, 4, 3


class Code(str):
    """An expression as text, with how tightly its outermost operator binds."""

    level: int

    def at(self, level: int) -> str:
        """The text, in parentheses where it binds less tightly than ``level``."""
        return self if self.level >= level else f"({self})"


def code(text: str, level: int = ATOM) -> Code:
    """``text`` as an expression whose outermost operator binds at ``level``."""
    made = Code(text)
    made.level = level
    return made


def infix(a: Code, symbol: str, b: Code, level: int) -> Code:
    """``a symbol b`` for an operator that associates to the left.

    Bit operations and shifts put both operands in parentheses unless they bind as tightly as a
    unary operator: few readers know C's order of them.
    """
    tight = level in (SHIFT, BIT_AND, BIT_XOR, BIT_OR)
    logical = level in (AND, OR)
    left = UNARY if tight else EQUALITY if logical and a.level != level else level
    right = UNARY if tight else EQUALITY if logical else level + 1
    return code(f"{a.at(left)} {symbol} {b.at(right)}", level)


def call(function: str, *args: str) -> Code:
    """``function(args)``."""
    return code(f"{function}({', '.join(args)})")


def wrapped(head: str, parts: Iterable[str], tail: str) -> Code:
    """``head part, part tail``, a line a part where it is long."""
    parts = list(parts)
    text = f"{head}{', '.join(parts)}{tail}"
    if len(text) <= 88:
        return code(text)
    lines = ",\n".join(part.replace("\n", "\n    ") for part in parts)
    return code(f"{head}\n{lines}{tail}")


def single_literal(value: float) -> str:
    """The shortest decimal that reads back as the float32 nearest to a finite ``value``."""
    wanted = struct.pack("f", value)
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if struct.pack("f", float(text)) == wanted:
            break
    return _with_point(text)


def double_literal(value: float) -> str:
    """The shortest decimal that reads back as a finite ``value``."""
    return _with_point(repr(value))


def _with_point(text: str) -> str:
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent)}"
    return text if "." in text else f"{text}.0"


def sanitized(name: str) -> str:
    """``name`` as an identifier of C: ``A.local`` becomes ``A_local``."""
    text = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "v"
    return f"v{text}" if text[0].isdigit() else text


#: Words that C, its relatives and their libraries keep for themselves.
KEYWORDS = frozenset(
    """auto bool break case char const constexpr continue default do double else enum extern false
    float for goto half if inline int long nullptr register restrict return short signed sizeof
    static struct switch true typedef union unsigned void volatile while and or not xor this new
    delete class template typename namespace using operator private public protected try catch
    throw friend virtual asm alignas alignof and_eq bitand bitor char8_t char16_t char32_t co_await
    co_return co_yield compl concept const_cast consteval constinit decltype dynamic_cast explicit
    export mutable noexcept not_eq or_eq reinterpret_cast requires static_cast thread_local typeid
    typeof wchar_t xor_eq min max main NULL INFINITY NAN""".split()
)


class Names:
    """Identifiers that do not clash within nested scopes, close to what the user wrote."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._scopes: list[set[str]] = [set(KEYWORDS) | set(reserved)]

    def push(self) -> None:
        """Open a scope."""
        self._scopes.append(set())

    def pop(self) -> None:
        """Close the innermost scope; its names are free again."""
        self._scopes.pop()

    def fresh(self, wanted: str) -> str:
        """``wanted``, or ``wanted_1`` and so on, whichever is not in use; it is now."""
        base = found = sanitized(wanted)
        count = 0
        while any(found in scope for scope in self._scopes):
            count += 1
            found = f"{base}_{count}"
        self._scopes[-1].add(found)
        return found
