"""Random data for a problem, on the device of a target."""

from __future__ import annotations

from typing import Any

from tilewright.runtime.ndarray import array
from tilewright.target import Target
from tilewright.topi.problem import Problem


def _device(target: Target) -> str:
    """Where the arrays lie: on the current GPU, where there are several."""
    if target.kind == "cuda":
        from tilewright.runtime.cuda_driver import current_ordinal

        return f"cuda:{current_ordinal()}"
    return "opencl:0" if target.kind == "opencl" else "cpu"


def inputs(problem: Problem, target: Target) -> list[Any]:
    """The arrays of a call: inputs of normal numbers (variances of their squares), of integers
    over the range of 8 bits, and the result."""
    import numpy as np

    rng = np.random.default_rng(0)
    device = _device(target)
    shapes = {**problem.shapes(), "result": problem.result.shape}
    dtypes = {**problem.dtypes(), "result": problem.result.dtype}
    made = []
    for name, shape in shapes.items():
        values, dtype = rng.standard_normal(shape, "float32"), dtypes[name]
        if "int" in dtype:
            values = rng.integers(0 if dtype[0] == "u" else -128, 128, shape).astype("float32")
        if name == "variance":
            values *= values
        made.append(array(values, device, dtype))
    return made
