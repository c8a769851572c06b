"""CUDA graphs: launches that the driver records once and repeats by one call; and streams."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from tilewright.runtime.cuda_driver import Device, check, load_driver


class Mark:
    """A moment on a stream, by the device's clock."""

    def __init__(self, stream: Any) -> None:
        self._driver = driver = load_driver()
        self._event = check(driver.cuEventCreate(0), "making an event")
        check(driver.cuEventRecord(self._event, stream))

    def since(self, other: Mark) -> float:
        """Seconds from another moment, when both are over."""
        found = check(load_driver().cuEventElapsedTime(other._event, self._event))
        return float(found) * 1e-3

    def __del__(self) -> None:
        if hasattr(self, "_event") and not sys.is_finalizing():
            with contextlib.suppress(Exception):
                self._driver.cuEventDestroy(self._event)


class Stream:
    """A stream of its own, which does not wait for the default stream."""

    def __init__(self, place: Device) -> None:
        self.place, self.handle = place, 0
        self._driver = driver = load_driver()
        with place.current():
            flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
            self._stream = check(driver.cuStreamCreate(flags), "making a stream")
            timing = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
            self._event = check(driver.cuEventCreate(timing), "making an event")
        self.handle = int(self._stream)

    def wait_for(self, other: int) -> None:
        """Let what comes here wait for what is on another stream by now."""
        driver = load_driver()
        check(driver.cuEventRecord(self._event, driver.CUstream(other)))
        check(driver.cuStreamWaitEvent(self._stream, self._event, 0))

    def wait_in(self, other: int) -> None:
        """Let what comes on another stream wait for what is here by now."""
        driver = load_driver()
        check(driver.cuEventRecord(self._event, self._stream))
        check(driver.cuStreamWaitEvent(driver.CUstream(other), self._event, 0))

    def wait_until(self, moment: Mark) -> None:
        """Let what comes here wait for a moment, of whatever stream."""
        check(load_driver().cuStreamWaitEvent(self._stream, moment._event, 0))

    def mark(self) -> Mark:
        """This moment: when all that is here by now is done."""
        return Mark(self._stream)

    def synchronize(self) -> None:
        """Wait until all that is here is done; raises :class:`TargetError` where it failed."""
        check(load_driver().cuStreamSynchronize(self._stream), "the work on a stream failed")

    def to_device(self, target: int, source: int, nbytes: int) -> None:
        """Copy from the host's memory, which may be written to again afterwards."""
        if nbytes:
            check(load_driver().cuMemcpyHtoDAsync(target, source, nbytes, self._stream))

    def to_host(self, target: int, source: int, nbytes: int) -> None:
        """Copy to the host's memory, which is there after :meth:`synchronize`."""
        if nbytes:
            check(load_driver().cuMemcpyDtoHAsync(target, source, nbytes, self._stream))

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device's memory."""
        if nbytes and target != source:
            check(load_driver().cuMemcpyDtoDAsync(target, source, nbytes, self._stream))

    def __del__(self) -> None:
        if getattr(self, "handle", 0) and not sys.is_finalizing():
            with contextlib.suppress(Exception), self.place.current():
                self._driver.cuEventDestroy(self._event)
                self._driver.cuStreamDestroy(self._stream)


class CudaGraph:
    """What ``record`` launches on the stream that it is given, which is not run then.

    The addresses are those of the recording. Raises :class:`TargetError` where the driver cannot
    record it.
    """

    def __init__(self, stream: Stream, record: Callable[[int], None]) -> None:
        self._driver = driver = load_driver()
        self._place, self._executable = stream.place, None
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        with stream.place.current():
            check(driver.cuStreamBeginCapture(stream._stream, mode), "recording a CUDA graph")
            try:
                record(stream.handle)
            except BaseException:  # what it raised says more than that the recording is none
                driver.cuStreamEndCapture(stream._stream)
                raise
            graph = check(driver.cuStreamEndCapture(stream._stream), "recording a CUDA graph")
            try:
                self._executable = check(driver.cuGraphInstantiate(graph, 0), "making a CUDA graph")
            finally:
                driver.cuGraphDestroy(graph)

    def launch(self, stream: int) -> None:
        """Repeat it on a stream."""
        driver = load_driver()
        check(driver.cuGraphLaunch(self._executable, driver.CUstream(stream)), "a CUDA graph")

    def __del__(self) -> None:
        if getattr(self, "_executable", None) is not None and not sys.is_finalizing():
            with contextlib.suppress(Exception), self._place.current():
                self._driver.cuGraphExecDestroy(self._executable)
