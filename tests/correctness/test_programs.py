"""Compositions of functions are problems as any other: with names, records, and kernels on every
target."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.errors import ProblemError
from tilewright.select import choose
from tilewright.select.algorithm import Scheduled
from tilewright.target import Target
from tilewright.topi.operators import Program
from tilewright.topi.problem import Problem
from tilewright.topi.templates import candidates

P = Program(
    operands=("float32[4x6]", "float32[6]"),
    body=("add(a0, a1)", "relu(t0)", "sum(t1, axis=(1,), keepdims=True)", "multiply(t2, 0.5)"),
)


def test_a_program_is_written_and_read_back():
    assert Problem.from_json(P.to_json()) == P
    assert P.result == ((4, 1), "float32")
    assert P.inputs() == {"a0": ((4, 6), "float32"), "a1": ((6,), "float32")}
    assert P.key == Problem.from_dict(P.to_short_dict()).key
    assert P.key.startswith("program-add-relu-sum-multiply-")
    other = P.replace(body=(*P.body[:-1], "multiply(t2, 0.25)"))
    assert other.key != P.key
    assert str(P).endswith("t3 = multiply(t2, 0.5)")


@pytest.mark.parametrize("target", [
    "llvm", "sim", pytest.param("opencl", marks=pytest.mark.needs_opencl),
    pytest.param("cuda", marks=pytest.mark.needs_cuda),
])  # fmt: skip
def test_a_program_has_a_kernel_on_every_target(target):
    from tilewright.runtime.ndarray import array, empty

    machine = Target.parse(target)
    device = {"cuda": "cuda:0", "opencl": "opencl:0"}.get(target, "cpu")
    a = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
    b = np.arange(6, dtype="float32")
    out = empty((4, 1), "float32", device)
    choose(P, machine).build()(array(a, device), array(b, device), out)
    wanted = np.maximum(a + b, 0).sum(1, keepdims=True) * 0.5
    assert np.abs(out.numpy() - wanted).max() < 1e-5


@pytest.mark.parametrize(("operands", "body", "match"), [
    (("float32[2]",), ("nothing(a0)",), "there is no function 'nothing'"),
    (("float32[2]",), ("relu(a1)",), "there is no tensor a1"),
    (("float32[2]",), ("relu(t0)",), "there is no tensor t0"),
    (("float32[2]",), ("relu",), "a call is written like"),
    (("float32[2]",), ("relu(a0, **{})",), "relu"),
    (("float32[2]",), ("__import__('os')",), "there is no function"),
    (("float32[2]",), ("relu(a0).x()",), "a call is written like"),
    (("floating[2]",), ("relu(a0)",), "an operand is written like"),
    (("float32[2]", "float32[3]"), ("add(a0, a1)",), "do not fit one another"),
    (("float32[2]",), ("sum(a0, axis=(4,))",), "axis 4"),
    (("float32[2]",), ("transpose(a0, axes=(1,))",), "do not permute"),
    (("float32[2]",), (), "at least one call"),
])  # fmt: skip
def test_what_is_no_program_is_refused(operands, body, match):
    with pytest.raises(ProblemError, match=match):
        Program(operands=operands, body=body)


def test_a_program_has_no_epilogue():
    with pytest.raises(ProblemError, match="has no epilogue"):
        P.replace(epilogue=("relu",))


@pytest.mark.parametrize("width", [16, 19, 40])
@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (("transpose(a0, axes=(0, 2, 3, 1))",), lambda x: x),
        (("quantize(a0, 0.5, 3, dtype='uint8')", "transpose(t0, axes=(0, 2, 3, 1))"),
         lambda x: np.clip(np.rint(x / 0.5) + 3, 0, 255)),
    ],
)  # fmt: skip
def test_images_of_few_channels_are_turned_by_vectors_of_pixels(body, wanted, width):
    p = Program(operands=(f"float32[2x3x5x{width}]",), body=body)
    (template, config), *_ = candidates(p, "llvm")
    assert (config.columns, config.vectors) == (3, 1)
    x = np.random.default_rng(0).uniform(-2, 9, (2, 3, 5, width)).astype("float32")
    y = np.full(p.result.shape, 99, p.result.dtype)
    Scheduled(template).kernel(p, config, Target.parse("llvm"))(x, y)
    np.testing.assert_array_equal(y, wanted(x).transpose(0, 2, 3, 1))
