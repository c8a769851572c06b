"""Random data for a problem, on the device of a target."""

from __future__ import annotations

from typing import Any

from tilewright.runtime.ndarray import array
from tilewright.target import Target
from tilewright.topi.declare import input_shapes
from tilewright.topi.problem import Problem


def _device(target: Target) -> str:
    """Where the arrays lie: on the current GPU, where there are several."""
    if target.kind == "cuda":
        from tilewright.runtime.cuda_driver import current_ordinal

        return f"cuda:{current_ordinal()}"
    return "opencl:0" if target.kind == "opencl" else "cpu"


def inputs(problem: Problem, target: Target) -> list[Any]:
    """The arrays of a call: inputs of normal numbers, and the result."""
    import numpy as np

    rng = np.random.default_rng(0)
    device = _device(target)
    shapes = [*input_shapes(problem).values(), problem.result_shape]
    made = []
    for shape in shapes:
        values = rng.standard_normal(shape, "float32")
        if problem.dtype == "bfloat16":
            words = (values.view("uint32") >> 16).astype("uint16")  # rounded towards zero
            made.append(array(words, device, "bfloat16"))
        else:
            made.append(array(values.astype(problem.dtype), device, problem.dtype))
    return made
