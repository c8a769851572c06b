"""Kernels of networks: how many there are, and how much memory lies between them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.models import NETWORKS, Network

import tilewright
from tilewright import Target
from tilewright.graph.memory import most_alive
from tilewright.graph.passes.own_outputs import own_outputs
from tilewright.graph.pipeline import optimized
from tilewright.topi.pieces.rows import rows_of

pytestmark = [pytest.mark.needs_onnx, pytest.mark.usefixtures("plain_code")]

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


@pytest.mark.parametrize("name", ["resnet", "inception"])
def test_memory_is_at_most_a_tenth_more_than_what_is_needed_at_one_time(name):
    model = tilewright.load(NETWORKS[name]().model())
    executor = model.compile({"x": np.zeros((1, 3, 32, 32), "float32")})
    assert executor.plan.nbytes <= 1.1 * most_alive(executor.lifetimes)


def convnext(blocks):
    """Blocks of ConvNeXt behind a stem that is normalised, and before means that are: images are
    turned for each product, and back for the factors of channels."""
    net = Network(16)
    x = net.conv("x", 32, size=3, norm=False, act="")
    x = normalised(net, x)
    for _ in range(blocks):
        y = net.add(
            "Transpose", net.conv(x, 32, 7, groups=32, norm=False, act=""), perm=[0, 2, 3, 1]
        )
        y = net.add("LayerNormalization", y, net.weights(32), net.weights(32), axis=-1)
        y = net.add("Add", net.add("MatMul", y, net.weights(32, 128)), net.weights(128))
        y = net.add("HardSwish", y)
        y = net.add("Add", net.add("MatMul", y, net.weights(128, 32)), net.weights(32))
        y = net.add("Transpose", y, perm=[0, 3, 1, 2])
        x = net.add("Add", x, net.add("Mul", y, net.weights(32, 1, 1)))
    net.head(normalised(net, net.add("GlobalAveragePool", x)))
    return net.model()


def normalised(net, x):
    y = net.add("Transpose", x, perm=[0, 2, 3, 1])
    y = net.add("LayerNormalization", y, net.weights(32), net.weights(32), axis=-1)
    return net.add("Transpose", y, perm=[0, 3, 1, 2])


def test_a_block_that_normalises_rows_is_two_kernels_in_16_bits():
    """A depthwise convolution, and one for all of the normalisation and two products, which has the
    residual sum; no conversion stands alone."""
    found = []
    for blocks in (2, 3):
        model = tilewright.load(convnext(blocks))
        graph = model.graph({"x": np.zeros((1, 3, 16, 16), "float32")})
        target = Target.parse("cuda -arch=sm_90a")
        made = optimized(graph, target=target, dtype="float16")
        found.append([n.operator for n in made.nodes if n.operator != "reshape"])
        rows = [n for n in made.nodes if n.operator == "program" and "rsqrt" in str(n.attributes)]
        assert all(rows_of(n.problem) for n in rows)
        assert len(rows) == 2
    assert len(found[1]) - len(found[0]) == 2
    assert found[1].count("cast") == found[0].count("cast")
