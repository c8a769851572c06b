"""The GPU on a CPU: the loops of a GPU kernel on NumPy, with everything wrong reported.

>>> from tilewright.runtime.sim import simulate
>>> report = simulate(module, [a, b, c])  # doctest: +SKIP
>>> print(report)                         # doctest: +SKIP
"""

from tilewright.runtime.sim.program import SimProgram, cache_tag, compile_module, simulate
from tilewright.runtime.sim.report import Finding, SimReport, SimulationError

__all__ = [
    "Finding", "SimProgram", "SimReport", "SimulationError", "cache_tag", "compile_module",
    "simulate",
]  # fmt: skip
