"""CUDA's driver: devices, their primary contexts, streams and memory.

Everything runs in the primary context of a device, which is the one that torch, CuPy and CUDA's
runtime use, so their pointers and streams are ours too.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.ir.errors import ArgumentError, TargetError

INSTALL = "python -m pip install 'tilewright[cuda]'"
_WITHOUT = (
    "Compiling needs none: name an architecture, as in 'cuda -arch=sm_90a'; and the target sim "
    "runs schedules for GPUs without one"
)


#: The thread of :func:`open_ahead`.
_opening: list[threading.Thread] = []


def open_ahead() -> None:
    """Begin to open the first GPU in a thread beside this one: the driver takes some tenths of a
    second for it, for which the first to need it waits. What is wrong is said there.

    Whoever forks waits, too: the child would wait for ever for locks of modules that are half
    imported.
    """

    def opened() -> None:
        with contextlib.suppress(Exception):
            device(0)

    if not _opening:
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_awaited)
        _opening.append(threading.Thread(target=opened))
        with contextlib.suppress(RuntimeError):  # no thread can begin, as where a limit is reached
            _opening[0].start()


def _awaited() -> bool:
    """Whether another thread was opening the GPU, which is done now."""
    other = bool(_opening) and _opening[0] is not threading.current_thread()
    if other and (other := _opening[0].is_alive()):
        _opening[0].join()
    return other


@cache
def load_driver() -> Any:
    """The module ``cuda.bindings.driver``, initialised.

    Raises :class:`TargetError` where it, the driver or a device is missing.
    """
    if _awaited():
        return load_driver()
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise TargetError(f"running on CUDA needs cuda-bindings ({error}): {INSTALL}") from None
    try:
        status = driver.cuInit(0)[0]
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0]
        raise TargetError(
            f"running on CUDA needs NVIDIA's driver, 580 or newer, which is not found ({first}). "
            f"{_WITHOUT}"
        ) from None
    if int(status) != 0:
        raise TargetError(
            f"NVIDIA's driver answers {status.name}: is there a GPU in this machine (nvidia-smi)? "
            f"{_WITHOUT}"
        )
    return driver


def check(result: Any, doing: str = "") -> Any:
    """The value of a driver call; raises :class:`TargetError` where it failed."""
    status = result[0]
    if int(status) != 0:
        driver = load_driver()
        text = driver.cuGetErrorString(status)[1]
        raise TargetError(f"CUDA: {doing + ': ' if doing else ''}{text_of(text)} ({status.name})")
    return result[1] if len(result) > 1 else None


def text_of(found: bytes | str) -> str:
    """A C string: what stands before the first NUL, whatever the room behind it holds."""
    words = found if isinstance(found, str) else found.decode(errors="replace")
    return words.partition("\0")[0].strip()


@dataclass(frozen=True, eq=False)
class Device:
    """One GPU, with its primary context.

    Attributes
    ----------
    arch : what to compile for, "sm_90a"; with the instructions that only this architecture has.
    capability : 90 for 9.0.
    """

    ordinal: int
    name: str
    capability: int
    handle: Any
    context: Any
    address: int  # of the context

    @property
    def arch(self) -> str:
        return f"sm_{self.capability}{'a' if self.capability >= 90 else ''}"

    def attribute(self, name: str) -> int:
        """An attribute of the driver's, as ``"MULTIPROCESSOR_COUNT"``."""
        driver = load_driver()
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(driver.cuDeviceGetAttribute(which, self.handle)))

    def enter(self) -> bool:
        """Make its context current; True where :meth:`leave` has to restore the one before."""
        driver = load_driver()
        current = int(driver.cuCtxGetCurrent()[1])
        if current == self.address:
            return False
        if not current:
            check(driver.cuCtxSetCurrent(self.context))
            return False
        check(driver.cuCtxPushCurrent(self.context))
        return True

    def leave(self, entered: bool) -> None:
        """Undo :meth:`enter`, whose answer is ``entered``."""
        if entered:
            load_driver().cuCtxPopCurrent()

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Its context is current inside."""
        entered = self.enter()
        try:
            yield
        finally:
            self.leave(entered)


@cache
def device_count() -> int:
    """How many GPUs the driver sees."""
    return int(check(load_driver().cuDeviceGetCount()))


@cache
def device(ordinal: int = 0) -> Device:
    """A GPU by its number; raises :class:`TargetError` where there is none."""
    if _awaited():
        return device(ordinal)
    driver = load_driver()
    count = device_count()
    if not 0 <= ordinal < count:
        raise TargetError(f"there is no device cuda:{ordinal}: the driver sees {count}")
    handle = check(driver.cuDeviceGet(ordinal))
    names = driver.CUdevice_attribute
    major = check(
        driver.cuDeviceGetAttribute(names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle)
    )
    minor = check(
        driver.cuDeviceGetAttribute(names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle)
    )
    name = text_of(check(driver.cuDeviceGetName(128, handle)))
    context = check(driver.cuDevicePrimaryCtxRetain(handle), f"opening cuda:{ordinal}")
    return Device(ordinal, name, 10 * int(major) + int(minor), handle, context, int(context))


def torch_in_use() -> Any:
    """The module torch where it has been imported and uses CUDA, or None."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return None
    return torch


