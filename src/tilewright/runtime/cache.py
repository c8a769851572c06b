"""Compiled code, kept between runs in the user's folder (:mod:`tilewright.runtime.cache_folder`).

An entry is one file: a line that names the format, a mark of the entry's name and of the rest
(HMAC-SHA-256 with the user's key), an index, the blobs. It is written beside its place and moved
there, so other processes see all of it or nothing; what does not bear the mark counts as absent and
is written again. Nothing in it is ever unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tilewright.runtime.cache_folder import folder, make_folder, mark, named, secret, warn_once
from tilewright.runtime.files import disk_full

_MAGIC = b"tilewright-cache-2\n"
#: When the folder outgrows this many bytes, the entries not used for longest are removed.
LIMIT = 1 << 30
_PRUNE_EVERY = 64  # writes of one process

#: The packages through which a schedule becomes code. What is above them makes schedules, which are
#: part of an entry's key themselves.
_COMPILER = ("ir", "arith", "te", "target", "schedule", "lower", "verify", "codegen", "runtime")

_writes = 0


@cache
def compiler_tag() -> str:
    """What identifies this compiler: its version, and its sources by size and time.

    The sources count so that code compiled before a change to the compiler is not found after it.
    """
    return tag_of(_COMPILER)


def tag_of(packages: Sequence[str]) -> str:
    """What identifies these packages: the version, and their files by size and time."""
    from tilewright import __version__

    digest = hashlib.sha256(__version__.encode())
    root = str(Path(__file__).parent.parent)
    for package in packages:
        for path, stat in sorted(_sources(os.path.join(root, package))):
            digest.update(f"{path.removeprefix(root)} {stat}\n".encode())
    return f"{__version__}-{digest.hexdigest()[:16]}"


def _sources(folder: str) -> Iterator[tuple[str, str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _sources(entry.path)
            else:
                yield entry.path, state_of(entry)


def state_of(file: os.PathLike[str]) -> str:
    """By what a file is taken for the same: its size and its time; nothing where there is none."""
    try:
        stat = os.stat(file)
    except OSError:
        return ""
    return f"{stat.st_size} {stat.st_mtime_ns}"


def digest(*parts: str) -> str:
    """A key made of everything that an entry depends on."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def pack(files: Mapping[str, bytes], name: str = "", key: bytes = b"") -> bytes:
    """Named blobs as one, which bears the mark of ``key`` for an entry of this name."""
    index = json.dumps({name: len(data) for name, data in files.items()}).encode()
    body = b"".join((len(index).to_bytes(8, "little"), index, *files.values()))
    return _MAGIC + mark(key, name, body) + body


def unpack(data: bytes, name: str = "", key: bytes = b"") -> dict[str, bytes] | None:
    """The blobs; None where ``data`` is truncated, altered, of another format, or was packed under
    another name or with another key."""
    start = len(_MAGIC) + 32
    body = data[start:]
    if not data.startswith(_MAGIC):
        return None
    if not hmac.compare_digest(mark(key, name, body), data[start - 32 : start]):
        return None
    at = 8 + int.from_bytes(body[:8], "little")
    files = {}
    try:
        for part, size in json.loads(body[8:at]).items():
            files[part] = body[at : at + size]
            at += size
    except (AttributeError, RecursionError, TypeError, ValueError):
        return None
    return files


def _path(root: Path, name: str) -> Path:
    return root / name[:2] / f"{name[2:]}.tw"


def get(name: str, *parts: str) -> dict[str, bytes] | None:
    """What was kept under ``name`` (hex digits); None where there is nothing sound that has all of
    ``parts``."""
    root = folder()
    if root is None:
        return None
    path = _path(root, name)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    key = secret(root)
    files = None if key is None else unpack(data, name, key)
    if files is not None and not files.keys() >= {*parts}:
        files = None
    with contextlib.suppress(OSError):
        if files is None:
            path.unlink()  # whoever asked writes it again
        else:
            os.utime(path)  # used just now
    return files


def put(name: str, files: Mapping[str, bytes]) -> None:
    """Keep ``files`` under ``name``. A folder that cannot be written to is no error; a full disk is
    one warning."""
    global _writes
    temporary = ""
    try:
        root = make_folder()
        key = None if root is None else secret(root, make=True)
        if root is None or key is None:
            return
        path = _path(root, name)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        with os.fdopen(handle, "wb") as file:
            file.write(pack(files, name, key))
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if disk_full(error):
            warn_once(f"compiled code is not kept in {named()}: {disk_full(error)}")
        return
    _writes += 1
    if _writes % _PRUNE_EVERY == 1:
        prune()


def prune(limit: int | None = None) -> int:
    """Remove the entries not used for longest until ``limit`` bytes are left; bytes removed.

    Also removes what writers that were killed left behind.
    """
    import time

    root = folder()
    if root is None:
        return 0
    entries = []
    for path in root.glob("??/*"):
        with contextlib.suppress(OSError):
            stat = path.stat()
            if path.suffix == ".tw":
                entries.append((stat.st_mtime, stat.st_size, path))
            elif path.name.startswith(".tmp-") and time.time() - stat.st_mtime > 3600:
                path.unlink()
    kept, removed = sum(size for _, size, _ in entries), 0
    for _, size, path in sorted(entries):
        if kept - removed <= (LIMIT if limit is None else limit):
            break
        with contextlib.suppress(OSError):
            path.unlink()
            removed += size
    return removed
