"""What the demo searches: the parameters of topi's schedules that fit a layer, all combinations.

The loop over all of them is that of the article "Optimizing depthwise convolution with TVM".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.cli._demo.layers import Layer
from tilewright.cli._measure.machine import Machine
from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi.cpu.depthwise_conv2d import RowTile, schedule_rows
from tilewright.topi.declare import declare
from tilewright.topi.gpu.depthwise_shared import SharedTile, schedule_shared
from tilewright.topi.pieces.register_tiles import StripTile
from tilewright.topi.sketches.registers import schedule_registers

#: A schedule, and the tensors of its kernel: input, filter, output.
Program = tuple[Schedule, list[Tensor]]


@dataclass(frozen=True)
class Candidate:
    """A schedule of a layer; ``label`` says its parameters in a few words."""

    label: str
    program: Callable[[Layer], Program]


def candidates(layer: Layer, machine: Machine, most: int) -> list[Candidate]:
    """At most ``most`` candidates, evenly from all that fit."""
    if machine.kind == "llvm":
        return _thin(list(_rows(layer, machine.lanes)), most)
    found = [list(_shared(layer))]
    if layer.kernel <= 7:
        found.append(list(_strips(layer)))
    share = -(-most // len(found))
    return [c for family in found for c in _thin(family, share)]


def _scheduled(
    schedule: Callable[[Tensor, Any], Schedule], tile: Any
) -> Callable[[Layer], Program]:
    """A schedule of the convolution as a user declares it."""

    def program(layer: Layer) -> Program:
        args = layer.declare()
        return schedule(args[-1], tile), args

    return program


def _strip(tile: StripTile) -> Callable[[Layer], Program]:
    """The library's schedule of strips, which is one of a declared problem."""

    def program(layer: Layer) -> Program:
        declaration = declare(layer.problem)
        return schedule_registers(declaration, tile), declaration.args

    return program


def _thin(found: Sequence[Candidate], most: int) -> list[Candidate]:
    if len(found) <= most:
        return list(found)
    return [found[k * len(found) // most] for k in range(most)]


def _rows(layer: Layer, native: int) -> Iterator[Candidate]:
    """Tiles of rows by vectors on a CPU, as many as its registers hold."""
    height, width = layer.out
    registers = 32 if native == 16 else 16
    wide = (native, native // 2) if native == 16 else (native, 2 * native)
    for lanes, vectors, rows in itertools.product(wide, (1, 2), (7, 14, 4, 8)):
        sums = rows * vectors * max(1, lanes // native)
        fits = sums <= registers and rows < height + 4
        if not fits or (vectors == 2 and lanes >= width):
            continue
        tile = RowTile(rows, vectors, lanes, min(layer.kernel, 7))
        size = f"{rows} rows × {vectors * lanes} columns"
        yield Candidate(f"{size}, vectors of {lanes}", _scheduled(schedule_rows, tile))


def _strips(layer: Layer) -> Iterator[Candidate]:
    """Strips in a thread's registers on a GPU."""
    height, width = layer.out
    for vector, rows, warps in itertools.product((4, 2), (4, 2, 1, 7), (2, 4, 8)):
        columns = min(32, -(-width // vector))
        threads_y = max(1, min(32 * warps // columns, -(-height // rows)))
        if rows >= height + 4 or vector >= width + 4:
            continue
        tile = StripTile(rows, vector, threads_y, columns, 1, layer.kernel)
        yield Candidate(
            f"registers, {rows}×{vector} a thread, {threads_y}×{columns} threads",
            _strip(tile),
        )


def _shared(layer: Layer) -> Iterator[Candidate]:
    """The article's blocks in shared memory, its threads and virtual threads."""
    k, stride = layer.kernel, layer.stride
    height, width = layer.out
    taps = 0 if k <= 7 else 1
    seen = set()
    blocks = {(_part(height, a), _part(width, b)) for a in (1, 2, 4) for b in (1, 2)}
    threads = ((8, 8), (4, 32), (8, 16), (8, 32), (7, 14), (14, 14), (16, 16), (14, 28), (4, 14))
    for (bh, bw), (ty, tx), vx in itertools.product(sorted(blocks), threads, (1, 2)):
        ty, tx = min(ty, bh), min(tx, bw)
        memory = 4 * ((bh - 1) * stride + k) * ((bw - 1) * stride + k) + 4 * k * k
        outputs = -(-bh // ty) * -(-bw // (tx * vx)) * vx
        shape = (bh, bw, ty, tx, 1, vx, taps)
        if memory > 48 * 1024 or tx * vx > bw or outputs > 16 or shape in seen:
            continue
        seen.add(shape)
        yield Candidate(
            f"shared {bh}×{bw}, {ty}×{tx} threads" + (f", {vx} virtual" if vx > 1 else ""),
            _scheduled(schedule_shared, SharedTile(*shape)),
        )


def _part(extent: int, parts: int) -> int:
    return -(-extent // parts)
