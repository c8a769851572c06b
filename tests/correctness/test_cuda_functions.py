"""Activations in CUDA: few instructions, and as close to float64 as those of other targets."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from tests.support import cuda_on_cpu
from tests.support.depthwise import array_type, decode

import tilewright
from tilewright import te
from tilewright.runtime import ndarray
from tilewright.topi.elementwise import elementwise
from tilewright.topi.epilogue import STEPS, Step
from tilewright.topi.nn.images import Images
from tilewright.topi.nn.steps import apply_step

CUDA, ON_A_CPU = "cuda -arch=sm_90a", "cuda's text on a CPU"
#: What the instructions for 2**x and 1/x may be wrong by (PTX ISA), which are exact on a CPU.
INSTRUCTIONS = 2**-22 + 2**-23
LANES, THREADS = 4, 32
#: SiLU of sums that are what its exponent takes, and those sums over their arguments.
SCALED, UNIT = "silu of its exponent", -math.log(2)
#: GELU's derivative, as PyTorch writes it.
SLOPE, DENSITY = "slope of gelu", (2 * math.pi) ** -0.5


def _schedule(name: str, dtype: str, size: int, gpu: bool) -> tuple[te.Schedule, list[te.Tensor]]:
    """A function of numbers in float32, which are rounded to ``dtype``, four a thread."""
    x = te.placeholder((1, 1, size), "float32", name="x")
    if name in STEPS:
        y = apply_step(Step(name), x, Images("NCW"), {})
    elif name == SCALED:
        y = apply_step(Step("silu"), x, Images("NCW"), {}, UNIT)
    elif name == SLOPE:
        y = te.compute(
            x.shape,
            lambda *i: (
                (te.erf(x[i] * math.sqrt(0.5)) + 1) * 0.5
                + x[i] * (te.exp(x[i] * x[i] * -0.5) * DENSITY)
            ),
        )
    else:
        y = elementwise(x, getattr(te, name), name)
    if dtype != "float32":
        y = te.compute(y.shape, lambda *i, of=y: of[i].astype(dtype), name="y")
    s = te.create_schedule(y.op)
    for stage in s.stages:
        if stage.op.axis and stage.op is not y.op:
            stage.compute_inline()
    out = s[y]
    rest, lane = out.split(out.op.axis[2], factor=LANES)
    out.vectorize(lane)
    if gpu:
        block, thread = out.split(rest, factor=THREADS)
        out.bind(block, te.thread_axis("blockIdx.x"))
        out.bind(thread, te.thread_axis("threadIdx.x"))
    return s, [x, y]


ENDS = np.resize([np.inf, -np.inf, np.nan, 0, 3e38, -3e38, 1e-40, -1e-40, -200, 200], 128)


def _samples() -> np.ndarray:
    """From -90 to 90, denser where results of 16 bits are not 0 and about 0, and both ends."""
    rng = np.random.default_rng(0)
    near = rng.standard_normal(2048) * 10.0 ** rng.uniform(-30, 0, 2048)
    even = [np.linspace(-90, 90, 4096), np.linspace(-22, 0, 2048)]
    found = np.concatenate([*even, near, ENDS])
    return found.astype("float32")


@functools.cache
def _results(name: str, dtype: str, target: str) -> tuple[np.ndarray, np.ndarray]:
    """Samples, and what a kernel makes of them, in float64, the ends last."""
    x = _samples()
    y = np.zeros(x.size, array_type(dtype))
    given = [x.reshape(1, 1, -1), y.reshape(1, 1, -1)]
    s, args = _schedule(name, dtype, x.size, target != "llvm")
    with np.errstate(all="ignore"):
        if target == ON_A_CPU:
            given = [cuda_on_cpu.aligned(a) for a in given]
            module = tilewright.build(s, args, CUDA).module
            with TemporaryDirectory() as folder:
                assert cuda_on_cpu.run(module, given, {}, Path(folder)) == 0
        elif target == "cuda":
            types = ("float32", dtype)
            there = [ndarray.array(a, target, t) for a, t in zip(given, types, strict=True)]
            tilewright.build(s, args, target)(*there)
            given[1] = there[1].numpy().view(y.dtype)
        else:
            tilewright.build(s, args, target)(*given)
    return x.astype("float64"), decode(given[1]).ravel()


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(x.clip(max=0)) / (1 + np.exp(-abs(x)))


_erfc = np.vectorize(math.erfc, otypes=["float64"])

#: By name: in float64; the smallest result that has to be right, where a GPU's exponentials still
#: are normal; and by how much a result is more wrong, relatively, the larger the square of x:
#: GELU is given x / sqrt(2), of which a rounding changes the exponent.
FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float]] = {
    "sigmoid": (_sigmoid, 2.0**-126, 0),
    "silu": (lambda x: x * _sigmoid(x), 88 * 2.0**-126, 0),
    "erfc": (_erfc, 2.0**-126, 0),
    "exp2": (lambda x: np.where(x < 128, np.exp2(x), x + np.inf), 2.0**-126, 0),
    "gelu": (lambda x: x * 0.5 * _erfc(x * -math.sqrt(0.5)), 2.0**-120, 2**-23),
}
#: Types, their digits, and the smallest number of each.
SIXTEEN = [("float16", 11, 2.0**-24), ("bfloat16", 8, 2.0**-133)]
TARGETS = [
    "llvm",
    pytest.param("opencl", marks=pytest.mark.needs_opencl),
    "sim",
    pytest.param("cuda", marks=pytest.mark.needs_cuda),
    pytest.param(
        ON_A_CPU,
        marks=[
            pytest.mark.needs_nvrtc,
            pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler"),
        ],
    ),
]


every_target = pytest.mark.parametrize("target", TARGETS)
every_function = pytest.mark.parametrize("name", FUNCTIONS)


@every_target
@every_function
def test_float32_is_within_a_millionth(name: str, target: str) -> None:
    x, found = (a[: -len(ENDS)] for a in _results(name, "float32", target))
    exact, least, steep = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        truth = exact(x)
        normal = np.isfinite(truth) & (abs(truth) > least)
        error = (abs(found - truth) / abs(truth))[normal]
    allowed = 1e-6 - (INSTRUCTIONS if target == ON_A_CPU else 0) + steep * x[normal] ** 2
    assert normal.mean() > 0.5
    assert (error / allowed).max() <= 1, x[normal][(error / allowed).argmax()]
    assert np.all(abs(found[abs(truth) <= least]) <= 1.001 * least)


@every_target
@every_function
def test_ends_of_the_range(name: str, target: str) -> None:
    """Where x * 0 is no number, neither is the result."""
    x, found = (a[-len(ENDS) :] for a in _results(name, "float32", target))
    with np.errstate(all="ignore"):
        wanted = FUNCTIONS[name][0](x)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-37)


@every_target
@pytest.mark.parametrize("name", ["silu", "gelu"])
@pytest.mark.parametrize(("dtype", "digits", "smallest"), SIXTEEN)
def test_what_is_rounded_to_16_bits_is_right_to_a_quarter_of_that(
    name: str, dtype: str, digits: int, smallest: float, target: str
) -> None:
    x, found = _results(name, dtype, target)
    _check_16_bits(name, x, found, dtype, digits, smallest)


@every_target
def test_silu_of_sums_that_a_filter_has_scaled_is_as_right(target: str) -> None:
    sums, found = _results(SCALED, "float16", target)
    _check_16_bits("silu", sums * UNIT, found, *SIXTEEN[0])


@every_target
@pytest.mark.parametrize(("dtype", "digits", "smallest"), SIXTEEN)
def test_gelus_derivative_is_as_right_or_within_what_float32_loses_of_its_parts(
    dtype: str, digits: int, smallest: float, target: str
) -> None:
    x, found = (a[: -len(ENDS)] for a in _results(SLOPE, dtype, target))
    truth = 0.5 * _erfc(-math.sqrt(0.5) * x) + DENSITY * x * np.exp(-0.5 * x**2)
    unit = np.maximum(2.0 ** (np.frexp(truth)[1] - digits), smallest)
    assert np.all(abs(found - truth) <= 0.5 * 1.25 * unit + 2.0**-23)


def _check_16_bits(
    name: str, x: np.ndarray, found: np.ndarray, dtype: str, digits: int, smallest: float
) -> None:
    exact, least, _ = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        truth = exact(x)
        unit = np.maximum(2.0 ** (np.frexp(truth)[1] - digits), smallest)
        error = abs(found - truth) / unit
    large = abs(truth) >= 65504 if dtype == "float16" else np.isinf(truth)
    normal = np.isfinite(truth) & ~large & (abs(truth) > least)
    assert error[normal].max() <= 0.5 * 1.25
    assert np.all(abs(found[abs(truth) <= least]) <= max(1.01 * least, smallest))
    assert np.array_equal(found[large], np.copysign(np.inf, truth[large]))
    assert np.array_equal(np.isnan(found), np.isnan(truth))


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    ("name", "dtype", "most"),
    [
        ("silu", "float32", 7),
        ("silu", "float16", 5),
        (SCALED, "float16", 4),
        ("gelu", "float32", 26),
        ("gelu", "float16", 11),
        ("gelu", "bfloat16", 11),
        (SLOPE, "float16", 19),
    ],
)
def test_an_activation_is_few_instructions_and_no_branch(name: str, dtype: str, most: int) -> None:
    def instructions(name: str) -> Counter[str]:
        s, args = _schedule(name, dtype, LANES * THREADS, True)
        text = tilewright.build(s, args, CUDA).assembly
        found = re.findall(r"^\s*/\*\w{4,}\*/\s+(?:@!?U?P\w+ +)?([A-Z]\w*)", text, re.M)
        shared = ("NOP", "F2FP", "FMNMX", "HFMA2")  # the last puts a constant in a register
        return Counter(op for op in found if op not in shared)

    took, without = instructions(name), instructions("relu")
    assert took["MUFU"] == (1 if name == "gelu" and dtype != "float32" else 2) * LANES
    assert took["BRA"] == 1  # with which every kernel ends
    assert not took["CALL"]
    assert took.total() - without.total() <= most * LANES
