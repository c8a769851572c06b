"""Depthwise convolutions padded to stay as large, under a schedule of the library."""

from __future__ import annotations

from collections.abc import Callable

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.topi.cpu.depthwise_lines import schedule_lines
from tilewright.topi.declare import Declaration, declare
from tilewright.topi.nn import depthwise_conv2d_nchw
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.register_tiles import StripTile
from tilewright.topi.sketches.registers import schedule_registers

#: From channels, or "n" for 16 of them and a symbolic batch, rows and columns of an image, and of
#: a filter: a schedule and its tensors.
Program = Callable[[int | str, int, int], tuple[Schedule, list[te.Tensor]]]


def scheduled(schedule: Callable[[te.Tensor], Schedule]) -> Program:
    """A schedule of the convolution as a user declares it."""

    def program(channels: int | str, size: int, k: int) -> tuple[Schedule, list[te.Tensor]]:
        batch, many = (te.var("n"), 16) if channels == "n" else (1, channels)
        data = te.placeholder((batch, many, size, size), name="Input")
        weight = te.placeholder((many, 1, k, k), name="Filter")
        out = depthwise_conv2d_nchw(data, weight, 1, "SAME")
        return schedule(out), [data, weight, out]

    return program


def strips(channels: int | str, size: int, k: int) -> tuple[Schedule, list[te.Tensor]]:
    """Strips in registers on a GPU, all taps written out, of a declared problem."""
    declaration = declared(channels, size, k)
    return schedule_registers(declaration, StripTile(taps=k)), declaration.args


def lines(channels: int | str, size: int, k: int) -> tuple[Schedule, list[te.Tensor]]:
    """Vectors along rows on a CPU, of a declared problem."""
    declaration = declared(channels, size, k)
    return schedule_lines(declaration), declaration.args


def declared(channels: int | str, size: int, k: int) -> Declaration:
    """The problem as the library declares it."""
    batch, many = (te.var("n"), 16) if channels == "n" else (None, int(channels))
    problem = Conv(
        batch=1, channels=many, height=size, width=size, kernel_h=k, kernel_w=k, padding="SAME"
    )
    return declare(problem, batch)
