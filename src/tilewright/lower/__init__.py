"""A schedule becomes loops, then better loops: one pass a file, one ordered list of passes.

``tilewright.lower(s, args, target)`` is :func:`tilewright.lower.pipeline.lower`: the package is
called by its own name, as TVM's users know it.
"""

import sys
from types import ModuleType
from typing import Any

from tilewright.ir.func import Module


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Module:
        from tilewright.lower.pipeline import lower

        return lower(*args, **options)


sys.modules[__name__].__class__ = _Callable
