"""Kernels as source files that need nothing of Tilewright's."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.codegen.c_dialect import CDialect
from tilewright.codegen.c_like_text import KEYWORDS, sanitized
from tilewright.ir.errors import ArgumentError, TargetError
from tilewright.ir.func import Module
from tilewright.runtime.files import write_file

if TYPE_CHECKING:
    from tilewright.runtime.kernel import Kernel

#: The name that :func:`tilewright.build` gives a kernel that has none.
UNNAMED = "main"
#: Functions of the C library and of POSIX that a program links, beside those of the dialect, and
#: what compilers define.
_LIBRARY = frozenset(
    """accept access assert atexit atof atoi bind bsearch calloc clock close connect copysign dup
    errno exec exit fclose feof fflush fgets floor fmax fmin fmod fopen fork fprintf fputs fread
    frexp fseek ftell fwrite getc getenv kill labs ldexp link listen localtime longjmp memcmp
    memmove mmap modf open pause pipe poll printf putc puts qsort raise rand read realloc recv
    remove rename round scanf select send setjmp signal sleep snprintf socket sprintf srand stat
    stderr stdin stdout strcmp strcpy strlen strncpy system tan time trunc unlink wait
    write linux unix static_assert BUFSIZ CLOCK_MONOTONIC EOF RAND_MAX""".split()
)
#: Types of its headers that the files include.
_TYPES = re.compile(r"FILE|fpos_t|ptrdiff_t|s?size_t|off_t|wchar_t|u?int\w*_t")


def export_c(kernel: Kernel, path: Path, name: str | None = None, about: str = "") -> None:
    """Write ``kernel`` to ``path``: C99 for llvm, CUDA C++ with its host launcher for cuda.

    The file begins with a comment that says how to compile it, and its last function is the kernel.
    Beside ``x.c`` or ``x.cu``, a header ``x.h`` declares that function for C and C++, and says what
    it takes; ``about`` is what it computes, in words.

    Raises :class:`TargetError` for opencl and sim, :class:`ArgumentError` for a name that C does
    not allow, :class:`FileError` where there is no such folder, or it cannot be written to.
    """
    module = _renamed(kernel.module, function_name(kernel.name, path, name))
    header = path.with_suffix(".h")
    kind = kernel.target.kind
    if kind == "llvm":
        from tilewright.codegen.c import c_header, c_source

        text = c_source(module, path.name)
        write_file(header, c_header(module, path.name, about))
    elif kind == "cuda":
        from tilewright.codegen import cuda_export
        from tilewright.codegen.registers import Registers
        from tilewright.runtime.cuda import CudaProgram

        told = kernel.program.told if isinstance(kernel.program, CudaProgram) else Registers()
        text = cuda_export.cuda_file(module, kernel.target, told, path.name)
        write_file(header, cuda_export.cuda_header(module, about))
    else:
        raise TargetError(
            f"there is no single file of a kernel for {kind}: kernel.export(folder) writes a "
            "program for llvm, cuda and opencl; kernel.source is the text of its kernels"
        )
    write_file(path, text)


def function_name(kernel: str, path: Path, given: str | None = None) -> str:
    """What the function of a file is called: ``given``, the kernel's name, or the file's.

    >>> function_name("main", Path("out/twice.c")), function_name("exp", Path("x.c"))
    ('twice', 'kernel_exp')

    Raises :class:`ArgumentError` where the name that is given is none for C and C++.
    """
    if given is not None:
        if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", given, re.ASCII) or _is_taken(given):
            raise ArgumentError(
                f"name={given!r} is no name for a function of C: it takes letters, digits and "
                "single underscores, begins with a letter, and is none of C's own (main, exp, ...)"
            )
        return given
    name = re.sub("__+", "_", sanitized(path.stem if kernel == UNNAMED else kernel))
    return f"kernel_{name}" if _is_taken(name) else name


def _is_taken(name: str) -> bool:
    if "__" in name or _TYPES.fullmatch(name):
        return True
    return name in KEYWORDS or name in CDialect.reserved or name in _LIBRARY


def _renamed(module: Module, name: str) -> Module:
    """The module under another name, and its kernels with it: files are linked into one program."""
    if name == module.name:
        return module
    funcs = tuple(
        replace(f, name=f"{name}{f.name.removeprefix(module.name)}"
                if f.name.startswith(module.name) else f"{name}_{f.name}")
        for f in module.funcs
    )  # fmt: skip
    return replace(module, name=name, funcs=funcs)
