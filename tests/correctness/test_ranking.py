"""Schedules of a CUDA device are ranked for problems that nobody tuned, on any architecture."""

import dataclasses
import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.select import ranking
from tilewright.select.choice import choose
from tilewright.select.cost import DESCRIBED, cost
from tilewright.select.counts import parameters
from tilewright.select.ranking import fitting, model, ranked, slower, unknown
from tilewright.target import Target
from tilewright.target.devices import gpu
from tilewright.topi import Conv
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES, templates

CUDA = Target.parse("cuda -arch=sm_90a")
ARCHES = (
    "sm_70",
    "sm_75",
    "sm_80",
    "sm_86",
    "sm_87",
    "sm_89",
    "sm_90a",
    "sm_100",
    "sm_120",
    "sm_999",
)
SWEEP = Path(__file__).parents[2] / "benchmarks" / "results" / "h200_sweep.json.gz"


def problem(**changes):
    usual = {"batch": 8, "channels": 48, "height": 28, "width": 28, "kernel_h": 3, "kernel_w": 3,
             "padding": 1, "dtype": "float16"}  # fmt: skip
    return Conv(**{**usual, **changes})


STRANGE = [
    problem(),
    problem(layout="NHWC"),
    problem(layout="NHWC", channels=7, multiplier=3, kernel_h=1, kernel_w=5, padding=(0, 2)),
    problem(pass_="wgrad", stride=2),
    problem(pass_="wgrad", layout="NHWC", dtype="float32", kernel_h=31, kernel_w=31, padding=15),
    problem(pass_="dgrad", stride=(2, 1), dilation=2, padding=2),
    problem(pass_="dgrad", layout="NHWC", stride=3, dtype="float64"),
    problem(batch=1, channels=1, height=1, width=1, kernel_h=1, kernel_w=1, padding=0),
    Conv.parse("2x6x200", "6x1x4", padding=(3, 0)),
    Conv.parse("2x6x200", "6x1x4", layout="NWC", pass_="wgrad"),
    problem(epilogue="bias+silu", height=113, width=57),
]


def committed():
    """(problem, {template: (sets, parameters + microseconds + registers)}) of the newest sweep, of
    the templates that are ranked."""
    whole = json.loads(gzip.decompress(SWEEP.read_bytes()))
    newest = {}
    for sweep, given, tables in whole["measured"]:
        found = Problem.from_dict(given)
        if sweep >= newest.get(found, (0, None))[0]:
            known = {t: np.array(rows) for t, rows in tables.items() if t in model()}
            newest[found] = sweep, known
    return {p: tables for p, (_, tables) in newest.items() if tables}


def test_every_template_for_all_cuda_devices_is_ranked():
    """Those for tensor cores come first by a rule of their own, where they are for a problem."""
    for_cuda = {n for n, t in TEMPLATES.items() if t.gpu and (not t.kinds or "cuda" in t.kinds)}
    everywhere = {n for n in for_cuda if not (TEMPLATES[n].arch or TEMPLATES[n].least)}
    everywhere = {n for n in everywhere if "depthwise_conv2d" in TEMPLATES[n].operators}
    assert everywhere <= set(model()) <= set(DESCRIBED) <= for_cuda


def test_first_choices_among_what_was_measured_are_near_the_best():
    """On problems that the fit has seen; benchmarks/fit_ranking.py leaves shapes out in turn."""
    times = []
    for p, tables in list(committed().items())[::5]:
        guessed = slower(p, [(t, rows[:, :-2]) for t, rows in tables.items()], CUDA)
        took = np.concatenate([rows[:, -2] for rows in tables.values()])
        took[took == 0] = np.inf  # it spilled
        times.append(took[guessed.argmin()] / took.min())
    assert len(times) > 40
    assert np.mean(np.array(times) <= 1.2) >= 0.9
    assert np.exp(np.mean(np.log(times))) <= 1.08


