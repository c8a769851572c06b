"""Which instructions of a cubin touch what products in the background still use in registers.

Read from SASS, since ptxas itself has been seen to move what reads sums over the wait for them, and
to load other values into the registers of a left operand that is still read: all ways through the
code, with the groups of products that are under way on each.
"""

from __future__ import annotations

import re
from typing import TypeAlias

Registers: TypeAlias = frozenset[int]
#: Sums, and what is read.
Used: TypeAlias = tuple[Registers, Registers]
#: Registers of each group of products under way, the oldest first, and of products of no group yet.
State: TypeAlias = tuple[tuple[Used, ...], Used]

_INSTRUCTION = re.compile(
    r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@(?P<on>!?U?P\w+)\s+)?(?P<text>[A-Z].*?)\s*;"
)
_LABEL = re.compile(r"([.$][\w$]+):")
_PRODUCT = re.compile(
    r"HGMMA\.64x(?P<columns>\d+)x\d+\.(?P<type>F\d+)\S* "
    r"(?:R(?P<first>\d+)|RZ), (?:R(?P<left>\d+))?"
)
_WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x[0-9a-f]+)")
_JUMP = re.compile(r"BRA `\(\.L\w+\)")
_TARGET = re.compile(r"(?:BRA|CALL).*`\(([.$][\w$]+)\)")
#: Groups that are distinguished: of more, the oldest ones count as one.
_MOST = 8
#: Registers of a product's left operand.
_LEFT = 4
_NONE: Used = frozenset(), frozenset()
#: What an instruction writes: its first operand behind predicates, unless that is an address or
#: it stores; and how many registers that is.
_WRITTEN = re.compile(r"(?P<name>[A-Z][A-Z0-9_.]*) (?:!?U?PT?\d?, )*R(?P<first>\d+)\b")
_STORES = ("ST", "RED", "BAR", "UBLKCP", "UTMA", "SYNCS", "NANOSLEEP", "R2UR", "EXIT", "R2P")


def touched_early(sass: str) -> list[str]:
    """The instructions of kernels that use sums which may be under way, or write registers that
    products may still read.

    Raises :class:`ValueError` for what is not understood.
    """
    kernels = re.split(r"(?m)^\.text\.\w+:$", sass)
    return [text for kernel in kernels for text in _touched_early(kernel)]


def _touched_early(sass: str) -> list[str]:
    lines, labels = _parsed(sass)
    found: dict[int, str] = {}
    seen: set[tuple[int, State]] = set()
    todo: list[tuple[int, State]] = [(0, ((), _NONE))]
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
        sums, read = _joined(*groups, loose)
        if used & sums or (not product and _written(text) & read):
            found[at] = text
        if product:
            loose = _joined(loose, (_sums(product), _left(product)))
            if text.endswith("gsb0"):
                groups, loose = _grown(groups, loose), _NONE
        elif wait and not on:
            kept = int(wait[1], 16)
            groups = groups[-kept:] if kept else ()
        jump = _TARGET.match(text)
        if jump:
            todo.append((labels[jump[1]], (groups, loose)))
        elif text.startswith(("BRX", "JMP", "CALL", "HGMMA", "BRA")) and not product:
            raise ValueError(f"what does {text!r} do?")
        if on or not (_JUMP.fullmatch(text) or text.startswith(("EXIT", "RET"))):
            todo.append((at + 1, (groups, loose)))
    return [found[at] for at in sorted(found)]


def _grown(groups: tuple[Used, ...], group: Used) -> tuple[Used, ...]:
    """With one more group."""
    if len(groups) < _MOST:
        return (*groups, group)
    return (_joined(groups[0], groups[1]), *groups[2:], group)


def _joined(*groups: Used) -> Used:
    return frozenset().union(*(s for s, _ in groups)), frozenset().union(*(r for _, r in groups))


def _written(text: str) -> Registers:
    """The registers that an instruction writes, which is no product."""
    found = _WRITTEN.match(text)
    if found is None or found["name"].startswith(_STORES):
        return frozenset()
    name, first, count = found["name"], int(found["first"]), 1
    loads = name.startswith(("LD", "ATOM"))
    if name.startswith(("HMMA", "IMMA")) or (loads and (".128" in name or name.endswith(".4"))):
        count = 4
    elif ".64" in name or ".WIDE" in name or name.startswith(("CS2R", "D")) or name.endswith(".2"):
        count = 2
    return frozenset(range(first, first + count))


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
