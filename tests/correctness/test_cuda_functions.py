"""Activations in CUDA: few instructions, and as close to float64 as those of other targets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support import cuda_on_cpu

import tilewright
from tilewright import te
from tilewright.topi.epilogue import Step
from tilewright.topi.nn.images import Images
from tilewright.topi.nn.steps import apply_step

CUDA = "cuda -arch=sm_90a"
#: What the instructions for 2**x and 1/x may be wrong by (PTX ISA), which are exact on a CPU.
INSTRUCTIONS = 2**-22 + 2**-23
LANES, THREADS = 4, 32


def _schedule(name: str, dtype: str, size: int, gpu: bool) -> tuple[te.Schedule, list[te.Tensor]]:
    """An activation of numbers in float32, which are rounded to ``dtype``, four a thread."""
    x = te.placeholder((1, 1, size), "float32", name="x")
    y = apply_step(Step(name), x, Images("NCW"), {})
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


def _samples() -> np.ndarray:
    """From -90 to 90, denser about 0, down to where squares are no longer normal."""
    rng = np.random.default_rng(0)
    near = rng.standard_normal(4000) * 10.0 ** rng.uniform(-30, 0, 4000)
    found = np.concatenate([np.linspace(-90, 90, 8192), near, -np.exp(np.linspace(-3, 4.49, 4192))])
    return found.astype(np.float32)


def _run(name: str, dtype: str, x: np.ndarray, target: str, folder: Path) -> np.ndarray:
    y = np.full(x.size, np.nan, dtype)
    given = [x.reshape(1, 1, -1), y.reshape(1, 1, -1)]
    s, args = _schedule(name, dtype, x.size, target != "llvm")
    if target != "cuda":
        tilewright.build(s, args, target)(*given)
        return given[1].ravel()
    room = np.zeros(x.nbytes * 2 + 64, "uint8")  # arrays start at multiples of 16 bytes
    first = -room.ctypes.data % 16
    for k, a in enumerate(given):
        begin = first + k * (x.nbytes + 16)
        given[k] = room[begin : begin + a.nbytes].view(a.dtype).reshape(a.shape)
        given[k][...] = a
    module = tilewright.build(s, args, CUDA).module
    assert cuda_on_cpu.run(module, given, {}, folder) == 0
    return given[1].ravel()


def _silu(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, x * np.exp(x.clip(max=0)), x) / (1 + np.exp(-abs(x)))


#: By name: in float64, and how small a result may be, above which it is right: a GPU's exponentials
#: are 0 where their reciprocals are not normal.
ACTIVATIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "silu": (_silu, 1.03e-36),
}
TARGETS = [
    "llvm",
    pytest.param("opencl", marks=pytest.mark.needs_opencl),
    "sim",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.needs_nvrtc,
            pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler"),
        ],
    ),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_float32_is_within_a_millionth(name: str, target: str, tmp_path: Path) -> None:
    x = _samples()
    found = _run(name, "float32", x, target, tmp_path)
    exact, least = ACTIVATIONS[name]
    truth = exact(x.astype("float64"))
    normal = abs(truth) > least
    error = abs(found - truth)[normal] / abs(truth)[normal]
    assert normal.mean() > 0.9
    assert error.max() <= 1e-6 - (INSTRUCTIONS if target == "cuda" else 0), x[normal][
        error.argmax()
    ]
    assert np.all(abs(found[~normal]) <= 1.001 * least)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_float16_is_rounded_once(name: str, target: str, tmp_path: Path) -> None:
    x = np.concatenate([_samples(), np.linspace(-22, 0, 4096)]).astype("float32")
    found = _run(name, "float16", x, target, tmp_path).astype("float64")
    truth = ACTIVATIONS[name][0](x.astype("float64"))
    unit = np.spacing(abs(truth).astype("float16")).astype("float64")
    assert (abs(found - truth) / unit).max() <= 0.75


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_what_is_no_number_stays_so(name: str, target: str, dtype: str, tmp_path: Path) -> None:
    x = np.resize(np.array([np.inf, -np.inf, np.nan, 0, 3e38, -3e38, 1e-40, -200], "float32"), 128)
    with np.errstate(all="ignore"):
        found = _run(name, dtype, x, target, tmp_path)
        wanted = x[[0, 2, 2, 3, 4, 3, 6, 3]].astype(dtype)  # -inf times 0 is no number
    assert np.array_equal(found[[0, 1, 2, 3, 4, 5, 7]], wanted[[0, 1, 2, 3, 4, 5, 7]], True)
    assert abs(found[6]) <= x[6]


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    ("name", "dtype", "most"), [("silu", "float32", 7), ("silu", "float16", 5)]
)
def test_an_activation_is_few_instructions_and_no_branch(name: str, dtype: str, most: int) -> None:
    def instructions(name: str) -> Counter[str]:
        s, args = _schedule(name, dtype, LANES * THREADS, True)
        text = tilewright.build(s, args, CUDA).assembly
        return Counter(re.findall(r"^\s*/\*\w{4,}\*/\s+(?:@!?U?P\w+ +)?([A-Z]\w*)", text, re.M))

    took, without = instructions(name), instructions("relu")
    assert took["MUFU"] == 2 * LANES
    assert took["BRA"] == without["BRA"] == 1  # with which every kernel ends
    assert not took["CALL"]
    mine = sum(n for op, n in took.items() if op not in ("NOP", "F2FP", "FMNMX"))
    others = sum(n for op, n in without.items() if op not in ("NOP", "F2FP", "FMNMX"))
    assert mine - others <= most * LANES
