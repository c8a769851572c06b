"""Object files become functions of this process."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from tilewright.ir.errors import TargetError
from tilewright.runtime.llvm_host import binding

#: How many objects are linked by one linker of LLVM's. It keeps 9 KiB of each after its code is
#: dropped, and frees them when it goes, with the last of its objects; it takes 0.7 ms to make.
_PER_LINKER = 32

_numbers = itertools.count()
_registered: dict[str, int] = {}
_kept_alive: list[Any] = []


@lru_cache(1)
def _linker(number: int) -> Any:
    """The linker at hand; each object that it has linked keeps it."""
    # With JITLink the sections of an object lie side by side. LLVM's older linker asks the system
    # for each apart, and aborts the process where two of them come to lie 2 GiB from each other:
    # where the first fills a hole between libraries, and large arrays or the stacks of many threads
    # lie below.
    return binding().create_lljit_compiler(use_jit_link=sys.platform != "win32")


def forever(thing: Any) -> None:
    """Keep it until the process ends, even while the interpreter takes itself apart: threads of
    the pool may still be running its code."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def register_symbol(name: str, function: Any) -> None:
    """Let programs call ``extern:name``: an address, or a function of ctypes (kept alive)."""
    if isinstance(function, int):
        _registered[name] = function
    else:
        _kept_alive.append(function)
        _registered[name] = ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def load_text(text: str) -> None:
    """Compile LLVM IR, and let programs call the functions that it defines.

    Raises :class:`TargetError` for text that is none.
    """
    llvm = binding()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise TargetError(f"pragma import_llvm: this is no LLVM IR: {error}") from None
    machine = llvm.Target.from_default_triple().create_target_machine(opt=3, reloc="pic")
    names = [f.name for f in module.functions if not f.is_declaration]
    if not names:
        return
    wanted = [f.name for f in module.functions if f.is_declaration]
    imports = {name: address(name) for name in wanted if not name.startswith("llvm.")}
    tracker, found = link(machine.emit_object(module), names, imports)
    forever(tracker)
    for name, where in found.items():
        register_symbol(name, where)


def _libraries() -> Iterator[Any]:
    """The process itself, then the C libraries, which only a search of the system finds."""
    if hasattr(ctypes, "pythonapi"):
        for short in ("", "m", "c"):
            found = _library(short)
            if found is not None:
                yield found


@cache
def _library(short: str) -> Any:
    path = None
    if short:
        from ctypes.util import find_library  # it loads subprocess, and few programs come here

        path = find_library(short)
    try:
        return ctypes.CDLL(path)
    except (OSError, TypeError):  # Windows has no handle for the process itself
        return None


def address(name: str) -> int:
    """Where a C function of this process is; raises :class:`TargetError` where there is none."""
    known = _registered.get(name)
    if known:
        return known
    for library in _libraries():
        try:
            function = getattr(library, name)
        except AttributeError:
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise TargetError(
        f"there is no C function {name!r} in this process: load its library first "
        "(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)), or give it to "
        "tilewright.runtime.llvm_link.register_symbol"
    )


def link(
    data: bytes, exports: Sequence[str], imports: Mapping[str, int]
) -> tuple[Any, dict[str, int]]:
    """Load an object file; the tracker that keeps it loaded, and the addresses of ``exports``."""
    llvm = binding()
    builder = llvm.JITLibraryBuilder().add_object_img(data)
    for name, where in imports.items():
        builder.import_symbol(name, where)
    builder.add_current_process()
    for name in exports:
        builder.export_symbol(name)
    number = next(_numbers)
    tracker = builder.link(_linker(number // _PER_LINKER), f"tilewright.{number}")
    return tracker, {name: tracker[name] for name in exports}
