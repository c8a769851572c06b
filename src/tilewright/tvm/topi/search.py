"""topi's functions whose results have as many elements as the data says.

Places are found by counting, in parallel on every target. Results are as long as they can get; what
is behind the elements that were found is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir import ops
from tilewright.te import Tensor
from tilewright.tvm.topi.elements import nearest
from tilewright.tvm.topi.shapes import unravel_index
from tilewright.tvm.topi.transform import integers, moved


def _sum(shape: Any, over: Any, value: Callable[..., Any], name: str) -> Any:
    """The int32 sum over ``over`` elements of ``value(*index, k)``."""
    k = te.reduce_axis((0, over), "k")
    return te.compute(
        tuple(shape),
        lambda *i: te.sum(value(*i, k.var).astype("int32"), axis=k),
        name,
        tag="comm_reduce",
    )


def argwhere(output_shape: Tensor, condition: Tensor) -> Any:
    """The indices of the elements that are not zero, in their order: int32, a row each, as many
    rows as ``output_shape`` has.

    Elements are counted in about ``sqrt(n)`` parts of that length, so that the work grows with
    ``n ** 1.5``.
    """
    extents = integers(condition.shape)
    count = math.prod(extents)
    size = max(1, math.isqrt(count))
    parts = -(-count // size)

    def found(place: Any) -> Any:
        inside = te.min(place, max(count - 1, 0))
        value = condition(*unravel_index(inside, condition.shape))
        return te.all(place < count, value != te.const(0, value.dtype))

    totals = _sum((parts,), size, lambda p, k: found(p * size + k), "T_found")
    before = _sum(
        (parts,), parts, lambda p, q: te.Select(q < p, totals(q), te.const(0, "int32")), "T_before"
    )
    inside = _sum(
        (parts, size),
        size,
        lambda p, i, k: te.all(k <= i, found(p * size + k)),
        "T_inside",
    )
    rows = output_shape.shape[0]
    part = _sum((rows,), parts, lambda r, p: before(p) + totals(p) <= r, "T_part")

    def own(r: Any) -> Any:
        return nearest(part(r), parts)

    place = _sum((rows,), size, lambda r, k: before(own(r)) + inside(own(r), k) <= r, "T_place")

    def element(r: Any, d: Any) -> Any:
        at = te.max(te.min(own(r) * size + place(r), max(count - 1, 0)), 0)
        value: Any = te.const(0, "int32")
        for k, index in enumerate(unravel_index(at, condition.shape)):
            value = te.Select(d.equal(k), ops.cast("int32", index), value)
        return value

    return moved((rows, len(extents)), element, "T_argwhere")


def unique(data: Tensor, is_sorted: bool = True, return_counts: bool = False) -> list[Any]:
    """The different elements of a vector, in order or as they come first; where each comes first;
    for each element the number of its value; how many values there are; how often each comes.

    The work grows with the square of the length.
    """
    n = data.shape[0]
    k = te.reduce_axis((0, n), "k")
    first = te.compute(
        (n,),
        lambda i: te.min(
            te.Select(data(k.var).equal(data(i)), k.var.astype("int32"), te.max_value("int32")),
            axis=k,
        ),
        "T_first", tag="comm_reduce",
    )  # fmt: skip

    def leads(i: Any) -> Any:
        return first(i).equal(ops.cast("int32", i))

    inverse = _sum(
        (n,),
        n,
        lambda i, j: te.all(leads(j), data(j) < data(i) if is_sorted else j < first(i)),
        "T_inverse",
    )
    total = _sum((1,), n, lambda _, j: leads(j), "T_total")
    places = _sum(
        (n,),
        n,
        lambda i, j: te.Select(
            te.all(leads(j), inverse(j).equal(ops.cast("int32", i))),
            j.astype("int32"),
            te.const(0, "int32"),
        ),
        "T_places",
    )
    values = moved((n,), lambda i: data(nearest(places(i), n)), "T_unique")
    outs = [values, places, inverse, total]
    if return_counts:
        outs.append(_sum((n,), n, lambda i, j: inverse(j).equal(ops.cast("int32", i)), "T_counts"))
    return outs


NAMES: dict[str, Callable[..., Any]] = {f.__name__: f for f in (argwhere, unique)}
