"""Vectors whose lanes are all of one block of neighbours: elements of a vector that is read.

Where channels are in groups of four, say, lanes 0 to 3 of a vector read the same channel, lanes 4
to 7 one of the next group: ``x[v * 16 + l // 4 * 4 + k]``. All of it lies in the block that begins
at ``v * 16``, which is read at once.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.llvm.sums import Spread, spread
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr

#: Multiples of registers, and a number for each lane.
_Parts = tuple[dict[Expr, int], list[int]]
#: What is known of a scalar.
_Known = Callable[[Expr], int | None]


def block_of(index: Expr, extent: Expr, known: _Known) -> tuple[Spread, int, list[int]] | None:
    """Where the block of a vector of indices begins, its size, and which of it the lanes are;
    ``known`` are the values of variables that are constant, as those of loops that are written out.

    Blocks begin at multiples of their size, a power of two up to that of the vector, which divides
    ``extent``: one that has an element that is there has no other. None where lanes may be of
    several blocks, or it is not known.
    """
    lanes = index.dtype.lanes
    if not (index.exact and isinstance(extent, E.IntImm)):
        return None
    found = _parts(index, lanes, known)
    if found is None:
        return None
    atoms, numbers = found
    size = 1
    while 2 * size <= lanes and (size == 1 or max(numbers) // size != min(numbers) // size):
        size *= 2
    first = min(numbers) // size * size
    whole = all(k % size == 0 for k in (extent.value, *atoms.values()))
    if not whole or max(numbers) >= first + size:
        return None
    return (tuple(atoms.items()), first), size, [k - first for k in numbers]


def _parts(e: Expr, lanes: int, known: _Known) -> _Parts | None:
    match e:
        case E.Broadcast(value, _):
            return _scalar(value, 0, lanes, known)
        case E.Ramp(base, E.IntImm(_, step), _):
            return _scalar(base, step, lanes, known)
        case E.Add(a, b) | E.Sub(a, b):
            x, y = _parts(a, lanes, known), _parts(b, lanes, known)
            sign = 1 if isinstance(e, E.Add) else -1
            if x is None or y is None:
                return None
            both = dict(x[0])
            for atom, k in y[0].items():
                both[atom] = both.get(atom, 0) + sign * k
            numbers = [m + sign * n for m, n in zip(x[1], y[1], strict=True)]
            return {atom: k for atom, k in both.items() if k}, numbers
        case E.Mul(a, E.Broadcast(E.IntImm(_, by), _)):
            return _each(_parts(a, lanes, known), lambda k: k * by)
        case E.FloorDiv(a, E.Broadcast(E.IntImm(_, by), _)) if by > 0:
            return _each(_whole(_parts(a, lanes, known), by), lambda k: k // by)
        case E.FloorMod(a, E.Broadcast(E.IntImm(_, by), _)) if by > 0:
            return _each(_whole(_parts(a, lanes, known), by), lambda k: k % by)
    return None


def _scalar(e: Expr, step: int, lanes: int, known: _Known) -> _Parts:
    """``e`` in the first lane, and ``step`` more in each of the next ones."""
    atoms, least = spread([(e, 1)])
    found = {}
    for atom, k in atoms:
        value = known(atom)
        if value is None:
            found[atom] = k
        else:
            least += k * value
    return found, [least + step * k for k in range(lanes)]


def _whole(parts: _Parts | None, by: int) -> _Parts | None:
    """Parts whose registers are multiples of a divisor."""
    return None if parts is None or any(k % by for k in parts[0].values()) else parts


def _each(parts: _Parts | None, change: Callable[[int], int]) -> _Parts | None:
    """What a function of sums, which it is of each part, makes of them."""
    if parts is None:
        return None
    atoms = {atom: change(k) for atom, k in parts[0].items()}
    return {atom: k for atom, k in atoms.items() if k}, [change(k) for k in parts[1]]
