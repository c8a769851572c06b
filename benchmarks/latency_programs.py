"""The programs whose way from schedule to kernel is timed: those of the articles, and of topi.

Run as ``python latency_programs.py NAME TARGET``, it prints as JSON what the first kernel of a
fresh process takes, in milliseconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import article_003

import tilewright
from tilewright import te, tvm
from tilewright.topi.cpu.depthwise_lines import schedule_lines
from tilewright.topi.declare import declare
from tilewright.topi.nn import depthwise_conv2d_nchw
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.register_tiles import StripTile
from tilewright.topi.sketches.registers import schedule_registers
from tilewright.topi.templates import TEMPLATES

sys.path.append(str(Path(__file__).parents[1]))  # where the examples are

Program = Callable[[], tuple[Any, list[Any]]]

#: The variable of the environment that names the clock, a function of ``time``.
CLOCK = "LATENCY_CLOCK"


def clock() -> float:
    """Seconds by the clock that :data:`CLOCK` names, of the wall by default."""
    return float(getattr(time, os.environ.get(CLOCK, "perf_counter"))())


def walk(version: str) -> Program:
    """A schedule of article 003."""

    def make() -> tuple[Any, list[Any]]:
        s, inp, ker, out = article_003.declaration()
        article_003.VERSIONS[version](s[out])
        return s, [inp, ker, out]

    return make


def depthwise(
    schedule: Callable[[Any], Any], channels: int = 256, size: int = 96, k: int = 3
) -> Program:
    """A depthwise convolution in NCHW, by default that of article 000, under a schedule of topi."""

    def make() -> tuple[Any, list[Any]]:
        data = te.placeholder((1, channels, size, size), name="Input")
        weight = te.placeholder((channels, 1, k, k), name="Filter")
        out = depthwise_conv2d_nchw(data, weight)
        return schedule(out), [data, weight, out]

    return make


def strips() -> tuple[Any, list[Any]]:
    """The convolution of article 000 in strips in registers, all taps written out."""
    problem = Conv(
        batch=1,
        channels=256,
        height=96,
        width=96,
        kernel_h=3,
        kernel_w=3,
        padding=(1, 1, 1, 1),
    )
    declaration = declare(problem)
    return schedule_registers(declaration, StripTile(taps=3)), declaration.args


def lines(channels: int, size: int, k: int) -> Program:
    """Vectors along rows on a CPU."""

    def make() -> tuple[Any, list[Any]]:
        p = Conv.parse((1, channels, size, size), (channels, 1, k, k), channels, padding=k // 2)
        declaration = declare(p)
        return schedule_lines(declaration), declaration.args

    return make


def shared(out: Any) -> Any:
    """Article 000's schedule, with virtual threads."""
    from examples.article_000 import SharedTile, schedule_shared

    return schedule_shared(out, SharedTile(32, 32, 8, 16, 1, 2))


def split_tiles(out: Any) -> Any:
    """Article 000's schedule as it divides the work: both cached tiles fused and split by parts,
    which do not divide them, virtual threads in both directions."""
    s = te.create_schedule(out.op)
    padded, weight = out.op.inputs[0], out.op.inputs[1]
    s[padded].compute_inline()
    tiles = [s.cache_read(t, "shared", [out]) for t in (padded, weight)]
    ty, tx = (te.thread_axis((0, 8), f"threadIdx.{d}") for d in "yx")
    stage = s[out]
    n, c, h, w = out.op.axis
    stage.bind(stage.fuse(n, c), te.thread_axis("blockIdx.y"))
    inner, outer = [], []
    for axis, thread in ((h, ty), (w, tx)):
        block, rest = stage.split(axis, factor=32)
        virtual, rest = stage.split(rest, nparts=2)
        at, rest = stage.split(rest, nparts=8)
        stage.bind(virtual, te.thread_axis((0, 2), "vthread"))
        stage.bind(at, thread)
        outer.append((block, virtual, at))
        inner.append(rest)
    stage.reorder(*(axis for pair in zip(*outer, strict=True) for axis in pair), *inner)
    block = stage.fuse(outer[0][0], outer[1][0])
    stage.bind(block, te.thread_axis("blockIdx.x"))
    for tile in tiles:
        s[tile].compute_at(stage, block)
        _, _, i, j = s[tile].op.axis
        y, rest = s[tile].split(s[tile].fuse(i, j), nparts=8)
        x, _ = s[tile].split(rest, nparts=8)
        s[tile].bind(y, ty)
        s[tile].bind(x, tx)
    return s


def by_template(template: str, shape: tuple[int, ...], k: int, pass_: str, layout: str) -> Program:
    """A depthwise convolution in float16 by the first tile of a template for tensor cores."""

    def make() -> tuple[Any, list[Any]]:
        p = Conv.parse(
            shape, (shape[1], 1, k, k), dtype="float16", padding=k // 2, pass_=pass_, layout=layout
        )
        chosen = TEMPLATES[template]
        config = chosen.candidates(p, tilewright.Target.parse("cuda -arch=sm_90a"))[0]
        declaration = chosen.declare(p, config)
        return chosen.schedule(declaration, config), declaration.args

    return make


_LARGE, _SMALL, _STAGE = (64, 384, 32, 32), (64, 1024, 7, 7), (64, 96, 56, 56)
TENSOR_CORES: dict[str, Program] = {
    f"{template}, {pass_} K {k}": by_template(template, shape, k, pass_, layout)
    for template, shape, k, pass_, layout in (
        ("gpu.toeplitz_staged", _LARGE, 31, "forward", "NCHW"),
        ("gpu.toeplitz_rows", (1, *_LARGE[1:]), 31, "forward", "NCHW"),
        ("gpu.row_products", _LARGE, 31, "wgrad", "NCHW"),
        ("gpu.plane_products", _SMALL, 13, "forward", "NCHW"),
        ("gpu.plane_gradient", _SMALL, 13, "wgrad", "NCHW"),
        ("gpu.channel_pairs", _STAGE, 7, "forward", "NHWC"),
        ("gpu.band_gradient", _STAGE, 7, "wgrad", "NCHW"),
        ("gpu.reduction_pixel_tiles", _STAGE, 7, "wgrad", "NHWC"),
    )
}
GPU: dict[str, Program] = {f"003 {name}": walk(name) for name in article_003.VERSIONS} | {
    "000 shared, vthreads": depthwise(shared),
    "000 tiles split by parts": depthwise(split_tiles),
    "registers": strips,
}
CPU: dict[str, Program] = {
    "lines K 3": lines(256, 96, 3),
    "lines K 7": lines(96, 56, 7),
    "lines K 31": lines(384, 32, 31),
}


def programs(target: str) -> dict[str, Program]:
    """Those for a target, by name."""
    return CPU if target.startswith("llvm") else GPU | TENSOR_CORES


def first_kernel(name: str, target: str) -> dict[str, float]:
    """From a schedule to the kernel, and on a CPU the first call of it, in this process."""
    s, args = programs(target)[name]()
    arrays = []
    if target.startswith("llvm"):
        import numpy as np

        arrays = [np.zeros([int(n) for n in t.shape], "float32") for t in args]
    begin = clock()
    kernel = tilewright.build(s, args, target)
    found = {"build": (clock() - begin) * 1e3}
    if arrays:
        begin = clock()
        kernel(*arrays)
        found["call"] = (clock() - begin) * 1e3
    return found


if __name__ == "__main__":
    assert tvm is not None  # loaded before the clock starts, as by whoever writes schedules
    print(json.dumps(first_kernel(sys.argv[1], sys.argv[2])))
