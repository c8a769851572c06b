"""Integer points of a polyhedron, decided exactly by islpy.

islpy is imported when the first question is asked. It is the last resort of
:mod:`tilewright.arith.system`, which answers most questions by propagating bounds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Row = tuple[tuple[tuple[int, int], ...], int, int]

#: Bounds of this size or beyond stand for none: no product of a few numbers of 64 bits is as large.
UNBOUNDED = 1 << 1024

#: How much work isl may spend on one question (its own unit; about a second).
MAX_OPERATIONS = 20_000_000


class Undecided(Exception):
    """isl gave up: the question took more than :data:`MAX_OPERATIONS`."""


_own = threading.local()


def context() -> Any:
    """Where isl keeps what it works on, within the limit: each thread has its own, as it counts the
    work of a question, and refuses all others once that is too much."""
    made = getattr(_own, "context", None)
    if made is None:
        import islpy

        made = _own.context = islpy.Context()
        made.set_max_operations(MAX_OPERATIONS)
    return made


@contextmanager
def limited() -> Iterator[None]:
    """One question to isl. Raises :class:`Undecided` where it takes too much work."""
    import islpy

    context().reset_operations()
    try:
        yield
    except islpy.Error as error:
        raise Undecided(str(error)) from error


def sample(rows: Iterable[Row], low: Sequence[int], high: Sequence[int]) -> list[int] | None:
    """An integer point with ``low <= x <= high`` and every row within its bounds, or None.

    Parameters
    ----------
    rows : triples (terms, least, greatest) of ``least <= sum(c * x[k] for k, c in terms)``
        ``<= greatest``.
    low, high : bounds by column, at most :data:`UNBOUNDED` in size.

    Raises
    ------
    Undecided
        Where the question is too hard.
    """
    import islpy as isl

    rows = list(rows)
    used = sorted({k for terms, _, _ in rows for k, _ in terms})
    place = {k: i for i, k in enumerate(used)}
    equalities: list[dict[int, int]] = []
    inequalities: list[dict[int, int]] = []
    end = len(used)
    for terms, least, greatest in [*rows, *((((k, 1),), low[k], high[k]) for k in used)]:
        entries = {place[k]: c for k, c in terms}
        if least == greatest:
            equalities.append({**entries, end: -least})
            continue
        if least > -UNBOUNDED:
            inequalities.append({**entries, end: -least})
        if greatest < UNBOUNDED:
            inequalities.append({**{k: -c for k, c in entries.items()}, end: greatest})

    kind = isl.dim_type
    with limited():
        space = isl.Space.set_alloc(context(), 0, end)
        polyhedron = isl.BasicSet.from_constraint_matrices(
            space,
            matrix(equalities, end + 1),
            matrix(inequalities, end + 1),
            kind.set,
            kind.div,
            kind.param,
            kind.cst,
        )
        point = polyhedron.sample_point()
        if point.is_void():
            return None
        found = list(low)
        for k in used:
            found[k] = int(point.get_coordinate_val(kind.set, place[k]).to_python())
        return found


def matrix(rows: list[dict[int, int]], columns: int) -> Any:
    """Coefficients by column as a matrix of isl."""
    import islpy as isl

    matrix = isl.Mat.alloc(context(), 0, columns).add_zero_rows(len(rows))
    for i, row in enumerate(rows):
        for k, c in row.items():
            if c:
                number = c if abs(c) < 2**63 else str(c)  # wider ones isl takes as digits
                matrix = matrix.set_element_val(i, k, isl.Val(number, context()))
    return matrix
