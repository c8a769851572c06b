"""Schedules built through the public API and run on outputs full of poison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.stmt import Allocate
from tilewright.ir.visit import substitute, walk
from tilewright.schedule import Schedule

CPU = ["llvm"]
GPU = ["sim", pytest.param("opencl", marks=pytest.mark.needs_opencl)]
ALL = [*CPU, *GPU]

on_cpu = pytest.mark.parametrize("target", CPU)
on_gpu = pytest.mark.parametrize("target", GPU)
everywhere = pytest.mark.parametrize("target", ALL)

#: bfloat16 is passed as its bits, and bool as NumPy's.
NUMPY = {"bfloat16": "uint16"}


def integers(*shape: int, type: str = "float32", seed: int = 0) -> np.ndarray:
    """Small integers, so that every sum is exact in every order."""
    rng = np.random.default_rng([seed, *shape])
    if type == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    low = 0 if type.startswith("uint") else -4
    return rng.integers(low, 5, shape).astype(type)


def poisoned(shape: Sequence[int], type: str) -> np.ndarray:
    """An array in which every element that is not written shows."""
    made = np.empty(shape, NUMPY.get(type, type))
    made.reshape(-1).view(np.uint8)[...] = 0xA5
    return made


def run(
    s: Schedule, args: Sequence[Any], inputs: Sequence[np.ndarray], target: str, **more: Any
) -> list[np.ndarray]:
    """What the tensors in ``args`` hold that ``inputs``, the first of them, leave over."""
    kernel = tilewright.build(s, args, target, **more)
    return call(kernel, args, inputs)


def call(kernel: Any, args: Sequence[Any], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """One call of ``kernel``, with extents that the inputs tell."""
    tensors = [a for a in args if not isinstance(a, Var)]
    known: dict[Expr, Expr] = {}
    for tensor, array in zip(tensors, inputs):
        for extent, n in zip(tensor.shape, array.shape):
            if isinstance(extent, Var):
                known[extent] = IntImm(extent.dtype, n)
    made = [poisoned([_extent(e, known) for e in t.shape], t.dtype) for t in tensors[len(inputs) :]]
    kernel(*inputs, *made)
    return made


def _extent(e: Expr, known: dict[Expr, Expr]) -> int:
    from tilewright.arith import Analyzer

    found = Analyzer().simplify(substitute(e, known))
    assert isinstance(found, IntImm)
    return found.value


def assert_computes(
    s: Schedule,
    args: Sequence[Any],
    inputs: Sequence[np.ndarray],
    expected: np.ndarray | Sequence[np.ndarray],
    target: str,
) -> None:
    """The schedule gives exactly ``expected`` on ``target``."""
    wanted = [expected] if isinstance(expected, np.ndarray) else list(expected)
    found = run(s, args, inputs, target)
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted):
        np.testing.assert_array_equal(got, want)


def allocated_shapes(s: Schedule, args: Sequence[Any], target: str) -> dict[str, tuple[int, ...]]:
    """The shapes of the buffers between the stages, by name, as the loops have them."""
    found: dict[str, tuple[int, ...]] = {}
    program = tilewright.lower(s, args, target, trace=_first(found))
    assert program is not None
    return found


def _first(found: dict[str, tuple[int, ...]]) -> Callable[[str, Any], None]:
    def trace(name: str, program: Any) -> None:
        if name != "loops":
            return
        for node in walk(program.body):
            if isinstance(node, Allocate):
                shape = node.buffer.constant_shape
                assert shape is not None, f"{node.buffer} has no constant shape"
                found[node.buffer.name] = shape

    return trace
