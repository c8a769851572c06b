"""The algorithms that can do a problem, and the choice among them.

An algorithm is a schedule of the library with its parameters, or another library's kernel. The
choice is made without measuring (the policy "heuristic"), by measuring on random data ("profile",
whose times are kept for later processes), or among those alone that give the same bits in every
run ("reproducible").
"""

from typing import TYPE_CHECKING

from tilewright.lazy import loading

if TYPE_CHECKING:
    from tilewright.select.algorithm import Algorithm, Built
    from tilewright.select.choice import POLICIES, Choice, SelectError, choose, options, reason
    from tilewright.select.profile_cache import ProfileCache
    from tilewright.select.registry import algorithms, find, register

#: Loaded when they are first used: what is remembered of a choice needs none of them.
_HOMES = {
    "Algorithm": "algorithm", "Built": "algorithm", "POLICIES": "choice", "Choice": "choice",
    "SelectError": "choice", "choose": "choice", "options": "choice", "reason": "choice",
    "ProfileCache": "profile_cache", "algorithms": "registry", "find": "registry",
    "register": "registry",
}  # fmt: skip
__getattr__ = loading(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()})

__all__ = [
    "POLICIES", "Algorithm", "Built", "Choice", "ProfileCache", "SelectError", "algorithms",
    "choose", "find", "options", "reason", "register",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
