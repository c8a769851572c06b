"""Devices, arrays and targets under TVM's names."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from tilewright import runtime
from tilewright.ir.errors import TargetError
from tilewright.runtime import Device, NDArray
from tilewright.target import Target, current_target
from tilewright.tvm.programs import BuiltModule

#: Kinds of TVM's targets that have no counterpart: no machine has such a device.
_ABSENT = (
    "aocl", "aocl_sw_emu", "ext_dev", "hexagon", "metal", "nvptx", "rocm", "sdaccel", "vpi",
    "vulkan", "webgpu",
)  # fmt: skip


def device(kind: str, index: int = 0) -> Device:
    """A device by the name of its target: "cpu", "llvm", "cuda", "opencl", "sim".

    One of a kind that TVM alone has does not exist: nothing can be put there.
    """
    if str(kind).split()[0] in _ABSENT:
        return Device(str(kind).split()[0], index)
    return Device.parse(f"{str(kind).split()[0]}:{index}")


def cpu(index: int = 0) -> Device:
    """The CPU, where arrays for the targets llvm and sim are."""
    return Device("cpu", index)


def cuda(index: int = 0) -> Device:
    """A CUDA device."""
    return Device("cuda", index)


def opencl(index: int = 0) -> Device:
    """An OpenCL device."""
    return Device("opencl", index)


def nd_array(source: Any, device: Any = None, dtype: Any = None, *, ctx: Any = None) -> NDArray:
    """A copy of ``source`` (NumPy array, list, NDArray) on ``device``, the CPU if none is named."""
    type = None if dtype is None else dtype_name(dtype)
    return runtime.array(source, device or ctx or "cpu", type)


def nd_empty(shape: Any, dtype: Any = "float32", device: Any = None, *, ctx: Any = None) -> NDArray:
    """An array whose contents are undefined."""
    return runtime.empty(shape, dtype_name(dtype), device or ctx or "cpu")


def load_module(path: str, fmt: str = "") -> BuiltModule:
    """A kernel that was saved."""
    return BuiltModule(runtime.load(path))


def enabled(kind: str) -> bool:
    """Whether this machine can run kernels for a target."""
    if kind.split()[0] in _ABSENT:
        return False
    return device(make_target(kind).kind).exist


def llvm_version_major(allow_none: bool = False) -> int:
    """The release of LLVM that compiles for the CPU."""
    import llvmlite.binding

    return int(llvmlite.binding.llvm_version_info[0])


def targets(kind: str) -> Callable[..., Target]:
    """The function that makes targets of a kind."""

    def make(model: str = "", options: str = "") -> Target:
        return Target.parse(f"{kind} {options}")

    return make


def current(allow_none: bool = True) -> Target | None:
    """The target of the enclosing ``with``."""
    found = current_target()
    if found is None and not allow_none:
        raise TargetError('there is no target here: write `with tvm.target.Target("llvm"):`')
    return found


def make_target(target: Any, host: Any = None) -> Target:
    """A target from its text, or from a dictionary with "kind" and options such as "arch"."""
    if isinstance(target, Mapping):
        options = (f"-{k}={v}" for k, v in target.items() if k not in ("kind", "host", "tag"))
        target = " ".join((str(target.get("kind", "")), *options))
    if isinstance(target, str):
        target = re.sub(r"(?<= )--?([\w-]+) (?=[^- ])", r"-\1=", target)  # "--mcpu avx2"
        # A kind of CPU or GPU, for which TVM has schedules of its own.
        kinds = r"\S+" if target.startswith("llvm") else "(mali|bifrost|adreno|intel_graphics)"
        target = re.sub(rf" -device={kinds}(?= |$)", "", target)
    return Target.parse(target)


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """NumPy's check, with TVM's tolerances."""
    import numpy as np

    found, wanted = (a.numpy() if isinstance(a, NDArray) else a for a in (actual, desired))
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, verbose=True)


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets that tests run on, each with its device: of those that the environment variable
    ``TVM_TEST_TARGETS`` names (``llvm;cuda``), or of all, those that run on this machine."""
    named = [t for t in os.environ.get("TVM_TEST_TARGETS", "").split(";") if t]
    return [(t, device(t)) for t in named or ("llvm", "cuda", "opencl") if enabled(t)]


def device_enabled(target: str) -> bool:
    """Whether tests run on targets of this one's kind."""
    return target.split()[0] in {t.split()[0] for t, _ in enabled_targets()}


def dtype_name(given: Any) -> str:
    """A type by its name, where it may be NumPy's."""
    return given if isinstance(given, str) else str(getattr(given, "__name__", given))


class _Folder:
    """A folder that is removed with the object."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.path = self.temp_dir = self._folder.name

    def relpath(self, name: str) -> str:
        """The path of a file in it."""
        return os.path.join(self.path, name)

    def listdir(self) -> list[str]:
        return os.listdir(self.path)

    def remove(self) -> None:
        self._folder.cleanup()


def tempdir(custom_path: str | None = None) -> _Folder:
    """``tvm.contrib.utils.tempdir``: a folder for what a program writes."""
    return _Folder()
