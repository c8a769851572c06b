"""Collecting findings while a kernel runs: each kind of defect of a statement once, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.stmt import For, If, Let, Stmt
from tilewright.ir.text import expr_text, stmt_text
from tilewright.runtime.sim.report import Finding, Index, Place

if TYPE_CHECKING:
    from tilewright.runtime.sim.frame import Batch, Frame
    from tilewright.runtime.sim.values import Array


class Site:
    """A statement of a kernel, with a number to keep beside every access."""

    __slots__ = ("kernel", "number", "stmt")

    def __init__(self, number: int, kernel: str, stmt: Stmt) -> None:
        self.number, self.kernel, self.stmt = number, kernel, stmt

    @property
    def text(self) -> str:
        """The statement on one line; of a statement with a body, its head."""
        match self.stmt:
            case If(condition, _, _):
                return f"if {expr_text(condition)}:"
            case Let(var, value, _):
                return f"{var.name} = {expr_text(value)}"
            case For(var, low, extent, _, _, _, _):
                return f"for {var.name} in range({expr_text(low)}, {expr_text(low + extent)}):"
        return stmt_text(self.stmt).splitlines()[0]


class Sites(list[Site]):
    """The statements of a program by number."""

    def new(self, kernel: str, stmt: Stmt) -> Site:
        made = Site(len(self), kernel, stmt)
        self.append(made)
        return made


class Findings:
    """What one run found, in order of first occurrence; ``sites`` are those of its kernels."""

    def __init__(self, sites: Sites) -> None:
        self._found: dict[tuple[Any, ...], Finding] = {}
        self.sites = sites

    @property
    def all(self) -> list[Finding]:
        return list(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def seen(self, key: tuple[Any, ...], count: int) -> bool:
        """Count one more occurrence of ``key``; False where it is the first."""
        finding = self._found.get(key)
        if finding is None:
            return False
        finding.count += count
        return True

    def add(
        self,
        kind: str,
        site: Site,
        frame: Frame,
        lane: int,
        detail: str,
        *,
        buffer: str = "",
        index: Index = (),
        other: Place | None = None,
        count: int = 1,
        key: tuple[Any, ...] = (),
    ) -> None:
        """A finding of the lane at position ``lane`` of the frame."""
        batch = frame.batch
        found = (kind, site.number, buffer, *key)
        if self.seen(found, count):
            return
        place = self.place(batch, int(batch.who[frame.lanes[lane]]), site)
        self._found[found] = Finding(
            kind, site.kernel, place, buffer, index, detail, other, int(count)
        )

    def place(self, batch: Batch, who: int, site: Site) -> Place:
        """The thread that ``who`` numbers at a statement."""
        thread, block = batch.thread_of(who)
        return Place(thread, block, site.text)

    def put(self, key: tuple[Any, ...], finding: Finding) -> None:
        """A finding that no thread made."""
        if not self.seen(key, finding.count):
            self._found[key] = finding


def first(mask: Array) -> tuple[int, ...]:
    """The position of the first True."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), np.shape(mask)))
