"""A small array of our own: memory on a device, filled from NumPy and read back.

It is what ``tvm.nd.array`` makes; on the CPU it wraps a NumPy array.
"""

from __future__ import annotations

import importlib
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.ir.dtype import DType, dtype
from tilewright.ir.errors import ArgumentError, TargetError
from tilewright.runtime.array_view import ArrayView, dense_strides, numpy_dtype
from tilewright.runtime.narrow_floats import bits_type, holds, is_narrow, storage_type, to_storage

if TYPE_CHECKING:
    import numpy as np

_HERE = "tilewright.runtime"
#: On a CPU an array begins at a multiple of this many bytes: a line of the caches, the widest
#: vector.
_ALIGNED = 64


class DeviceMemory(Protocol):
    """Memory of a device; it is given back when the object is dropped.

    ``pointer`` is what :class:`ArrayView` holds for it; ``device`` like "cuda:0".
    """

    pointer: int
    device: str

    def write(self, source: int, nbytes: int) -> None:
        """Copy ``nbytes`` from the host address ``source`` to the device, and wait."""

    def read(self, target: int, nbytes: int) -> None:
        """Copy ``nbytes`` to the host address ``target``, after all work so far; and wait."""


#: Attributes of CUDA's driver, by TVM's names: threads, threads, bytes, SMs and kHz.
_NUMBERS = {
    "max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "warp_size": "WARP_SIZE",
    "max_shared_memory_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "multi_processor_count": "MULTIPROCESSOR_COUNT",
    "max_clock_rate": "CLOCK_RATE",
}


class Device:
    """One device: ``kind`` "cpu", "cuda" or "opencl" with its number."""

    __slots__ = ("index", "kind")

    def __init__(self, kind: str, index: int = 0) -> None:
        self.kind, self.index = kind, index

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"

    def __repr__(self) -> str:
        return f"{self.kind}({self.index})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @staticmethod
    def parse(text: str | Device) -> Device:
        """``"cuda:1"``, ``"gpu"``, ``"llvm"`` and the like."""
        if isinstance(text, Device):
            return text
        kind, _, index = text.partition(":")
        kind = {"gpu": "cuda", "llvm": "cpu", "sim": "cpu", "cl": "opencl"}.get(kind, kind)
        if kind not in ("cpu", "cuda", "opencl"):
            raise ArgumentError(f"unknown device {text!r}: there are cpu, cuda and opencl")
        return Device(kind, int(index or 0))

    @property
    def exist(self) -> bool:
        """Whether this machine has it, with the libraries that it takes."""
        if self.kind == "cpu":
            return True
        try:
            if self.kind == "cuda":
                found = importlib.import_module(f"{_HERE}.cuda_driver").device_count()
            elif self.kind != "opencl":
                return False
            else:
                found = len(importlib.import_module(f"{_HERE}.opencl_device").devices())
            return self.index < int(found)
        except TargetError:
            return False

    def __getattr__(self, name: str) -> Any:
        """What TVM's devices tell of a GPU of CUDA, None of others: ``compute_version`` "9.0",
        ``device_name``, and the numbers of ``_NUMBERS``."""
        if name not in _NUMBERS and name not in ("compute_version", "device_name"):
            raise AttributeError(f"a device has no attribute {name!r}")
        if self.kind != "cuda":
            return None
        found = importlib.import_module(f"{_HERE}.cuda_driver").device(self.index)
        if name == "compute_version":
            return f"{found.capability // 10}.{found.capability % 10}"
        return found.name if name == "device_name" else found.attribute(_NUMBERS[name])

    def sync(self) -> None:
        """Wait for all work on the device."""
        if self.kind != "cpu":
            importlib.import_module(f"{_HERE}.{self.kind}").synchronize(str(self))


