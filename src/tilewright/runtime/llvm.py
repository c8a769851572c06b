"""Programs for the CPU: compiled by LLVM, called through ctypes."""

from __future__ import annotations

import ctypes
import json
import re
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.codegen.arguments import variables
from tilewright.codegen.llvm import ENTRY, Generated
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import TargetError
from tilewright.ir.func import Module
from tilewright.runtime import llvm_openmp, llvm_pool
from tilewright.runtime.array_view import ArrayView
from tilewright.runtime.llvm_host import (
    Processor,
    assembly,
    binding,
    compile_object,
    lacking,
    processor,
)
from tilewright.runtime.llvm_link import address, link
from tilewright.runtime.program import Resources
from tilewright.target import Target

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p)
_REPEAT = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64
)


class LLVMProgram:
    """A module as machine code in this process."""

    devices = ("cpu",)

    def __init__(
        self,
        module: Module,
        target: Target,
        code: Generated,
        data: bytes,
        pool: Mapping[str, int] | None = None,
    ) -> None:
        self.module, self.target = module, target
        self._code, self._data = code, data
        self._on_openmp: LLVMProgram | None = None
        self._alone: LLVMProgram | None = None
        self._names = tuple(v.name for v in variables(module))
        buffers = sum(isinstance(p, Buffer) for p in module.params)
        self._pack_pointers = struct.Struct(f"{buffers}Q").pack
        self._pack_scalars = struct.Struct(f"{len(self._names)}q").pack
        self._refusal = lacking(self._processor.features)
        if self._refusal:  # code for another machine, to be read or saved
            self._address, self._entry, self._repeat = 0, self._refuse, self._refuse
            return
        pool = pool or llvm_openmp.everywhere() or llvm_pool.symbols()
        imports = {s: pool[s] if s in pool else address(s) for s in code.symbols}
        self._tracker, found = link(data, [ENTRY], imports)
        self._address = found[ENTRY]
        self._entry = _ENTRY(self._address)
        self._repeat = _REPEAT(pool["tw_repeat"])

    def _refuse(self, *_: object) -> int:
        raise TargetError(
            f"kernel {self.module.name} is for {self.target} and cannot run here: {self._refusal}. "
            "Use -arch=native"
        )

    @property
    def address(self) -> int:
        """Of its machine code. Raises :class:`TargetError` where it cannot run here."""
        return self._address or self._refuse()

    def on_openmp(self, library: str) -> LLVMProgram:
        """The same code, with its parallel loops on the threads of the OpenMP runtime that a loaded
        ``library`` uses; itself where there is none, or no such loop."""
        if self._on_openmp is None:
            pool = llvm_openmp.functions(library) if "tw_parallel" in self._code.symbols else None
            if pool is None:
                return self
            self._on_openmp = self._linked(pool)
        return self._on_openmp

    def alone(self) -> LLVMProgram:
        """The same code, with every loop in the thread that calls it."""
        if self._alone is None:
            self._alone = self._linked(llvm_pool.alone())
        return self._alone

    def _linked(self, pool: Mapping[str, int]) -> LLVMProgram:
        return LLVMProgram(self.module, self.target, self._code, self._data, pool)

    @property
    def source(self) -> str:
        """LLVM IR as it was written, before optimisation."""
        return "\n".join((self._code.text, *self._code.linked))

    @property
    def assembly(self) -> str:
        return assembly(self._code, self._processor)

    @property
    def _processor(self) -> Processor:
        return processor(self.target.arch)

    @property
    def resources(self) -> Mapping[str, Resources]:
        """Stack of the largest frame in bytes, and how many bytes of registers are spilled."""
        text = self.assembly
        stack = [int(n) for n in re.findall(r"\bsub[ql]?\s+\$(\d+), %rsp", text)]
        stack += [int(n) for n in re.findall(r"\bsub\s+sp, sp, #(\d+)", text)]
        spills = sum(int(n) for n in re.findall(r"(\d+)-byte (?:Folded )?Spill", text))
        return {self.module.name: Resources(spills=spills, stack=max(stack, default=0))}

    def launch(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int], stream: Any = None
    ) -> None:
        self.launch_raw([a.pointer for a in arrays], [scalars[name] for name in self._names])

    def launch_raw(
        self, pointers: Sequence[int], scalars: Sequence[int], stream: Any = None
    ) -> None:
        """The call without any checks."""
        if self._entry(self._pack_pointers(*pointers), self._pack_scalars(*scalars)):
            raise MemoryError(f"kernel {self.module.name} could not allocate its scratch memory")

    def measure(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int], number: int, repeat: int
    ) -> list[float]:
        """Seconds a call, from a loop in compiled code."""
        pointers = self._pack_pointers(*(a.pointer for a in arrays))
        values = self._pack_scalars(*(scalars[name] for name in self._names))
        times = []
        for _ in range(repeat + 1):  # the first warms up
            begin = time.perf_counter()
            status = self._repeat(self._address, pointers, values, number)
            times.append((time.perf_counter() - begin) / number)
            if status:
                raise MemoryError(
                    f"kernel {self.module.name} could not allocate its scratch memory"
                )
        return times[1:]

    def artifacts(self) -> dict[str, bytes]:
        code = {"linked": self._code.linked, "symbols": self._code.symbols}
        return {
            "object.o": self._data,
            "source.ll": self._code.text.encode(),
            "code.json": json.dumps(code).encode(),
        }


def compile_module(
    module: Module,
    target: Target,
    artifacts: dict[str, bytes] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> LLVMProgram:
    """Compile ``module``, or load what :meth:`LLVMProgram.artifacts` kept of it."""
    if artifacts is not None:
        kept = json.loads(artifacts["code.json"])
        code = Generated(
            artifacts["source.ll"].decode(), tuple(kept["linked"]), tuple(kept["symbols"])
        )
        return LLVMProgram(module, target, code, artifacts["object.o"])
    from tilewright.codegen.llvm.module import generate

    meanwhile()
    cpu = processor(target.arch)
    code = generate(module, target.threads, cpu.features, cpu.vector_bits)
    return LLVMProgram(module, target, code, compile_object(code, cpu))


def cache_tag(target: Target) -> str:
    """The processor compiled for, and LLVM's version."""
    return processor(target.arch).tag


def check_tag(target: Target, tag: str) -> str:
    """Why code compiled under ``tag`` cannot run on this machine; empty where it can."""
    there = json.loads(tag)
    triple = binding().get_process_triple()
    if there["triple"] != triple:
        return f"it is for {there['triple']}, this is {triple}"
    return lacking(there["features"])
