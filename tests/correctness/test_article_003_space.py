"""Article 003's space has 2,880 configurations, and each is a right program."""

import numpy as np
import pytest
from tests.support.articles import depthwise, error

import tilewright
from tilewright.tune.article_003 import NAME, SHAPE
from tilewright.tune.task import create


def test_it_has_as_many_configurations_as_the_article_says():
    space = create(NAME, SHAPE, "cuda -arch=sm_90a").config_space
    assert len(space) == 2880
    assert space.dims == (5, 6, 4, 2, 2, 2, 3)


def test_twenty_at_random_compute_the_convolution_on_the_simulator(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    task = create(NAME, SHAPE, "sim")
    rng = np.random.default_rng(0)
    b, c, h, w, k = SHAPE
    x = rng.standard_normal((b, c, h, w)).astype("float32")
    filters = rng.standard_normal((c, 1, k, k)).astype("float32")
    exact = depthwise(x, filters)
    for index in task.config_space.sample(20, rng):
        s, args = task.instantiate(task.config_space.get(index))
        y = np.full(exact.shape, np.nan, "float32")
        tilewright.build(s, args, task.target, verify=False)(x, filters, y)
        assert error(y, exact) < 1e-5, task.config_space.get(index)


def test_the_corners_of_the_space_lower_for_cuda():
    task = create(NAME, SHAPE, "cuda -arch=sm_90a")
    dims = task.config_space.dims
    for corner in range(0, 2 ** len(dims), 3):
        point = [(corner >> k & 1) * (dim - 1) for k, dim in enumerate(dims)]
        s, args = task.instantiate(task.config_space.get(task.config_space.index(point)))
        assert len(tilewright.lower(s, args, task.target).funcs) == 1


@pytest.mark.needs_nvrtc
def test_some_compile_for_the_h200(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    task = create(NAME, SHAPE, "cuda -arch=sm_90a")
    for index in task.config_space.sample(6, np.random.default_rng(3)):
        s, args = task.instantiate(task.config_space.get(index))
        kernel = tilewright.build(s, args, task.target)
        assert [r.spills for r in kernel.resources.values()] == [0]
