"""Kernels as files: a zip of JSON, text and compiled code. Nothing in it is ever unpickled.

Loading runs the machine code that the file holds when the kernel is called: load files from
people whose shared libraries you would load.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewright.ir.errors import TargetError, TilewrightError
from tilewright.runtime.build import backend, from_files, to_files
from tilewright.runtime.files import check_writable
from tilewright.runtime.kernel import Kernel
from tilewright.target import Target
from tilewright.target.target import Limits

_FORMAT = 2


def save(kernel: Kernel, path: Path) -> None:
    """Write ``kernel`` to ``path``, which appears whole or not at all.

    Raises :class:`FileError` where there is no such folder, or it cannot be written to.
    """
    from tilewright import __version__

    check_writable(path)
    files = to_files(kernel)
    files["source.txt"] = kernel.source.encode()
    meta = {
        "format": _FORMAT,
        "tilewright": __version__,
        "name": kernel.name,
        "target": asdict(kernel.target),
        "tag": getattr(backend(kernel.target), "cache_tag", lambda _: "")(kernel.target),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    handle, temporary = tempfile.mkstemp(dir=path.parent or ".", prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr("metadata.json", json.dumps(meta, indent=1))
            for name, data in files.items():
                archive.writestr(name, data, zipfile.ZIP_DEFLATED)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: str | Path) -> Kernel:
    """Read a kernel that :meth:`Kernel.save` wrote.

    Raises :class:`TilewrightError` where the file is not one, is damaged, or comes from another
    format, and :class:`TargetError` where it was compiled for another kind of machine.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            meta = json.loads(archive.read("metadata.json"))
            files = {name: archive.read(name) for name in meta["files"]}
    except FileNotFoundError:
        raise
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, EOFError) as error:
        raise TilewrightError(f"{path} is not a saved kernel, or is damaged: {error}") from None
    for name, digest in meta["files"].items():
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise TilewrightError(f"{path} is damaged: the checksum of {name} does not match")
    if meta.get("format") != _FORMAT:
        raise TilewrightError(
            f"{path} has format {meta.get('format')} of tilewright "
            f"{meta.get('tilewright')}; this version reads format {_FORMAT}: save it anew"
        )
    target = _target(meta["target"])
    _check_machine(path, target, meta)
    return from_files(files, target)


def _target(fields: dict[str, Any]) -> Target:
    limits: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in fields["limits"].items()
    }
    return Target(fields["kind"], fields["arch"], fields["threads"], Limits(**limits))


def _check_machine(path: str | Path, target: Target, meta: dict[str, Any]) -> None:
    check = getattr(backend(target), "check_tag", None)
    if check is not None:
        problem = check(target, meta["tag"])
        if problem:
            raise TargetError(
                f"{path} was compiled for {target} elsewhere and cannot run here: {problem}"
            )
