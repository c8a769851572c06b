"""The user's folder for compiled code and for what was learnt, and the key that marks its files.

The folder is ``$TILEWRIGHT_CACHE``, else ``$XDG_CACHE_HOME/tilewright``, else
``~/.cache/tilewright``; ``TILEWRIGHT_CACHE=off`` keeps nothing.

What lies there runs in this process. So the folder is the user's own and nobody else may write to
it, or it is not used, with a warning; and code is read only where it bears a mark that is made with
a key that only the user can read. Who may write to a folder above may put another one in its place,
but neither one of the user's nor code with the user's mark: folders above need no check. A link is
followed where the user or root made it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import stat
import warnings
from pathlib import Path

#: Beside the folders of entries.
KEY = "key"
_KEY_BYTES = 32
_BINARY = getattr(os, "O_BINARY", 0)  # Windows
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_warned: set[str] = set()


def named() -> Path | None:
    """The folder that the environment names, or the usual one; None where keeping is off."""
    given = os.environ.get("TILEWRIGHT_CACHE")
    if given is not None:
        return None if given in ("", "0", "off") else Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "tilewright"
    except RuntimeError:  # no home
        return None


def refusal(root: Path) -> str:
    """Why ``root`` must not be used; empty where it may be, and where there is none yet."""
    if not hasattr(os, "geteuid"):  # the system has no such owners and modes
        return ""
    user = os.geteuid()
    try:
        link, found = os.lstat(root), os.stat(root)
    except OSError:
        return ""
    if not stat.S_ISDIR(found.st_mode):
        return "it is a file"
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (user, 0):
        return f"it is a link that belongs to user {link.st_uid}, and you are user {user}"
    if found.st_uid != user:
        return f"it belongs to user {found.st_uid}, and you are user {user}"
    if found.st_mode & _OTHERS_MAY_WRITE:
        return f"others may write to it (its mode is {stat.S_IMODE(found.st_mode):o})"
    return ""


def folder() -> Path | None:
    """Where files are kept, which may not be there yet; None where keeping is switched off, and,
    with one warning, where the folder is refused."""
    root = named()
    if root is None:
        return None
    why = refusal(root)
    if why and "TILEWRIGHT_CACHE" not in os.environ:
        # A umask of 002 let others of the group write. What they wrote has no mark.
        with contextlib.suppress(OSError):
            os.chmod(root, stat.S_IMODE(os.stat(root).st_mode) & ~_OTHERS_MAY_WRITE)
            why = refusal(root)
    if not why:
        return root
    code = ", and code from it would run in this process" if root.is_dir() else ""
    warn_once(
        f"the cache folder {root} is not used: {why}{code}. Nothing is kept; set TILEWRIGHT_CACHE "
        "to a folder of your own to which nobody else may write"
        f"{code and f' (chmod go-w {root})'}, or to off"
    )
    return None


def warn_once(message: str) -> None:
    """Warn, once a process, about what becomes of the folder."""
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, UserWarning, stacklevel=3)


def make_folder() -> Path | None:
    """:func:`folder`, made where it is not there; raises :class:`OSError` where it cannot be."""
    root = folder()
    if root is None or root.is_dir():
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    root.mkdir(mode=0o700, exist_ok=True)
    return folder()  # another user may have been quicker where all may write


def secret(root: Path, make: bool = False) -> bytes | None:
    """The key of a folder; None where there is none that only the user can read.

    With ``make`` there is one afterwards. Raises :class:`OSError` where it cannot be written.
    """
    place = root / KEY
    found = _read_key(place)
    if found is not None or not make:
        return found
    temporary = root / f".key-{os.urandom(8).hex()}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(_KEY_BYTES))
        if place.exists():  # damaged, or others could read it
            os.replace(temporary, place)
        else:
            with contextlib.suppress(FileExistsError):  # another process was quicker
                os.link(temporary, place)
    except OSError:  # a file system without links
        os.replace(temporary, place)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    return _read_key(place)


def _read_key(place: Path) -> bytes | None:
    try:
        handle = os.open(place, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | _BINARY)
    except OSError:
        return None
    try:
        about = os.fstat(handle)
        owned = not hasattr(os, "geteuid") or (
            about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        )
        if not owned or not stat.S_ISREG(about.st_mode):
            return None
        found = os.read(handle, _KEY_BYTES + 1)
    finally:
        os.close(handle)
    return found if len(found) == _KEY_BYTES else None


def mark(key: bytes, name: str, content: bytes) -> bytes:
    """32 bytes that only who has ``key`` can make, of a file's name and its content."""
    made = hmac.new(key, name.encode() + b"\n", "sha256")
    made.update(content)
    return made.digest()
