"""What does the work of primitives that other compilers have on schedules and stages."""

from __future__ import annotations

_INSTEAD = {
    "cache_read_write": "call cache_read and cache_write",
    "create_group": "attach each stage of the group by compute_at to the same axis",
    "groups": "attach each stage of a group by compute_at to the same axis",
    "stage_map": "s[tensor] is the stage of a tensor, s.stages lists them",
    "transform_layout": "declare the tensor with its indices in another order",
}


def absent(what: str, name: str) -> AttributeError:
    """The error for an attribute that a schedule or a stage has not."""
    hint = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
    return AttributeError(f"{what} has no attribute {name!r}{hint}")
