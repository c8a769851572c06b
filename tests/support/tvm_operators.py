"""Operators under TVM's names, built by their schedules by name and run on arrays."""

from __future__ import annotations

import numpy as np

from tilewright import tvm
from tilewright.tvm import te, topi

rng = np.random.default_rng(0)


def real(*shape, low=0.1, high=0.9):
    return rng.uniform(low, high, shape).astype("float32")


def run(made, tensors, arrays, target="llvm", shapes=None):
    outs = list(made) if isinstance(made, (list, tuple)) else [made]
    with tvm.target.Target(target):
        kernel = tvm.build(topi.generic.schedule_injective(outs), [*tensors, *outs])
    shapes = shapes or [topi.utils.get_const_tuple(t.shape) for t in outs]
    found = [
        tvm.nd.array(np.full(shape, 77, str(t.dtype)))
        for shape, t in zip(shapes, outs, strict=True)
    ]
    kernel(*map(tvm.nd.array, arrays), *found)
    return [f.numpy() for f in found]


def compute(function, *arrays, target="llvm"):
    tensors = [te.placeholder(a.shape, str(a.dtype), f"in{k}") for k, a in enumerate(arrays)]
    return run(function(*tensors), tensors, arrays, target)


def close(found, expected):
    np.testing.assert_allclose(found, np.asarray(expected), rtol=2e-4, atol=2e-5)
