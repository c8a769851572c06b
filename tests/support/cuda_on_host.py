"""A GPU that is none: its memory is the host's, its streams work at once, its kernels are those of
the CPU.

What is recorded in a CUDA graph is kept and repeated, so that everything but the driver itself runs
as it does beside one.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from typing import Any

import numpy as np

from tilewright.graph import executor, kernels
from tilewright.runtime import cuda, cuda_call, cuda_driver, cuda_graph, cuda_launch, cuda_maps
from tilewright.runtime.ndarray import empty
from tilewright.target import Target


class HostDriver:
    """The functions of ``cuda.bindings.driver`` that run a graph; ``calls`` counts them."""

    def __init__(self, refuses: str = "") -> None:
        self.calls: Counter[str] = Counter()
        self.refuses = refuses
        self._memory: dict[int, Any] = {}
        self._recording: list[Any] | None = None
        self._graphs: dict[int, list[Any]] = {}

    def launch(self, work: Any) -> None:
        """What a kernel does."""
        self.calls["kernel"] += 1
        if self._recording is None:
            work()
        else:
            self._recording.append(work)

    def _alloc(self, nbytes: int) -> tuple[int, int]:
        block = np.full(nbytes + 256, 0xA5, np.uint8)
        start = block.ctypes.data + -block.ctypes.data % 256
        self._memory[start] = block
        return 0, start

    def _move(self, target: int, source: int, nbytes: int, stream: Any = None) -> tuple[int]:
        assert self._recording is None
        ctypes.memmove(target, source, nbytes)
        return (0,)

    def _begin(self, stream: Any, mode: Any) -> tuple[int]:
        self._recording = []
        return (0,)

    def _end(self, stream: Any) -> tuple[int, int]:
        assert self._recording is not None
        number = len(self._graphs) + 1
        self._graphs[number], self._recording = self._recording, None
        return 0, number

    def _repeat(self, graph: int, stream: Any) -> tuple[int]:
        for work in self._graphs[graph]:
            work()
        return (0,)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            from cuda.bindings import driver

            return getattr(driver, name)  # types and numbers
        known = {
            "cuMemAlloc": self._alloc, "cuMemcpyHtoD": self._move, "cuMemcpyDtoH": self._move,
            "cuMemcpyHtoDAsync": self._move, "cuMemcpyDtoHAsync": self._move,
            "cuMemcpyDtoDAsync": self._move, "cuStreamBeginCapture": self._begin,
            "cuStreamEndCapture": self._end, "cuGraphLaunch": self._repeat,
            "cuGraphInstantiate": lambda graph, flags: (0, graph),
            "cuCtxGetCurrent": lambda: (0, 77), "cuGetErrorString": lambda _: (0, b"a failure"),
            "cuEventElapsedTime": lambda a, b: (0, 2.0),
        }  # fmt: skip

        def call(*args: Any) -> Any:
            self.calls[name] += 1
            if name == self.refuses:
                self._recording = None
                return (self.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, None)
            return known.get(name, lambda *_: (0, 1))(*args)

        return call


class _Program:
    def __init__(self, driver: HostDriver, program: Any) -> None:
        self.driver, self.program = driver, program

    def launch_raw(
        self, pointers: Any, scalars: Any, stream: Any = None, ordinal: Any = None
    ) -> None:
        assert isinstance(stream, int)
        self.driver.launch(lambda: self.program.launch_raw(pointers, scalars))


class _Preparation:
    def __init__(self, real: Any) -> None:
        self.real, self.reads, self.takes, self.types = real, real.reads, real.takes, real.types
        self.kernel = real.kernel

    def run(self, constants: Any, device: str) -> Any:
        made = [empty(shape, dtype, device) for shape, dtype in self.types]
        pointers = [x._pointer for x in (*constants, *made)]
        self.real.kernel.program.launch_raw(pointers, ())
        return made


class _Kernel:
    def __init__(self, driver: HostDriver, real: Any) -> None:
        self.program = _Program(driver, real.program)
        self.preparation = real.preparation and _Preparation(real.preparation)


class _Place(cuda_driver.Device):
    """What is dropped after a test is given back without the driver of the machine."""

    def enter(self) -> bool:
        return False


#: Modules that take these from another: one first loaded within a test would keep the stand-in.
_USERS = (cuda, cuda_call, cuda_driver, cuda_graph, cuda_launch, cuda_maps)


def put_in_place(monkeypatch: Any, refuses: str = "") -> HostDriver:
    """Let ``cuda`` be this: the driver, for the length of a test."""
    driver = HostDriver(refuses)
    place = _Place(0, "stand-in", 90, 1, 1, 77)
    from tilewright.graph import cuda_state

    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("tilewright.") and module is not cuda:
            if "load_driver" in vars(module):
                monkeypatch.setattr(module, "load_driver", lambda: driver)
    for module in (*_USERS, cuda_state):
        for name, value in (("load_driver", lambda: driver), ("device", lambda _=0: place)):
            if name in vars(module):
                monkeypatch.setattr(module, name, value)

    def build_all(works: Any, target: Target, progress: Any = None, *saved: Any) -> Any:
        if target.kind != "cuda":
            return kernels.build_all(works, target, progress, *saved)
        found = kernels.build_all(works, Target.parse("llvm"), progress, *saved)
        return {
            key: built._replace(kernel=_Kernel(driver, built.kernel))  # type: ignore[arg-type]
            for key, built in found.items()
        }

    monkeypatch.setattr(executor, "build_all", build_all)
    return driver
