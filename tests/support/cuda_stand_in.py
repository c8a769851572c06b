"""A stand-in for CUDA's driver, which writes down what it has to launch."""

from __future__ import annotations

import ctypes
from typing import Any


class StandIn:
    """``cuLaunchKernelEx``: notes the bytes of each configuration and of its attribute, the
    function, and the parameters, of which each launch has as many as ``counts`` says."""

    def __init__(self) -> None:
        self.notes: list[tuple[bytes, bytes, int, list[int]]] = []
        self.answers: list[int] = []
        self.counts = [3] * 3
        pointer = ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, pointer, pointer)
        self._function = kind(self._launch)
        self.address = ctypes.cast(self._function, pointer).value

    def _launch(self, how: int, function: int, parameters: int, extra: int | None) -> int:
        assert extra is None
        count = self.counts[len(self.notes)]
        places = (ctypes.c_void_p * count).from_address(parameters)
        values = [ctypes.c_uint64.from_address(p).value for p in places]
        attribute = ctypes.string_at(ctypes.c_uint64.from_address(how + 40).value, 72)
        self.notes.append((ctypes.string_at(how, 56), attribute, function, values))
        return self.answers.pop(0) if self.answers else 0


class Driver:
    """The functions of ``cuda.bindings.driver`` that load a module, for one that is not there."""

    def __init__(self) -> None:
        self.functions = iter(range(100, 200))

    def cuModuleLoadData(self, _: int) -> tuple[int, int]:
        return 0, 1

    def cuModuleGetFunction(self, _: int, symbol: bytes) -> tuple[int, int]:
        return 0, next(self.functions)

    def cuCtxGetCurrent(self) -> tuple[int, int]:
        return 0, 77

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> tuple[int, Any]:
        return 0, mode

    def cuGetErrorString(self, _: Any) -> tuple[int, bytes]:
        return 0, b"a failure"

    def __getattr__(self, name: str) -> Any:
        from cuda.bindings import driver

        return getattr(driver, name)  # types and numbers
