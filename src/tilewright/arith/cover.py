"""Whether every point of one set of integers lies in one of others, decided exactly by islpy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tilewright.arith.isl import UNBOUNDED, context, limited, matrix
from tilewright.arith.system import CONSTANT, Constraint, Form, System


@dataclass(frozen=True)
class Points:
    """The values that ``forms`` take together at the solutions of ``system``."""

    system: System
    forms: Sequence[Form]


def uncovered(points: Points, covers: Iterable[Points]) -> list[int] | None:
    """A point that none of ``covers`` has, or None where there is none.

    All have as many forms. ``covers`` are asked for one after the other, as long as points are
    left. Raises :class:`~tilewright.arith.isl.Undecided` where the question is too hard.
    """
    kind, count = _kind(), len(points.forms)
    with limited():
        # Of what is to be covered, columns stay: to eliminate many is what isl is slow at.
        left = _set(points)
        columns = left.dim(kind.set) - count
        for cover in covers:
            if left.is_empty():
                return None
            found = _set(cover)
            found = found.project_out(kind.set, count, found.dim(kind.set) - count)
            left = left.subtract(found.add_dims(kind.set, columns))
        point = left.coalesce().sample_point()
        if point.is_void():
            return None
        return [int(point.get_coordinate_val(kind.set, k).to_python()) for k in range(count)]


def _kind() -> Any:
    import islpy

    return islpy.dim_type


def _set(points: Points) -> Any:
    """As a set of isl: the forms, and behind them the columns of the system."""
    import islpy as isl

    system, forms = points.system, points.forms
    if not system.settle():
        space = isl.Space.set_alloc(context(), 0, len(forms))
        return isl.Set.empty(space)
    rows: list[Constraint] = []
    for terms, (least, greatest) in system.rows.items():
        rows += _between(dict(terms), least, greatest)
    parts = [form for form, _ in chain(rows, *chain(*system.choices))]
    used = sorted({k for form in (*parts, *forms) for k in form if k != CONSTANT})
    place = {k: len(forms) + i for i, k in enumerate(used)}
    for k in used:
        rows += _between({k: 1}, system.low[k], system.high[k])
    ends = [({-2 - i: -1, **form}, True) for i, form in enumerate(forms)]
    place.update((-2 - i, i) for i in range(len(forms)))
    made = _basic([*rows, *ends], place)
    for choice in system.choices:
        either = [_basic(alternative, place) for alternative in choice]
        joined = either[0]
        for one in either[1:]:
            joined = joined.union(one)
        made = made.intersect(joined)
    return made


def _between(form: Form, least: int, greatest: int) -> list[Constraint]:
    if least == greatest:
        return [({**form, CONSTANT: -least}, True)]
    found: list[Constraint] = []
    if least > -UNBOUNDED:
        found.append(({**form, CONSTANT: -least}, False))
    if greatest < UNBOUNDED:
        found.append(({**{k: -c for k, c in form.items()}, CONSTANT: greatest}, False))
    return found


def _basic(constraints: Sequence[Constraint], place: dict[int, int]) -> Any:
    import islpy as isl

    count = len(place)
    at = {**place, CONSTANT: count}
    rows: tuple[list[dict[int, int]], list[dict[int, int]]] = ([], [])
    for form, equal in constraints:
        rows[0 if equal else 1].append({at[k]: c for k, c in form.items()})
    kind = isl.dim_type
    equalities, inequalities = (matrix(part, count + 1) for part in rows)
    space = isl.Space.set_alloc(context(), 0, count)
    made = isl.BasicSet.from_constraint_matrices(
        space, equalities, inequalities, kind.set, kind.div, kind.param, kind.cst
    )
    return isl.Set.from_basic_set(made)
