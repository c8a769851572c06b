"""Models on a GPU: one launch from the second call on, arrays that stay there. Most of it runs on a
stand-in for the driver, whose kernels are the CPU's."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.cuda_on_host import put_in_place
from tests.support.models import NETWORKS, relative, resnet

import tilewright
from tilewright.graph.errors import ModelError
from tilewright.runtime.ndarray import array, empty

pytestmark = [pytest.mark.needs_onnx, pytest.mark.usefixtures("plain_code")]


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(5).standard_normal((1, 3, 32, 32)).astype("float32")


@pytest.fixture(scope="module")
def network():
    return resnet().model()


@pytest.fixture(scope="module")
def wanted(network, image):
    return tilewright.load(network)(image)


def test_launches_are_recorded_at_the_second_call_and_repeated_by_one(
    monkeypatch, network, image, wanted
):
    driver = put_in_place(monkeypatch)
    model = tilewright.load(network, target="cuda -arch=sm_90a")
    for turn in range(4):
        before = driver.calls.copy()
        assert relative(model(image), wanted) < 1e-5
        made = driver.calls - before
        kernels = len(model.compile({"x": image}).steps)
        assert made["kernel"] == (kernels if turn < 2 else 0)
        assert made["cuGraphLaunch"] == (turn > 0)
        assert made["cuStreamBeginCapture"] == (turn == 1)
        if turn > 0:
            assert not made["cuMemAlloc"]
    assert relative(model(image * 2), wanted) > 0.1  # inputs are those of the call


def test_intermediate_values_lie_in_one_block(monkeypatch, network, image):
    driver = put_in_place(monkeypatch)
    model = tilewright.load(network, target="cuda -arch=sm_90a")
    executor = model.compile({"x": image})
    before = driver.calls["cuMemAlloc"]
    model(image)
    # Beside it the input and the output.
    assert driver.calls["cuMemAlloc"] - before == 3
    assert executor.plan.nbytes > 0


def test_without_capture_each_kernel_is_launched(monkeypatch, network, image, wanted):
    driver = put_in_place(monkeypatch)
    model = tilewright.load(network, target="cuda -arch=sm_90a", capture=False)
    for _ in range(3):
        assert relative(model(image), wanted) < 1e-5
    assert not driver.calls["cuStreamBeginCapture"]


@pytest.mark.parametrize(
    "call", ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate"]
)
def test_where_the_driver_refuses_kernels_are_launched_one_by_one(
    monkeypatch, network, image, wanted, call
):
    put_in_place(monkeypatch, refuses=call)
    model = tilewright.load(network, target="cuda -arch=sm_90a")
    model(image)
    with pytest.warns(RuntimeWarning, match=r"a failure.*one by one.*capture=False"):
        assert relative(model(image), wanted) < 1e-5
    assert relative(model(image), wanted) < 1e-5


def test_arrays_of_the_device_are_neither_brought_nor_fetched(monkeypatch, network, image, wanted):
    driver = put_in_place(monkeypatch)
    model = tilewright.load(network, target="cuda -arch=sm_90a")
    model(image)
    x, y = array(image, "cuda:0"), empty(wanted.shape, "float32", "cuda:0")
    before = driver.calls.copy()
    found = model.run({"x": x})
    given = model.run({"x": x}, outputs={"y": y})
    made = driver.calls - before
    assert not any(
        made[f"cuMemcpy{path}{kind}"] for path in ("HtoD", "DtoH") for kind in ("", "Async")
    )
    assert given["y"] is y
    assert relative(found["y"].numpy(), wanted) < 1e-5
    assert relative(y.numpy(), wanted) < 1e-5
    seen = found["y"].__cuda_array_interface__
    assert (seen["shape"], seen["typestr"]) == (wanted.shape, "<f4")


def test_a_bound_call_copies_nothing(monkeypatch, network, image, wanted):
    driver = put_in_place(monkeypatch)
    model = tilewright.load(network, target="cuda -arch=sm_90a")
    x, y = array(image, "cuda:0"), empty(wanted.shape, "float32", "cuda:0")
    call = model.bind({"x": x}, {"y": y})
    for turn in range(3):
        before = driver.calls.copy()
        call()
        made = driver.calls - before
        assert not any("Memcpy" in name for name in made)
        assert made["cuGraphLaunch"] == (turn > 0)
        assert relative(y.numpy(), wanted) < 1e-5
    x.copyfrom(image * 2)
    call()
    assert relative(y.numpy(), tilewright.load(network)(image * 2)) < 1e-5


def test_a_bound_call_on_the_cpu(network, image, wanted):
    x, y = image.copy(), np.zeros_like(wanted)
    call = tilewright.load(network).bind({"x": x}, {"y": y})
    call()
    assert relative(y, wanted) < 1e-5
    x *= 2
    call()
    assert relative(y, tilewright.load(network)(x)) < 1e-5


def test_outputs_go_into_arrays_that_are_given(network, image, wanted):
    y = np.zeros_like(wanted)
    model = tilewright.load(network)
    assert model.run({"x": image}, outputs={"y": y})["y"] is y
    assert relative(y, wanted) < 1e-5
    with pytest.raises(ModelError, match="there is no output z"):
        model.run({"x": image}, outputs={"z": y})
    with pytest.raises(ModelError, match="give a dense array of that type"):
        model.run({"x": image}, outputs={"y": y.astype("float64")})
    with pytest.raises(ModelError, match="a place for each output: y"):
        model.bind({"x": image}, {})


@pytest.mark.needs_cuda
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_on_a_gpu_gives_what_it_gives_on_a_cpu(name, image):
    data = NETWORKS[name]().model()
    wanted = tilewright.load(data)(image)
    model = tilewright.load(data, target="cuda")
    for _ in range(4):
        assert relative(model(image), wanted) < 1e-5
    assert relative(model(image * 2), tilewright.load(data)(image * 2)) < 1e-5


@pytest.mark.needs_cuda
@pytest.mark.needs_torch
def test_tensors_of_pytorch_stay_on_the_gpu(network, image, wanted):
    import torch

    model = tilewright.load(network, target="cuda")
    x = torch.from_numpy(image).cuda()
    with torch.cuda.stream(torch.cuda.Stream()):
        for k in range(1, 4):
            found = torch.as_tensor(model.run({"x": x * k})["y"], device="cuda")
            y = torch.empty_like(found)
            model.run({"x": x * k}, outputs={"y": y})
            expected = tilewright.load(network)(image * k)
            assert relative(found.cpu().numpy(), expected) < 1e-5
            assert (found == y).all()
        call = model.bind({"x": x}, {"y": y})
        for _ in range(3):
            y.zero_()
            call()
            assert relative(y.cpu().numpy(), wanted) < 1e-5
