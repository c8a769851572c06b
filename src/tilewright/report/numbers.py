"""Numbers as people read them, and the marks of an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence


def short(value: float, digits: int = 3) -> str:
    """Three significant digits and no exponent.

    >>> [short(v) for v in (0.0421, 9.87, 12.0, 1732.4, 45678.0)]
    ['0.0421', '9.87', '12.0', '1,732', '45,678']
    """
    if value == 0 or not math.isfinite(value):
        return str(value) if value else "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, places)}f}"


def counted(count: int, what: str) -> str:
    """How many there are, by the name of one.

    >>> [counted(n, "problem") for n in (0, 1, 1200)]
    ['0 problems', '1 problem', '1,200 problems']
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def marks(low: float, high: float, log: bool = False, most: int = 5) -> list[float]:
    """Round numbers in ``[low, high]`` for the grid of an axis.

    >>> marks(0, 93)
    [0.0, 20.0, 40.0, 60.0, 80.0]
    >>> marks(17, 1800, log=True)
    [30.0, 100.0, 300.0, 1000.0]
    """
    if not low < high:
        return [low]
    return _log_marks(low, high, most) if log else _even_marks(low, high, most)


def mark_text(value: float) -> str:
    """A mark as the axis shows it.

    >>> [mark_text(v) for v in (0.3, 1.0, 5000.0)]
    ['0.3', '1', '5,000']
    """
    return f"{value:,.10g}"


def _even_marks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power: float = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_marks(low: float, high: float, most: int) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices: list[Sequence[float]] = [(1, 2, 3, 5, 7), (1, 2, 5), (1, 2, 5), (1, 3), (1,)]
    for digits in choices:
        found = [d * 10.0**p for p in powers for d in digits if low <= d * 10.0**p <= high]
        if len(found) <= most:
            break
    else:
        found = found[:: math.ceil(len(found) / most)]
    return found if len(found) > 1 else _even_marks(low, high, 3)


def position(value: float, low: float, high: float, log: bool = False) -> float:
    """Where ``value`` stands between ``low`` (0) and ``high`` (1)."""
    if log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return (value - low) / (high - low) if high > low else 0.5
