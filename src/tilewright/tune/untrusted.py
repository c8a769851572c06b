"""JSON of files that somebody else may have written, or that are damaged."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from tilewright.tune.entity import TuningError

#: Characters of a text, levels of lists and objects in it, bits of a number, at most: more than any
#: record has, and less than what Python's recursion and other numbers take.
LONGEST, DEEPEST, BITS = 1 << 20, 32, 63


def parse(text: Any) -> Any:
    """What a text says in JSON; raises :class:`TuningError` for anything but finite numbers, texts,
    lists and objects, of no unreasonable size."""
    if not isinstance(text, str) or len(text) > LONGEST:
        raise TuningError(f"{type(text).__name__} is no text of at most {LONGEST} characters")
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise TuningError(f"{text[:40]!r} is no JSON: {error}") from None
    level = [found]
    for _ in range(DEEPEST):
        for x in level:
            if isinstance(x, (int, float)) and not -(2.0**BITS) < x < 2.0**BITS:
                _refuse(repr(x))
        below: list[Any] = []
        for x in level:
            if isinstance(x, (list, dict)):
                below += x if isinstance(x, list) else x.values()
        if not below:
            return found
        level = below
    raise TuningError(f"{text[:40]!r} has more than {DEEPEST} levels of lists")


def _refuse(number: str) -> NoReturn:
    raise TuningError(f"the number {number[:40]} is not finite, or too large")


def seconds(value: Any) -> tuple[float, ...]:
    """Times of a candidate; raises :class:`TuningError` where they are not positive and finite."""
    found = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if any(type(x) not in (int, float) or not 0 < x < 2.0**BITS for x in found):
        raise TuningError(f"{str(value)[:40]} is no list of seconds")
    return tuple(map(float, found))


def text(*values: Any) -> None:
    """Raises :class:`TuningError` where one of ``values`` is no text."""
    for value in values:
        if not isinstance(value, str):
            raise TuningError(f"{str(value)[:40]!r} is no text")
