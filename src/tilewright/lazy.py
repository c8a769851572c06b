"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def loading(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``, for names by the module where each lives; a module stands for
    itself."""

    def find(name: str) -> Any:
        home, here = homes.get(name), sys.modules[package]
        if home is None:  # by the package Python says what is near
            raise AttributeError(f"{package} has no attribute {name!r}", name=name, obj=here)
        module = importlib.import_module(home)
        found = module if home == f"{package}.{name}" else getattr(module, name)
        setattr(here, name, found)
        return found

    return find
