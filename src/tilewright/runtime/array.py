"""Arrays of other libraries, seen as a pointer with a shape."""

from __future__ import annotations

import sys
from typing import Any

from tilewright.ir.dtype import DType, dtype
from tilewright.ir.errors import ArgumentError
from tilewright.runtime.array_view import ArrayView, dense_strides, numpy_dtype

_DTYPES: dict[Any, DType] = {}


def view(obj: Any) -> ArrayView:
    """``obj`` as a view of its memory, without copying.

    Takes NumPy arrays, torch tensors, CuPy arrays, :class:`~tilewright.runtime.ndarray.NDArray`,
    anything with ``__cuda_array_interface__``, ``__array_interface__`` or ``__dlpack__``, and
    views themselves. Raises :class:`ArgumentError` for anything else.
    """
    if isinstance(obj, ArrayView):
        return obj
    made = getattr(obj, "__tilewright_view__", None)
    if made is not None:
        found: ArrayView = made()
        return found
    if type(obj).__module__.startswith("pyopencl."):
        from tilewright.runtime.opencl_device import view_of

        return view_of(obj)
    if hasattr(obj, "data_ptr") and hasattr(obj, "stride"):
        return _torch(obj)
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        return _interface(obj, interface, _cuda_device(obj))
    interface = getattr(obj, "__array_interface__", None)
    if interface is not None:
        return _interface(obj, interface, "cpu")
    if hasattr(obj, "__dlpack__"):
        from tilewright.runtime.dlpack import from_dlpack

        return from_dlpack(obj)
    raise ArgumentError(
        f"a {type(obj).__name__} is not an array: pass a NumPy array, a torch tensor, a CuPy "
        "array or anything that has __dlpack__"
    )


def resolved(obj: Any) -> Any:
    """``obj``, or a copy where it is a tensor of the CPU with PyTorch's negative bit, whose memory
    holds the negated values."""
    is_neg = getattr(obj, "is_neg", None)
    if is_neg is not None and is_neg() and obj.device.type == "cpu":
        return obj.resolve_neg()
    return obj


def _torch(tensor: Any) -> ArrayView:
    device = tensor.device
    kind, index = device.type, device.index
    if kind not in ("cpu", "cuda"):
        raise ArgumentError(f"a tensor on {kind!r} cannot be passed: move it to 'cpu' or 'cuda'")
    if str(tensor.layout) != "torch.strided":
        raise ArgumentError(f"a {tensor.layout} tensor cannot be passed: call .to_dense() first")
    if tensor.is_neg():
        raise ArgumentError(
            "the tensor has PyTorch's negative bit: its memory holds the negated values. Pass "
            "tensor.resolve_neg()"
        )
    if tensor.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise ArgumentError(
            "the tensor requires a gradient, which a kernel does not record: pass it with "
            ".detach(), or call the kernel under torch.no_grad()"
        )
    type = _torch_dtype(tensor.dtype)
    try:
        shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
        pointer = tensor.data_ptr()
        if pointer == tensor.storage_offset() * type.bytes:  # the storage begins at no address
            pointer = 0
    except (RuntimeError, Warning) as error:
        raise ArgumentError(f"the tensor has no memory of its own: {error}") from None
    return ArrayView(
        pointer,
        shape,
        strides,
        type,
        "cpu" if kind == "cpu" else f"cuda:{index or 0}",
        False,
        tensor,
    )


def _torch_dtype(type: Any) -> DType:
    found = _DTYPES.get(type)
    if found is None:
        try:
            found = dtype(str(type).removeprefix("torch."))
        except ValueError:
            raise ArgumentError(f"arrays of {type} are not supported") from None
        _DTYPES[type] = found
    return found


def _cuda_device(obj: Any) -> str:
    device = getattr(obj, "device", None)  # CuPy: its id; others: the current device
    index = getattr(device, "id", device)
    return f"cuda:{index if isinstance(index, int) else 0}"


def _interface(obj: Any, interface: dict[str, Any], device: str) -> ArrayView:
    try:
        pointer, readonly = interface["data"]
        shape = tuple(map(int, interface["shape"]))
        type = numpy_dtype(interface["typestr"], getattr(obj, "dtype", None))
        steps = interface.get("strides")
    except ArgumentError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"the array interface of a {obj.__class__.__name__} is not one: {error!r}"
        ) from None
    if steps is None:
        strides = dense_strides(shape)
    elif any(step % type.bytes for step in steps):
        raise ArgumentError(
            f"the array's strides {steps} (bytes) are not multiples of the {type.bytes} bytes of "
            "an element: pass np.ascontiguousarray(array)"
        )
    else:
        strides = tuple(step // type.bytes for step in steps)
    return ArrayView(pointer or 0, shape, strides, type, device, bool(readonly), obj)
