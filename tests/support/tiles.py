"""Kernels of a template with a tile that a test names: built and run, or lowered."""

from __future__ import annotations

from typing import Any

from tests.support.dense import convolution
from tests.support.depthwise import run

import tilewright
from tilewright.ir.func import Func
from tilewright.lower.pipeline import lower
from tilewright.topi import Conv
from tilewright.topi.templates import TEMPLATES


def error_of(name: str, p: Conv, tile: Any, target: str) -> float:
    """The relative error of the kernel on a device, or on ``sim``, beside float64."""
    schedule, args = TEMPLATES[name].scheduled(p, tile)
    kernel = tilewright.build(schedule, args, target)
    device = target.split()[0].replace("sim", "cpu")
    return run(p, kernel, device=device, exact=convolution)


def lowered(name: str, p: Conv, tile: Any, target: str) -> Func:
    """The first of its functions."""
    schedule, args = TEMPLATES[name].scheduled(p, tile)
    return lower(schedule, args, target).funcs[0]
