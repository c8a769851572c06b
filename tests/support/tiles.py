"""Kernels of a template with a tile that a test names: built and run, or lowered."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.dense import convolution, product
from tests.support.depthwise import TOLERANCE, run
from tests.support.quantized import check

import tilewright
from tilewright.ir.func import Func, Module
from tilewright.lower.pipeline import lower
from tilewright.runtime.kernel import Kernel
from tilewright.target import Target
from tilewright.topi import Gemm
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES

HOPPER = "cuda -arch=sm_90a"
#: Where kernels for Hopper GPUs run.
TARGETS = ["sim", pytest.param(HOPPER, marks=pytest.mark.needs_cuda)]


def built(name: str, p: Problem, tile: Any, target: str | Target) -> Kernel:
    """The kernel of the template of this name."""
    return tilewright.build(*TEMPLATES[name].scheduled(p, tile), target)


def module_of(name: str, p: Problem, tile: Any, target: str = HOPPER) -> Module:
    """What it is compiled from."""
    return lower(*TEMPLATES[name].scheduled(p, tile), target)


def lowered(name: str, p: Problem, tile: Any, target: str) -> Func:
    """The first of its functions."""
    return module_of(name, p, tile, target).funcs[0]


def error_of(name: str, p: Problem, tile: Any, target: str) -> float:
    """The relative error of the kernel on a device, or on ``sim``, beside float64."""
    return _error(built(name, p, tile, target), p, target)


def check_tile(name: str, p: Problem, tile: Any, target: str) -> Kernel:
    """The kernel, which is as right as its types allow: exact where they are integers."""
    kernel = built(name, p, tile, target)
    check_kernel(kernel, p, target, f"{name} {tile}")
    return kernel


def check_kernel(kernel: Kernel, p: Problem, target: str, what: str = "") -> None:
    """A kernel is as right as the types of a problem allow."""
    if p.is_quantized:
        check(kernel, p)
    else:
        allowed = {"tf32": 2e-3, "tf32x3": 2e-6}.get(p.precision, TOLERANCE[p.dtype])
        assert _error(kernel, p, target) < allowed, what


def _error(kernel: Kernel, p: Problem, target: str) -> float:
    exact = product if isinstance(p, Gemm) else convolution
    return run(p, kernel, device=target.split()[0].replace("sim", "cpu"), exact=exact)
