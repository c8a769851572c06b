"""Numbers in the 10 bits of mantissa that tensor cores take of a float32."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.ir.errors import LanguageError

FUNCTIONS = {
    "round_tf32": lambda bits: (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000),
    "truncate_tf32": lambda bits: bits & np.uint32(0xFFFFE000),
}


def samples() -> np.ndarray:
    """Random numbers of every magnitude, those halfway between two of TF32, and the ends."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0x00800000, 0x7F000000, 4096, dtype=np.uint32)
    halfway = bits[:512] & np.uint32(0xFFFFE000) | np.uint32(0x1000)
    beside = np.concatenate([halfway - np.uint32(1), halfway + np.uint32(1)])
    carry = np.array([0x3FFFF000, 0x3FFFEFFF, 0x3FFFFFFF, 0x40000000, 0x3F800001], np.uint32)
    found = np.concatenate([bits, halfway, beside, carry]).view("float32")
    return np.concatenate([found, -found, np.array([0.0, np.inf, -np.inf, 1.0], "float32")])


def applied(name: str, x: np.ndarray, target: str) -> np.ndarray:
    A = te.placeholder(x.shape, name="A")
    B = te.compute(x.shape, lambda i: getattr(te, name)(A[i]), name="B")
    s = te.create_schedule(B.op)
    if target != "llvm":
        block, thread = s[B].split(B.op.axis[0], 64)
        s[B].bind(block, te.thread_axis("blockIdx.x"))
        s[B].bind(thread, te.thread_axis("threadIdx.x"))
    else:
        s[B].vectorize(s[B].split(B.op.axis[0], 8)[1])
    out = np.empty_like(x)
    kernel = tilewright.build(s, [A, B], target)
    if target == "cuda":
        there = [tilewright.array(v, "cuda") for v in (x, out)]
        kernel(*there)
        return np.asarray(there[1].numpy())
    kernel(x, out)
    return out


@pytest.mark.parametrize(
    "target", ["llvm", "sim", pytest.param("cuda", marks=pytest.mark.needs_cuda)]
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_target_keeps_the_same_bits(name: str, target: str) -> None:
    x = samples()
    found = applied(name, x, target)
    np.testing.assert_array_equal(found.view("uint32"), FUNCTIONS[name](x.view("uint32")))


def test_two_of_them_are_a_float32() -> None:
    x = np.random.default_rng(1).standard_normal(4096).astype("float32")
    large = applied("round_tf32", x, "sim")
    small = applied("truncate_tf32", x - large, "sim")
    assert (np.abs(large.astype("float64") + small - x) <= 2.0**-23 * np.abs(x)).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_types_are_refused(name: str) -> None:
    A = te.placeholder((4,), "float16", name="A")
    with pytest.raises(LanguageError, match=f"{name} is of float32, not of float16: cast it first"):
        getattr(te, name)(A[0])
