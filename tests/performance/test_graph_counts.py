"""Kernels of networks: how many there are, and how much memory lies between them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.models import NETWORKS

import tilewright
from tilewright.graph.memory import most_alive
from tilewright.graph.passes.own_outputs import own_outputs
from tilewright.graph.pipeline import optimized

pytestmark = pytest.mark.needs_onnx

#: By network: its kernels, the convolutions and products among them, and operators at import.
COUNTS = {
    "resnet": (9, 7, 31), "mobilenet": (13, 12, 56), "squeeze_excite": (17, 12, 55),
    "inception": (20, 14, 62),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_as_few_kernels_as_it_was(name):
    model = tilewright.load(NETWORKS[name]().model())
    graph = model.graph({"x": np.zeros((1, 3, 32, 32), "float32")})
    kernels = [n for n in optimized(graph).nodes if n.operator != "reshape"]
    products = [n for n in kernels if n.operator in ("conv2d", "gemm")]
    assert (len(kernels), len(products), len(own_outputs(graph).nodes)) == COUNTS[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_memory_is_at_most_a_tenth_more_than_what_is_needed_at_one_time(name):
    model = tilewright.load(NETWORKS[name]().model())
    executor = model.compile({"x": np.zeros((1, 3, 32, 32), "float32")})
    assert executor.plan.nbytes <= 1.1 * most_alive(executor.lifetimes)
