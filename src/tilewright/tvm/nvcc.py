"""``tvm.contrib.nvcc``: what a GPU of CUDA can do, by its compute version such as "9.0"."""

from __future__ import annotations

from typing import Any

from tilewright.ir.errors import TargetError
from tilewright.target import Target, current_target
from tilewright.target.devices import compute_capability
from tilewright.tvm.machines import cuda, make_target


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """The two numbers of "9.0", or of "sm_90a"."""
    if compute_version.startswith("sm_"):
        found = compute_capability(compute_version)
        return found // 10, found % 10
    major, _, minor = compute_version.partition(".")
    if not (major.isdigit() and (minor or "0").isdigit()):
        raise TargetError(f"{compute_version!r} is no compute version: it is written like 9.0")
    return int(major), int(minor or 0)


def get_target_compute_version(target: Any = None) -> str:
    """The compute version of a target, of that of the enclosing ``with``, or of the first GPU.

    Raises :class:`TargetError` where none of them names one.
    """
    machine: Target | None = make_target(target) if target is not None else current_target()
    if machine is not None and machine.arch:
        major, minor = parse_compute_version(machine.arch)
        return f"{major}.{minor}"
    return str(cuda(0).compute_version)


def _from(least: tuple[int, int]) -> Any:
    def have(compute_version: str | None = None, target: Any = None) -> bool:
        found = compute_version or get_target_compute_version(target)
        return parse_compute_version(found) >= least

    return have


#: Whether a GPU multiplies so: those with older tensor cores, of 7.0 and 7.5, run other kernels.
have_tensorcore, have_bf16 = _from((8, 0)), _from((8, 0))
have_int8, have_fp16 = _from((6, 1)), _from((5, 3))
have_fp8 = _from((8, 9))

__all__ = [
    "get_target_compute_version", "have_bf16", "have_fp8", "have_fp16", "have_int8",
    "have_tensorcore", "parse_compute_version",
]  # fmt: skip
