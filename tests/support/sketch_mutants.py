"""Mutants of a GPU's schedules of depthwise convolution.

    python -m tests.support.sketch_mutants [--every N] [--only NAME]

Each template has a small problem, of which the shortest program of some tiles is taken, for sim. A
mutant (``tests/support/mutation.py``) is caught where verify refuses it, where sim finds something,
or where a result differs: factors are small positive integers, so that sums are exact and nothing
cancels, and then others, one of which is not a number, as its products with 0 are not either. What
survives is printed, with what it lacks. All that did when it was read (:data:`EQUIVALENT`) goes
over rows that nobody reads, has a thread or a block more that stores nothing, or lacks a condition
that another one repeats.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from tests.support.depthwise import encode
from tests.support.mutation import Mutant, mutants

from tilewright.ir import Buffer, Module
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import IntImm
from tilewright.lower.pipeline import lower
from tilewright.runtime.array import view
from tilewright.runtime.sim import SimulationError, compile_module
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.template import Template
from tilewright.topi.templates import TEMPLATES
from tilewright.verify import check

_CUDA, _SIM = Target.parse("cuda -arch=sm_90a"), Target.parse("sim")
Arrays: TypeAlias = "tuple[np.ndarray[Any, Any], ...]"
#: Tiles of a template that are looked at, of which that with the shortest program is taken.
_LOOKED_AT = 12


def _conv(k: int, size: tuple[int, int, int, int], **more: Any) -> Conv:
    batch, channels, height, width = size
    given: dict[str, Any] = {"padding": k // 2, "dtype": "float16"} | more
    return Conv(batch=batch, channels=channels, height=height, width=width, kernel_h=k, kernel_w=k,
                **given)  # fmt: skip


#: By template, a problem as small as it is for.
PROBLEMS = {
    "gpu.strips": _conv(3, (2, 2, 5, 8), dtype="float32"),
    "gpu.planes": _conv(3, (2, 8, 4, 4)),
    "gpu.plane_tiles": _conv(3, (2, 2, 6, 16), dtype="float32"),
    "gpu.plane_bands": _conv(3, (2, 2, 6, 16)),
    "gpu.toeplitz": _conv(5, (64, 1, 6, 8)),
    "gpu.toeplitz_staged": _conv(5, (64, 1, 6, 8)),
    "gpu.toeplitz_warps": _conv(5, (16, 1, 6, 8)),
    "gpu.toeplitz_rows": _conv(5, (1, 2, 16, 16)),
    "gpu.plane_products": _conv(3, (16, 4, 4, 4)),
    "gpu.toeplitz_tf32": _conv(5, (16, 1, 6, 8), dtype="float32", precision="tf32"),
    "gpu.toeplitz_tf32_rows": _conv(5, (1, 2, 16, 16), dtype="float32", precision="tf32"),
    "gpu.pixels": _conv(3, (2, 8, 5, 4), dtype="float32", layout="NHWC"),
    "gpu.pixel_tiles": _conv(3, (2, 8, 6, 6), layout="NHWC"),
    "gpu.channel_pairs": _conv(3, (2, 8, 6, 6), layout="NHWC"),
    "gpu.sparse_pairs": _conv(7, (2, 8, 8, 8), layout="NHWC"),
    "gpu.reduction_planes": _conv(3, (2, 2, 5, 8), dtype="float32", pass_="wgrad"),
    "gpu.toeplitz_wgrad": _conv(5, (2, 1, 16, 16), pass_="wgrad"),
    "gpu.row_products": _conv(5, (16, 1, 8, 8), pass_="wgrad"),
    "gpu.plane_gradient": _conv(3, (16, 4, 4, 4), pass_="wgrad"),
    "gpu.band_gradient": _conv(3, (2, 2, 8, 8), pass_="wgrad"),
    "gpu.toeplitz_tf32_wgrad": _conv(5, (2, 1, 16, 16), pass_="wgrad", dtype="float32",
                                     precision="tf32"),
    "gpu.reduction_pixels": _conv(3, (2, 8, 5, 4), dtype="float32", layout="NHWC", pass_="wgrad"),
    "gpu.reduction_pixel_tiles": _conv(3, (2, 8, 6, 6), layout="NHWC", pass_="wgrad"),
}  # fmt: skip


def lowered(template: Template, p: Conv) -> Module:
    """The shortest program among those of the first tiles."""
    found: list[tuple[int, int, Module]] = []
    tiles = [*islice(template.candidates(p, _CUDA), 200)]
    for k, tile in enumerate(tiles[:: max(1, len(tiles) // _LOOKED_AT)]):
        try:
            d = template.declare(p, tile)
            module = lower(template.schedule(d, tile), d.args, _SIM)
        except TilewrightError:
            continue
        found.append((len(str(module)), k, module))
    return min(found)[2]


#: Mutants that compute the same, by template.
EQUIVALENT = {
    "gpu.toeplitz_warps": 2, "gpu.toeplitz_tf32": 7,
    "gpu.plane_gradient": 2, "gpu.reduction_planes": 1, "gpu.toeplitz_wgrad": 1,
    "gpu.row_products": 3,
    "gpu.band_gradient": 1, "gpu.toeplitz_tf32_wgrad": 6, "gpu.reduction_pixels": 3,
    "gpu.reduction_pixel_tiles": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Checked:
    """A program of which the results are known for some arrays."""

    module: Module
    arrays: tuple[Arrays, ...]
    right: tuple[Arrays, ...]

    @staticmethod
    def of(module: Module) -> Checked:
        rng = np.random.default_rng(0)
        drawn: list[Callable[[Any], Any]] = [
            lambda shape: rng.integers(1, 4, shape),
            lambda shape: rng.integers(-9, 10, shape),
            rng.standard_normal,
        ]
        drawn += [lambda shape: _with_nan(rng.integers(1, 4, shape), rng)] * 4
        given = tuple(tuple(_array(p, draw) for p in module.params) for draw in drawn)
        return Checked(module, given, tuple(run(module, arrays) for arrays in given))

    def survives(self, mutant: Mutant) -> bool:
        """Whether nothing tells a mutant from the program."""
        if any(check(func) for func in mutant.module.funcs):
            return False
        try:
            return all(
                all(map(_same, run(mutant.module, given), right))
                for given, right in zip(self.arrays, self.right, strict=True)
            )
        except SimulationError:
            return False


def _with_nan(numbers: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    made = numbers.astype("float64")
    made.flat[rng.integers(made.size)] = np.nan
    return made


def _same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _array(p: Any, draw: Callable[[Any], Any]) -> np.ndarray[Any, Any]:
    assert isinstance(p, Buffer)
    return encode(
        np.asarray(draw([n.value for n in p.shape if isinstance(n, IntImm)])), str(p.dtype)
    )


def run(module: Module, given: Arrays) -> Arrays:
    """What sim makes of the arrays; raises where it sees something wrong."""
    made = [a.copy() for a in given]
    compile_module(module, _SIM).launch([view(a) for a in made], {})
    return tuple(made)


def checked(name: str) -> Checked:
    """The program of a template's problem; raises where it is wrong itself."""
    template, p = TEMPLATES[name], PROBLEMS[name]
    if why := template.why_not(p, _CUDA):
        raise ValueError(why)
    module = lowered(template, p)
    if findings := [f for func in module.funcs for f in check(func)]:
        raise AssertionError(f"{name}: {findings[0]}")
    return Checked.of(module)


