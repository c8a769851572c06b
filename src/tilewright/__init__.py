"""Tilewright: fast tensor operators from tensor expressions and schedules.

The names below are loaded when they are first used, so that ``import tilewright`` costs little.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tilewright import te as te
    from tilewright.target import Target as Target

#: Where each public name lives; a module stands for itself.
_HOMES = {
    "Target": "tilewright.target",
    "te": "tilewright.te",
}

__all__ = ["Target", "__version__", "te"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    module = importlib.import_module(home)
    found = module if home == f"tilewright.{name}" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
