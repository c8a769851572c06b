"""Every depthwise convolution and gradient agrees with NumPy in float64."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from tests.support.depthwise import (
    TOLERANCE,
    poison,
    problems,
    random_inputs,
    reference,
    relative_error,
)

import tilewright
from tilewright import te
from tilewright.topi import Conv
from tilewright.topi.declare import declare


@settings(max_examples=max(10, settings().max_examples // 2))
@given(problems())
def test_a_declaration_computes_its_problem(p):
    found = declare(p)
    assert {n: tuple(map(int, t.shape)) for n, t in found.inputs.items()} == p.shapes()
    kernel = tilewright.build(te.create_schedule(found.output.op), found.args)
    arrays, out = random_inputs(p, p.shapes()), poison(p)
    kernel(*arrays.values(), out)
    assert relative_error(out, reference(p, arrays)) < TOLERANCE[p.dtype]


def test_the_batch_may_be_left_to_the_call():
    p = Conv.parse("5x3x7x6", "3x2x3x3", padding=1, stride=2, epilogue="bias+relu")
    for pass_ in ("forward", "dgrad", "wgrad"):
        epilogue = "" if pass_ == "wgrad" else "bias+relu"
        p = p.replace(pass_=pass_, epilogue=epilogue)
        found = declare(p, batch=te.var("n"))
        kernel = tilewright.build(te.create_schedule(found.output.op), found.args)
        for q in (p, p.replace(batch=2)):
            arrays, out = random_inputs(q, q.shapes()), poison(q)
            kernel(*arrays.values(), out)
            assert relative_error(out, reference(q, arrays)) < TOLERANCE["float32"]


def test_small_integers_are_summed_exactly():
    p = Conv.parse("2x4x9x8", "4x1x3x3", padding=1, dilation=2, stride=(1, 2))
    for pass_ in ("forward", "dgrad", "wgrad"):
        for layout in ("NCHW", "NHWC"):
            q = p.replace(pass_=pass_, layout=layout)
            rng = np.random.default_rng(1)
            shapes = q.shapes()
            arrays = {n: rng.integers(-8, 9, s).astype("float32") for n, s in shapes.items()}
            found, out = declare(q), poison(q)
            tilewright.build(te.create_schedule(found.output.op), found.args)(*arrays.values(), out)
            np.testing.assert_array_equal(out, reference(q, arrays))
