"""On the table of article 003's space, measured whole on an H200, learning beats chance."""

import functools
import statistics
from pathlib import Path

import pytest

from tilewright.tune.article_003 import NAME, SHAPE
from tilewright.tune.simple_tuners import RandomTuner
from tilewright.tune.table import Table
from tilewright.tune.task import create
from tilewright.tune.xgb_tuner import XGBTuner

PATH = Path(__file__).parents[2] / "benchmarks/results/h200_article_003_space.json"
SEEDS = range(10)
#: How near to the best of all, and within how many trials.
NEAR, TRIALS = 1.05, 150

pytestmark = pytest.mark.skipif(not PATH.exists(), reason=f"{PATH.name} was not measured yet")


@functools.cache
def task():
    return create(NAME, SHAPE, "cuda -arch=sm_90a")


@functools.cache
def table():
    return Table.read(PATH)


_lowered = {}  # what one tuner has lowered, the next need not


def trials(tuner, most=2880):
    """How many trials it takes to come near the best; ``most`` where it does not."""
    good = NEAR * table().best

    def stop(tuner, *_):
        if tuner.best_cost <= good:
            raise KeyboardInterrupt

    if isinstance(tuner, XGBTuner):
        tuner._loops = _lowered
    tuner.tune(most, table(), callbacks=[stop])
    return tuner.best_iter if tuner.best_cost <= good else most


@functools.cache
def of_chance():
    return statistics.median(trials(RandomTuner(task(), seed=seed)) for seed in SEEDS)


def test_the_table_is_whole():
    assert len(task().config_space) == len(table().costs) == 2880
    assert "H200" in table().device.name


@pytest.mark.parametrize("model", ["numpy", "xgboost"])
def test_learning_finds_the_best_in_a_twentieth_of_the_space(model):
    if model == "xgboost":
        pytest.importorskip("xgboost")
    found = [trials(XGBTuner(task(), model=model, seed=seed), TRIALS + 1) for seed in SEEDS]
    print(f"{model}: median {statistics.median(found)} trials, by chance {of_chance()}: {found}")
    assert sum(count <= TRIALS for count in found) >= 0.9 * len(found)
    assert statistics.median(found) <= 0.5 * of_chance()
