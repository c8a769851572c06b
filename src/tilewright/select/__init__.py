"""The algorithms that can do a problem, and the choice among them.

An algorithm is a schedule of the library with its parameters, or another library's kernel. The
choice is made without measuring (the policy "heuristic"), by measuring on random data ("profile",
whose times are kept for later processes), or among those alone that give the same bits in every
run ("reproducible").
"""

from tilewright.select.algorithm import Algorithm, Built
from tilewright.select.choice import POLICIES, Choice, SelectError, choose, options, reason
from tilewright.select.profile_cache import ProfileCache
from tilewright.select.registry import algorithms, find, register

__all__ = [
    "POLICIES", "Algorithm", "Built", "Choice", "ProfileCache", "SelectError", "algorithms",
    "choose", "find", "options", "reason", "register",
]  # fmt: skip
