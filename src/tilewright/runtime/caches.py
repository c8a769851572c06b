"""How much the caches of this machine hold."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
#: Where the system does not say: a last-level cache as desktops and servers have it, and a
#: second-level one.
_USUAL = 32 << 20
_SECOND = 1 << 20
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@cache
def last_level(threads: int = 1, cpus: Path = _CPUS) -> int:
    """The bytes of the last-level cache that ``threads`` threads have.

    Where cores have several such caches, each of ``threads`` may run by another one. Under a
    hypervisor it is what the machine claims: others may use of it, too.
    """
    found = _levels(cpus)
    if not found:
        return _USUAL
    sizes = sorted(found[max(found)].values(), reverse=True)
    return sum(sizes[: max(1, threads)])


@cache
def second_level(cpus: Path = _CPUS) -> int:
    """The bytes of the second-level cache of a core."""
    return min(_levels(cpus).get(2, {"": _SECOND}).values())


def _levels(cpus: Path) -> dict[int, dict[str, int]]:
    """The bytes of caches for data, by level and by the cores that share one."""
    found: dict[int, dict[str, int]] = {}
    for place in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level, kind, size, shared = (
                (place / name).read_text().strip()
                for name in ("level", "type", "size", "shared_cpu_list")
            )
            if kind != "Instruction":
                nbytes = int(size.rstrip("KMG")) * _UNITS.get(size[-1:], 1)
                found.setdefault(int(level), {})[shared] = nbytes
        except (OSError, ValueError):  # not all systems tell everything
            continue
    return found
