"""Two products in float64, and problems to try."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests.support.depthwise import array_type, encode, relative_error

from tilewright.topi import Mlp

#: Of one row, odd sizes, filled up in every extent, and whole tiles; each with other steps.
PROBLEMS = (
    Mlp(m=5, k=3, hidden=7, n=4, inner="bias+gelu", epilogue="bias+residual"),
    Mlp(m=1, k=8, hidden=16, n=8),
    Mlp(m=70, k=24, hidden=100, n=40, inner="relu", epilogue="scale_shift+residual+relu"),
    Mlp(m=150, k=96, hidden=384, n=96, inner="bias+gelu", epilogue="bias+scale_shift+residual"),
    Mlp(m=150, k=96, hidden=384, n=96, inner="bias+gelu", norm="1e-6", epilogue="bias+residual"),
    Mlp(m=77, k=40, hidden=64, n=24, inner="bias+relu", norm="0.01"),
    Mlp(m=131, k=64, hidden=130, n=192, inner="scale_shift+clamp(-1, 2)"),
)


def inputs(p: Mlp, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Random tensors, weights smaller by the root of what is summed, variances positive."""
    rng = np.random.default_rng(seed)
    small = {"b": p.k**-0.5, "c": p.hidden**-0.5}
    found = {}
    for name, t in p.inputs().items():
        made = rng.standard_normal(t.shape) * small.get(name, 1)
        found[name] = encode(abs(made) + 0.5 if "variance" in name else made, t.dtype)
    return found


def exact(p: Mlp, arrays: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The result in float64, of PyTorch."""
    import torch
    from tests.support.depthwise import decode

    given = [torch.from_numpy(decode(x)) for x in arrays.values()]
    found: np.ndarray[Any, Any] = p.torch_function(torch)(*given).numpy()
    return found


def error(p: Mlp, kernel: Any, seed: int = 0) -> float:
    """The relative error of a kernel; nothing beside its output may change."""
    arrays, margin = inputs(p, seed), 64
    size = math.prod(p.result.shape)
    whole = np.full(size + 2 * margin, 7, array_type(p.dtype))
    whole[margin : margin + size] = encode(np.full(size, np.nan), p.dtype)
    result = whole[margin : margin + size].reshape(p.result.shape)
    kernel(*arrays.values(), result)
    assert (whole[:margin] == 7).all()
    assert (whole[margin + size :] == 7).all()
    return relative_error(result, exact(p, arrays))
