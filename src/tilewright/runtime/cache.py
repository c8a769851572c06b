"""The folder in which compiled code is kept between runs.

An entry is one file: a line that names the format, the SHA-256 of the rest, an index, the blobs.
It is written beside its place and moved there, so other processes see all of it or nothing; what
fails its checksum counts as absent and is written anew. Nothing in it is ever unpickled.

The folder is ``$TILEWRIGHT_CACHE``, else ``$XDG_CACHE_HOME/tilewright``, else
``~/.cache/tilewright``; ``TILEWRIGHT_CACHE=off`` keeps nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

_MAGIC = b"tilewright-cache-1\n"
#: When the folder outgrows this many bytes, the entries not used for longest are removed.
LIMIT = 1 << 30
_PRUNE_EVERY = 64  # writes of one process

#: The rooms through which a schedule becomes code. What is above them makes schedules, which are
#: part of an entry's key themselves.
_COMPILER = ("ir", "arith", "te", "target", "schedule", "lower", "verify", "codegen", "runtime")

_writes = 0


def folder() -> Path | None:
    """Where entries are kept; None where keeping is switched off."""
    named = os.environ.get("TILEWRIGHT_CACHE")
    if named is not None:
        return None if named in ("", "0", "off") else Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "tilewright"
    except RuntimeError:  # no home
        return None


@cache
def compiler_tag() -> str:
    """What identifies this compiler: its version, and its sources by size and time.

    The sources count so that code compiled before a change to the compiler is not found after it.
    """
    from tilewright import __version__

    digest = hashlib.sha256(__version__.encode())
    root = str(Path(__file__).parent.parent)
    for room in _COMPILER:
        for path, stat in sorted(_sources(os.path.join(root, room))):
            digest.update(f"{path.removeprefix(root)} {stat}\n".encode())
    return f"{__version__}-{digest.hexdigest()[:16]}"


def _sources(folder: str) -> Iterator[tuple[str, str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                stat = entry.stat()
                yield entry.path, f"{stat.st_size} {stat.st_mtime_ns}"
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _sources(entry.path)


def digest(*parts: str) -> str:
    """A key made of everything that an entry depends on."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def pack(files: Mapping[str, bytes]) -> bytes:
    """Named blobs as one, with a checksum."""
    index = json.dumps({name: len(data) for name, data in files.items()}).encode()
    body = b"".join((len(index).to_bytes(8, "little"), index, *files.values()))
    return _MAGIC + hashlib.sha256(body).digest() + body


def unpack(data: bytes) -> dict[str, bytes] | None:
    """The blobs, or None where ``data`` is truncated, corrupted or of another format."""
    start = len(_MAGIC) + 32
    body = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[start - 32 : start]:
        return None
    at = 8 + int.from_bytes(body[:8], "little")
    files = {}
    for name, size in json.loads(body[8:at]).items():
        files[name] = body[at : at + size]
        at += size
    return files


def _path(key: str) -> Path | None:
    root = folder()
    return None if root is None else root / key[:2] / f"{key[2:]}.tw"


def get(key: str) -> dict[str, bytes] | None:
    """What was kept under ``key`` (hex digits); None where there is nothing sound."""
    path = _path(key)
    if path is None:
        return None
    try:
        files = unpack(path.read_bytes())
    except OSError:
        return None
    with contextlib.suppress(OSError):
        if files is None:
            path.unlink()  # whoever asked writes it anew
        else:
            os.utime(path)  # used just now
    return files


def put(key: str, files: Mapping[str, bytes]) -> None:
    """Keep ``files`` under ``key``. A folder that cannot be written to is no error."""
    global _writes
    path = _path(key)
    if path is None:
        return
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        with os.fdopen(handle, "wb") as file:
            file.write(pack(files))
        os.replace(temporary, path)
    except OSError:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
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
