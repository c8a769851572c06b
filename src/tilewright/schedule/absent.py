"""What does the work of primitives that other compilers have on schedules and stages."""

from __future__ import annotations

_INSTEAD = {
    "cache_read_write": "call cache_read and cache_write",
}


def absent(what: str, name: str) -> AttributeError:
    """The error for an attribute that a schedule or a stage has not."""
    hint = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
    return AttributeError(f"{what} has no attribute {name!r}{hint}")
