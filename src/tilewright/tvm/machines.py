"""Devices, arrays and targets under TVM's names."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from tilewright import runtime
from tilewright.ir.errors import TargetError
from tilewright.runtime import Device, NDArray
from tilewright.target import Target, current_target
from tilewright.tvm.programs import BuiltModule


def device(kind: str, index: int = 0) -> Device:
    """A device by the name of its target: "cpu", "llvm", "cuda", "opencl", "sim"."""
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
    machine = Target.parse(kind)
    return device(machine.kind).exist


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
    return Target.parse(target)


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """NumPy's check, with TVM's tolerances."""
    import numpy as np

    found, wanted = (a.numpy() if isinstance(a, NDArray) else a for a in (actual, desired))
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, verbose=True)


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets that run on this machine, each with its device."""
    return [(kind, device(kind)) for kind in ("llvm", "cuda", "opencl") if enabled(kind)]


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


# -- TVM's helpers for tests, which need pytest ---------------------------------------------------

#: What a test may require, under TVM's names, and the target that stands for it.
REQUIREMENTS = {
    "llvm": "llvm", "opencl": "opencl", "gpu": "cuda", "cuda": "cuda", "tensorcore": "cuda",
    "vulkan": "", "rocm": "", "metal": "", "hexagon": "", "cudagraph": "cuda", "package": "",
}  # fmt: skip


def requirement(kind: str) -> Callable[..., Any]:
    """A decorator that skips tests where this machine has no such device."""

    def decorate(*given: Any, **_: Any) -> Any:
        import pytest

        target = REQUIREMENTS[kind]
        mark = pytest.mark.skipif(not (target and enabled(target)), reason=f"needs {kind}")
        return mark(given[0]) if given and callable(given[0]) else mark

    return decorate


def run_tests() -> None:
    """Run the tests of the file that calls it."""
    import pytest

    raise SystemExit(pytest.main([sys._getframe(1).f_globals["__file__"]]))


def parameter(*values: Any, ids: Any = None, by_dict: Any = None) -> Any:
    """A fixture that takes each of ``values`` in turn, as ``tvm.testing.parameter``."""
    import pytest

    if by_dict is not None:
        ids, values = list(by_dict), tuple(by_dict.values())

    @pytest.fixture(params=values, ids=ids or [str(v) for v in values])
    def fixture(*_: Any, request: Any) -> Any:
        return request.param

    return fixture


def parameters(*rows: Any, ids: Any = None) -> Any:
    """One such fixture a column."""
    return tuple(parameter(*column) for column in zip(*rows, strict=True))


def fixture(*given: Any, **_: Any) -> Any:
    """``pytest.fixture``."""
    import pytest

    return pytest.fixture(*given) if given else pytest.fixture


def parametrize_targets(*targets: Any) -> Any:
    """A decorator that gives a test the arguments ``target`` and ``dev`` of those targets that run
    here, of all that do where none is named."""
    import pytest

    if len(targets) == 1 and callable(targets[0]):
        return parametrize_targets()(targets[0])
    named = [
        t
        for t in targets or ("llvm", "opencl")
        if str(t).split()[0] in ("llvm", "c", "cuda", "opencl")
    ]
    found = [(t, device(str(t))) for t in named if enabled(str(t))]
    return pytest.mark.parametrize(("target", "dev"), found, ids=[str(t) for t, _ in found])
