"""Axes: what a stage iterates over, and what a schedule transforms."""

from __future__ import annotations

from typing import Literal

from tilewright.ir.expr import Expr, Var
from tilewright.ir.operand import Operand
from tilewright.ir.ops import Value, as_index

Kind = Literal["data", "reduce", "thread", "opaque"]


class Range:
    """``min .. min + extent - 1``; in TVM's manner also made as ``Range(begin, end)``."""

    __slots__ = ("extent", "min")

    def __init__(self, begin: Value, end: Value) -> None:
        self.min: Expr = as_index(begin)
        self.extent: Expr = as_index(end) - self.min

    @staticmethod
    def from_extent(min: Value, extent: Value) -> Range:
        made = Range(0, 0)
        made.min, made.extent = as_index(min), as_index(extent)
        return made

    def __repr__(self) -> str:
        return f"Range(min={self.min}, extent={self.extent})"


class IterVar(Operand):
    """An axis: a variable with a domain and a kind. In expressions it is its variable.

    ``dom`` is None for a thread axis whose extent the schedule has yet to fix.
    """

    __slots__ = ("__weakref__", "dom", "kind", "tag", "var", "where")

    def __init__(
        self, dom: Range | None, var: Var, kind: Kind, tag: str = "", where: str = ""
    ) -> None:
        self.dom, self.var, self.kind, self.tag, self.where = dom, var, kind, tag, where

    __hash__ = object.__hash__

    @property
    def name(self) -> str:
        return self.var.name

    @property
    def dtype(self) -> str:
        return self.var.dtype

    @property
    def thread_tag(self) -> str:
        return self.tag

    def __repr__(self) -> str:
        return f"{self.kind} axis {self.var.name}"
