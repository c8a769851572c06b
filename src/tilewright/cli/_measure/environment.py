"""What a measurement depends on."""

from __future__ import annotations

import datetime
import platform
import re
from collections.abc import Mapping
from importlib import metadata

from tilewright import __version__

_PLACES = re.compile(r" --(out|part|html|json|name) \S+")


def environment(device: str, command: str, packages: Mapping[str, str]) -> dict[str, str]:
    """The device, the date, the command, this package's version, and those of ``packages``.

    Where the command puts its files, or that it was a part, says nothing of what was measured.

    >>> environment("a GPU", "python benchmarks/x.py --gpus 4 --out /tmp/a --part 0", {})["command"]
    'python benchmarks/x.py --gpus 4'
    """
    found = {
        "device": device,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": _PLACES.sub("", command),
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
