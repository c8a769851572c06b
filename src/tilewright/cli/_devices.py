"""The devices of this machine, by the targets that run on them."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.cli._libraries import pip_install
from tilewright.ir.errors import ArgumentError, TargetError
from tilewright.runtime.llvm_host import host_features
from tilewright.target import Target

#: The features of a CPU that change what is generated for it, as LLVM names them.
FEATURES = (
    "avx2 fma f16c avxvnni avx512f avx512bw avx512vl avx512vnni avx512bf16 avx512fp16 "
    "amx-tile amx-int8 amx-bf16 neon fullfp16 dotprod i8mm bf16 sve"
).split()

#: The oldest NVIDIA driver that runs what CUDA 13 compiles (CUDA 13.0 release notes, table 3).
OLDEST_DRIVER = 580


def with_threads(target: str, threads: int | None) -> Target:
    """The target of ``--target`` and ``--threads``; raises :class:`ArgumentError` for threads that
    it does not have."""
    found = Target.parse(target)
    if threads is None:
        return found
    if threads < 1 or found.kind != "llvm":
        raise ArgumentError(f"--threads {threads}: at least one, of the CPU")
    return replace(found, threads=threads)


@dataclass(frozen=True)
class Device:
    """What a target finds on this machine.

    Attributes
    ----------
    target : the kind of target.
    name : what the device calls itself; "" where there is none.
    details : its features and sizes, or why there is none.
    mend : what would bring one, where something other than a library is missing.
    problem : why it is of no use, where it is there and cannot be used.
    """

    target: str
    name: str
    details: str
    mend: str = ""
    problem: str = ""


def devices() -> list[Device]:
    """The CPU, the CUDA devices, the OpenCL devices, and sim."""
    sim = Device("sim", "NumPy", "GPU schedules on the CPU, checked")
    return [cpu(), *_cuda(), *_opencl(), sim]


def cpu() -> Device:
    """The processor, with the features that change what is generated for it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        import llvmlite.binding as llvm

        here = llvm.get_host_cpu_features()
    except (ImportError, OSError) as error:
        return Device("llvm", _cpu_name(), str(error))
    usable = host_features()
    features = " ".join(f for f in FEATURES if f in usable) or "baseline"
    details = f"{cores} cores; {features}"
    if platform.machine().lower() in ("x86_64", "amd64"):
        details += f"; {_tiles(here, usable)}"
    return Device("llvm", _cpu_name(), details)


def _tiles(here: Mapping[str, bool], usable: Collection[str]) -> str:
    """Whether AMX is there, which multiplies matrices of bfloat16 and int8."""
    if not here.get("amx-tile"):
        return "no AMX"
    return "AMX" if "amx-tile" in usable else "AMX, which this system does not let programs use"


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _cuda() -> list[Device]:
    try:
        from cuda.bindings import driver
    except ImportError:
        return [Device("cuda", "", "cuda-bindings is not installed")]
    try:
        status = driver.cuInit(0)[0]
    except RuntimeError:
        return [Device("cuda", "", "no NVIDIA driver", _driver_mend())]
    if int(status) != 0:
        return [Device("cuda", "", f"the driver answers {status.name}", _driver_mend())]
    from tilewright.runtime.cuda_driver import text_of

    version = driver.cuDriverGetVersion()[1]
    supports = f"driver for CUDA {version // 1000}.{version % 1000 // 10}"
    found = []
    for index in range(driver.cuDeviceGetCount()[1]):
        device = driver.cuDeviceGet(index)[1]
        name = text_of(driver.cuDeviceGetName(128, device)[1])
        names = driver.CUdevice_attribute
        major, minor, units = (
            driver.cuDeviceGetAttribute(attribute, device)[1]
            for attribute in (
                names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                names.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            )
        )
        memory = driver.cuDeviceTotalMem(device)[1] / 2**30
        details = f"sm_{major}{minor}, {units} SMs, {memory:.0f} GiB; {supports}"
        mend = _driver_mend() if version < 13000 else ""
        found.append(Device("cuda", f"{index}: {name}", details, mend))
    return found or [Device("cuda", "", "the driver sees no device")]


def _driver_mend() -> str:
    """How to get a driver, where a card is that wants one."""
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    try:
        if all(v.read_text().strip() != "0x10de" for v in vendors):
            return ""
    except OSError:
        return ""
    return f"sudo apt-get install nvidia-driver  # {OLDEST_DRIVER} or newer"


def _opencl() -> list[Device]:
    pocl = pip_install("pyopencl[pocl]")
    try:
        import pyopencl

        from tilewright.runtime import opencl, opencl_device
    except ImportError:
        return [Device("opencl", "", "pyopencl is not installed")]
    try:
        places = opencl_device.devices()
    except TargetError:
        return [Device("opencl", "", "no OpenCL device; PoCL runs on any CPU", pocl)]
    except pyopencl.Error as error:
        return [Device("opencl", "", f"the driver fails: {error}")]
    found = []
    for place in places:
        device = place.handle
        language = " ".join(device.opencl_c_version.split()[:3])
        details = (
            f"{device.platform.name}; {language}{', fp16' if place.half else ''},"
            f" {device.max_compute_units} compute units, {device.global_mem_size / 2**30:.0f} GiB"
        )
        reason = opencl.unusable(place)
        found.append(Device("opencl", place.name, details, "", reason))
    return found
