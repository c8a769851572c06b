"""Random inputs, right outputs, and whether a candidate gives them.

A candidate's outputs are filled with NaN (integers: with a pattern) before it runs, so that what it
does not write is found; its inputs must be the same afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType
from tilewright.ir.expr import IntImm
from tilewright.ir.func import Module
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.narrow_floats import from_storage, is_narrow, to_bits
from tilewright.runtime.ndarray import NDArray, array
from tilewright.schedule import create_schedule
from tilewright.te import PlaceholderOp, Tensor
from tilewright.tune.config import ConfigEntity
from tilewright.tune.entity import TuningError
from tilewright.tune.task import Task
from tilewright.tune.template import find_template

#: The relative error norm that a right answer stays under, by the bits and kind of its type.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2,
             "float8_e4m3fn": 6e-2, "float8_e5m2": 0.12}  # fmt: skip
#: How much more is allowed where the reference is of the same precision as the candidate.
_ROUNDED = 4.0
_MOST_LAUNCHES = 100_000


class WrongAnswer(Exception):
    """A candidate that computes something else; the message says how far off it is."""


def make_data(task: Task, config: ConfigEntity, path: Path, seed: int) -> None:
    """Random inputs for a task, and the outputs by its reference or its declaration."""
    _, args = task.instantiate(config)
    tensors = [_constant(a) for a in args]
    inputs = [isinstance(t.op, PlaceholderOp) for t in tensors]
    rng = np.random.default_rng(seed)
    filled = [
        random_values(rng, _shape(t.shape), t.dtype) if given else None
        for t, given in zip(tensors, inputs, strict=True)
    ]
    reference = find_template(task.name).reference
    if reference is not None:
        given = [_as_float64(a, t.dtype) for a, t in zip(filled, tensors, strict=True)
                 if a is not None]  # fmt: skip
        found = reference(*given)
        outputs = list(found) if isinstance(found, (list, tuple)) else [found]
        wanted = [np.asarray(o, "float64") for o in outputs]
        exact = True
    else:
        wanted, exact = _by_declaration(tensors, filled), False
    _write(path, filled, wanted, exact)


def _constant(argument: Any) -> Tensor:
    if not isinstance(argument, Tensor) or not all(isinstance(e, IntImm) for e in argument.shape):
        raise TuningError(f"{argument!r}: only tensors with constant shapes can be tuned")
    return argument


def _shape(extents: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(e.value) for e in extents)


def naive_module(args: Sequence[Any]) -> Module:
    """The program that declares ``args``, unscheduled, for the CPU."""
    from tilewright.lower.pipeline import lower

    tensors = [_constant(a) for a in args]
    outputs = [t.op for t in tensors if not isinstance(t.op, PlaceholderOp)]
    return lower(create_schedule(outputs), tensors, "llvm", "reference")


def _by_declaration(
    tensors: Sequence[Tensor], filled: Sequence[np.ndarray | None]
) -> list[np.ndarray]:
    return _run_naive(naive_module(tensors), list(filled))


def _run_naive(module: Module, filled: list[np.ndarray | None]) -> list[np.ndarray]:
    from tilewright.runtime.build import build
    from tilewright.target import Target

    kernel = build(module, Target.parse("llvm"))
    arrays, outputs = [], []
    for param, values in zip(module.params, filled, strict=True):
        assert isinstance(param, Buffer)
        known = values if values is not None else poison(_shape(param.shape), param.dtype)
        made = _upload(known, param.dtype, "cpu")
        arrays.append(made)
        if values is None:
            outputs.append((made, param.dtype))
    kernel(*arrays)
    return [_as_float64(made.numpy(), type) for made, type in outputs]


def make_data_of_module(text: str, path: Path, seed: int) -> None:
    """:func:`make_data` for an unscheduled program, in JSON."""
    from tilewright.runtime.serialize import from_json
    from tilewright.runtime.signature import outputs

    module = from_json(text)
    written = outputs(module)
    rng = np.random.default_rng(seed)
    filled: list[np.ndarray | None] = []
    for k, param in enumerate(module.params):
        if not isinstance(param, Buffer):
            raise TuningError("only tensors with constant shapes can be tuned")
        values = random_values(rng, _shape(param.shape), param.dtype)
        filled.append(None if k in written else values)
    _write(path, filled, _run_naive(module, list(filled)), False)


def _write(
    path: Path, filled: Sequence[np.ndarray | None], wanted: list[np.ndarray], exact: bool
) -> None:
    parts: dict[str, Any] = {f"in{k}": a for k, a in enumerate(filled) if a is not None}
    places = [k for k, a in enumerate(filled) if a is None]
    if len(places) != len(wanted):
        raise TuningError(f"the reference gives {len(wanted)} outputs, there are {len(places)}")
    parts |= {f"out{k}": o for k, o in zip(places, wanted, strict=True)}
    with path.open("wb") as file:
        np.savez(file, exact=np.array(exact), **parts)


# -- values ----------------------------------------------------------------------------------


def random_values(
    rng: np.random.Generator, shape: tuple[int, ...], type: DType
) -> np.ndarray[Any, Any]:
    """Normal floats, small integers; floats that NumPy lacks as their bits."""
    if type.is_float:
        return _in_memory(rng.standard_normal(shape, "float32"), type)
    if type.kind == "bool":
        return rng.integers(0, 2, shape).astype("bool")
    low = -8 if type.kind == "int" else 0
    return rng.integers(low, 8, shape).astype(str(type))


def _in_memory(values: np.ndarray[Any, Any], type: DType) -> np.ndarray[Any, Any]:
    return np.asarray(to_bits(values, type)) if is_narrow(type) else values.astype(str(type))


def poison(shape: tuple[int, ...], type: DType) -> np.ndarray[Any, Any]:
    """What an output holds before it is written; floats that NumPy lacks as their bits."""
    if type.is_float:
        return _in_memory(np.full(shape, np.nan, "float32"), type)
    if type.kind == "bool":
        return np.zeros(shape, "bool")
    return np.full(shape, 0x5A, "uint8").astype(str(type))


def _as_float64(values: np.ndarray[Any, Any], type: DType) -> np.ndarray[Any, Any]:
    return from_storage(values, type).astype("float64")


def _upload(values: np.ndarray[Any, Any], type: DType, device: str) -> NDArray:
    return array(values, device, str(type))


# -- checking and timing -----------------------------------------------------------------------


def check_and_time(
    kernel: Kernel, path: Path, number: int, repeat: int, min_repeat_ms: float
) -> list[float]:
    """Seconds a run, ``repeat`` times; each over ``number`` runs, or as many more as last
    ``min_repeat_ms``.

    Raises :class:`WrongAnswer`, before and after timing.
    """
    device = {"cuda": "cuda:0", "opencl": "opencl:0"}.get(kernel.target.kind, "cpu")
    with np.load(path, allow_pickle=False) as found:
        data = {name: found[name] for name in found.files}
    types = [p.dtype for p in kernel.signature.params if isinstance(p, Buffer)]
    arrays = []
    for k, type in enumerate(types):
        known = data.get(f"in{k}")
        values = poison(data[f"out{k}"].shape, type) if known is None else known
        arrays.append(_upload(values, type, device))
    _check(kernel, arrays, types, data)
    launches = number or 1
    if min_repeat_ms > 0:
        once = min(kernel.time(*arrays, number=1, repeat=2).times)
        wanted = math.ceil(min_repeat_ms * 1e-3 / max(once, 1e-7))
        launches = min(max(launches, wanted), _MOST_LAUNCHES)
    costs = list(kernel.time(*arrays, number=launches, repeat=repeat).times)
    for k, type in enumerate(types):
        if f"out{k}" in data:
            arrays[k].copyfrom(poison(data[f"out{k}"].shape, type))
    _check(kernel, arrays, types, data)
    return costs


def _check(
    kernel: Kernel, arrays: list[NDArray], types: list[DType], data: dict[str, np.ndarray]
) -> None:
    kernel(*arrays)
    params = kernel.signature.params
    for k, (made, type) in enumerate(zip(arrays, types, strict=True)):
        values = made.numpy()
        if f"in{k}" in data:
            if values.tobytes() != data[f"in{k}"].tobytes():
                raise WrongAnswer(f"the input {params[k].name} was written to")
            continue
        exact = data[f"out{k}"]
        off = error_norm(_as_float64(values, type), exact)
        allowed = TOLERANCE.get(str(type), 0.0) * (1.0 if bool(data["exact"]) else _ROUNDED)
        if not off <= allowed:
            unwritten = int(np.isnan(_as_float64(values, type)).sum())
            more = f"; {unwritten} elements are NaN or were not written" if unwritten else ""
            raise WrongAnswer(
                f"{params[k].name} has a relative error of {off:.3g}, allowed is {allowed:.3g}"
                f"{more}"
            )


def error_norm(found: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> float:
    """The norm of the difference over that of the exact result; NaN where ``found`` has one."""
    scale = float(np.linalg.norm(exact))
    return float(np.linalg.norm(found - exact)) / (scale or 1.0)
