"""What a measurement depends on."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping
from importlib import metadata

from tilewright import __version__


def environment(device: str, command: str, packages: Mapping[str, str]) -> dict[str, str]:
    """The device, the date, the command, this package's version, and those of ``packages``."""
    found = {
        "device": device,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "tilewright": _own_version(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    return found | dict(packages)


def _own_version() -> str:
    try:
        return metadata.version("tilewright")
    except metadata.PackageNotFoundError:
        return f"{__version__} (from source)"


def versions(*packages: str) -> dict[str, str]:
    """The versions of distributions; "not installed" where one is missing."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
