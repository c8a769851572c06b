"""DLPack capsules, read through ctypes.

The structures are those of DLPack 1.0 (dlpack.h), floats of 8 bits those of 1.1; the capsule keeps
its name, so its own destructor hands the memory back to the producer once the view is dropped.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tilewright.ir.dtype import dtype
from tilewright.ir.errors import ArgumentError
from tilewright.runtime.array_view import ArrayView, dense_strides


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_READ_ONLY = 1
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}
_NAMES = {6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2"}
#: kDLCPU, kDLCUDA, kDLCUDAHost (pinned), kDLOpenCL, kDLCUDAManaged
_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 4: "opencl", 13: "cuda"}

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def from_dlpack(obj: Any) -> ArrayView:
    """The memory behind ``obj.__dlpack__()``; the view keeps the capsule alive."""
    try:
        capsule = obj.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer of the protocol before 1.0
        capsule = obj.__dlpack__()
    except (BufferError, RuntimeError) as error:
        raise ArgumentError(f"the array cannot be shared through DLPack: {error}") from None
    readonly = False
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise ArgumentError(f"DLPack {managed.major}.{managed.minor} is not known here")
        tensor, readonly = managed.tensor, bool(managed.flags & _READ_ONLY)
    elif _is_valid(capsule, b"dltensor"):
        tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    else:
        raise ArgumentError("__dlpack__ gave a capsule that holds no tensor")
    kind, code = tensor.dtype, tensor.dtype.code
    name = _NAMES.get(code) or f"{_CODES.get(code, '?')}{kind.bits}"
    try:
        type = dtype(name)
    except ValueError:
        type = None
    if type is None or kind.lanes != 1:
        raise ArgumentError(
            f"DLPack type (code {code}, {kind.bits} bits, {kind.lanes} lanes) is not supported"
        )
    device = _DEVICES.get(tensor.device.type)
    if device is None:
        raise ArgumentError(f"arrays on DLPack device type {tensor.device.type} are not supported")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else dense_strides(shape)
    place = device if device == "cpu" else f"{device}:{tensor.device.id}"
    address = tensor.data + tensor.byte_offset if tensor.data else 0
    return ArrayView(address, shape, strides, type, place, readonly, capsule)
