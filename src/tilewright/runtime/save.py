"""Kernels as files: a zip of JSON, text and compiled code. Nothing in it is ever unpickled.

Loading runs the machine code that the file holds when the kernel is called: load files from
people whose shared libraries you would load. Models are kept in the same form
(:mod:`tilewright.graph.saved`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TargetError, TilewrightError
from tilewright.runtime.build import backend, from_files, to_files
from tilewright.runtime.files import NoSuchFile, write_file
from tilewright.runtime.kernel import Kernel
from tilewright.target import Target
from tilewright.target.target import KINDS, Kind, Limits

_FORMAT = 3
#: A file whose parts have more bytes is no kernel.
_MOST = 1 << 30
#: Parts of more bytes are stored as they are.
_SMALL = 1 << 22


def save(kernel: Kernel, path: Path) -> None:
    """Write ``kernel`` to ``path``, which appears whole or not at all.

    Raises :class:`FileError` where there is no such folder, it cannot be written to, or the disk is
    full.
    """
    files = to_files(kernel)
    files["source.txt"] = kernel.source.encode()
    write_archive(path, {"name": kernel.name, **made_for(kernel)}, files)


def load(path: str | Path) -> Kernel:
    """Read a kernel that :meth:`Kernel.save` wrote.

    The machine code in the file runs in this process when the kernel is called, as that of a shared
    library does: load files from people whose shared libraries you would load.

    Raises :class:`NoSuchFile` where there is no file, :class:`TilewrightError` where it is no
    kernel, is damaged, or comes from another format, and :class:`TargetError` where it was
    compiled for another kind of machine.
    """
    with reading(path):
        meta, files = read_archive(path)
        if "target" not in meta:
            raise TilewrightError(f"{path} is not a saved kernel: tilewright.load reads models")
        return kernel_of(meta, files, path)


def made_for(kernel: Kernel) -> dict[str, Any]:
    """What :func:`kernel_of` is to know of a kernel beside its files."""
    tag = getattr(backend(kernel.target), "cache_tag", lambda _: "")(kernel.target)
    return {"target": asdict(kernel.target), "tag": tag}


def kernel_of(made: dict[str, Any], files: dict[str, bytes], path: str | Path) -> Kernel:
    """The kernel of such files; raises as :func:`load` does."""
    target = target_of(made)
    try:
        check = getattr(backend(target), "check_tag", None)
        problem = "" if check is None else check(target, made["tag"])
        if problem:
            raise TargetError(f"it was compiled for {target} elsewhere: {problem}")
        return from_files(files, target)
    except TargetError as error:
        raise TargetError(f"{path} cannot run here: {error}") from None
    except TilewrightError as error:
        raise TilewrightError(f"{path} is damaged: {error}") from None


def write_archive(
    path: Path, about: dict[str, Any], files: Mapping[str, bytes | memoryview]
) -> None:
    """Write parts by name, and what is said about them; raises as :func:`save` does."""
    from tilewright import __version__

    meta = {
        "format": _FORMAT,
        "tilewright": __version__,
        **about,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("metadata.json", json.dumps(meta, indent=1))
        for name, data in files.items():
            small = len(data) < _SMALL  # weights have nothing that a compression finds
            archive.writestr(name, data, zipfile.ZIP_DEFLATED if small else zipfile.ZIP_STORED)
    write_file(path, whole.getbuffer())


def read_archive(path: str | Path, most: int = _MOST) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What :func:`write_archive` wrote, of at most ``most`` bytes: what is said, and the parts.

    Raises :class:`TilewrightError` for another format, or a part that is damaged, and whatever
    wrong contents lead to: call it in :func:`reading`.
    """
    with zipfile.ZipFile(path) as archive:
        if sum(part.file_size for part in archive.infolist()) > most:
            raise ValueError(f"its parts have more than {most >> 20} MiB")
        meta = json.loads(archive.read("metadata.json"))
        files = {name: archive.read(name) for name in meta["files"]}
    for name, digest in meta["files"].items():
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise TilewrightError(f"{path} is damaged: the checksum of {name} does not match")
    if meta.get("format") != _FORMAT:
        raise TilewrightError(
            f"{path} has format {meta.get('format')} of tilewright "
            f"{meta.get('tilewright')}; this version reads format {_FORMAT}: save it again"
        )
    return meta, files


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Say in words why what :func:`write_archive` wrote cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise NoSuchFile(
            f"there is no file {path} to load: kernel.save(path) and model.save(path) write one"
        ) from None
    except TilewrightError:
        raise
    except Exception as error:  # zipfile's, zlib's, json's, and what wrong types lead to
        reason = f"{type(error).__name__}: {error}"
        raise TilewrightError(
            f"{path} is not a saved kernel or model, or is damaged: {reason}"
        ) from None


def target_of(made: dict[str, Any]) -> Target:
    """What a kernel was compiled for; raises :class:`ValueError` where that is none."""
    fields = made["target"]
    kind, arch, threads = fields["kind"], fields["arch"], fields["threads"]
    limits: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in fields["limits"].items()
    }
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no kind of target: there are {', '.join(KINDS)}")
    numbers = [n for v in limits.values() for n in (v if isinstance(v, tuple) else (v,))]
    if not isinstance(arch, str) or any(type(n) is not int for n in (threads, *numbers)):
        raise ValueError("its target is none")
    return Target(Kind(kind), arch, threads, Limits(**limits))
