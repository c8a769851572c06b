"""Which instructions of a cubin touch sums that products in the background still write.

Read from SASS, since ptxas itself has been seen to move what reads sums over the wait for them:
all ways through the code, with the groups of products that are under way on each.
"""

from __future__ import annotations

import re
from typing import TypeAlias

Registers: TypeAlias = frozenset[int]
#: The sums of each group of products under way, the oldest first, and of products of no group yet.
State: TypeAlias = tuple[tuple[Registers, ...], Registers]

_INSTRUCTION = re.compile(
    r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@(?P<on>!?U?P\w+)\s+)?(?P<text>[A-Z].*?)\s*;"
)
_LABEL = re.compile(r"(\.L\w+):")
_PRODUCT = re.compile(
    r"HGMMA\.64x(?P<columns>\d+)x\d+\.(?P<type>F\d+)\S* "
    r"(?:R(?P<first>\d+)|RZ), (?:R(?P<left>\d+))?"
)
_WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x[0-9a-f]+)")
_JUMP = re.compile(r"BRA `\((\.L\w+)\)")
#: Groups that are distinguished: of more, the oldest ones count as one.
_MOST = 8
#: Registers of a product's left operand, of 16 bits.
_LEFT = 4


def touched_early(sass: str) -> list[str]:
    """The instructions of one kernel that use sums which may be under way.

    Raises :class:`ValueError` for what is not understood.
    """
    lines, labels = _parsed(sass)
    found: dict[int, str] = {}
    seen: set[tuple[int, State]] = set()
    todo: list[tuple[int, State]] = [(0, ((), frozenset()))]
    while todo:
        at, state = todo.pop()
        if at >= len(lines) or (at, state) in seen:
            continue
        seen.add((at, state))
        on, text = lines[at]
        groups, loose = state
        product, wait = _PRODUCT.match(text), _WAIT.match(text)
        if product:
            used = _left(product)
        else:
            used = frozenset(int(r) for r in re.findall(r"\bR(\d+)\b", text))
        if used & loose.union(*groups):
            found[at] = text
        if product:
            loose |= _sums(product)
            if text.endswith("gsb0"):
                groups, loose = _grown(groups, loose), frozenset()
        elif wait and not on:
            kept = int(wait[1], 16)
            groups = groups[-kept:] if kept else ()
        jump = re.search(r"\.L\w+", text) if text.startswith("BRA") else None
        if jump:
            todo.append((labels[jump[0]], (groups, loose)))
        elif text.startswith(("BRX", "JMP", "CALL", "HGMMA", "BRA")) and not product:
            raise ValueError(f"what does {text!r} do?")
        if on or not (_JUMP.fullmatch(text) or text.startswith(("EXIT", "RET"))):
            todo.append((at + 1, (groups, loose)))
    return [found[at] for at in sorted(found)]


def _grown(groups: tuple[Registers, ...], group: Registers) -> tuple[Registers, ...]:
    """With one more group."""
    if len(groups) < _MOST:
        return (*groups, group)
    return (groups[0] | groups[1], *groups[2:], group)


def _left(product: re.Match[str]) -> Registers:
    """The registers of the left operand, if it is in registers."""
    first = product["left"]
    return frozenset() if first is None else frozenset(range(int(first), int(first) + _LEFT))


def _sums(product: re.Match[str]) -> Registers:
    """The registers that a product of a warpgroup adds to, in each thread."""
    if product["first"] is None:
        return frozenset()
    first, halves = int(product["first"]), product["type"] == "F16"
    return frozenset(range(first, first + int(product["columns"]) // (4 if halves else 2)))


def _parsed(sass: str) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """The instructions, each with its predicate, and where labels are."""
    lines: list[tuple[str, str]] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(lines)
        elif instruction := _INSTRUCTION.match(line):
            lines.append((instruction["on"] or "", instruction["text"]))
    return lines, labels
