"""Models that are called with several batches have kernels for any of them on a GPU."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from tests.support.models import NETWORKS, Network, node, onnx_model, relative

import tilewright
from tilewright.graph import Graph, Input, Node
from tilewright.graph import kernels as building
from tilewright.graph.batches import Batches, works_of
from tilewright.graph.constants import Constants, Pool
from tilewright.graph.executor import kernels_of
from tilewright.graph.kernels import build_all
from tilewright.graph.pipeline import optimized
from tilewright.graph.value import Constant
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.topi.batch import Batch

HOPPER = Target.parse("cuda -arch=sm_90a")


def _network() -> Network:
    """What boxes bring, a pooling, a sum with what was before, a mean and a linear layer."""
    n = Network(8)
    x = n.conv("x", 64, 3)
    y = n.conv(n.conv(x, 64, 1), 64, 3, act="")
    x = n.act(n.add("Add", x, y), "Relu")
    n.head(n.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    return n


def _layer() -> bytes:
    """A convolution of images of any size."""
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), node("Relu", "c")]
    w = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype("float32")
    return onnx_model(nodes, {"x": ["N", 3, "H", "W"]}, constants={"w": w})


def _images(count: int, size: int = 8) -> Any:
    return np.random.default_rng(count).standard_normal((count, 3, size, size)).astype("float32")


@pytest.mark.needs_onnx
@pytest.mark.parametrize("target", ["sim", pytest.param("cuda", marks=pytest.mark.needs_cuda)])
def test_batches_share_kernels_and_are_right(target: str) -> None:
    data = _network().model(batch="N")
    model = tilewright.load(data, target=target, dtype="float16")
    exact = tilewright.load(data)
    sets = {}
    for batch in (2, 3, 5, 4):
        x = _images(batch)
        assert relative(model(x), exact(x)) < 1e-2
        sets[batch] = {id(k) for k in model.compile({"x": x}).kernels}
    assert sets[3] == sets[5] == sets[4]  # some four images
    assert sets[3].isdisjoint(sets[2])  # the first batch has its own
    assert all(s.counts for s in model.compile({"x": _images(5)}).steps)
    assert not any(s.counts for s in model.compile({"x": _images(2)}).steps)
    assert model(_images(0)).shape == (0, 10)


@pytest.mark.needs_onnx
@pytest.mark.usefixtures("plain_code")
@pytest.mark.parametrize(("name", "threads"), [*((n, 1) for n in NETWORKS), ("inception", 2)])
def test_batches_of_a_cpu_share_kernels_and_are_right(name: str, threads: int) -> None:
    """Also where what is concatenated is written in place, and layers read parts of it."""
    data = NETWORKS[name](16).model(batch="N")
    exact = tilewright.load(data, target="llvm")  # an image at a time
    model = tilewright.load(data, target=f"llvm -threads={threads}")
    sets = []
    for batch in (2, 3, 5):
        x = np.random.default_rng(batch).standard_normal((batch, 3, 16, 16)).astype("float32")
        wanted = np.concatenate([exact(x[k : k + 1]) for k in range(batch)])
        found = np.full_like(wanted, np.nan)
        model.run({"x": x}, outputs={next(iter(model.outputs)): found})
        assert relative(found, wanted) < 1e-5
        made = model.compile({"x": x})
        sets.append({id(k) for k in made.kernels})
        assert any(s.counts for s in made.steps) is (batch > 2)
    assert sets[1] == sets[2]  # some four images
    assert sets[0].isdisjoint(sets[1])


@pytest.mark.needs_onnx
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_a_model_without_images_runs_nothing(target: str) -> None:
    model = tilewright.load(_layer(), target=target)
    for batch in (0, 2, 3, 0):
        x, places = _images(batch), np.zeros((batch, 8, 8, 8), "float32")
        assert model(x).shape == places.shape
        assert model.run({"x": x}, {"y": places})["y"] is places


@pytest.mark.needs_onnx
def test_images_of_another_size_have_kernels_of_their_own() -> None:
    model, exact = tilewright.load(_layer(), target="sim"), tilewright.load(_layer())
    for batch, size in ((2, 6), (3, 6), (2, 5), (3, 5)):
        x = _images(batch, size)
        assert relative(model(x), exact(x)) < 1e-5
        free = bool(model.compile({"x": x}).steps[0].counts)
        assert free is (batch == 3)  # of each size the first batch has its own


@pytest.mark.needs_onnx
@pytest.mark.parametrize("name", NETWORKS)
def test_batches_near_one_another_ask_for_the_same(name: str) -> None:
    source = tilewright.load(NETWORKS[name]().model(batch="N")).source

    def expected(images: int) -> list[Any]:
        x = Input("x", (images, 3, 32, 32), "float32")
        graph = optimized(source.graph([x]), target=HOPPER, dtype="float16")
        return [w.expected for w in works_of(graph, kernels_of(graph), images, ("x",))]

    found = expected(7)
    assert found == expected(9) == expected(8)
    assert None not in found
    assert expected(64) != found


@pytest.mark.needs_onnx
@pytest.mark.parametrize("target", [
    pytest.param("opencl", marks=pytest.mark.needs_opencl),
    pytest.param("cuda", marks=pytest.mark.needs_cuda),
])  # fmt: skip
def test_batches_share_weights_on_a_device(target: str) -> None:
    model, exact = tilewright.load(_layer(), target=target), tilewright.load(_layer())
    held = []
    for batch in (2, 3, 4):
        x = _images(batch)
        assert relative(model(x), exact(x)) < 1e-4
        held.append({id(a) for a in model.compile({"x": x}).constants.values()})
    assert held[1] == held[2]
    assert len(model._pool) == len(held[0] | held[1])
    model._compiled.clear()
    gc.collect()
    assert len(model._pool) == 0


@pytest.mark.needs_onnx
def test_sizes_share_weights_on_a_cpu() -> None:
    w, v = (np.random.default_rng(k).standard_normal((32, 32)).astype("float32") for k in range(2))
    nodes = [node("MatMul", "x w", "h"), node("MatMul", "h v")]
    data = onnx_model(nodes, {"x": ["N", "T", 32]}, constants={"w": w, "v": v})
    model = tilewright.load(data, target="llvm -threads=1")
    held = []
    for rows in (9, 12, 40):
        x = np.random.default_rng(rows).standard_normal((1, rows, 32)).astype("float32")
        assert relative(model(x), x.astype("f8") @ w @ v) < 1e-6
        constants = model.compile({"x": x}).constants.values()
        held.append({a.__array_interface__["data"][0] for a in constants})
    assert held[0] == held[1] == held[2]
    assert len(held[0]) == 2
    model._compiled.clear()
    gc.collect()
    assert len(model._pool) == 0


def test_constants_that_begin_alike_are_not_taken_for_one_another() -> None:
    pool, ones = Pool(), np.ones(100, "float32")
    others = ones.copy()
    others[50] = 2
    found = []
    for array in (ones, others, ones.copy()):
        known = Constants(7, "cpu", pool)
        number = known[Constant(array)]
        known.together()
        np.testing.assert_array_equal(known.arrays[number], array)
        found.append(known)
    first, second, third = (known.arrays[7] for known in found)
    assert np.shares_memory(first, third)
    assert not np.shares_memory(first, second)


def test_an_extent_that_is_one_of_images_by_chance_changes_nothing() -> None:
    x, w = Input("x", (8, 8), "float32"), Input("w", (8,), "float32")
    graph = Graph("g", (x, w), {"y": Node("multiply", (x, w))})
    (work,) = works_of(graph, kernels_of(graph), 8, ("x", "w"))
    assert work.problem.batch_of(8, ("a0", "a1")) == Batch(8, ("a0", "a1"))
    assert work.expected is None  # there is no product of 9
    assert build_all([work], Target.parse("sim"))[work.problem.key].counts == ()
    (work,) = works_of(graph, kernels_of(graph), 8, ("x",))
    assert build_all([work], Target.parse("sim"))[work.problem.key].counts == (8,)


def test_what_has_no_kernel_for_any_batch_is_tried_once(monkeypatch: Any) -> None:
    tried = []

    def chosen(problem: Any, target: Any, batch: Any = None) -> Any:
        tried.append(batch)
        if batch is not None:
            raise tilewright.ir.errors.LoweringError("none")
        return problem

    monkeypatch.setattr(building, "chosen_kernel", chosen)
    monkeypatch.setattr(building, "_REFUSED", set())
    x = Input("x", (8, 4), "float32")
    graph = Graph("g", (x,), {"y": Node("relu", (x,))})
    works = works_of(graph, kernels_of(graph), 8, ("x",))
    for _ in range(2):
        (built,) = build_all(works, HOPPER).values()
        assert built.counts == ()
    assert [b is None for b in tried] == [False, True, True]


def test_the_first_batch_of_each_size_has_its_own() -> None:
    batches = Batches(("x",))
    calls = [(8, 5), (4, 5), (8, 5), (4, 6), (8, 6)]
    shapes = [{"x": (n, size), "w": (3,)} for n, size in calls]
    assert [batches.images(s) for s in shapes] == [0, 4, 0, 0, 8]
    assert Batches().images(shapes[0]) == 0
    assert Batches(("x",), first=False).images(shapes[0]) == 8


@pytest.mark.parametrize("pass_", ["forward", "dgrad", "wgrad"])
def test_a_filter_does_not_say_how_many_images_a_kernel_takes(pass_: str) -> None:
    """Its offsets are the same of any number: here it is larger than an image 752 times."""
    p = Conv.parse((1, 4096, 7, 7), (4096, 4096, 3, 3), 1, padding=1, pass_=pass_, layout="NHWC")
    batch = p.batch_of(1, p.shapes())
    assert batch is not None
    assert p.most_of(batch) == p.most_batch == (2**31 - 1) // (4096 * 9 * 9)
    assert p.at(batch, 5).most_of(Batch(5, batch.inputs)) == p.most_batch


def test_a_convolution_is_of_as_many_images_as_all_that_it_reads() -> None:
    p = Conv.parse((8, 4, 5, 5), (6, 4, 3, 3), 1, epilogue="residual", padding=1)
    assert p.batch_of(8, ("data", "residual")) == Batch(8, ("data", "residual"))
    assert p.batch_of(4, ("data", "residual")) == Batch(8, ("data", "residual"))
    assert p.batch_of(8, ("data",)) is None
    assert p.batch_of(3, ("data", "residual")) is None


def test_batches_beyond_a_kernels_offsets_have_kernels_of_their_own() -> None:
    """Offsets are below 2^31 where 63 images are written, whatever number tiles are chosen for."""
    for images, free in ((46, True), (63, True), (64, False), (90, False)):
        x = Input("x", (images, 4096, 8192), "float16")
        graph = Graph("g", (x,), {"y": Node("relu", (x,))})
        (work,) = works_of(graph, kernels_of(graph), images, ["x"])
        assert (work.expected is not None) == free
        if work.expected is not None:
            p, batch = work.expected
            assert work.counts[0] <= p.most_of(batch) == 63
