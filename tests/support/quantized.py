"""Convolutions and products of integers by NumPy, exactly; and problems to try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.support.dense import convolution, convolutions, product, products, volumes

from tilewright.select.algorithm import Scheduled
from tilewright.select.registry import algorithms
from tilewright.target import Target
from tilewright.topi import Conv, Gemm
from tilewright.topi.epilogue import Step
from tilewright.topi.problem import Problem

#: Steps whose float32 arithmetic is the same everywhere.
EXACT = (
    "relu", "relu6", "leaky_relu(0.1)", "hswish", "hsigmoid", "clamp(-3,40)", "bias",
    "scale_shift", "residual", "quantized_residual(0.375,3)", "quantized_residual(0.1)",
)  # fmt: skip


def reference(p: Problem, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The result of a problem: sums in 64 bits, then one operation of float32 after another."""
    if isinstance(p, Conv) and (p.block or p.is_relaid):
        plain: Any = p.plain()
        shapes, lie = plain.shapes(), {"residual": p.result_layout, "data": p.layout}
        lie |= {} if p.is_depthwise else {"filter": p.layout}  # which lie in one way
        given = {
            n: _channels_first(a, lie.get(n, "")).reshape(shapes[n]) for n, a in arrays.items()
        }
        found: np.ndarray = p.lay("result", reference(plain, given))
        return found
    sums = product if isinstance(p, Gemm) else convolution
    bare: Any = p.replace(epilogue=())
    y: np.ndarray = sums(bare, arrays).astype("int64").astype("int32")
    channel = -1 if isinstance(p, Gemm) or p.channels_last else 1
    shape = [1] * y.ndim
    shape[channel] = -1
    for step in p.epilogue:
        y = apply(step, y, {n: _wide(arrays[n], s, shape) for n, s in step.tensors}, p.result_dtype)
    return y


def _channels_first(values: np.ndarray, layout: str) -> np.ndarray:
    """Of channels in blocks, or last."""
    if values.ndim == 5:
        return np.moveaxis(values, -1, 2)
    return np.moveaxis(values, -1, 1) if layout == "NHWC" else values


def _wide(values: np.ndarray, place: str, shape: list[int]) -> np.ndarray:
    return values if place == "output" else values.reshape(shape)


def apply(step: Step, y: np.ndarray, read: Mapping[str, np.ndarray], dtype: str) -> np.ndarray:
    """One step, each operation rounded by itself."""
    f, one, zero = np.float32, np.float32(1), np.float32(0)
    values = [f(v) for v in step.values]
    sigmoid = np.clip(y.astype(f) + f(3), zero, f(6)) * f(1 / 6)
    with np.errstate(over="ignore"):
        match step.name:
            case "bias":
                return y + read["bias"]
            case "dequantize":
                return y.astype(f) * read["sum_scale"]
            case "scale_shift":
                return y * read["scale"] + read["shift"]
            case "residual":
                return y + read["residual"]
            case "quantized_residual":
                return y + values[0] * (read["residual"].astype(f) - values[1])
            case "relu":
                return np.maximum(y, zero)
            case "relu6":
                return np.clip(y, zero, f(6))
            case "leaky_relu":
                return np.where(y > 0, y, y * values[0])
            case "hswish":
                return y * sigmoid
            case "hsigmoid":
                return sigmoid
            case "clamp":
                return np.clip(y, *values)
            case "silu":
                return y * (one / (one + np.exp(-y)))
            case "quantize":
                limits = np.iinfo(dtype)
                rounded = np.rint(y * f(1 / step.values[0])).astype("float64") + step.values[1]
                return np.clip(rounded, limits.min, limits.max).astype(dtype)
    raise AssertionError(step)


def inputs(p: Problem, seed: int) -> dict[str, np.ndarray]:
    """Integers over the whole range, with both ends; float32 of any size, exact ties among them."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, (shape, dtype) in p.inputs().items():
        if dtype == "int32":
            made[name] = rng.integers(-5000, 5000, shape, dtype)
        elif dtype == "float32":
            near = rng.standard_normal(shape, "float32")
            made[name] = np.exp2(np.round(2 * near - 5)) if name == "sum_scale" else near
            if name == "sum_scale" and seed % 2:
                made[name] *= near + 1
        else:
            limits = np.iinfo(dtype)
            ends = np.array([limits.min, limits.max], dtype)
            some = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
            made[name] = np.where(rng.random(shape) < 0.1, rng.choice(ends, shape), some)
    return made


@st.composite
def chains(draw: st.DrawFn) -> list[str]:
    """Epilogues of integer sums."""
    steps = ["bias"] if draw(st.booleans()) else []
    if not draw(st.integers(0, 3)):
        return steps
    more = draw(st.lists(st.sampled_from(EXACT), max_size=3, unique_by=lambda s: s.split("(")[0]))
    if steps:
        more = [s for s in more if s != "bias"]
    residuals = [s for s in more if "residual" in s]
    steps += ["dequantize", *(s for s in more if s not in residuals[1:])]
    last = draw(st.sampled_from(["", "quantize(1)", "quantize(0.25,5)", "quantize(0.1,100)"]))
    return [*steps, last] if last else steps


@st.composite
def quantized(draw: st.DrawFn) -> Problem:
    """Small problems of integers, of any operator."""
    fixed: dict[str, Any] = dict(
        pass_="forward", dtype=draw(st.sampled_from(["int8", "uint8"])), epilogue=draw(chains())
    )
    kind = draw(st.sampled_from(["dense", "dense", "depthwise", "volume", "gemm"]))
    if kind == "gemm":
        return draw(products(**fixed))
    if kind == "volume":
        return draw(volumes(**fixed))
    p = draw(convolutions(**fixed))
    p = p.replace(groups=p.channels) if kind == "depthwise" else p
    if any(step.name == "quantize" for step in p.epilogue):
        p = p.replace(out_dtype=draw(st.sampled_from(["", "int8", "uint8"])))
    blocks, made = (
        draw(st.sampled_from([0, 0, 4, 32])) if p.rank == 2 else 0 for _ in range(2)
    )  # fmt: skip
    if p.rank != 2:
        return p
    wide = max(blocks, made)
    layout = {"out_layout": f"NCHW{made}" if made else draw(st.sampled_from(["", "NHWC", "NCHW"]))}
    if blocks:
        layout["layout"] = f"NCHW{blocks}"
    if not wide:
        return p.replace(**layout)
    if p.is_depthwise:
        return p.replace(channels=wide, multiplier=1, groups=0, **layout)
    return p.replace(channels=p.groups * wide, multiplier=wide, **layout)


def result(kernel: Any, p: Problem, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """What a kernel computes."""
    shape, dtype = p.result
    filled = np.full(shape, 0x5A, dtype)
    kernel(*arrays.values(), filled)
    return filled


def check(kernel: Any, p: Problem, seed: int = 0) -> None:
    """It computes the reference, bit by bit."""
    arrays = inputs(p, seed)
    np.testing.assert_array_equal(result(kernel, p, arrays), reference(p, arrays), str(p))


def check_any(data: st.DataObject, target: str) -> None:
    """A candidate of any algorithm computes a problem."""
    machine, p = Target.parse(target), data.draw(quantized())
    able = [a for a in algorithms() if isinstance(a, Scheduled) and not a.can(p, machine)]
    assert able, f"there is no schedule for {p}"
    found = data.draw(st.sampled_from(able))
    config = data.draw(st.sampled_from(found.candidates(p, machine)))
    check(found.kernel(p, config, machine), p, data.draw(st.integers(0, 9)))
