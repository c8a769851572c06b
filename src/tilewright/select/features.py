"""What the speed of a schedule on a GPU follows from, before anything is compiled.

Numbers are ratios or logarithms of ratios, so that what was learnt from some shapes on one device
carries to other shapes and devices: the time that instructions and bytes take against the least
that the problem takes, warps that are resident against those there is room for, and the like.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.select.cost import cost
from tilewright.select.counts import LATENCY, LAUNCH, Array, Cost, held_apart
from tilewright.select.staged import Staged
from tilewright.target.devices import LINE, SCHEDULERS, SECTOR, THREAD_REGISTERS, Gpu
from tilewright.topi.gpu.machine import occupancy
from tilewright.topi.operators.conv import Conv

#: Registers of a thread that hold neither inputs nor sums.
_OTHERS = 24
#: Sectors that an SM sends, and is brought, in a cycle.
_SENT, _BROUGHT = 2, 4


def roofline(p: Conv, machine: Gpu) -> float:
    """The least microseconds that a problem takes on a device, with its launch."""
    return max(p.bytes / machine.bandwidth, _multiplies(p) / machine.rate) + LAUNCH


def _multiplies(p: Conv) -> int:
    return p.nominal_flops // 2


def features(p: Conv, template: str, values: Array, machine: Gpu, apart: bool = True) -> Array:
    """(sets, features) of a template's parameters, (sets, parameters) in the order of its
    dataclass. Of times that were measured before blocks of small launches were kept ``apart``, what
    a launch was like then."""
    return features_of(p, cost(p, template, np.asarray(values, "float64")), machine, apart)


def features_of(p: Conv, found: Cost | Staged, machine: Gpu, apart: bool = True) -> Array:
    """The same of what they cost."""
    if isinstance(found, Staged):
        derived = found.derived(p.bytes, roofline(p, machine), machine, apart)
    else:
        derived = _derived(p, found, machine, apart)
    columns = [*derived, *_problem(p, machine, len(found.kind)), *found.tile]
    return np.stack(columns, axis=1).astype("float32")


def _problem(p: Conv, machine: Gpu, count: int) -> list[Array]:
    """What is the same for all parameters, and tells which of them matter."""
    oh, ow = p.out_image
    known = (
        dtype(p.dtype).bytes, p.kernel_h, p.stride[0], 1.0 * (p.pass_ == "dgrad"),
        math.log2(p.bytes / machine.bandwidth),
        _multiplies(p) / machine.rate / roofline(p, machine), math.log2(oh), math.log2(ow),
        math.log2(math.gcd(_row_stride(p), 256)), math.log2(math.gcd(_row_stride(p, True), 256)),
    )  # fmt: skip
    return [np.full(count, float(v)) for v in known]


def _row_stride(p: Conv, other: bool = False) -> int:
    """Bytes between neighbouring rows, or pixels of channels, of the image that is read, or of the
    ``other`` one."""
    row = p.out_image[1] if (p.pass_ == "dgrad") != other else p.width
    return (p.channels if p.layout.endswith("C") else row) * dtype(p.dtype).bytes


def _resident(k: Cost, machine: Gpu) -> tuple[Array, Array]:
    """Registers of a thread, about, and the blocks that an SM holds at once."""
    warps = np.ceil(k.threads / 32)
    registers = np.clip(np.ceil((k.held + _OTHERS) / 8) * 8, 24, THREAD_REGISTERS)
    return registers, np.maximum(occupancy(machine, warps, registers, k.shared), 1)


def _derived(p: Conv, k: Cost, machine: Gpu, apart: bool) -> list[Array]:
    """Times against the roofline, and how busy the device is."""
    least, sms, log = roofline(p, machine), machine.sms, np.log2
    warps = np.ceil(k.threads / 32)
    registers, fit = _resident(k, machine)
    if apart:
        fit = held_apart(fit, k.blocks, k.threads, k.chunks, machine)
    waves = k.blocks / (fit * sms)
    whole = np.ceil(waves)
    most = np.ceil(k.blocks / sms)  # blocks that the busiest SM runs
    resident = np.minimum(fit, most) * warps

    loads = k.turns * k.loads
    counted = k.loads + k.conversions + k.multiplies + k.filter_loads + k.others
    issued = k.turns * counted + k.stores
    issue = most * warps * issued / SCHEDULERS / machine.clock
    lines = _cycles(k)
    sent = _touched(k.x, k.store_step, k.store_bytes, SECTOR)
    brought = _touched(k.x, k.step, k.load_bytes, SECTOR)
    moved = loads * lines + k.stores * np.maximum(1.0, sent / _SENT)
    first = most * warps * moved / machine.clock
    second = k.blocks * k.unique * (k.run + SECTOR) / np.maximum(k.run, 1) / machine.cache
    waits = whole * k.rounds * LATENCY
    flight = resident * 32 * k.ahead * k.load_bytes / (machine.bandwidth / sms * LATENCY)
    slowest = np.maximum.reduce([issue, first, second, least / np.minimum(1.0, flight)])
    rough = np.maximum(least, slowest) + waits
    results = _results(p)
    return [
        log(issue / least), log(first / least), log(second / least), log(waits / least),
        log(flight), log(k.blocks * warps * 32 * k.results / results), log(rough / least),
        registers, resident / machine.warps, fit * warps / machine.warps, log(waves),
        np.where(waves < 8, whole / waves, 1.0),
        np.where(k.blocks < 8 * sms, most * sms / k.blocks, 1.0),
        k.threads, warps * 32 / k.threads, log(k.results), log(loads / k.results), k.load_bytes,
        k.store_bytes, log(k.code), k.multiplies / (k.loads + k.conversions + 1), log(k.run),
        k.ahead, k.rounds, log(k.blocks * k.unique / p.bytes), k.shared / 1024,
        log(k.extra / p.bytes * machine.bandwidth / machine.cache + 1e-3), k.held, k.filter_loads,
        log(whole * issued / machine.clock / least),
        log(resident / warps * k.unique / machine.shared),
        np.minimum(1.0, k.run / _row_stride(p)), log(np.gcd(k.run.astype("int64"), LINE)),
        log(loads * k.load_bytes * k.threads / k.unique),
        k.blocks * k.threads * k.results / results, loads * lines / issued,
        log(machine.warps / warps / fit * most * warps), lines, sent,
        log(sent * SECTOR / 32 / k.store_bytes), log(brought),
        log(most * warps * k.stores * sent / _SENT / machine.clock / least),
        log(most * warps * loads * brought / _BROUGHT / machine.clock / least),
        log(whole * moved / machine.clock / least), *k.spare,
    ]  # fmt: skip


def _cycles(k: Cost) -> Array:
    """That a warp's request takes: one for each line, or each 128 bytes, that it touches, or for
    each word of a bank."""
    lines = _touched(k.x, k.step, k.load_bytes, LINE)
    return np.asarray(np.maximum(lines, k.load_bytes / 4))


def _touched(x: Array, step: Array, width: Array, unit: int) -> Array:
    """Segments of ``unit`` bytes that a warp touches at once, whose threads, ``x`` side by side,
    access ``width`` bytes each, ``step`` apart."""
    lanes = np.minimum(32, x)
    span = (lanes - 1) * step + width
    runs = np.minimum(lanes * np.maximum(1, width / unit), np.maximum(1, span / unit))
    return np.asarray(runs * 32 / lanes)


def _results(p: Conv) -> int:
    if p.pass_ == "wgrad":
        return p.batch * p.out_channels * math.prod(p.out_image)
    return math.prod(p.result_shape)
