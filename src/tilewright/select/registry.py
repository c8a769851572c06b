"""All algorithms, in the order in which the heuristic prefers them."""

from __future__ import annotations

from tilewright.select.algorithm import Algorithm, Scheduled
from tilewright.select.gpu import REGISTERS
from tilewright.topi.templates import TEMPLATES

_registered: dict[str, Algorithm] = {}


def register(algorithm: Algorithm) -> Algorithm:
    """Make an algorithm known; another one of that name is replaced."""
    _registered[algorithm.name] = algorithm
    return algorithm


def algorithms() -> list[Algorithm]:
    """Those of the library, then those registered."""
    found: dict[str, Algorithm] = {name: Scheduled(t) for name, t in TEMPLATES.items()}
    found.setdefault(REGISTERS.name, REGISTERS)
    return list((found | _registered).values())


def find(name: str) -> Algorithm | None:
    """The algorithm of that name."""
    return next((a for a in algorithms() if a.name == name), None)
