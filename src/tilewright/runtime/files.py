"""Where users say that files go."""

from __future__ import annotations

import os
from pathlib import Path

from tilewright.ir.errors import TilewrightError


class FileError(TilewrightError, OSError):
    """A file that cannot be written; the message says why."""


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
