"""The orders in which a thread goes over its rows of results, and where it loads its input.

Row by row, from the top down, a row of the input is needed by several rows of results. It is
loaded, and converted, where the first of them needs it (:data:`ROLLING`), or a row earlier
(:data:`EARLY`), or else the loads of all rows come first and the compiler puts them where it
likes (:data:`AHEAD`), which leaves more of them in flight.
"""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage

#: All results at once, row by row with rows of the input kept, row by row with the input of all
#: loaded ahead, row by row with the next row on its way.
WHOLE, ROLLING, AHEAD, EARLY = 0, 1, 2, 3


def rolls(by_row: int) -> bool:
    """Whether rows of the input are kept from one row of results to the next."""
    return by_row in (ROLLING, EARLY)


def place_loads(
    loads: Stage, by_row: int, out: Stage, row: IterVar, thread: IterVar, sums: Stage, taps: IterVar
) -> None:
    """Compute what loads at ``row`` or ``thread`` of ``out``, or at ``taps`` of ``sums``."""
    if rolls(by_row):
        loads.compute_at(out, row)
        loads.rolling_buffer(ahead=int(by_row == EARLY))
    elif by_row == AHEAD:
        loads.compute_at(out, thread)
    else:
        loads.compute_at(sums, taps)
