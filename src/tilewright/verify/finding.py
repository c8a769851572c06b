"""What a proof refutes, with the moment at which it goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.ir.expr import Var
from tilewright.ir.stmt import For, If, Produce, Stmt
from tilewright.ir.text import expr_text, stmt_text
from tilewright.lower.analysis.accesses import Access, Kernel, Node


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with a kernel.

    Parameters
    ----------
    kind : "bounds", "race", "unawaited", "unfenced", "divergence", "uninitialised" or "limit".
    message : what is wrong, where, and the mend.
    witness : values of thread indices and loop variables by name, at which it goes wrong; of the
        first of two moments where it takes two.
    other : the same of the second moment, empty where one is enough.
    proved : False where it was only not proved right: a value read from memory is involved, or
        the search was given up.
    stages : the names of the stages whose statements it is about.
    """

    kind: str
    message: str
    witness: Mapping[str, int] = field(default_factory=dict)
    other: Mapping[str, int] = field(default_factory=dict)
    proved: bool = True
    stages: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.message


def stages_of(*nodes: Node) -> tuple[str, ...]:
    """The stage that each of the statements belongs to, where it is known; each one once."""
    found: dict[str, None] = {}
    for node in nodes:
        for ancestor in reversed(node.ancestors):
            if isinstance(ancestor.stmt, Produce):
                found[ancestor.stmt.stage] = None
                break
    return tuple(found)


def statement(node: Node) -> str:
    """A statement on one line, as far as it reads and writes itself."""
    return _line(node.stmt)


def _line(s: Stmt) -> str:
    match s:
        case For(var, low, extent, _, _, _, _):
            return f"`for {var.name} in range({expr_text(low)}, {expr_text(low + extent)})`"
        case If(condition, _, _):
            return f"`if {expr_text(condition)}`"
    text = " ".join(stmt_text(s).split())
    return f"`{text if len(text) <= 160 else text[:157] + '...'}`"


def element(access: Access, indices: tuple[int, ...]) -> str:
    """``Name[1, 2]``, with the scope where it is not global."""
    return f"{title(access)}[{', '.join(map(str, indices))}]"


def title(access: Access) -> str:
    """The buffer by name."""
    return access.buffer.name


def by_name(values: Mapping[Var, int] | None) -> dict[str, int]:
    """Values keyed by the names of their variables."""
    return {v.name: n for v, n in (values or {}).items()}


def place(kernel: Kernel, values: Mapping[Var, int]) -> str:
    """Thread and block as (x, y, z), then the loop variables."""
    parts = []
    for what, axes in (("block", kernel.blocks), ("thread", kernel.threads)):
        if axes:
            at = {axis.tag[-1]: values.get(axis.var, 0) for axis in axes}
            parts.append(f"{what} ({', '.join(str(at.get(d, 0)) for d in 'xyz')})")
    hardware = {axis.var for axis in kernel.launch}
    loops = [f"{v.name} = {n}" for v, n in values.items() if v not in hardware]
    return ", ".join([*parts, *loops])
