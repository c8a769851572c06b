"""The choices that each knob of a search space has.

The names and policies are AutoTVM's. A space is a sequence of entities (:mod:`.entity`); entity 0
is what a template gets where nothing was tuned.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tilewright.ir.expr import IntImm
from tilewright.ir.itervar import IterVar
from tilewright.tune.entity import (
    AnnotateEntity,
    Entity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
    TuningError,
)

#: Splits into more choices than this are refused: a filter or max_factor makes them fewer.
MOST_CHOICES = 1_000_000


class VirtualAxis:
    """An axis of a search space: an extent, which may be unknown (0), without a schedule."""

    __slots__ = ("length", "name")

    def __init__(self, extent: Any, name: str = "") -> None:
        self.name = name
        self.length = _extent(extent)
        if isinstance(extent, IterVar):
            self.name = name or extent.name

    def __repr__(self) -> str:
        return f"axis {self.name or '?'} of {self.length or 'unknown'} iterations"


def _extent(axis: Any) -> int:
    match axis:
        case VirtualAxis():
            return axis.length
        case IterVar():
            return 0 if axis.dom is None else _extent(axis.dom.extent)
        case IntImm():
            return int(axis.value)
        case bool():
            raise TuningError(f"an axis of a search space is an axis or an extent, not {axis!r}")
        case int():
            return axis
    if hasattr(axis, "dtype"):
        return 0  # a symbolic extent
    raise TuningError(f"an axis of a search space is an axis or an extent, not {axis!r}")


class TransformSpace:
    """The choices of one knob."""

    kind = ""

    def __init__(self, entities: Iterable[Entity], num_output: int = 0) -> None:
        self.entities = list(dict.fromkeys(entities))
        self.num_output = num_output

    def __len__(self) -> int:
        return len(self.entities)

    def __getitem__(self, index: int) -> Entity:
        return self.entities[index]

    def __iter__(self) -> Iterator[Entity]:
        return iter(self.entities)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} choices)"


def factors(n: int) -> list[int]:
    """The divisors of ``n``, ascending."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def powers_of_two(n: int) -> list[int]:
    """1, 2, 4, ... up to ``n``."""
    return [1 << k for k in range(n.bit_length())]


class SplitSpace(TransformSpace):
    """The ways to split an axis into ``num_outputs`` loops.

    Parameters
    ----------
    policy : "factors" (extents that divide), "power2", "verbose" (both of these), "candidate".
    candidate : for that policy, the sizes, each a sequence of ``num_outputs`` extents.
    max_factor : the most iterations that any loop but the outermost has.
    no_tail : whether only splits without a remainder count; by default with "factors" only.
    filter : called with a :class:`SplitEntity`; those for which it is false are left out.
    """

    kind = "sp"

    def __init__(
        self,
        axis: VirtualAxis,
        policy: str = "factors",
        *,
        num_outputs: int = 2,
        candidate: Sequence[Sequence[int]] | None = None,
        max_factor: int = 1 << 31,
        no_tail: bool | None = None,
        filter: Callable[[SplitEntity], bool] | None = None,
    ) -> None:
        if num_outputs < 1:
            raise TuningError(f"define_split into {num_outputs} loops: it takes 1 or more")
        self.product = axis.length
        if policy == "candidate":
            found = [SplitEntity(tuple(size)) for size in candidate or ()]
            if any(len(e.size) != num_outputs for e in found):
                raise TuningError(
                    f"define_split: each candidate needs {num_outputs} sizes, the outermost -1"
                )
        else:
            if axis.length < 1:
                raise TuningError(
                    f"define_split of an {axis!r}: give an axis with a constant extent, a "
                    'number, or policy="candidate"'
                )
            whole = policy == "factors" if no_tail is None else no_tail
            steps = [f for f in _steps(policy, axis.length) if f <= max_factor]
            found = list(_splits(axis.length, steps, num_outputs - 1, whole))
        super().__init__([e for e in found if filter is None or filter(e)], num_outputs)


def _steps(policy: str, extent: int) -> list[int]:
    match policy:
        case "factors":
            return factors(extent)
        case "power2":
            return powers_of_two(extent)
        case "verbose":
            return sorted({*factors(extent), *powers_of_two(extent)})
    raise TuningError(
        f"define_split: unknown policy {policy!r}: the policies are factors, power2, verbose and "
        "candidate"
    )


