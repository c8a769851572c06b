"""The GPU on a CPU: the loops of a GPU kernel on NumPy, with everything wrong reported.

>>> from tilewright.runtime.sim import simulate
>>> report = simulate(module, [a, b, c])  # doctest: +SKIP
>>> print(report)                         # doctest: +SKIP
"""

from typing import TYPE_CHECKING

from tilewright.lazy import loading

if TYPE_CHECKING:
    from tilewright.runtime.sim.program import SimProgram, cache_tag, compile_module, simulate
    from tilewright.runtime.sim.report import Finding, SimReport, SimulationError

#: Loaded when they are first used: models need the arithmetic of :mod:`.values` alone.
_HOMES = {
    "SimProgram": "program", "cache_tag": "program", "compile_module": "program",
    "simulate": "program", "Finding": "report", "SimReport": "report", "SimulationError": "report",
}  # fmt: skip
__getattr__ = loading(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()})

__all__ = [
    "Finding", "SimProgram", "SimReport", "SimulationError", "cache_tag", "compile_module",
    "simulate",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
