"""What a lowered program does at most, counted over all of its loops: each condition goes the way
in which there is more to do."""

from __future__ import annotations

import math

from tilewright.ir.expr import Expr, IntImm, Mul
from tilewright.ir.func import Func
from tilewright.ir.stmt import For, If, Stmt
from tilewright.ir.visit import children


def products(func: Func) -> int:
    """Multiplications of numbers that are no integers, by all threads of a kernel."""
    return math.prod(_known(axis.extent) for axis in func.launch) * _products(func.body)


def _products(node: Stmt | Expr) -> int:
    parts = [_products(child) for child in children(node)]
    found = max(parts) if isinstance(node, If) else sum(parts)
    if isinstance(node, Mul) and node.dtype.is_float:
        found += node.dtype.lanes
    return found * (_known(node.extent) if isinstance(node, For) else 1)


def _known(extent: Expr) -> int:
    assert isinstance(extent, IntImm), extent
    return extent.value
