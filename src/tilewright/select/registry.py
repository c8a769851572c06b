"""All algorithms, in the order in which the heuristic prefers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.select.algorithm import Algorithm

_registered: dict[str, Algorithm] = {}


def register(algorithm: Algorithm) -> Algorithm:
    """Make an algorithm known; another one of that name is replaced."""
    _registered[algorithm.name] = algorithm
    return algorithm


def registered() -> list[Algorithm]:
    """Those that are not this library's own."""
    return list(_registered.values())


def algorithms() -> list[Algorithm]:
    """Those of the library, PyTorch's, then those registered."""
    from tilewright.select.algorithm import Scheduled
    from tilewright.select.vendor import PyTorch
    from tilewright.topi.templates import TEMPLATES

    found: dict[str, Algorithm] = {name: Scheduled(t) for name, t in TEMPLATES.items()}
    pytorch = PyTorch()
    found[pytorch.name] = pytorch
    return list((found | _registered).values())


def find(name: str) -> Algorithm | None:
    """The algorithm of that name."""
    return next((a for a in algorithms() if a.name == name), None)
