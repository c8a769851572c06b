"""tile: two loops become four, the inner two a tile."""

from __future__ import annotations

from typing import Any

from tilewright.ir.itervar import IterVar
from tilewright.schedule.stage import Stage


def tile(
    stage: Stage, x_parent: IterVar, y_parent: IterVar, x_factor: Any, y_factor: Any
) -> tuple[IterVar, IterVar, IterVar, IterVar]:
    """Split both loops and reorder: ``x.outer, y.outer, x.inner, y.inner``, which is returned.

    Raises what :func:`~tilewright.schedule.split.split` raises.
    """
    xo, xi = stage.split(x_parent, factor=x_factor)
    yo, yi = stage.split(y_parent, factor=y_factor)
    stage.reorder(xo, yo, xi, yi)
    return xo, yo, xi, yi
