"""What the parameters of a schedule may be, said where they are declared."""

from __future__ import annotations

import dataclasses
from typing import Any

_LEAST = "least"


def flag(default: int = 1) -> Any:
    """A field of a dataclass of parameters that may be 0, though its default is not: it says
    whether something is done, or that there is none of it."""
    return dataclasses.field(default=default, metadata={_LEAST: 0})


def too_small(config: Any) -> str:
    """Which parameter is less than it may be, in words; empty where none is. All are at least 1,
    but for those whose default is 0, and for a :func:`flag`."""
    for field in dataclasses.fields(config):
        default: Any = field.default
        least = field.metadata.get(_LEAST, min(1, default))
        value = getattr(config, field.name)
        if value < least:
            return f"{field.name} is {value}, where {least} is the least"
    return ""
