"""A process of ``tilewright serve`` on a board with a Mali GPU, for which PoCL stands here."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tests.support.pocl import name_processors

from tilewright.graph import served
from tilewright.runtime import opencl, opencl_device


def main() -> None:
    """Answer requests; this machine's first device is called as a Mali GPU is."""
    name_processors()
    by_name = opencl_device.device

    @cache
    def device(name: str = "") -> opencl_device.Device:
        found = by_name("" if "mali" in name.lower() else name)
        return replace(found, name="Mali-G52")

    opencl_device.device = device
    opencl.device = device
    served.main()
