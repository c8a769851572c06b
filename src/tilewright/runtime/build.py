"""From a lowered module to a kernel, by way of the cache."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import TilewrightError, VerificationError
from tilewright.ir.func import Module
from tilewright.lower.split_prepared import split_prepared
from tilewright.runtime import cache
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.preparation import Preparation
from tilewright.runtime.serialize import NotSerializable, from_json, program_key, to_json
from tilewright.runtime.signature import outputs
from tilewright.target import Target

_alive: WeakValueDictionary[str, Kernel] = WeakValueDictionary()


def backend(target: Target) -> Any:
    """The module ``tilewright.runtime.<kind>`` of a target."""
    return importlib.import_module(f"tilewright.runtime.{target.kind}")


def _place(key: str, target: Target) -> str:
    """Where the cache keeps what ``key`` names, on this machine and with these libraries."""
    tag = getattr(backend(target), "cache_tag", lambda _: "")(target)
    return cache.digest(key, repr(target), tag, cache.compiler_tag())


def find(key: str, target: Target) -> Kernel | None:
    """The kernel that :func:`build` kept under ``key``, without lowering or compiling anything."""
    place = _place(key, target)
    kernel = _alive.get(place)
    if kernel is None:
        files = cache.get(place)
        if files is not None:
            # What is wrong with an entry is mended by building the kernel, which writes it again.
            with contextlib.suppress(Exception):
                kernel = from_files(files, target)
        if kernel is not None:
            kernel.key = key
            _alive[place] = kernel
    return kernel


def build(
    module: Module,
    target: Target,
    key: str | None = None,
    constants: Sequence[Any] = (),
    prove: Callable[[], None] = lambda: None,
) -> Kernel:
    """Compile a lowered module for ``target``, or find it in the cache.

    ``key``, where the caller has one (hex digits naming the schedule), is the name under which
    :func:`find` gets it next time; else the program's own fingerprint is. What depends on
    ``constants`` alone, buffers among the parameters, becomes the kernel's preparation. ``prove``
    raises where the module is wrong: no kernel is kept or returned before it has returned.
    """
    try:
        key = key or program_key(module, target)
    except NotSerializable:
        key = ""
    kernel = find(key, target) if key else None
    if kernel is not None:
        prove()
    else:
        kernel = _compiled(module, target, constants, prove)
        if key:
            with contextlib.suppress(NotSerializable):
                files = to_files(kernel)
                place, kernel.key = _place(key, target), key
                cache.put(place, files)
                _alive[place] = kernel
    return kernel


def _compiled(
    module: Module,
    target: Target,
    constants: Sequence[Any],
    prove: Callable[[], None] = lambda: None,
) -> Kernel:
    split = split_prepared(module, constants) if constants else None
    if split is None:
        made, compiler = _with_constants(module, constants), backend(target)
        try:
            program = compiler.compile_module(made, target, meanwhile=prove)
        except VerificationError:
            raise
        except TilewrightError:
            prove()  # what is wrong with the program is said before what is made of it
            raise
        return Kernel(program, outputs(module))
    packed = [p for p in split[1].params if p not in module.params]
    ahead = build(split[0], target, prove=prove)  # the same for kernels that pack alike
    rest = _compiled(_with_constants(split[1], [*constants, *packed]), target, ())
    rest.preparation = Preparation.of(module, split[0], ahead, rest)
    return rest


def _with_constants(module: Module, constants: Sequence[Any]) -> Module:
    """A module whose kernels tell which of their parameters are constants."""
    if not constants:
        return module
    known = set(map(id, constants))  # a parameter may be a variable, whose == makes an expression
    funcs = (
        replace(f, constants=tuple(k for k, p in enumerate(f.params) if id(p) in known))
        for f in module.funcs
    )
    return replace(module, funcs=tuple(funcs))


def forget() -> None:
    """Drop the kernels of this process: the next build of each looks into the cache on disk.

    Kernels that are held elsewhere stay usable.
    """
    _alive.clear()


def to_files(kernel: Kernel) -> dict[str, bytes]:
    """A kernel as named blobs: its head, its program, and its backend's artifacts."""
    found = kernel.program.artifacts()
    files = {
        "head.json": to_json(kernel.module, bodies=False).encode(),
        "module.json": to_json(kernel.module).encode(),
        "outputs.json": json.dumps(sorted(kernel.signature.written)).encode(),
    }
    files |= {f"artifacts/{name}": data for name, data in found.items()}
    if kernel.preparation is not None:
        places = {**kernel.preparation.places, "key": kernel.preparation.kernel.key}
        files["places.json"] = json.dumps(places).encode()
        ahead = to_files(kernel.preparation.kernel)
        files |= {f"prepare/{name}": data for name, data in ahead.items()}
    return files


def _positions(text: bytes, module: Module) -> tuple[int, ...]:
    """The outputs among the parameters; raises :class:`ValueError` where they are not some."""
    found = json.loads(text)
    for k in found:
        if type(k) is not int or not isinstance(module.params[k], Buffer) or k < 0:
            raise ValueError(f"parameter {k!r} is no output of {module.name}")
    return tuple(found)


def from_files(files: dict[str, bytes], target: Target) -> Kernel:
    """The kernel that :func:`to_files` took apart."""
    kernel = _from_files(files, target)
    if "places.json" in files:
        places = json.loads(files["places.json"])
        ahead = _ahead(_inside(files, "prepare/"), str(places["key"]), target)
        kernel.preparation = Preparation.parse(ahead, kernel, places)
    return kernel


def _ahead(files: dict[str, bytes], key: str, target: Target) -> Kernel:
    """A kernel that prepares constants: one for all kernels that have them prepared alike, so that
    they share what it makes."""
    place = _place(key, target)
    kernel = _alive.get(place) if key else None
    if kernel is None:
        kernel = _from_files(files, target)
        kernel.key = key
        if key:
            _alive[place] = kernel
    return kernel


def _inside(files: dict[str, bytes], folder: str) -> dict[str, bytes]:
    return {name.removeprefix(folder): x for name, x in files.items() if name.startswith(folder)}


def _from_files(files: dict[str, bytes], target: Target) -> Kernel:
    artifacts = _inside(files, "artifacts/")

    def whole() -> Module:
        try:
            return from_json(files["module.json"].decode())
        except (KeyError, ValueError) as error:
            raise TilewrightError(f"the program of a saved kernel is damaged: {error}") from None

    head = from_json(files["head.json"].decode()) if artifacts else whole()
    written = _positions(files["outputs.json"], head)
    if not artifacts:
        return Kernel(backend(target).compile_module(head, target), written)
    program = backend(target).compile_module(head, target, artifacts)
    return Kernel(program, written, whole)