class NDArray:
    """A dense array on a device. Make it with :func:`array` or :func:`empty`."""

    def __init__(
        self, shape: tuple[int, ...], type: DType, device: Device, memory: Any, pointer: int
    ) -> None:
        self.shape, self.dtype, self.device = shape, type, device
        self._memory, self._pointer = memory, pointer

    def __tilewright_view__(self) -> ArrayView:
        return ArrayView(
            self._pointer,
            self.shape,
            dense_strides(self.shape),
            self.dtype,
            str(self.device),
            False,
            self,
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """How other libraries see an array on a CUDA device, without a copy; floats that NumPy
        lacks as their bits. Raises :class:`AttributeError` for one elsewhere."""
        if self.device.kind != "cuda":
            raise AttributeError(f"an array on {self.device} is none of CUDA's")
        t = self.dtype
        kind = (bits_type(t) if is_narrow(t) else storage_type(t)).str
        return {
            "shape": self.shape, "typestr": kind, "data": (self._pointer, False),
            "strides": None, "version": 3,
        }  # fmt: skip

    def __dlpack__(self, **more: Any) -> Any:
        """A capsule of the memory, which is shared; floats that NumPy lacks as their bits.

        Raises :class:`BufferError` for an array on a GPU: ``numpy()`` copies it.
        """
        if self.device.kind != "cpu":
            raise BufferError(f"an array on {self.device} is not shared: numpy() copies it")
        return self._memory.__dlpack__(**more)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.device.kind != "cpu":
            raise BufferError(f"an array on {self.device} is not shared: numpy() copies it")
        found: tuple[int, int] = self._memory.__dlpack_device__()
        return found

    @property
    def ctx(self) -> Device:
        """The device, under its name of 2017."""
        return self.device

    @property
    def nbytes(self) -> int:
        total = self.dtype.bytes
        for extent in self.shape:
            total *= extent
        return total

    def numpy(self) -> np.ndarray[Any, Any]:
        """The contents as a new NumPy array, after all work that was launched before."""
        import numpy as np

        if self.device.kind == "cpu":
            made: np.ndarray[Any, Any] = self._memory.copy()
            return made
        found = np.empty(self.shape, storage_type(self.dtype))
        self._memory.read(found.ctypes.data, self.nbytes)
        return found

    asnumpy = numpy

    def copyfrom(self, source: Any) -> NDArray:
        """Fill it with a NumPy array (or anything ``np.asarray`` takes) of the same shape."""
        import numpy as np

        if isinstance(source, NDArray):
            source = source.numpy()
        if is_narrow(self.dtype) and not holds(getattr(source, "dtype", None), self.dtype):
            source = to_storage(source, self.dtype)
        given = np.asarray(source, None if is_narrow(self.dtype) else self._numpy_type)
        data = np.ascontiguousarray(given).reshape(given.shape)  # which has no shape of () itself
        if data.shape != self.shape:
            raise ArgumentError(f"an array of shape {self.shape} got data of shape {data.shape}")
        if self.device.kind == "cpu":
            self._memory[...] = data.view(self._memory.dtype)
        else:
            self._memory.write(data.ctypes.data, self.nbytes)
        return self

    def copyto(self, target: NDArray | Device | str) -> NDArray:
        """Copy into another array, or into a new one on another device."""
        if isinstance(target, (Device, str)):
            target = empty(self.shape, self.dtype, target)
        return target.copyfrom(self.numpy())

    @property
    def _numpy_type(self) -> np.dtype[Any]:
        return storage_type(self.dtype)

    def __repr__(self) -> str:
        return f"<NDArray {self.shape} {self.dtype} on {self.device}>\n{self.numpy()!r}"


def _aligned(shape: tuple[int, ...], type: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Undefined contents from an address on that :data:`_ALIGNED` divides.

    NumPy's own arrays begin at multiples of 16 bytes, where each vector of 64 lies on two lines.
    """
    import numpy as np

    nbytes = prod(shape) * type.itemsize
    memory = np.empty(nbytes + _ALIGNED, np.uint8)
    start = -memory.ctypes.data % _ALIGNED
    return memory[start : start + nbytes].view(type).reshape(shape)


def empty(shape: Any, type: str = "float32", device: Device | str = "cpu") -> NDArray:
    """An array whose contents are undefined; on a CPU it begins at a multiple of 64 bytes."""
    extents = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
    if any(extent < 0 for extent in extents):
        raise ArgumentError(f"negative extent in shape {extents}")
    place, t = Device.parse(device), dtype(str(type))
    if place.kind == "cpu":
        data = _aligned(extents, storage_type(t))
        return NDArray(extents, t, place, data, data.ctypes.data)
    nbytes = t.bytes
    for extent in extents:
        nbytes *= extent
    backend = importlib.import_module(f"tilewright.runtime.{place.kind}")
    memory: DeviceMemory = backend.allocate(nbytes, str(place))
    return NDArray(extents, t, place, memory, memory.pointer)


def array(source: Any, device: Device | str = "cpu", type: str | None = None) -> NDArray:
    """A copy of ``source`` (a NumPy array, an NDArray, nested lists) on ``device``."""
    import numpy as np

    if isinstance(source, NDArray):
        return source.copyto(device)
    data = np.asarray(source)
    t = dtype(type) if type else numpy_dtype(data.dtype.str, data.dtype)
    return empty(data.shape, t, device).copyfrom(data)