@pytest.mark.parametrize("p", STRANGE, ids=str)
def test_every_problem_has_a_ranking_on_every_architecture(p):
    for arch in ARCHES:
        target = Target.parse(f"cuda -arch={arch}")
        found = ranked(p, target)
        assert found
        guesses = [r.slower for r in found]
        assert guesses == sorted(guesses)
        assert np.isfinite(guesses).all()
        assert {r.template.name for r in found} <= {t.name for t in templates(p, target)}
        assert all(r.config in r.template.candidates(p, target) for r in found[:3])


def test_what_does_not_fit_the_target_is_left_out():
    p = problem(layout="NHWC")
    template = TEMPLATES["gpu.pixels"]
    small = dataclasses.replace(CUDA, limits=dataclasses.replace(CUDA.limits, shared_memory=600))
    configs = template.candidates(p, CUDA)
    fits = fitting(p, template, configs, small)
    assert 0 < len(fits) < len(fitting(p, template, configs, CUDA))
    assert cost(p, template.name, parameters(fits)).shared.max() <= 600


def test_a_choice_without_records_is_the_first_of_the_ranking(monkeypatch):
    for place in ("own", "shipped"):
        monkeypatch.setattr(f"tilewright.select.knn.{place}", lambda kind: ())
    for arch in ("sm_80", "sm_86", "sm_120"):
        target = Target.parse(f"cuda -arch={arch}")
        chosen, first = choose(problem(), target), ranked(problem(), target)[0]
        assert (chosen.algorithm.name, chosen.config) == (first.template.name, first.config)


def test_other_targets_are_not_ranked():
    for target in ("llvm", "sim", "opencl"):
        assert ranked(problem(), Target.parse(target)) == []


def test_architectures_stand_for_gpus_that_exist():
    assert gpu(CUDA.arch).sms == 132
    assert gpu(Target.parse("cuda").arch) == gpu(CUDA.arch)
    assert gpu("sm_86").warps == 48


def test_thousands_of_schedules_are_ranked_at_once():
    p = problem(layout="NHWC", batch=64, channels=96, height=56, width=56)
    sets = [("gpu.pixels", parameters(TEMPLATES["gpu.pixels"].candidates(p, CUDA)))]
    assert len(sets[0][1]) > 3000
    slower(p, sets, CUDA)  # loads what is loaded once

    def calls(count):
        """Functions called, of Python and of C, to rank that number."""
        called = [0]
        name, rows = sets[0]
        sys.setprofile(lambda frame, event, arg: called.__setitem__(0, called[0] + 1))
        try:
            slower(p, [(name, rows[:count])], CUDA)
        finally:
            sys.setprofile(None)
        return called[0]

    assert calls(3000) < 4 * calls(30)  # a hundred times as many


def test_the_model_is_small_and_read_without_the_library_that_fitted_it():
    assert ranking.PATH.stat().st_size < 2_000_000
    model.cache_clear()
    before = "xgboost" in sys.modules
    assert model()
    assert ("xgboost" in sys.modules) == before


def test_what_no_tree_knows_is_never_ranked_but_can_be_measured(monkeypatch):
    p = problem(layout="NHWC")
    every = {(r.template.name, r.config) for r in ranked(p, CUDA)}
    known = {name: f for name, f in model().items() if name != "gpu.pixel_tiles"}
    monkeypatch.setattr(ranking, "model", lambda: known)
    left = {(r.template.name, r.config) for r in ranked(p, CUDA)}
    names = {name for name, _ in every}
    assert "gpu.pixel_tiles" in names
    assert {name for name, _ in left} == names - {"gpu.pixel_tiles"}
    assert left <= every
    strange = [config for t, config in unknown(p, CUDA) if t.name == "gpu.pixel_tiles"]
    tiles = TEMPLATES["gpu.pixel_tiles"]
    assert strange == [c for c in tiles.candidates(p, CUDA) if c in set(strange)]
    assert strange
    assert unknown(p, Target.parse("opencl")) == []
