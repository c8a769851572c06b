"""Tilewright: fast tensor operators from tensor expressions and schedules.

The names below are loaded when they are first used, so that ``import tilewright`` costs little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.lazy import loading

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tilewright import runtime as runtime
    from tilewright import te as te
    from tilewright import topi as topi
    from tilewright import tvm as tvm
    from tilewright.graph.load import load as load
    from tilewright.ir.errors import TilewrightError as TilewrightError
    from tilewright.lower.pipeline import lower as lower
    from tilewright.runtime import Kernel as Kernel
    from tilewright.runtime.compile import build as build
    from tilewright.schedule import Schedule as Schedule
    from tilewright.schedule import create_schedule as create_schedule
    from tilewright.target import Target as Target
    from tilewright.tune.remote import connect as connect
    from tilewright.tvm import tir as tir

#: Where each public name lives; a module stands for itself.
_HOMES = {
    "Kernel": "tilewright.runtime",
    "Schedule": "tilewright.schedule",
    "Target": "tilewright.target",
    "TilewrightError": "tilewright.ir.errors",
    "build": "tilewright.runtime.compile",
    "connect": "tilewright.tune.remote",
    "create_schedule": "tilewright.schedule",
    "graph": "tilewright.graph",
    "load": "tilewright.graph.load",
    "lower": "tilewright.lower",
    "runtime": "tilewright.runtime",
    "select": "tilewright.select",
    "te": "tilewright.te",
    "tir": "tilewright.tvm",
    "topi": "tilewright.topi",
    "torch": "tilewright.torch",  # not in __all__: it needs PyTorch
    "tvm": "tilewright.tvm",
}

__all__ = [
    "Kernel", "Schedule", "Target", "TilewrightError", "__version__", "build", "connect",
    "create_schedule", "load", "lower", "runtime", "te", "tir", "topi", "tvm",
]  # fmt: skip


__getattr__ = loading(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
