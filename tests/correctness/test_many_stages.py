"""Chains of hundreds of stages compile, however they are scheduled.

They are compiled where the stack is 200 deep, under Python's limit of 1000.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.codegen.cuda import generate
from tilewright.lower.pipeline import lower
from tilewright.runtime.serialize import from_json, to_json

N = 64
STAGES = 500
A = np.random.default_rng(0).uniform(0.5, 1.5, N).astype("float32")


def chain(count: int) -> tuple[Any, list[Any]]:
    """B0 = A + 1, B1 = B0 + 1, and so on."""
    a = te.placeholder((N,), name="A")
    made: list[Any] = []
    for k in range(count):
        last = made[-1] if made else a
        made.append(te.compute((N,), lambda i, t=last: t[i] + 1.0, name=f"B{k}"))
    return a, made


def plain(s: Any, stages: list[Any], gpu: bool) -> None:
    for stage in stages if gpu else ():
        s[stage].bind(stage.op.axis[0], te.thread_axis("threadIdx.x"))


def inlined(s: Any, stages: list[Any], gpu: bool) -> None:
    for stage in stages[:-1]:
        s[stage].compute_inline()
    plain(s, stages[-1:], gpu)


def attached(s: Any, stages: list[Any], gpu: bool) -> None:
    axis = stages[-1].op.axis[0]
    for stage in stages[:-1]:
        s[stage].compute_at(s[stages[-1]], axis)
    plain(s, stages[-1:], gpu)


def nested(s: Any, stages: list[Any], gpu: bool) -> None:
    """Each computed in the loop of the next, but those far ahead."""
    for stage in stages[:-250]:
        s[stage].compute_inline()
    for stage, reader in pairwise(stages[-250:]):
        s[stage].compute_at(s[reader], reader.op.axis[0])
    plain(s, stages[-1:], gpu)


SCHEDULES = [plain, inlined, attached, nested]


def at_depth(depth: int, work: Callable[[], Any]) -> Any:
    """What ``work`` returns when it is called so deep in the stack."""
    return work() if depth == 0 else at_depth(depth - 1, work)


def scheduled(how: Any, count: int, gpu: bool) -> tuple[Any, list[Any]]:
    a, stages = chain(count)
    s = te.create_schedule(stages[-1].op)
    how(s, stages, gpu)
    return s, [a, stages[-1]]


@pytest.mark.usefixtures("plain_code")
@pytest.mark.parametrize("how", SCHEDULES, ids=lambda how: how.__name__)
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_a_chain_of_stages_computes_what_it_says(how: Any, target: str) -> None:
    assert sys.getrecursionlimit() <= 1000
    count = STAGES if target == "llvm" else 120
    gpu = target != "llvm"
    kernel = at_depth(200, lambda: tilewright.build(*scheduled(how, count, gpu), target=target))
    b = np.zeros(N, "float32")
    kernel(A, b)
    np.testing.assert_allclose(b, A + count, rtol=1e-5)


@pytest.mark.parametrize("how", SCHEDULES, ids=lambda how: how.__name__)
def test_a_chain_of_stages_has_source_and_text_and_goes_through_a_file(how: Any) -> None:
    def made() -> tuple[str, str, str]:
        module = lower(*scheduled(how, 300, True), "cuda")
        text = to_json(module)
        return generate(module, "sm_80").text, repr(module.funcs[0]), to_json(from_json(text))

    source, text, again = at_depth(200, made)
    assert "__global__" in source
    assert "B[threadIdx_x]" in text or "B" in text
    assert again == to_json(from_json(again))
