"""Python functions that programs for the CPU call by name: ``register_func``, ``call_packed``."""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import dtype as to_dtype
from tilewright.ir.errors import ArgumentError, LanguageError, TilewrightError
from tilewright.ir.expr import Expr, StringImm
from tilewright.runtime import Device, NDArray
from tilewright.runtime.llvm_link import register_symbol
from tilewright.runtime.narrow_floats import storage_type
from tilewright.te import call_extern, extern

_functions: dict[str, Callable[..., Any]] = {}
_symbols: dict[str, str] = {}
_raised: list[BaseException] = []


def register_func(func_name: Any, f: Any = None, override: bool = False) -> Any:
    """Register a function under a name, also as a decorator.

    Programs on target "llvm" call it with arrays of NumPy's memory, numbers and texts.
    Raises :class:`TilewrightError` where the name is taken and ``override`` is not given.
    """
    if callable(func_name):
        return register_func(func_name.__name__, func_name, override)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if func_name in _functions and not override:
            raise TilewrightError(
                f"a function {func_name!r} is registered already: give override=True"
            )
        _functions[func_name] = function
        return function

    return register if f is None else register(f)


def get_global_func(name: str, allow_missing: bool = False) -> Any:
    """The function that is registered under a name."""
    if name not in _functions and not allow_missing:
        raise TilewrightError(
            f"no function {name!r} is registered: write @tvm.register_func({name!r}) above it"
        )
    return _functions.get(name)


def remove_global_func(name: str) -> None:
    """Forget the function of a name."""
    _functions.pop(name, None)


def call_packed(func_name: str, *args: Any) -> Expr:
    """A call of a registered function, the body of a ``te.extern``: buffers are passed as arrays.

    What it returns is not used; what it raises is raised by the call of the kernel.
    """
    form: list[Any] = []
    given: list[Any] = []
    for arg in args:
        if isinstance(arg, Buffer):
            if arg.layout is not None:
                raise LanguageError(f"call_packed: buffer {arg.name} is not dense")
            form.append((str(arg.dtype), len(arg.shape)))
            given += [arg, *(ops.cast("int64", extent) for extent in arg.shape)]
        elif isinstance(arg, (str, StringImm)):
            form.append(arg if isinstance(arg, str) else arg.value)
        else:
            value = ops.as_expr(arg)
            wide = "float64" if value.dtype.is_float else "int64"
            form.append((wide, None))
            given.append(ops.cast(wide, value))
    return call_extern("int32", _symbol(func_name, form), *given)


def _symbol(name: str, form: list[Any]) -> str:
    """The C function that calls ``name`` with arguments of these forms."""
    key = repr((name, form))
    if key not in _symbols:
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        types: list[Any] = []
        for item in form:
            if isinstance(item, tuple):
                kind, rank = item
                if rank is None:
                    types.append(ctypes.c_double if kind == "float64" else ctypes.c_int64)
                else:
                    types += [ctypes.c_void_p, *[ctypes.c_int64] * rank]

        def call(*values: Any) -> int:
            try:
                _call(name, form, values)
            except BaseException as error:  # it cannot pass through the program's own code
                _raised.append(error)
            return 0

        _symbols[key] = f"tilewright_packed_{digest}"
        register_symbol(_symbols[key], ctypes.CFUNCTYPE(ctypes.c_int32, *types)(call))
    return _symbols[key]


def _call(name: str, form: list[Any], values: tuple[Any, ...]) -> None:
    given: list[Any] = []
    place = 0
    for item in form:
        if isinstance(item, str):
            given.append(item)
            continue
        kind, rank = item
        value = values[place]
        place += 1
        if rank is None:
            given.append(value)
            continue
        shape = values[place : place + rank]
        place += rank
        type = to_dtype(kind)
        memory = (ctypes.c_char * (math.prod(shape) * type.bytes)).from_address(value)
        view = np.frombuffer(memory, storage_type(type)).reshape(shape)
        given.append(NDArray(tuple(shape), type, Device("cpu", 0), view, value))
    get_global_func(name)(*given)


def _matmul(a: NDArray, b: NDArray, out: NDArray, transa: int, transb: int) -> None:
    left, right = a.numpy(), b.numpy()
    out.copyfrom((left.T if transa else left) @ (right.T if transb else right))


register_func("tvm.contrib.cblas.matmul", _matmul)


def matmul(lhs: Any, rhs: Any, transa: bool = False, transb: bool = False) -> Any:
    """``tvm.contrib.cblas.matmul``: a product of matrices by NumPy, whose BLAS computes it."""
    return extern(
        (lhs.shape[1 if transa else 0], rhs.shape[0 if transb else 1]),
        [lhs, rhs],
        lambda i, o: call_packed("tvm.contrib.cblas.matmul", i[0], i[1], o[0], transa, transb),
        name="matmul_cblas",
    )


def raise_what_was_raised() -> None:
    """Raise the first error of the functions that a kernel has called."""
    if _raised:
        error = _raised[0]
        _raised.clear()
        raise error if isinstance(error, Exception) else ArgumentError(repr(error))
