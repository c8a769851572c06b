"""Into how many chunks the work of a gradient by the filter is divided, so that no multiprocessor
waits for another one."""

from __future__ import annotations

from tilewright.topi.gpu.window import MULTIPROCESSORS


def busiest(blocks: int, turns: int, chunks: int) -> int:
    """Turns of the multiprocessor with most, where each of so many ``chunks`` of ``turns`` has
    ``blocks`` blocks.

    >>> busiest(blocks=48, turns=98, chunks=11), busiest(blocks=48, turns=98, chunks=13)
    (36, 40)
    """
    return -(-chunks * blocks // MULTIPROCESSORS) * -(-turns // chunks)


def evenly(blocks: int, turns: int, most: int) -> int:
    """The number of chunks, at most ``most`` and more than half of that, with which the busiest
    multiprocessor has fewest turns, the largest of several: about as many blocks for each, and
    about as many turns for each block.

    >>> evenly(blocks=48, turns=98, most=13)
    11
    """
    most = max(1, min(most, turns))
    return min(range(most, most // 2, -1), key=lambda chunks: busiest(blocks, turns, chunks))
