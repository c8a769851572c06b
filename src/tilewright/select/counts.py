"""What the schedules of a GPU make a thread and a block do: counts, before anything is compiled.

All counts are arrays over the parameter sets of one template.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from tilewright.target.devices import WARP, Gpu
from tilewright.target.target import APART, ROOMY
from tilewright.topi.columns import Tiles

Array: TypeAlias = np.ndarray[Any, Any]

#: Microseconds that a load takes that misses the caches, and that a launch takes.
LATENCY, LAUNCH = 0.7, 1.0


@dataclass
class Cost:
    """Arrays (parameter sets,); of a thread, and of one of its turns, where nothing else is said.

    Attributes
    ----------
    threads, x, blocks : of a block, along its innermost dimension, and in all.
    results : pixels of a thread in all turns; of dy in a gradient by the filter.
    turns : times that a thread does what is counted here.
    held : registers for inputs and sums.
    shared : bytes of a block.
    loads, load_bytes : instructions that read the images, and what each brings.
    ahead, rounds : loads that are under way at once, and times that a thread waits for some.
    stores, store_bytes, multiplies, conversions, filter_loads, others : instructions; the stores
        are those of all turns.
    unique : bytes of the images that a block reads.
    code : multiplications written out.
    run : bytes that neighbouring threads access side by side.
    step, store_step : bytes between what neighbouring threads load, and store, at once.
    chunks : partial sums of every result, which another kernel adds.
    extra : bytes that go through the second-level cache beside the images, in all.
    spare : by dimension, results for which there is room in tiles or threads, by those there are.
    tile : the parameters that are no numbers of threads.
    kind : a number for each way to write the loops, of which a model may not know all.
    """

    threads: Array
    x: Array
    blocks: Array
    results: Array
    turns: Array
    held: Array
    shared: Array
    loads: Array
    load_bytes: Array
    ahead: Array
    rounds: Array
    stores: Array
    store_bytes: Array
    multiplies: Array
    conversions: Array
    filter_loads: Array
    others: Array
    unique: Array
    code: Array
    run: Array
    step: Array
    store_step: Array
    chunks: Array
    extra: Array
    spare: tuple[Array, ...]
    tile: tuple[Array, ...]
    kind: Array

    def where(self, which: Array) -> Self:
        """Of some of the parameter sets, as NumPy indexes them."""
        found: dict[str, Any] = {
            name: tuple(x[which] for x in counts) if type(counts) is tuple else counts[which]
            for name, counts in vars(self).items()
        }
        return type(self)(**found)


def parameters(configs: Sequence[Any]) -> Array:
    """(sets, parameters) of a template's parameters."""
    if isinstance(configs, Tiles):
        return configs.table.astype("float64")
    return np.array([tuple(vars(c).values()) for c in configs], "float64")


def held_apart(fit: Array, blocks: Array, threads: Array, chunks: Array, machine: Gpu) -> Array:
    """Blocks that an SM holds at once, of ``fit`` for which it has room: where a kernel is alone
    and they are few, no more than it has to (:func:`~tilewright.target.target.shared_apart`)."""
    each = np.ceil(blocks / machine.sms)
    few = (chunks == 1) & (each <= APART) & (each * np.ceil(threads / WARP) * WARP <= ROOMY)
    return np.asarray(np.where(few, np.minimum(fit, each), fit))
