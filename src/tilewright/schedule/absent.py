"""What does the work of primitives that other compilers have on schedules and stages."""

from __future__ import annotations

import difflib

_INSTEAD = {
    "cache_read_write": "call cache_read and cache_write",
}


def absent(thing: object, what: str, name: str) -> AttributeError:
    """The error for an attribute that ``thing``, a schedule or a stage, has not."""
    near = difflib.get_close_matches(name, [n for n in dir(type(thing)) if n[0] != "_"], 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    hint = f": {_INSTEAD[name]}" if name in _INSTEAD else hint
    return AttributeError(f"{what} has no attribute {name!r}{hint}")
