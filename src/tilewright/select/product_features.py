"""What the speed of a schedule for large filters follows from, before anything is compiled.

As :mod:`~tilewright.select.features`: ratios, or logarithms of ratios to the least time that the
problem takes, so that what was learnt from some shapes carries to others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.select.counts import LATENCY, LAUNCH, Array, held_apart, parameters
from tilewright.select.products import NUMBERED, Products, inside, products
from tilewright.target.devices import (
    BANKS,
    REGISTERS,
    RESERVED,
    SCHEDULERS,
    THREAD_REGISTERS,
    WORD,
    Gpu,
)
from tilewright.topi.operators.conv import Conv

#: Microseconds that a row of products takes.
_ROW = 0.1
#: Of the peak of tensor cores, what instructions of a warp reach on the newest.
_OF_PEAK = {"wgmma": 0.85, "mma": 0.5}
#: Parameters of a template that are features themselves.
_KNOBS = 10


def least(p: Conv, machine: Gpu) -> float:
    """The least microseconds that a problem takes on a device, with its launch."""
    rate = _rate(p, "wgmma", machine) * machine.sms
    return max(p.bytes / machine.bandwidth, inside(p) * _times(p) / rate) + LAUNCH


def product_features(
    p: Conv, template: str, configs: Sequence[Any], slower: Array, machine: Gpu, apart: bool = True
) -> Array:
    """(configs, features) of a template's parameters.

    ``slower`` (configs,) is what :func:`~tilewright.select.ranking.slower` says of those of CUDA
    cores, and 0 of others; ``apart`` is as in :func:`~tilewright.select.features.features`.
    """
    floor = least(p, machine)
    number = float(NUMBERED.index(template))
    derived = _derived(p, products(p, template, configs), floor, machine, apart)
    columns: list[Any] = [number, *derived, *_problem(p, floor, machine), slower, *_knobs(configs)]
    return np.stack(np.broadcast_arrays(*columns), axis=1).astype("float32")


def _knobs(configs: Sequence[Any]) -> list[Array]:
    """Parameters, by how far they are from their defaults, so that a template may get more."""
    usual = [0.0 if f.default is MISSING else float(f.default) for f in fields(configs[0])]
    found = np.zeros((_KNOBS, len(configs)))
    found[: len(usual)] = (parameters(configs) - usual).T[:_KNOBS]
    return list(found)


def _times(p: Conv) -> int:
    """Products of TF32 for one of float32, of which each takes as long as two of 16 bits."""
    if p.dtype != "float32":
        return 1
    return 2 if p.precision == "tf32" else 6


def _rate(p: Conv, rate: str, machine: Gpu) -> float:
    """Multiplications a microsecond of an SM."""
    if rate == "lanes":
        return machine.lanes * machine.clock
    return machine.products * machine.clock * _OF_PEAK[rate] / (2 if p.dtype == "float32" else 1)


def _problem(p: Conv, floor: float, machine: Gpu) -> list[float]:
    """What is the same for all schedules, and tells which of them are fast."""
    oh, ow = p.out_image
    size = dtype(p.dtype).bytes
    return [
        size, 1.0 * (p.dtype == "bfloat16"), p.batch, p.kernel_h, p.kernel_w, oh, ow,
        math.gcd(p.image[1] * size, 64), math.log2(p.bytes / machine.bandwidth), math.log2(floor),
    ]  # fmt: skip


def _derived(p: Conv, k: Products, floor: float, machine: Gpu, apart: bool) -> list[Array]:
    """Times against the least, and how busy the device is."""
    sms, warps = machine.sms, np.ceil(k.threads / 32)
    registers = np.clip(k.held, 24.0, THREAD_REGISTERS)
    # The trees were fitted with the registers of threads, not of whole warps.
    fit = np.minimum(REGISTERS // (registers * k.threads), machine.warps // warps)
    fit = np.minimum(np.minimum(fit, machine.blocks), machine.shared // (k.shared + RESERVED))
    fit = np.maximum(fit, 1)
    if apart:
        fit = held_apart(fit, np.asarray(k.blocks), k.threads, k.chunks, machine)
    most = np.ceil(k.blocks / sms)  # blocks that the busiest SM runs
    waves, resident = np.ceil(k.blocks / (sms * fit)), np.minimum(fit, most)
    multiply = most * k.multiplies / _rate(p, k.rate, machine)
    cache, memory = k.loaded / machine.cache, p.bytes / machine.bandwidth
    build = most * k.built / ((BANKS * WORD) * machine.clock)
    waits, rows = waves * k.rounds * LATENCY, waves * k.rows * _ROW
    issue = most * warps * k.issued / SCHEDULERS / machine.clock
    added = 8.0 * k.chunks * math.prod(p.filter_shape) / machine.cache
    summed = np.where(k.chunks > 1, added, 0.0)
    times = (multiply, cache, memory, build, waits, rows, multiply * 64 / k.width, issue, summed,
             np.maximum(np.maximum(multiply, cache), memory) + build + LAUNCH,
             multiply + cache + memory + build)  # fmt: skip
    return [
        *(_log(t / floor) for t in times),
        np.where(waves < 8, _log(waves * fit * sms / k.blocks), 0.0),
        fit, resident * warps / machine.warps, warps, _log(most), _log(k.blocks / sms), registers,
        k.shared / 1024, _log(k.width), k.depth, _log(k.rounds), _log(k.rows),
        _log(k.ahead * resident / 1024), *k.spare,
    ]  # fmt: skip


def _log(x: Any) -> Array:
    return np.asarray(np.log2(np.maximum(x, 1e-3)))
