"""How many kernels of a model are built, on a terminal, while they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")


def with_progress(console: Console, build: Callable[[Callable[[int, int], None] | None], T]) -> T:
    """What ``build`` makes, which is given what shows its progress; None where nobody looks."""
    if not console.is_terminal or os.environ.get("TILEWRIGHT_PROGRESS") == "0":
        return build(None)
    with console.status("reading the graph") as status:
        return build(lambda done, of: status.update(f"{done} of {of} kernels are built"))
