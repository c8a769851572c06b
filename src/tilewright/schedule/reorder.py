"""reorder: loops change places."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.itervar import IterVar
from tilewright.schedule.stage import Stage


def reorder(stage: Stage, axes: Sequence[IterVar]) -> None:
    """Put the loops ``axes`` in the order given, from the outermost in.

    The others stay where they are: the places that ``axes`` hold are dealt out again.

    Raises :class:`ScheduleError` where an axis is no loop of the stage, or is named twice.
    """
    places = [stage.leaf(axis, "reorder") for axis in axes]
    for axis in axes:
        if sum(other is axis for other in axes) > 1:
            raise stage.error("reorder: the axis is named twice", axis, "Name every axis once")
    for place, axis in zip(sorted(places), axes, strict=True):
        stage.leaf_iter_vars[place] = axis
