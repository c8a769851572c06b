"""Models on an OpenCL device: the arguments of kernels are set once, and a call only enqueues."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.support.models import node, onnx_model, relative

import tilewright
from tilewright.runtime import array, opencl_commands
from tilewright.runtime.opencl_commands import Commands
from tilewright.runtime.opencl_device import load_opencl

pytestmark = [pytest.mark.needs_onnx, pytest.mark.needs_opencl]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often arguments are set, and launches asked of pyopencl and of the driver."""
    cl, found = load_opencl(), Counter[str]()

    def counts(where: Any, name: str) -> None:
        own = getattr(where, name)

        def call(*args: Any, **more: Any) -> Any:
            found[name] += 1
            return own(*args, **more)

        monkeypatch.setattr(where, name, call)

    counts(cl.Kernel, "set_args")
    counts(cl, "enqueue_nd_range_kernel")
    enqueue, flush = opencl_commands._functions()
    assert enqueue is not None

    def direct(*args: Any) -> int:
        found["driver"] += 1
        return enqueue(*args)

    monkeypatch.setattr(opencl_commands, "_functions", lambda: (direct, flush))
    return found


def network() -> tuple[Any, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    nodes = [
        node("Conv", "x w b", "c", pads=[1] * 4), node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "p", "f"), node("Gemm", "f v", "g"), node("Softmax", "g"),
    ]  # fmt: skip
    shapes = {"w": (5, 3, 3, 3), "b": (5,), "v": (45, 7)}
    constants = {n: rng.standard_normal(s).astype("float32") for n, s in shapes.items()}
    data = onnx_model(nodes, {"x": [1, 3, 6, 6]}, constants=constants)
    return data, rng.standard_normal((2, 1, 3, 6, 6)).astype("float32")


def test_a_bound_call_puts_kernels_into_the_queue_and_does_nothing_else(counted):
    data, (first, second) = network()
    model, exact = tilewright.load(data, target="opencl"), tilewright.load(data)
    (name,) = model.outputs
    x = array(first, model.device)
    y = array(np.full((1, 7), np.nan, "float32"), model.device)
    call = model.bind({"x": x}, {name: y})
    assert isinstance(call, Commands)
    counted.clear()
    call()
    assert dict(counted) == {"driver": len(call.commands)}
    assert relative(y.numpy(), exact(first)) < 1e-5
    x.copyfrom(second)
    call()
    assert relative(y.numpy(), exact(second)) < 1e-5


def test_runs_with_arrays_of_the_host_set_arguments_once(counted):
    data, images = network()
    model, exact = tilewright.load(data, target="opencl"), tilewright.load(data)
    found = [model(images[0])]
    counted.clear()
    found.append(model(images[1]))
    assert counted["set_args"] == counted["enqueue_nd_range_kernel"] == 0
    for y, x in zip(found, images, strict=True):  # the first is not written over by the second
        assert relative(y, exact(x)) < 1e-5


def test_other_arrays_of_the_device_are_read_and_written(counted):
    data, images = network()
    model, exact = tilewright.load(data, target="opencl"), tilewright.load(data)
    (name,) = model.outputs
    for image in (images[0], images[1], images[0]):
        y = array(np.full((1, 7), np.nan, "float32"), model.device)
        model.run({"x": array(image, model.device)}, {name: y})
        assert relative(y.numpy(), exact(image)) < 1e-5
        assert relative(model(image), exact(image)) < 1e-5


def test_each_step_has_a_time_of_the_device():
    data, images = network()
    model = tilewright.load(data, target="opencl")
    executor, times = model.compile({"x": images[0]}), list[float]()
    executor.run({"x": images[0]}, times)
    assert len(times) == len(executor.steps)
    assert min(times) > 0


def test_kernels_of_a_step_have_workspaces_that_other_steps_use_too():
    data, (image, _) = network()
    executor = tilewright.load(data, target="opencl").compile({"x": image})
    executor.run({"x": image})
    (state,) = executor._free
    sizes = [s.kernel.program.spaces({}) for s in executor.steps]
    assert sum(map(len, sizes)) > 0
    assert len(state._spaces) == max(map(len, sizes))
    for k, space in enumerate(state._spaces):
        assert space.nbytes == max(found[k] for found in sizes if len(found) > k)


def test_where_the_library_hides_its_names_pyopencl_launches(counted, monkeypatch):
    monkeypatch.setattr(opencl_commands, "_functions", lambda: (None, lambda _: 0))
    data, (image, _) = network()
    model = tilewright.load(data, target="opencl")
    assert relative(model(image), tilewright.load(data)(image)) < 1e-5
    assert counted["enqueue_nd_range_kernel"] > 0
    assert counted["driver"] == 0


def test_a_kernel_is_bound_as_a_model_is(counted):
    from tilewright import te

    a = te.placeholder((40,), name="A")
    b = te.compute((40,), lambda i: a[i] * 2.0, name="B")
    s = te.create_schedule(b.op)
    block, thread = s[b].split(b.op.axis[0], factor=16)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    kernel = tilewright.build(s, [a, b], "opencl")
    given = np.arange(40, dtype="float32")
    x, y = (array(v, "opencl") for v in (given, np.zeros(40, "float32")))
    call = kernel.bind(x, y)
    counted.clear()
    call()
    assert dict(counted) == {"driver": 1}
    np.testing.assert_array_equal(y.numpy(), 2 * given)
    host = np.zeros(40, "float32")
    kernel.bind(given, host)()
    np.testing.assert_array_equal(host, 2 * given)
