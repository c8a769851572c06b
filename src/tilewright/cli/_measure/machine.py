"""The machine at hand: its target, its arrays, its clock, and what it could do at best."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import tilewright
from tilewright.cli._measure import floors
from tilewright.cli._measure.turns import Batch, Rest, briefly, of_calls, until_idle
from tilewright.ir.errors import ArgumentError, TargetError
from tilewright.target import Target

if TYPE_CHECKING:
    from tilewright.runtime import Kernel
    from tilewright.runtime.ndarray import NDArray


@dataclass
class Machine:
    """A target with the device that it finds here.

    Attributes
    ----------
    threads : of the CPU, for the kernels and for what they are compared with.
    hints : what would bring more, a sentence each.
    clock : the seconds of a CPU: those of the process where one thread shares it with others.
    """

    target: Target
    device: str
    threads: int
    hints: list[str] = field(default_factory=list)
    clock: Callable[[], float] = time.perf_counter

    @property
    def kind(self) -> str:
        return self.target.kind

    @property
    def timed(self) -> bool:
        """Whether seconds mean anything: not those of the simulator."""
        return self.kind != "sim"

    @cached_property
    def lanes(self) -> int:
        """float32 elements in a vector of the machine."""
        if self.target.is_gpu:
            return 4
        from tilewright.runtime.llvm_host import processor

        features = processor(self.target.arch).features
        return 16 if "avx512vl" in features else 8 if "avx2" in features else 4

    def arrays(self, *sources: Any) -> tuple[Any, ...]:
        """Arrays on the device, with the contents of these."""
        if self.kind in ("llvm", "sim"):
            return sources
        from tilewright.runtime import array

        return tuple(array(source, self._place) for source in sources)

    def array(self, values: Any, dtype: str) -> NDArray:
        """An array of type ``dtype`` on the device, from float32 numbers that it holds exactly."""
        from tilewright.runtime import array

        place = "cpu" if self.kind in ("llvm", "sim") else self._place
        return array(values, place, dtype)

    def fetch(self, array: Any) -> Any:
        """An array of the device as NumPy's."""
        return array if self.kind in ("llvm", "sim") else array.numpy()

    @cached_property
    def _place(self) -> str:
        if self.kind == "cuda":
            return "cuda:0"
        from tilewright.runtime.opencl_device import device, devices

        return f"opencl:{devices().index(device(self.target.arch))}"

    def batch(self, kernel: Kernel, *arrays: Any) -> Batch:
        """What times a kernel on arrays of the device; on a GPU by the GPU's clock."""
        if self.kind == "llvm":
            return of_calls(kernel.bind(*arrays), self.clock)
        return lambda number: kernel.time(*arrays, repeat=1, number=number).times[0]

    @property
    def rest(self) -> Rest:
        """What comes before the batch of each candidate."""
        return until_idle if self.kind == "llvm" and self.threads > 1 else briefly

    def copying(self, nbytes: int) -> tuple[Batch, float] | None:
        """What reads ``nbytes / 2`` and writes as many, and by what its time is to be multiplied.

        None on the simulator.
        """
        if not self.timed:
            return None
        import numpy as np

        from tilewright.runtime.signature import evaluate

        gpu = self.target.is_gpu
        made = floors.copy_on_gpu(nbytes) if gpu else floors.copy_on_cpu(nbytes, self.lanes)
        args, schedule = made
        kernel = tilewright.build(schedule, args, self.target, "copy")
        data = np.zeros([evaluate(extent, {}) for extent in args[0].shape], np.float32)
        arrays = self.arrays(data, np.empty_like(data))
        return self.batch(kernel, *arrays), nbytes / (8 * data.size)

    @cached_property
    def peak(self) -> float:
        """Multiplications and additions a second, by what does nothing else; 0: unknown."""
        return floors.best_rate(self) if self.timed else 0.0


def find(text: str | None, threads: int | None) -> Machine:
    """The machine for ``--target`` and ``--threads``; a CUDA device, else the CPU, where not given.

    Raises :class:`TargetError` where the device or a library for it is missing.
    """
    from tilewright.cli._devices import cpu
    from tilewright.runtime.llvm_host import available_cores, thread_count

    if threads is not None and threads < 1:
        raise ArgumentError(f"--threads {threads}: at least 1")
    cores = available_cores()
    hints = []
    if text is None:
        text, reason = _at_hand()
        hints += [reason] if reason else []
    target = Target.parse(text)
    if target.kind == "llvm":
        target = replace(target, threads=threads or thread_count(target))
        return Machine(target, cpu().name, target.threads, hints)
    if target.kind == "sim":
        return Machine(target, "a GPU, simulated by NumPy", threads or cores, hints)
    if target.kind == "cuda":
        from tilewright.runtime.cuda import device_name, resolve_arch

        _check_nvrtc()
        target = target if target.arch else target.with_arch(resolve_arch(target))
        return Machine(target, device_name(0), threads or cores, hints)
    from tilewright.runtime.opencl_device import device

    return Machine(target, device(target.arch).name, threads or cores, hints)


def _at_hand() -> tuple[str, str]:
    """The target for this machine, and why it is not CUDA where a CUDA device is."""
    from tilewright.runtime import Device

    if not Device("cuda").exist:
        return "llvm", ""
    try:
        _check_nvrtc()
    except TargetError as error:
        return "llvm", f"There is a CUDA device, but {error}"
    return "cuda", ""


def _check_nvrtc() -> None:
    from tilewright.runtime import nvrtc

    nvrtc.version()
