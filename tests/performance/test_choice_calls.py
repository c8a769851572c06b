"""How many functions a choice without measuring calls, which is what it costs: times are the
machine's and who else is on it, these numbers are not."""

from __future__ import annotations

import pytest
from tests.support.benchmarks import benchmark

from tilewright.select import ProfileCache, choice, choose, knn
from tilewright.topi import Conv
from tilewright.topi.operators import Gemm

#: Problems that are drawn: those that the benchmark begins with.
COUNT = 40
#: Those whose choice cost most, of 2,000 that were drawn.
WORST = (
    Conv(batch=2, channels=8, height=144, width=144, kernel_h=7, kernel_w=7, padding=3,
         dtype="bfloat16", pass_="dgrad"),
    Conv(batch=32, channels=48, height=144, width=144, kernel_h=11, kernel_w=11, padding=5,
         dtype="float16"),
    Conv(batch=2, channels=248, height=8, width=40, kernel_h=33, kernel_w=5, padding=(16, 2),
         dtype="float16", pass_="dgrad"),
    Conv(batch=64, channels=640, height=16, width=16, kernel_h=3, kernel_w=3, padding=1, groups=1,
         multiplier=488, operator="conv2d", dtype="bfloat16", pass_="dgrad"),
    Conv(batch=1, channels=256, height=14, width=14, kernel_h=3, kernel_w=3, padding=1, groups=1,
         multiplier=256, operator="conv2d", dtype="float16", layout="NHWC"),
    Gemm(m=4096, n=4096, k=4096, dtype="float16"),
)  # fmt: skip


@pytest.mark.parametrize("target", benchmark("choice_latency").TARGETS)
def test_a_choice_without_measuring_makes_few_calls(target, monkeypatch):
    bench = benchmark("choice_latency")
    monkeypatch.setattr(knn, "own", lambda kind: ())
    monkeypatch.setattr(choice, "_cache", ProfileCache)
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    problems = [*WORST, *bench.problems(COUNT, seed=0)]
    for p in problems:  # what a process does once
        choose(p, target)
    calls = {str(p): bench.calls_of(p, target) for p in problems}
    most = max(calls, key=lambda name: calls[name])
    assert calls[most] <= bench.MOST_CALLS, most