def survivors(name: str, every: int = 1, first: int = 0) -> tuple[int, list[Mutant]]:
    """How many mutants of a template's program were made, and which of them nothing caught."""
    program = checked(name)
    tried = [*islice(mutants(program.module), first, None, every)]
    return len(tried), [m for m in tried if program.survives(m)]


def _report(name: str, every: int) -> tuple[str, int, list[str], float]:
    start = time.monotonic()
    tried, found = survivors(name, every)
    return name, tried, [f"{m.lacks} in\n{m.module}" for m in found], time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.sketch_mutants")
    parser.add_argument("--every", type=int, default=1, help="take every N-th mutant")
    parser.add_argument("--only", default="", help="templates whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--show", action="store_true", help="print programs that survive, whole")
    chosen = parser.parse_args()
    names = [name for name in PROBLEMS if chosen.only in name]
    made = caught = 0
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for job in as_completed([pool.submit(_report, name, chosen.every) for name in names]):
            name, tried, found, seconds = job.result()
            made, caught = made + tried, caught + tried - len(found)
            print(f"{name}: {tried} mutants, {len(found)} survive ({seconds:.0f} s)", flush=True)
            for text in found:
                print("   ", text if chosen.show else text.split(" in\n")[0], flush=True)
    print(f"{made} mutants of {len(names)} templates: {caught} caught")
    return int(caught < made)


if __name__ == "__main__":
    sys.exit(main())
