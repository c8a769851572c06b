"""The parameters worth trying for a problem on an OpenCL device, the best guess first.

Code is kept short: drivers compile it while the program waits, some of them slowly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

from tilewright.ir.dtype import dtype
from tilewright.ir.errors import TargetError
from tilewright.target.devices import (
    H200,
    MALI,
    OPENCL_CPU,
    OPENCL_GPU,
    OpenCLDevice,
    gpu,
    opencl_device,
)
from tilewright.target.target import Target
from tilewright.topi.gpu.candidates import strip_tiles
from tilewright.topi.opencl.depthwise_vectors import VectorTile
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.reduction_tiles import ReductionTile
from tilewright.topi.pieces.register_tiles import StripTile

#: Vectors in registers of a work-item.
_REGISTERS = 48
#: Multiplications of vectors written out in a kernel.
_CODE = 256
#: Results of a work-item, each of which goes through the epilogue.
_RESULTS = 32
#: Work-items that keep a device busy.
_ITEMS = 4096
_MOST = 16


def machine(target: Target) -> OpenCLDevice:
    """What a work-item of a target has.

    Where a device is neither known by name nor at hand, what works everywhere is to be taken.
    """
    if target.kind != "opencl":
        return OPENCL_GPU.of(gpu(target.arch).sms if target.kind == "cuda" else H200.sms)
    from tilewright.runtime.opencl_device import device

    try:
        place = None if opencl_device(target.arch) else device(target.arch)
    except TargetError:
        return MALI
    found = opencl_device(target.arch if place is None else place.name)
    if found is None and place is not None:
        if place.host:
            return replace(OPENCL_CPU, shared=place.shared)
        h = place.handle
        found = OPENCL_GPU.of(h.max_compute_units, h.max_work_group_size, h.local_mem_size)
        return replace(found, shared=place.shared)
    return found or MALI


def shares_memory(target: Target) -> bool:
    """Whether the work-items of a group share memory that is faster than the device's own."""
    return target.is_gpu and machine(target).shared


def _widths(p: Conv) -> list[int]:
    """Lanes that divide the channels, of 16 bytes of data if possible."""
    usual = 16 // dtype(p.dtype).bytes
    known = [n for n in (16, 8, 4, 2, 1) if p.result_channels % n == 0]
    return sorted(known, key=lambda n: (abs(n.bit_length() - usual.bit_length()), -n))[:2]


def vector_tiles(p: Conv, target: Target) -> list[VectorTile]:
    """For :func:`~tilewright.topi.opencl.depthwise_vectors.schedule_vectors`."""
    gathers = p.pass_ == "dgrad"
    phases = p.stride if gathers else (1, 1)
    groups = [-(-e // s) for e, s in zip(p.image if gathers else p.out_image, phases, strict=True)]
    taps = [-(-k // s) for k, s in zip(p.kernel, phases, strict=True)]
    steps = (1, 1) if gathers else p.stride
    found = []
    for lanes, rows, columns in product(_widths(p), (1, 2), (4, 2, 1, 8)):
        if rows >= 2 * groups[0] or columns >= 2 * groups[1]:
            continue
        for some in dict.fromkeys((taps[0], min(taps[0], 3), 1)):
            sums = rows * columns * prod(phases)
            block = ((rows - 1) * steps[0] + (some - 1) * p.dilation[0] + 1) * (
                (columns - 1) * steps[1] + (taps[1] - 1) * p.dilation[1] + 1
            )
            lines = sums * some * taps[1] * (1 if p.multiplier == 1 else lanes)
            small = lines <= _CODE and (sums * lanes <= _RESULTS or rows * columns == 1)
            if sums + block <= _REGISTERS and small:
                found.append(VectorTile(rows, columns, lanes, 32, some, int(prod(p.kernel) > 1)))
                break
    found.sort(key=lambda t: -min(t.rows * t.columns, 4))
    return found[:_MOST] or [VectorTile(1, 1, 1, 32, 1, 1)]


def short_strips(p: Conv, target: Target) -> Sequence[StripTile]:
    """For :func:`~tilewright.topi.sketches.registers.schedule_registers`, which shares nothing: on
    the GPUs of OpenCL all that it has, elsewhere those that a driver compiles soon."""
    found = strip_tiles(p, target)
    if target.kind != "opencl" or shares_memory(target):
        return found
    phases = prod(p.stride) if p.pass_ == "dgrad" else p.multiplier
    short = [t for t in found if t.rows * t.vector * phases <= _RESULTS]
    return short or [StripTile(1, 1, 1, 32, 1, 1)]


def item_tiles(p: Conv, target: Target) -> list[ReductionTile]:
    """For :func:`~tilewright.topi.sketches.reductions.schedule_reductions`, in which each work-item
    has sums of its own and none waits for another."""
    last = p.layout.endswith("C")
    widths = _widths(p) if last and p.multiplier == 1 else [1]
    (oh, ow), found = p.out_image, []
    for vector, columns in product(widths, (4, 2, 1)):
        if columns >= 2 * ow:
            continue
        taps = next((k for k in (p.kernel_h, 3, 1) if k * p.kernel_w * columns <= _CODE // 2), 1)
        groups = -(-p.out_channels // vector) * -(-p.kernel_h // min(taps, p.kernel_h))
        tiles = p.batch * oh * -(-ow // columns)
        chunks = max(1, min(tiles // 4, _ITEMS // groups, 256))
        found.append(ReductionTile(1, columns, taps, vector, 1, 16, chunks))
    return found