def _splits(extent: int, steps: list[int], loops: int, whole: bool) -> Iterator[SplitEntity]:
    """All sizes of the ``loops`` inner loops, the innermost varying fastest."""
    made = 0
    chosen: list[tuple[tuple[int, ...], int]] = [((), 1)]
    for _ in range(loops):
        longer = [
            ((*sizes, f), product * f)
            for sizes, product in chosen
            for f in steps
            if product * f <= extent and (not whole or extent % (product * f) == 0)
        ]
        made += len(longer)
        if made > MOST_CHOICES:
            raise TuningError(
                f"define_split: {extent} into {loops + 1} loops has over {MOST_CHOICES:,} ways; "
                "give max_factor, or a policy with fewer"
            )
        chosen = longer
    for sizes, _ in chosen:
        yield SplitEntity((-1, *sizes))


class ReorderSpace(TransformSpace):
    """The orders of some axes.

    Parameters
    ----------
    policy : "all" permutations; "identity"; "interval_all" permutations of ``interval`` (first,
        last) only; "candidate" orders, each a list of the axes or of their positions; "interleave"
        as below.
    spatial, reduce : for "interleave", the loops of each axis from the outermost in. Loops of one
        depth stay together, and depths of ``reduce`` stand between those of ``spatial`` in every
        way that keeps the order of both.
    """

    kind = "re"

    def __init__(
        self,
        axes: Sequence[Any],
        policy: str = "all",
        *,
        interval: tuple[int, int] | None = None,
        candidate: Sequence[Sequence[Any]] | None = None,
        spatial: Sequence[Sequence[Any]] = (),
        reduce: Sequence[Sequence[Any]] = (),
    ) -> None:
        n = len(axes)
        match policy:
            case "all":
                perms = list(itertools.permutations(range(n)))
            case "identity":
                perms = [tuple(range(n))]
            case "interval_all":
                first, last = interval or (0, n)
                perms = [
                    (*range(first), *middle, *range(last, n))
                    for middle in itertools.permutations(range(first, last))
                ]
            case "candidate":
                perms = [_positions(axes, order) for order in candidate or ()]
            case "interleave":
                perms = [_positions(axes, order) for order in _interleaved(spatial, reduce)]
            case _:
                raise TuningError(
                    f"define_reorder: unknown policy {policy!r}: the policies are all, identity, "
                    "interval_all, candidate and interleave"
                )
        super().__init__([ReorderEntity(perm) for perm in perms], n)


def _positions(axes: Sequence[Any], order: Sequence[Any]) -> tuple[int, ...]:
    found = []
    for wanted in order:
        at = [k for k, axis in enumerate(axes) if axis is wanted]
        found.append(wanted if isinstance(wanted, int) else at[0] if at else -1)
    if sorted(found) != list(range(len(axes))):
        raise TuningError(f"define_reorder: {list(order)} is not an order of {list(axes)}")
    return tuple(found)


def _interleaved(
    spatial: Sequence[Sequence[Any]], reduce: Sequence[Sequence[Any]]
) -> Iterator[list[Any]]:
    """Merge the columns of two tables: at each depth the spatial axes, then the reduce axes.

    The outermost axes of all lists stand together, then the next, and so on; the reduce axes of a
    depth come before or after the spatial ones of any depth, in the order of depths.
    """
    columns = [list(c) for c in itertools.zip_longest(*spatial)]
    between = [list(c) for c in itertools.zip_longest(*reduce)]
    total = len(columns) + len(between)
    for taken in itertools.combinations(range(total), len(between)):
        left, right = iter(columns), iter(between)
        merged = [next(right) if k in taken else next(left) for k in range(total)]
        yield [axis for column in merged for axis in column if axis is not None]


class AnnotateSpace(TransformSpace):
    """What may be done to each of some axes.

    ``policy`` is "none", "unroll", "vec", "try_unroll", "try_vec" (only the innermost axis may be
    vectorized), "try_unroll_vec".
    """

    kind = "an"

    def __init__(self, axes: Sequence[Any], policy: str = "none") -> None:
        n = len(axes)
        marks: Sequence[tuple[str, ...]]
        match policy:
            case "none":
                marks = [("none",)] * n
            case "unroll":
                marks = [("unroll",)] * n
            case "vec":
                marks = [("none",)] * (n - 1) + [("vec",)]
            case "try_unroll":
                marks = [("none", "unroll")] * n
            case "try_vec":
                marks = [("none",)] * (n - 1) + [("none", "vec")]
            case "try_unroll_vec":
                marks = [("none", "unroll")] * (n - 1) + [("none", "unroll", "vec")]
            case _:
                raise TuningError(
                    f"define_annotate: unknown policy {policy!r}: the policies are none, unroll, "
                    "vec, try_unroll, try_vec and try_unroll_vec"
                )
        super().__init__([AnnotateEntity(c) for c in itertools.product(*marks)], n)


class OtherOptionSpace(TransformSpace):
    """The values of a knob."""

    kind = "ot"

    def __init__(self, candidate: Sequence[Any]) -> None:
        super().__init__([OtherOptionEntity(value) for value in candidate])
