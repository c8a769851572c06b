"""What training graphs share: one call for many casts, one block of memory for small vectors."""

from __future__ import annotations

import weakref
from functools import partial

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch

from torch import fx  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tilewright.graph.executor import Executor  # noqa: E402
from tilewright.graph.graph import Graph  # noqa: E402
from tilewright.graph.pipeline import optimized  # noqa: E402
from tilewright.graph.value import Input, Node  # noqa: E402
from tilewright.target import Target  # noqa: E402
from tilewright.torch import region  # noqa: E402
from tilewright.torch.boxed import boxed  # noqa: E402
from tilewright.torch.joined_casts import join_casts  # noqa: E402


def test_weights_and_gradients_are_cast_by_one_call_each():
    """Images are not, which would be stored in a type that nobody reads."""

    def step(weights, image):
        narrow = [w.to(torch.float16) for w in weights]
        wide = image.to(torch.float32).sum()
        return *[(w * 2).to(torch.float32) for w in narrow], wide

    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = [torch.empty(k + 1, 3, 1, 1, device="cuda") for k in range(8)]
        fake[0] = fake[0].to(memory_format=torch.channels_last)
        graph = make_fx(step)(fake, torch.empty(2, 3, dtype=torch.float16, device="cuda"))
    given = [n for n in graph.graph.nodes if n.op == "placeholder"]
    assert join_casts(graph, given[:-1]) == 16
    names = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert sum("cast_all" in n for n in names) == 2
    assert names.count("aten._to_copy.default") == 1
    weights = [torch.randn(k + 1, 3, 1, 1) for k in range(8)]
    image = torch.ones(2, 3, dtype=torch.float16)
    for _ in range(2):
        *found, total = graph(weights, image)
        assert total == 6
        for made, w in zip(found, weights, strict=True):
            assert torch.equal(made, (w.half() * 2).float())


def test_vectors_of_one_block_of_memory_change_apart(monkeypatch):
    gpu = Target.parse("cuda -arch=sm_90a")
    monkeypatch.setattr(
        region, "optimized", lambda g, target, **rest: partial(optimized, g, target=gpu)(**rest)
    )
    x, y = torch.rand(1, 8), torch.rand(8)
    whole = make_fx(lambda x, y: (x.exp(), x.view(8) + y, x.sum(1), x.exp()))(x, y)
    made = region.Region(whole, [False, False], False, 1, shares=True)
    first, second, third, same = made(x, y)
    assert not made.reason
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert third.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()
    second += 1
    same += 1
    assert first._version == 0
    torch.testing.assert_close(same, x.exp() + 1)
    torch.testing.assert_close(first, x.exp())
    torch.testing.assert_close(second, x[0] + y + 1)
    torch.testing.assert_close(third, x.sum(1))


def test_inputs_and_blocks_are_free_behind_the_last_kernels_that_read_them():
    a, b = Input("a", (4, 64), "float32"), Input("b", (4, 64), "float32")
    first = Node("exp", (Node("negative", (a,)),))
    graph = Graph("g", (a, b), {"y": Node("exp", (Node("add", (first, b)),))})
    executor = Executor(graph, Target.parse("llvm"), stretches=2)
    given = [torch.rand(4, 64) for _ in "ab"]
    wanted = (torch.exp(-given[0]) + given[1]).exp()
    image, out = weakref.ref(given[0]), torch.empty(4, 64)
    alive, blocks = [], []

    def empty(nbytes):
        alive.append((image() is not None, [r() is not None for r in blocks]))
        block = torch.empty(nbytes, dtype=torch.uint8)
        blocks.append(weakref.ref(block))
        return block

    executor.launch_on(given, [out], empty)
    torch.testing.assert_close(out, wanted)
    # What the second stretch reads of the first is there, and nothing else.
    assert alive == [(True, []), (False, [True])]
    assert given == [None, None]
    assert not any(r() is not None for r in blocks)


def test_a_graph_and_its_regions_empty_the_lists_that_they_are_given():
    whole = make_fx(lambda x, y: (x + y).exp())(torch.rand(8), torch.rand(8))
    inner = region.Region(whole, [False, False], False, 1, shares=True)
    outer = fx.Graph()
    outer.output(outer.call_module("inner", (outer.placeholder("x"), outer.placeholder("y"))))
    run = boxed(fx.GraphModule({"inner": inner}, outer))
    given = [torch.rand(8), torch.rand(8)]
    wanted = (given[0] + given[1]).exp()
    torch.testing.assert_close(run(given), wanted)
    assert given == []
