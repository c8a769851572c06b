"""A kernel asks for no more threads and no more shared memory than its target has."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.buffer import warp_copies
from tilewright.ir.expr import IntImm
from tilewright.ir.func import LaunchAxis
from tilewright.lower.analysis.accesses import Kernel
from tilewright.target.devices import WARP
from tilewright.target.target import Limits
from tilewright.verify.finding import Finding


def beyond_limits(kernel: Kernel) -> Iterator[Finding]:
    """One finding for each limit of the target that the kernel exceeds.

    Extents and sizes that only a call fixes are left to the launch.
    """
    target = kernel.func.target
    if target is None or not target.is_gpu:
        return
    limits: Limits = target.limits
    name = f"kernel {kernel.func.name} for {target}"
    total = 1
    for what, axes, most, factor in (
        ("threads", kernel.threads, limits.block, "smaller factor, or bind fewer axes"),
        ("blocks", kernel.blocks, limits.grid, "larger factor, or fuse it into blockIdx.x"),
    ):
        for axis in axes:
            extent = _constant(axis)
            bound = most["xyz".index(axis.tag[-1])]
            if what == "threads" and extent is not None:
                total *= extent
            if extent is not None and bound and extent > bound:
                yield Finding(
                    "limit",
                    f"{name}: {extent} {what} along {axis.tag}, where the target allows {bound}; "
                    f"split the axis by a {factor}",
                )
    total += WARP * kernel.func.producer
    if limits.threads_per_block and total > limits.threads_per_block:
        yield Finding(
            "limit",
            f"{name}: {total} threads a block, where the target allows "
            f"{limits.threads_per_block}; split the bound axes by smaller factors",
        )
    block = {axis.tag[-1]: _constant(axis) or 1 for axis in kernel.threads}
    warps = warp_copies((block.get("x", 1), block.get("y", 1), block.get("z", 1)))
    sizes = {
        b: b.share.value * b.dtype.element.bytes * b.dtype.lanes * copies
        for b in kernel.homes
        if (copies := {"cluster": 1, "shared": 1, "warp": warps}.get(b.scope))
        and isinstance(b.share, IntImm)
    }
    used = sum(sizes.values())
    if limits.shared_memory and used > limits.shared_memory:
        largest = ", ".join(
            f"{b.name} {n}" for b, n in sorted(sizes.items(), key=lambda x: -x[1])[:4]
        )
        yield Finding(
            "limit",
            f"{name}: {used} bytes of shared memory a block ({largest}), where the target allows "
            f"{limits.shared_memory}; make the tiles smaller, or split the reduction further",
        )


def _constant(axis: LaunchAxis) -> int | None:
    return axis.extent.value if isinstance(axis.extent, IntImm) else None
