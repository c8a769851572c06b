"""Tiles by the thousand: a formula that is written for one is evaluated for all at once.

The parameters of a tile may be columns, arrays with an integer for each of many tiles. What follows
from them is then a column too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
T = TypeVar("T")


def columns(config: type[Any], rows: Iterable[Sequence[int]]) -> Any:
    """Tiles of ``config`` with the parameters of ``rows``, of which the last may be left out for
    their defaults, as one with columns.

    >>> from tilewright.topi.pieces.register_tiles import PlaneTile
    >>> columns(PlaneTile, [(1, 2, 3), (4, 5, 6)]).columns
    array([3, 6])
    """
    known, usual = list(rows), [f.default for f in fields(config)]
    values = [(*row, *usual[len(row) :]) for row in known]
    return config(*np.array(values, "int64").reshape(-1, len(usual)).T)


def tile_of(config: type[Any], values: Iterable[Array]) -> Any:
    """A tile of ``config`` with columns, of all its parameters."""
    return config(*(column.astype("int64") for column in values))


def combinations(*axes: Iterable[int]) -> list[Any]:
    """Columns of all combinations of numbers, the last changing fastest."""
    known = (np.array(list(a), "int64") for a in axes)
    return [x.ravel() for x in np.meshgrid(*known, indexing="ij")]


def pick(tiles: Any, which: Any, **changes: Array) -> Any:
    """Some of tiles with columns, ``which`` as NumPy indexes; ``changes`` are columns of these."""
    found = {name: column[which] for name, column in vars(tiles).items()}
    return type(tiles)(**(found | changes))


def best(cost: Array, count: int) -> Array:
    """Where the ``count`` least costs are, the least first, of equal ones that which comes first;
    without those that are infinite."""
    order = np.argsort(cost, kind="stable")[:count]
    return np.asarray(order[np.isfinite(cost[order])])


def number(x: Any) -> Any:
    """A column, or of one tile an integer."""
    return x if np.ndim(x) else int(x)


class Tiles(Sequence[T], Generic[T]):
    """Tiles that are made when they are asked for.

    Attributes
    ----------
    config : their dataclass.
    table : (tiles, parameters), in the order of the dataclass.
    """

    def __init__(self, config: type[T], table: Array) -> None:
        self.config, self.table = config, table

    def where(self, which: Array) -> Tiles[T]:
        """Some of them."""
        return Tiles(self.config, self.table[which])

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self.config(*one) for one in self.table[at].tolist()]
        return self.config(*self.table[at].tolist())

    def __iter__(self) -> Iterator[T]:
        return iter(self[:])


def listed(tiles: Any) -> Tiles[Any]:
    """Tiles with columns, each once, where the first of equal ones is."""
    table = np.stack([*vars(tiles).values()], axis=1)
    return Tiles(type(tiles), table[np.sort(once(table.T)[0])])


def once(columns: Iterable[Array]) -> tuple[Array, Array]:
    """Where each of the sets of numbers from 0 on, whose columns these are, stands first, in the
    order of the sets; and of each set, which of those it is."""
    sets = list(columns)
    extents = [int(column.max(initial=0)) + 1 for column in sets]
    if math.prod(extents) < 2**63:
        sets = [np.ravel_multi_index(tuple(sets), extents)]
    order = np.lexsort(sets[::-1])  # unlike np.unique, it imports nothing
    new = np.zeros(len(order), "bool")
    new[:1] = True
    for column in sets:
        new[1:] |= np.diff(column[order]) != 0
    back = np.empty_like(order)
    back[order] = np.cumsum(new) - 1
    return order[new], back
