"""Where users say that files go."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tilewright.ir.errors import TilewrightError

#: What the system says where there is no room, and what that means.
_FULL = {
    errno.ENOSPC: "the disk is full",
    getattr(errno, "EDQUOT", errno.ENOSPC): "a quota of the disk is used up, or the disk is full",
    errno.EFBIG: "files of this process may not become so large (ulimit -f)",
}


class FileError(TilewrightError, OSError):
    """A file that cannot be written or read; the message says why."""


class NoSuchFile(FileError, FileNotFoundError):
    """A file that is to be read and is not there."""


def check_writable(path: Path) -> None:
    """Raises :class:`FileError` where no file can be written at ``path``."""
    folder = path.parent
    if not folder.exists():
        raise FileError(f"cannot write {path}: there is no folder {folder}; make it first")
    if not folder.is_dir():
        raise FileError(f"cannot write {path}: {folder} is a file, not a folder")
    if path.is_dir():
        raise FileError(f"cannot write {path}: it is a folder; name a file in it")
    if not os.access(folder, os.W_OK):
        raise FileError(f"cannot write {path}: the folder {folder} is not writable")


def disk_full(error: OSError) -> str:
    """That there is no room for a file, in words; empty where ``error`` is about something else."""
    known = _FULL.get(error.errno or 0, "")
    return known and f"{known} ({error.strerror}): free some space, or name another place"


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Raises :class:`FileError` where the system refuses to write ``path``, and says why."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot write {path}: {disk_full(error) or error}") from None


def write_file(path: Path, content: str | bytes | memoryview) -> None:
    """Write a file, which appears whole or not at all; raises :class:`FileError` where it cannot.

    Where ``path`` is no plain file, such as a pipe, it is written to.
    """
    data = content.encode() if isinstance(content, str) else content
    check_writable(path)
    with writing(path):
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        place = path.resolve()  # a link stays one
        handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(temporary, _mode(place))
            os.replace(temporary, place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _mode(path: Path) -> int:
    """What ``open`` would leave a file with: what it had, or what the process gives new ones."""
    with contextlib.suppress(OSError):
        return path.stat().st_mode & 0o7777
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask
