"""The device that a target stands for on this machine, as records name it."""

from __future__ import annotations

import functools
import json
import platform
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TargetError
from tilewright.target import Target


def machine(text: str | Target, probe: bool = True) -> dict[str, Any]:
    """``device``, ``driver``, ``version``, and ``target`` with its architecture.

    A GPU is the current one. With ``probe`` it has to answer, for which it is waited.

    Raises :class:`TargetError` where the device or its library is missing, and where it does not
    answer.
    """
    from tilewright import __version__

    target = Target.parse(text)
    if target.kind == "cuda":
        name, driver, target = _cuda(target, probe)
    elif target.kind == "opencl":
        name, driver = _opencl(target)
    else:
        name, driver = _cpu(target)
    return {"device": name, "driver": driver, "version": __version__, "target": str(target)}


def with_architecture(text: str | Target) -> Target:
    """A target with the architecture of the GPU at hand, where it is of one and names none.

    Raises :class:`TargetError` where no GPU is there.
    """
    target = Target.parse(text)
    if target.kind != "cuda" or target.arch:
        return target
    from tilewright.runtime.cuda import resolve_arch

    return target.with_arch(resolve_arch(target))


def with_own_architecture(target: str | Target) -> Target:
    """The target, with the architecture of the GPU at hand where it names none: without, no choice
    knows of tensor cores. Where there is no GPU, as it is."""
    try:
        return with_architecture(target)
    except TargetError:
        return Target.parse(target)


@functools.cache
def machine_of(target: Target) -> str:
    """The device, with everything that times on it depend on."""
    # Asking the device to answer would wait for it, which ends the capture of a graph.
    return json.dumps(machine(target, probe=False), sort_keys=True)


def _cuda(target: Target, probe: bool) -> tuple[str, str, Target]:
    from tilewright.runtime import cuda, nvrtc
    from tilewright.runtime.cuda_driver import check, current_ordinal, load_driver
    from tilewright.runtime.ndarray import array

    target = with_architecture(target)
    ordinal = current_ordinal()
    if probe:
        array([1.0], f"cuda:{ordinal}", "float32").numpy()
    version = int(check(load_driver().cuDriverGetVersion()))
    driver = f"CUDA {version // 1000}.{version % 1000 // 10}, NVRTC {nvrtc.version()}"
    return cuda.device_name(ordinal), driver, target


def _opencl(target: Target) -> tuple[str, str]:
    from tilewright.runtime.opencl_device import device

    found = device(target.arch)
    return found.name, f"{found.handle.platform.name} {found.handle.driver_version}".strip()


def _cpu(target: Target) -> tuple[str, str]:
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    if target.kind == "sim":
        import numpy

        return f"sim on {name}", f"NumPy {numpy.__version__}"
    from tilewright.runtime.llvm_host import binding, thread_count

    version = ".".join(map(str, binding().llvm_version_info))
    return f"{name}, {thread_count(target)} threads", f"LLVM {version}"
