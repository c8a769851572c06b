"""The schedule of strips in registers as an algorithm, with its parameters by a static rule."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedule import Schedule
from tilewright.select.algorithm import Scheduled
from tilewright.target import Target
from tilewright.topi.declare import Declaration
from tilewright.topi.gpu.depthwise_registers import RegisterTile, schedule_registers
from tilewright.topi.problem import Problem
from tilewright.topi.templates import Template

#: Threads of a block, about.
_THREADS = 256
#: Taps of a filter up to which all of them are written out.
_LARGEST = 7


def _divisor(extent: int, most: int) -> int:
    """The largest power of two up to ``most`` that divides ``extent``."""
    found = 1
    while found * 2 <= most and extent % (found * 2) == 0:
        found *= 2
    return found


def register_tiles(p: Problem, target: Target) -> list[RegisterTile]:
    """Strips of 4 rows by 16 bytes, as far as rows divide by that; blocks of whole rows.

    Rows are as wide as a block where they are short; images of 14 and below share blocks. Tall
    images with small filters take longer strips, in which fewer rows are read twice.
    """
    height, width = p.out_image
    widest = 16 // (2 if p.dtype.endswith("16") else 8 if p.dtype == "float64" else 4)
    vector = _divisor(width, widest if p.stride[1] == 1 else max(1, widest // 2))
    if p.width % vector:
        vector = _divisor(p.width, vector)
    usual = 7 if height % 7 == 0 and height >= 56 and p.kernel_h <= 3 else 4
    if height >= 56 and p.kernel_h <= 3 and height % 7:
        usual = 8
    found = []
    for rows in dict.fromkeys((usual, 4, 2, 8)):
        rows = min(rows, height)
        threads_x = min(32, -(-width // vector))
        strips = -(-height // rows)
        threads_y = max(1, min(strips, 128 // threads_x, 16))
        room = max(1, min(64, _THREADS // (threads_x * threads_y)))
        channels = _divisor(p.channels * p.batch, room) if height <= 14 or room > 4 else 1
        found.append(RegisterTile(rows, vector, threads_y, threads_x, channels))
    return found


def _schedule(d: Declaration, tile: RegisterTile) -> Schedule:
    return schedule_registers(d.output, tile)


@dataclass(frozen=True)
class _Registers(Scheduled):
    """Filters up to 7 rows and columns in two dimensions."""

    def can(self, problem: Problem, target: Target) -> str:
        if problem.rank != 2:
            return f"{self.name} is for images of two dimensions"
        if max(problem.kernel) > _LARGEST:
            return f"{self.name} is for filters up to {_LARGEST}x{_LARGEST}"
        return super().can(problem, target)


REGISTERS = _Registers(
    Template("gpu.registers", RegisterTile, _schedule, ("forward",), False, True, register_tiles)
)