def current_ordinal() -> int:
    """The device that is current: torch's, else that of the thread's context, else 0."""
    torch = torch_in_use()
    if torch is not None:
        return int(torch.cuda.current_device())
    driver = load_driver()
    if int(driver.cuCtxGetCurrent()[1]):
        return int(check(driver.cuCtxGetDevice()))
    return 0


def pointer_ordinal(pointer: int) -> int:
    """The device whose memory an address belongs to."""
    driver = load_driver()
    which = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(check(driver.cuPointerGetAttribute(which, pointer), "looking up an address"))


def stream_handle(stream: Any, ordinal: int) -> int:
    """The handle of the stream to launch on.

    ``stream`` is None (torch's current stream on device ``ordinal`` where torch uses CUDA, else
    the default stream), an int, a torch or CuPy stream, or has ``__cuda_stream__``.
    """
    if stream is None:
        torch = torch_in_use()
        return 0 if torch is None else int(torch._C._cuda_getCurrentRawStream(ordinal))
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr"):
        found = getattr(stream, name, None)
        if isinstance(found, int):
            return found
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    try:
        return int(stream)  # a CUstream of cuda.bindings
    except (TypeError, ValueError):
        raise ArgumentError(
            f"a {type(stream).__name__} is not a CUDA stream: pass a torch or CuPy stream, an int, "
            "or anything that has __cuda_stream__"
        ) from None


@contextlib.contextmanager
def relaxed_capture() -> Iterator[None]:
    """Loading code and allocating are allowed inside although a stream is being captured."""
    driver = load_driver()
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = check(driver.cuThreadExchangeStreamCaptureMode(relaxed))
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)


class Memory:
    """Memory of a device, given back when the object is dropped."""

    def __init__(self, nbytes: int, ordinal: int = 0) -> None:
        self.nbytes, self._device = nbytes, device(ordinal)
        self.device = f"cuda:{ordinal}"
        self.pointer = 0
        driver = load_driver()
        self._free = driver.cuMemFree
        with self._device.current(), relaxed_capture():
            self.pointer = int(
                check(driver.cuMemAlloc(max(nbytes, 1)), f"allocating {nbytes} bytes")
            )

    def write(self, source: int, nbytes: int) -> None:
        """Copy ``nbytes`` from the host address ``source``, and wait."""
        driver = load_driver()
        if nbytes:
            with self._device.current():
                check(driver.cuCtxSynchronize(), "waiting for earlier work")
                check(driver.cuMemcpyHtoD(self.pointer, source, nbytes))
                check(driver.cuCtxSynchronize())

    def read(self, target: int, nbytes: int) -> None:
        """Copy ``nbytes`` to the host address ``target``, after all work so far, and wait."""
        driver = load_driver()
        if nbytes:
            with self._device.current():
                check(driver.cuCtxSynchronize(), "waiting for earlier work")
                check(driver.cuMemcpyDtoH(target, self.pointer, nbytes))

    def __del__(self) -> None:
        if getattr(self, "pointer", 0) and not sys.is_finalizing():
            with contextlib.suppress(Exception), self._device.current(), relaxed_capture():
                self._free(self.pointer)
            self.pointer = 0
