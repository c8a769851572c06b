"""A process of ``tilewright serve`` on a board with a Mali GPU, for which PoCL stands here."""

from __future__ import annotations

from tests.support.pocl import name_processors

from tilewright.graph import served
from tilewright.runtime import opencl, opencl_device


def main() -> None:
    """Answer requests; the name of a Mali GPU means this machine's first device."""
    name_processors()
    by_name = opencl_device.device

    def device(name: str = "") -> opencl_device.Device:
        return by_name("" if "mali" in name.lower() else name)

    opencl_device.device = device
    opencl.device = device
    served.main()
