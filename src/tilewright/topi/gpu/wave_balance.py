"""Into how many chunks the work of a gradient by the filter is divided, so that no SM
waits for another one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.topi.columns import number, once
from tilewright.topi.gpu.machine import MACHINE


def busiest(blocks: Any, turns: Any, chunks: Any) -> Any:
    """Turns of the SM with most, where each of the ``chunks`` chunks of ``turns`` has
    ``blocks`` blocks; integers, or columns.

    >>> busiest(blocks=48, turns=98, chunks=11), busiest(blocks=48, turns=98, chunks=13)
    (36, 40)
    """
    return -(-chunks * blocks // MACHINE.sms) * -(-turns // chunks)


def evenly(blocks: Any, turns: Any, most: Any) -> Any:
    """The number of chunks, at most ``most`` and more than half of that, with which the busiest
    SM has fewest turns, the largest of several: about as many blocks for each, and
    about as many turns for each block; integers, or columns.

    >>> evenly(blocks=48, turns=98, most=13)
    11
    """
    most = np.maximum(1, np.minimum(most, turns))
    blocks, turns, most = np.broadcast_arrays(blocks, turns, most)
    sets = np.stack([most.ravel(), blocks.ravel(), turns.ravel()])
    first, back = once(sets)  # those with few chunks come first
    found = np.concatenate([_evenly(some) for some in np.array_split(sets[:, first], 8, axis=1)])
    return number(found[back].reshape(most.shape))


def _evenly(sets: Any) -> Any:
    most, blocks, turns = sets[:, :, None]
    chunks = np.maximum(most - np.arange(most.max(initial=1)), most // 2 + 1)
    least = np.argmin(busiest(blocks, turns, chunks), axis=1)
    return np.take_along_axis(chunks, least[:, None], axis=1)[:, 0]
