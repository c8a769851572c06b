"""Schedules built through the public API and run on outputs full of poison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest

import tilewright
from tilewright import te
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

FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]


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


def apply_all(
    functions: Sequence[Callable[..., Any]], *arrays: np.ndarray, types: list[str], target: str
) -> list[np.ndarray]:
    """Each of ``functions`` of the elements of ``arrays``, by one kernel."""
    n = len(arrays[0])
    inputs = [te.placeholder((n,), t, name=f"X{k}") for k, t in enumerate(types)]
    outs = te.compute(
        (n,), lambda i: tuple(f(*(x[i] for x in inputs)) for f in functions), name="Y"
    )
    s = te.create_schedule(outs[0].op)
    stage = s[outs[0]]
    outer, inner = stage.split(stage.op.axis[0], factor=8)
    if target == "llvm":
        stage.vectorize(inner)
    else:
        stage.bind(outer, te.thread_axis("blockIdx.x"))
        stage.bind(inner, te.thread_axis("threadIdx.x"))
    return run(s, [*inputs, *outs], arrays, target)


def apply(f: Callable[..., Any], *arrays: np.ndarray, types: list[str], target: str) -> np.ndarray:
    return apply_all([f], *arrays, types=types, target=target)[0]


def lacking(type: str) -> bool:
    """OpenCL devices need not have half or double precision."""
    extension = {"float16": "cl_khr_fp16", "float64": "cl_khr_fp64"}.get(type)
    if extension is None:
        return False
    import pyopencl

    device = pyopencl.get_platforms()[0].get_devices()[0]
    return extension not in device.extensions.split()


def skip_without(target: str, type: str) -> None:
    if target == "opencl" and lacking(type):
        pytest.skip(f"the device has no {type}")


Cases: TypeAlias = "list[tuple[Callable[..., Any], np.ndarray]]"


def check(cases: Cases, *arrays: np.ndarray, types: list[str], target: str) -> None:
    """Each function gives exactly what stands beside it."""
    found = apply_all([f for f, _ in cases], *arrays, types=types, target=target)
    for k, (got, (_, want)) in enumerate(zip(found, cases)):
        np.testing.assert_array_equal(got, want, err_msg=f"case {k}")


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
