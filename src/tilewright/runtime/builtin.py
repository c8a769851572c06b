"""Compiled functions as builtins of Python's.

A call through ctypes makes an object of each argument, and of that a C value; it costs some 300 ns.
A builtin is handed the objects as they are, in a tenth of that.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from tilewright.runtime.llvm_link import forever

#: METH_FASTCALL: of what it is bound to, an array of arguments, and their number.
_FASTCALL = 0x80


class _Definition(ctypes.Structure):
    """PyMethodDef (Python's C API, "Implementing functions and methods")."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


def binder(name: str, address: int) -> Callable[[object], Callable[..., Any]]:
    """What makes builtins of the C function at ``address``, each bound to an object of its own.

    The function is ``PyObject *f(PyObject *self, PyObject *const *arguments, Py_ssize_t count)``;
    it is called with Python's lock, and a builtin keeps its ``self`` alive.
    """
    definition = _Definition(name.encode(), address, _FASTCALL, None)
    forever(definition)  # builtins point to it
    where = ctypes.addressof(definition)
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    make: Any = kind(("PyCFunction_NewEx", ctypes.pythonapi))
    return lambda itself: make(where, itself, None)


def python_function(name: str) -> int:
    """Where a function of Python's C API is."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
