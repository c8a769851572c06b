"""The quick way from arrays to pointers: a function written for one kernel's parameters.

:class:`Signature` explains what is wrong with an argument and takes some ten microseconds for it.
The function made here only finds out, for NumPy arrays and torch tensors, that nothing is wrong;
it returns None for whatever it does not know, and the slow way then binds or explains.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from tilewright.arith.spans import greatest_extent
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import IntImm, Var
from tilewright.runtime.narrow_floats import is_narrow, storage_type
from tilewright.runtime.signature import Signature
from tilewright.runtime.torch_memory import lowest_address

#: Pointers and scalars, both in the order of the signature, or None.
Binder = Callable[..., "tuple[tuple[int, ...], tuple[int, ...]] | None"]


def quick_binder(signature: Signature) -> Binder | None:
    """The function for this signature; None where a parameter is beyond it."""
    buffers = [p for p in signature.params if isinstance(p, Buffer)]
    plain = all(
        b.layout is None
        and not is_narrow(b.dtype)
        and all(isinstance(extent, (IntImm, Var)) for extent in b.shape)
        for b in buffers
    )
    if not plain or signature.doubtful or len(buffers) != len(signature.params):
        return None
    import numpy as np

    env: dict[str, Any] = {"ndarray": np.ndarray, "at": ctypes.c_size_t.from_address}
    env["modules"], torch = sys.modules, sys.modules.get("torch")
    lowest = lowest_address()
    names: dict[Var, str] = {}
    home = signature.devices[0]  # where arrays need not be copied from or to
    lines: list[str] = []
    for k, b in enumerate(buffers):
        env[f"T{k}"], env[f"N{k}"] = storage_type(b.dtype), f"torch.{b.dtype}"
        env[f"D{k}"] = getattr(torch, str(b.dtype), None)  # None where torch is loaded later
        env[f"S{k}"] = b.constant_shape
        written = k in signature.written
        lines += [
            f"if {home == 'cpu'} and type(a{k}) is ndarray:",
            f"    if a{k}.dtype is not T{k}: return None",
            f"    f = a{k}.flags",
            f"    if not f.c_contiguous{' or not f.writeable' * written}: return None",
            f"    p{k} = at(id(a{k}) + {_data_offset()}).value"
            if _data_offset()
            else f"    p{k} = a{k}.__array_interface__['data'][0]",
            "else:",
            f"    p{k} = a{k}.data_ptr()",
            f"    if a{k}.requires_grad and modules['torch'].is_grad_enabled(): return None",
            f"    d = a{k}.dtype",
            f"    if d is not D{k} and str(d) != N{k}: return None",
            f"    if not a{k}.is_contiguous(): return None",
            f"    if {'not ' if home == 'cpu' else ''}a{k}.is_cpu or a{k}.is_neg(): return None",
        ]
        if b.constant_shape is not None:
            lines.append(f"if a{k}.shape != S{k}: return None")
            lines.append(f"e{k} = p{k} + {b.dtype.bytes * math.prod(b.constant_shape)}")
        else:
            lines += _symbolic(k, b, names)
        # the address of a tensor without memory is no more than its offset
        lines.append(f"if p{k} < {lowest}: return None")
        align = max(b.align, b.dtype.bytes)
        if align > 1:
            lines.append(f"if p{k} & {align - 1}: return None")
    for k in sorted(signature.written):
        for j in range(len(buffers)):
            if j != k and not (j in signature.written and j < k):
                lines.append(f"if p{k} < e{j} and p{j} < e{k}: return None")
    pointers = "".join(f"p{k}, " for k in range(len(buffers)))
    scalars = "".join(f"{names[v]}, " for v in signature.variables)
    lines.append(f"return ({pointers}), ({scalars})")
    head = f"def bind({', '.join(f'a{k}' for k in range(len(buffers)))}):\n    "
    # What is no array, and tensors that have neither shape nor memory, raise.
    body = "\n        ".join(["try:", *lines]) + "\n    except Exception: return None"
    exec(head + body, env)
    made: Binder = env["bind"]
    return made


@cache
def _data_offset() -> int:
    """Where in the object of a NumPy array its data pointer stands; 0 where that is not sure.

    It is the first field after the object's head (NumPy's C API, PyArrayObject_fields), and reading
    it takes a twentieth of the time of ``__array_interface__``.
    """
    import numpy as np

    offset = object.__basicsize__
    if sys.implementation.name != "cpython":
        return 0
    for size in (1, 1000):
        sample = np.empty(size, "float32")[size // 2 :]
        read = ctypes.c_size_t.from_address(id(sample) + offset).value
        if read != sample.__array_interface__["data"][0]:
            return 0
    return offset


def _symbolic(k: int, b: Buffer, names: dict[Var, str]) -> list[str]:
    """Bind or check each dimension, then the end of the memory."""
    lines = [f"s = a{k}.shape", f"if len(s) != {len(b.shape)}: return None"]
    size = f"{b.dtype.bytes}"
    for axis, extent in enumerate(b.shape):
        if isinstance(extent, IntImm):
            lines.append(f"if s[{axis}] != {extent.value}: return None")
            size += f" * {extent.value}"
            continue
        assert isinstance(extent, Var)
        known = names.get(extent)
        if known is None:
            known = names[extent] = f"v{len(names)}"
            lines.append(f"{known} = s[{axis}]")
            lines.append(f"if {known} > {greatest_extent(extent)}: return None")
            if extent.least:
                lines.append(f"if {known} < {extent.least}: return None")
        else:
            lines.append(f"if s[{axis}] != {known}: return None")
        size += f" * {known}"
    return [*lines, f"e{k} = p{k} + {size}"]
