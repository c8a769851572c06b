"""Windows of results of products of boxes, which threads pool."""

from __future__ import annotations

from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi.nn.box_sums import BoxDeclaration


def pooled(s: Schedule, d: BoxDeclaration) -> Tensor | None:
    """What is made of a window, in registers; None where results are not pooled."""
    return None if d.before is None else s.cache_write(d.output, "local")


def pool(s: Schedule, d: BoxDeclaration, windows: Tensor | None) -> None:
    """Let a thread read the windows of what it stores at once, channel beside channel."""
    if windows is None:
        return
    out, stage = s[d.output], s[windows]
    stage.compute_at(out, out.leaf_iter_vars[-2])
    taps, c = list(stage.op.reduce_axis), stage.op.axis[-1]
    stage.reorder(*taps, c)
    stage.unroll(*taps)
    stage.vectorize(c)
