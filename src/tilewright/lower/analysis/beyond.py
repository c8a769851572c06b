"""Whether an access may leave its buffer."""

from __future__ import annotations

from tilewright.arith.encode import Instance
from tilewright.arith.system import Undecided, constant, minus
from tilewright.lower.analysis.accesses import Access


def beyond(instance: Instance, access: Access) -> tuple[int, list[int] | None] | None:
    """The first dimension in which ``access``, made at the moment ``instance``, may lie outside of
    its buffer, with a solution of the moment's system where it does, or None where that is
    undecided. None where the access stays in its buffer."""
    system = instance.system
    if not system.possible:
        return None
    # All of them before any is solved for: forms define columns, and the solution of one dimension
    # has the values of all.
    forms = [instance.form(index) for index in access.indices]
    extents = [instance.form(extent) for extent in access.buffer.shape]
    for dimension, (form, extent) in enumerate(zip(forms, extents, strict=True)):
        above = minus(form, extent)  # out of bounds where >= 0
        below = minus(constant(-1), form)
        for excess in (above, below):
            if system.bounds(excess)[1] < 0:
                continue
            attempt = system.copy()
            attempt.require(excess)
            try:
                solution = attempt.solve()
            except Undecided:
                return dimension, None
            if solution is not None:
                return dimension, solution
    return None
