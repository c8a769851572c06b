"""The choice among algorithms: what each policy takes, and what the next process knows."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from tests.support.depthwise import TOLERANCE, problems, random_inputs, reference, relative_error

from tilewright import select
from tilewright.ir.errors import TargetError
from tilewright.select import ProfileCache, SelectError, choose
from tilewright.select.ahead import build_chosen
from tilewright.select.algorithm import Scheduled
from tilewright.select.registry import _registered
from tilewright.target import Target
from tilewright.topi import Conv

SMALL = Conv.parse("1x16x8x8", "16x1x3x3", padding=1)


@settings(max_examples=8)
@given(problems())
def test_a_chosen_algorithm_computes_its_problem(p):
    import numpy as np

    arrays = random_inputs(p, p.shapes())
    out = np.zeros(p.result_shape, next(iter(arrays.values())).dtype)
    choose(p, "llvm").build()(*arrays.values(), out)
    assert relative_error(out, reference(p, arrays)) < TOLERANCE[p.dtype]


@dataclass(frozen=True)
class Fixed:
    """Does everything, in the time that it says."""

    time: float
    name: str = "test.fixed"
    version: str = "1"
    reproducible: bool = False
    vendor: bool = False
    space: int = 0

    def can(self, problem: Conv, target: Target) -> str:
        return ""

    def candidates(self, problem: Conv, target: Target) -> list[Any]:
        return [{}]

    def build(self, problem: Conv, config: Any, target: Target) -> Any:
        return self

    def seconds(self, arrays: Any) -> float:
        return self.time

    def workspace(self, problem: Conv, config: Any, target: Target) -> int:
        return self.space

    def to_values(self, config: Any) -> dict[str, Any]:
        return dict(config)

    def parse(self, values: Any) -> Any:
        return dict(values)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("tilewright.select.choice.MEASURED", 1)
    return ProfileCache(tmp_path / "select.sqlite")


@pytest.fixture
def registered():
    before = dict(_registered)
    yield select.register
    _registered.clear()
    _registered.update(before)


def test_measuring_takes_the_fastest(cache, registered):
    registered(Fixed(1e-12))
    assert choose(SMALL, policy="heuristic", cache=cache).algorithm.name == "cpu.lines"
    assert choose(SMALL, policy="profile", cache=cache).algorithm.name == "test.fixed"
    registered(Fixed(1e3, version="2"))
    assert choose(SMALL, policy="profile", cache=cache).algorithm.name == "cpu.lines"


def test_what_was_measured_is_what_the_heuristic_takes(cache, registered):
    registered(Fixed(1e-12))
    choose(SMALL, policy="profile", cache=cache)
    assert choose(SMALL, cache=cache).algorithm.name == "test.fixed"


def test_the_reproducible_is_taken_where_asked_for(cache, registered):
    registered(Fixed(1e-12))
    choose(SMALL, policy="profile", cache=cache)
    assert choose(SMALL, policy="reproducible", cache=cache).algorithm.reproducible


def test_a_limit_on_workspaces_is_kept(cache, registered):
    registered(Fixed(1e-12, space=1000))
    choose(SMALL, policy="profile", cache=cache)
    for limit, name in ((1000, "test.fixed"), (999, "cpu.lines")):
        chosen = choose(SMALL, workspace_limit=limit, cache=cache)
        assert chosen.algorithm.name == name
    last = SMALL.replace(layout="NHWC", pass_="dgrad", stride=2)
    registered(Fixed(1.0, name="test.fixed", space=10**6))
    with pytest.raises(SelectError, match="workspace"):
        choose(last, workspace_limit=0, cache=cache)


def test_the_next_process_measures_nothing(cache, monkeypatch):
    first = choose(SMALL, policy="profile", cache=cache)
    assert first.seconds is not None
    monkeypatch.setattr(Scheduled, "build", lambda *_: pytest.fail("it was built"))
    again = choose(SMALL, policy="profile", cache=ProfileCache(cache.path))
    assert (again.config, again.seconds) == (first.config, first.seconds)


def test_a_candidate_that_cannot_be_built_loses(cache, registered):
    class Broken(Fixed):
        def build(self, *_: Any) -> Any:
            raise TargetError("no")

    registered(Broken(0.0))
    assert choose(SMALL, policy="profile", cache=cache).algorithm.name == "cpu.lines"


def test_a_damaged_file_is_moved_aside(cache):
    cache.path.write_bytes(b"not a database" * 1000)
    choose(SMALL, policy="profile", cache=cache)
    assert len(list(cache.path.parent.glob("*.damaged-*"))) == 1
    choose(SMALL.replace(batch=2), policy="profile", cache=cache)
    assert ProfileCache(cache.path).get(SMALL.replace(batch=2).key, _place())


def _place() -> str:
    from tilewright.select.choice import machine_of

    return machine_of(Target.parse("llvm"))


def test_a_file_of_a_later_format_is_left_alone(cache):
    with sqlite3.connect(cache.path) as db:
        db.execute("PRAGMA user_version = 99")
    before = cache.path.read_bytes()
    choose(SMALL, policy="profile", cache=cache)
    assert cache.path.read_bytes() == before
    assert choose(SMALL, cache=cache).seconds is not None


def test_entries_that_make_no_sense_do_not_count(cache):
    first = choose(SMALL, policy="profile", cache=cache)
    with sqlite3.connect(cache.path) as db:
        db.execute("UPDATE answers SET results = replace(results, 'rows', 'cows')")
    again = choose(SMALL, cache=ProfileCache(cache.path))
    assert again.seconds is None
    assert again.algorithm == first.algorithm


def test_an_algorithm_that_is_gone_is_chosen_no_more(cache, registered):
    registered(Fixed(1e-12))
    choose(SMALL, policy="profile", cache=cache)
    _registered.clear()
    for policy in select.POLICIES:
        found = choose(SMALL, policy=policy, cache=ProfileCache(cache.path))
        assert found.algorithm.name == "cpu.lines"


def test_the_reason_names_what_each_algorithm_lacks():
    assert select.reason(SMALL, "llvm") == ""
    with pytest.raises(SelectError, match="unknown policy 'best': use heuristic"):
        choose(SMALL, policy="best")


@pytest.mark.needs_torch
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("pass_", ["forward", "dgrad", "wgrad"])
def test_pytorchs_kernel_is_an_algorithm(pass_, layout):
    import numpy as np
    import torch  # noqa: F401

    p = Conv.parse("2x4x7x8", "4x2x3x2", padding=1, stride=2, layout=layout, pass_=pass_)
    vendor = select.find("pytorch")
    assert vendor.can(p, Target.parse("llvm")) == ""
    arrays = random_inputs(p, p.shapes())
    out = np.zeros(p.result_shape, "float32")
    built = vendor.build(p, (), Target.parse("llvm"))
    built(*arrays.values(), out)
    assert relative_error(out, reference(p, arrays)) < TOLERANCE["float32"]
    assert 0 < built.seconds([*arrays.values(), out]) < 1


@pytest.mark.needs_torch
def test_pytorchs_kernel_is_taken_where_it_was_measured_to_be_faster(cache, monkeypatch):
    import torch  # noqa: F401

    monkeypatch.setattr("tilewright.select.vendor.Call.seconds", lambda *_: 1e-12)
    assert choose(SMALL, cache=cache).algorithm.name == "cpu.lines"
    assert choose(SMALL, policy="profile", cache=cache).algorithm.name == "pytorch"
    assert choose(SMALL, policy="reproducible", cache=cache).algorithm.name == "cpu.lines"
    asymmetric = SMALL.replace(padding=(0, 1, 0, 2))
    assert choose(asymmetric, policy="profile", cache=cache).algorithm.name == "pytorch"


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("kernel", [3, 7])
def test_a_gpu_has_an_algorithm_whose_kernel_spills_nothing(kernel):
    p = Conv.parse("8x64x56x56", f"64x1x{kernel}x{kernel}", padding=kernel // 2)
    found = choose(p, "cuda -arch=sm_80").build()
    assert all(r.spills == 0 for r in found.kernel.resources.values())


def test_a_target_without_architecture_is_the_gpu_at_hand(monkeypatch):
    """Without one, no choice knows of tensor cores: networks were once built so."""
    monkeypatch.setattr("tilewright.runtime.cuda.resolve_arch", lambda target: "sm_90a")
    p = Conv.parse((8, 64, 14, 14), (64, 64, 3, 3), padding=1, dtype="float16", layout="NHWC")
    found = choose(p, "cuda")
    assert found.target.arch == "sm_90a"
    assert str(found) == str(choose(p, "cuda -arch=sm_90a"))


@pytest.mark.needs_nvrtc
def test_a_target_without_architecture_is_built_for_the_gpu_at_hand(monkeypatch):
    monkeypatch.setattr("tilewright.runtime.cuda.resolve_arch", lambda target: "sm_90a")
    p = Conv.parse((8, 64, 14, 14), (64, 64, 3, 3), padding=1, dtype="float16", layout="NHWC")
    made = build_chosen(p, Target.parse("cuda"), "heuristic")
    assert made is not None
    assert made[0].program.target.arch == "sm_90a"
