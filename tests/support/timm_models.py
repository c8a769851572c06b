"""Architectures of timm, also where what it reads images by is not installed: torchvision comes for
one version of PyTorch each."""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

_NOT_NEEDED = ("torchvision", "PIL")


class _AnyName(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyName(name, (), {})


class _StandIn(ModuleType):
    """A module with a class of every name."""

    __version__ = "99.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyName(name, (), {})


class _Finder(MetaPathFinder, Loader):
    """Finds stand-ins for packages that cannot be imported."""

    def __init__(self, packages: set[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] in self.packages:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def timm() -> Any:
    """The package; the test is skipped where it is not installed."""
    missing = set()
    for name in _NOT_NEEDED:
        try:
            importlib.import_module(name)
        except (ImportError, RuntimeError):  # torchvision, beside another PyTorch than its own
            missing.add(name)
    finder = _Finder(missing)
    _forget(missing)
    sys.meta_path.insert(0, finder)
    try:
        return pytest.importorskip("timm")
    finally:
        sys.meta_path.remove(finder)
        _forget(missing)


def _forget(packages: set[str]) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]
