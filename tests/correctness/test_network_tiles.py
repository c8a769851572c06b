"""benchmarks/network_tiles.py: a network with other kernels computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.benchmarks import benchmark
from tests.support.models import Network, relative

import tilewright

pytestmark = [pytest.mark.needs_onnx, pytest.mark.needs_torch]


def test_kernels_of_a_network_are_replaced_by_others():
    import torch

    n = Network(8)
    n.head(n.conv(n.conv("x", 16, 3), 16, 1))
    model = tilewright.load(n.model(2), target="llvm")
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype("float32")
    networks = benchmark("network_tiles").Networks(model, {"x": x}, torch.from_numpy(x), 10)
    kernels = {s.node.problem.key: s.kernel for s in networks.base.steps}
    made = networks.replaced(kernels)
    assert [s.arguments for s in made.steps] == [s.arguments for s in networks.base.steps]
    networks.bound(made)()
    assert relative(networks.y.numpy(), model(x)) < 1e-6
