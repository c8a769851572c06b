"""Fitting the ranking: what is missing from a sweep is guessed, and any sweep makes trees that the
package can read."""

import json

import numpy as np
import pytest
from tests.support.benchmarks import benchmark

from tilewright.select import trees
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.templates import TEMPLATES

CUDA = Target.parse("cuda -arch=sm_90a")
NAMES = ("gpu.pixels", "gpu.pixel_tiles")


def modules():
    pytest.importorskip("xgboost")
    return benchmark("fit_ranking"), benchmark("sweeps")


def problem(channels, size):
    return Conv(batch=8, channels=channels, height=size, width=size, kernel_h=3, kernel_w=3,
                   padding=1, dtype="float16", layout="NHWC")  # fmt: skip


def times(p, template, count, factor=1.0):
    """Made up, a line of a sweep: the wider the vectors of a tile, the faster."""
    configs = TEMPLATES[template].candidates(p, CUDA)[:: max(1, 5000 // count)][:count]
    if template == "gpu.pixel_tiles":
        configs = TEMPLATES[template].candidates(p, CUDA)[:count]
    return {
        f"{template} {','.join(str(v) for v in vars(c).values())}": factor * (2 - c.vector / 16)
        for c in configs
    }


@pytest.fixture
def sweep(tmp_path):
    """Two problems of which both templates were measured, and one of which one was."""
    lines = []
    for k, (p, names) in enumerate(
        [(problem(48, 28), NAMES), (problem(96, 20), NAMES), (problem(64, 24), NAMES[:1])]
    ):
        given: dict[str, float] = {}
        for name in names:
            given |= times(p, name, 40, (1 + k) * (1.5 if name == NAMES[0] else 1.0))
        lines.append(json.dumps({"problem": p.to_dict(), "times": given}))
    path = tmp_path / "sweep.jsonl"
    path.write_text("\n".join(lines))
    return path


def tables(path):
    fit, sweeps = modules()
    return fit.mark([fit.Table(m, name) for m in sweeps.read([path]) for name in m.tables])


def test_problems_without_all_templates_are_marked(sweep):
    found = {(t.measured.problem.channels, t.template): t.complete for t in tables(sweep)}
    assert found == {(48, NAMES[0]): True, (48, NAMES[1]): True, (96, NAMES[0]): True,
                     (96, NAMES[1]): True, (64, NAMES[0]): False}  # fmt: skip


def test_alone_a_template_is_not_marked_for_what_nobody_measured(sweep):
    fit, sweeps = modules()
    every = [fit.Table(m, NAMES[0]) for m in sweeps.read([sweep])]
    assert all(t.complete for t in fit.mark(every))


def test_how_far_the_best_known_is_from_the_best_is_learnt_from_other_problems(sweep):
    fit, _ = modules()
    mine = [t for t in tables(sweep) if t.template == NAMES[0]]
    made = fit.labels(mine)
    for t, label in zip(mine, made, strict=True):
        if t.complete:
            assert label.min() > 0  # the other template was faster
            np.testing.assert_array_equal(label, t.y)
        else:
            assert t.y.min() == 0
            assert label.min() > 0.1
            assert (np.argsort(label, kind="stable") == np.argsort(t.y, kind="stable")).all()


def test_a_packed_sweep_makes_trees_that_rank_as_the_fit_does(sweep, tmp_path):
    fit, sweeps = modules()
    sweeps.pack(tmp_path / "packed.json.gz", sweeps.read([f"{sweep}:2"]), "NVIDIA H200")
    again = tables(tmp_path / "packed.json.gz")
    assert {t.measured.weight for t in again} == {2}
    mine = [t for t in again if t.template == NAMES[1]]
    fitted = fit.fit(mine)
    kinds = sorted(set().union(*(t.kinds for t in mine)))
    trees.write(tmp_path / "trees.npz", {NAMES[1]: {**fit.arrays(fitted), "kinds": kinds}})
    known = trees.read(tmp_path / "trees.npz")[NAMES[1]]
    assert known.kinds.tolist() == kinds
    for t in mine:
        np.testing.assert_allclose(known.predict(t.x), fit.guess(fitted, t.x), atol=4e-3)
        assert t.times[known.predict(t.x).argmin()] == t.times.min()
