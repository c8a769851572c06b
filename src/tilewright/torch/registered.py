"""The backend of ``torch.compile`` by its name, also where the package is not installed."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

NAME, GROUP = "tilewright", "torch_dynamo_backends"
#: As pyproject.toml has it.
VALUE = "tilewright.torch.backend:tilewright"
_REGISTRY = "torch._dynamo.backends.registry"


def register() -> None:
    """Make ``torch.compile(model, backend="tilewright")`` known: now, or once PyTorch's compiler is
    loaded, which takes a second."""
    if _REGISTRY in sys.modules:
        _add(sys.modules[_REGISTRY])
    elif not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _add(registry: ModuleType) -> None:
    registry._BACKENDS.setdefault(NAME, EntryPoint(NAME, VALUE, GROUP))


class _Finder(MetaPathFinder):
    """Waits for the registry."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _add(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
