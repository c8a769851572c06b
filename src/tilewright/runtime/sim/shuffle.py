"""Warp shuffles: values that threads of a warp read from each other's registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir.dtype import DType
from tilewright.runtime.sim.divergence import require_warp
from tilewright.runtime.sim.findings import Site
from tilewright.runtime.sim.frame import Frame
from tilewright.runtime.sim.values import Array, numpy_type, poison
from tilewright.target.devices import WARP

if TYPE_CHECKING:
    from tilewright.runtime.sim.expressions import Code

_SOURCES: dict[str, Callable[[Array, Array], Array]] = {
    "shuffle_xor": np.bitwise_xor,
    # past the end of the warp a thread keeps its own value
    "shuffle_down": lambda lane, delta: np.where(lane + delta < WARP, lane + delta, lane),
    "shuffle": lambda lane, source: source % WARP,
}
SHUFFLES = frozenset(_SOURCES)


def shuffle(name: str, value: Code, argument: Code, t: DType, site: Site) -> Code:
    """The closure of a shuffle; a lane beyond the block's last thread holds no meaningful value.

    All threads of the warp must come to it together (CUDA C++ programming guide, "Warp shuffle
    functions"), else it is reported.
    """
    source_of = _SOURCES[name]
    kind, nothing = numpy_type(t), poison(t)

    def run(frame: Frame) -> Array:
        batch = frame.batch
        require_warp(frame, site, "divergent shuffle", f"executes {name} without")
        full = np.full(batch.size, nothing, kind)
        full[frame.lanes] = value(frame)
        lane = frame.pick(batch.thread) % WARP
        away = source_of(lane, argument(frame)) - lane
        exists = frame.pick(batch.thread) + away < batch.grid.threads
        return np.where(exists, full[np.where(exists, frame.lanes + away, 0)], kind.type(nothing))

    return run
