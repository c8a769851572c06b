"""Calls in inference that are replayed give what those give that are launched, bit for bit."""

from __future__ import annotations

import copy
import functools
import threading

import pytest
from tests.support.recorded import Recorder

torch = pytest.importorskip("torch")
nn = torch.nn

from tilewright.torch import recording  # noqa: E402
from tilewright.torch.backend import tilewright  # noqa: E402

pytestmark = pytest.mark.needs_torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.head(y), y.sort().values


class Sides:
    """Two models alike, of which the calls of the first are replayed, and what records them."""

    def __init__(self, device, record):
        self.device, self.record = device, record
        torch.manual_seed(0)
        model = Net()
        nn.init.uniform_(model.norm.running_var, 0.5, 2)
        self.of(model)

    def of(self, model):
        """Take others, and return them."""
        self.found = []
        self.models = [m.to(self.device).eval() for m in (model, copy.deepcopy(model))]
        modes = {"mode": "reduce-overhead"}, {}
        self.calls = [
            torch.compile(
                m, backend=functools.partial(tilewright, report=self.found.append, **mode)
            )
            for m, mode in zip(self.models, modes, strict=True)
        ]
        return self.models

    def images(self, count=4, size=9):
        return torch.randn(count, 3, size, size, device=self.device)

    def compare(self, x, times=1):
        for _ in range(times):
            found = [call(x) for call in self.calls]
            for ours, theirs in zip(*found, strict=True):
                assert torch.equal(ours, theirs)
        return found[0]

    @property
    def recorded(self):
        """How many calls are recorded."""
        return sum(len(taken.calls._recorded) for taken in self.found if taken.calls)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.needs_cuda)])
def sides(request, monkeypatch):
    torch._dynamo.reset()
    record = Recorder(torch)
    if request.param == "cpu":
        monkeypatch.setattr(recording, "recorder", record)
    with torch.no_grad():
        yield Sides(request.param, record)


def test_the_third_call_is_recorded_and_replayed(sides):
    for count in range(6):
        sides.compare(sides.images())
        assert sides.recorded == (count >= 2)
    if sides.device == "cpu":
        assert sides.record.runs == [0, 0, 0, 0]


def test_results_are_the_callers(sides):
    sides.compare(sides.images(), times=3)
    first = sides.compare(sides.images())
    kept = [y.clone() for y in first]
    for y in sides.calls[0](sides.images()):
        y.zero_()
    sides.compare(sides.images())
    assert all(torch.equal(x, y) for x, y in zip(first, kept, strict=True))


def test_shapes_have_recordings_of_their_own(sides):
    small, large = sides.images(size=9), sides.images(size=13)
    for _ in range(5):
        sides.compare(small)
        sides.compare(large)
    assert sides.recorded == 2
    strided = sides.images().contiguous(memory_format=torch.channels_last)
    sides.compare(strided, times=4)


def test_what_is_written_to_parameters_counts_from_the_next_call(sides):
    x = sides.images()
    before = sides.compare(x, times=4)[0]
    for model in sides.models:
        model.head.weight.add_(1.0)
    after = sides.compare(x, times=4)[0]
    assert not torch.equal(before, after)
    for model in sides.models:
        model.norm.running_mean.add_(0.5)
        model.conv.weight.data = model.conv.weight.data * 2
    assert not torch.equal(after, sides.compare(x, times=4)[0])
    state = {k: v + 1 for k, v in sides.models[0].state_dict().items()}
    for model in sides.models:
        model.load_state_dict(state)
    sides.compare(x, times=4)
    assert sides.recorded


def test_parameters_that_change_often_are_read_in_every_call(sides):
    x = sides.images()
    for _ in range(8):
        sides.compare(x, times=3)
        for model in sides.models:
            model.conv.weight.mul_(1.1)
            model.head.bias.add_(0.1)
    found = sides.recorded
    for _ in range(3):
        sides.compare(x, times=3)
        for model in sides.models:
            model.conv.weight.mul_(0.9)
    assert sides.recorded == found == 1


def test_what_parameters_become_is_compiled_before_it_is_recorded(sides):
    """Constants are computed, which nothing is while a call is recorded."""
    for count in range(3):
        sides.compare(sides.images(), times=2)
        assert not sides.recorded
        for model in sides.models:
            model.head.weight.add_(count + 1.0)
    sides.compare(sides.images(), times=3)
    assert sides.recorded == 1


def test_buffers_that_count_no_versions_stand_beside_constants(sides):
    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)
            with torch.inference_mode():
                self.register_buffer("keys", torch.randn(8))

        def forward(self, x):
            return torch.relu(self.conv(x)), self.keys.sort().values

    models, x = sides.of(Beside()), sides.images()
    for _ in range(3):
        sides.compare(x, times=3)
        for model in models:
            model.conv.weight.mul_(1.5)
            with torch.inference_mode():
                model.keys.mul_(-1)


def test_results_in_one_anothers_memory_stay_there(sides):
    class Twice(Net):
        def forward(self, x):
            y = super().forward(x)[1]
            return y, y.view(-1), x.view(-1), self.head.weight

    sides.of(Twice())
    for _ in range(5):
        y, flat, *_ = sides.compare(sides.images())
        y.add_(1)
        assert torch.equal(y.view(-1), flat)
    assert "calls are not replayed: " in str(sides.found[0])


def test_inputs_that_are_returned_are_the_callers(sides):
    class Returns(Net):
        def forward(self, x):
            return *super().forward(x), x, x.view(-1), self.head.weight, self.head.weight.t()

    sides.of(Returns())
    for _ in range(5):
        x = sides.images()
        *_, same, flat, weight, _ = sides.compare(x)
        assert same.data_ptr() == flat.data_ptr() == x.data_ptr()
        assert weight.data_ptr() in {m.head.weight.data_ptr() for m in sides.models}
    assert sides.recorded == 1


def test_results_of_any_type_and_without_elements_are_copied(sides):
    class Many(Net):
        def forward(self, x):
            y = super().forward(x)[0]
            return y.argmax(1), y > 0, y.sum(), y[:, :0] * 2, y.half(), torch.complex(y, y)

    sides.of(Many())
    sides.compare(sides.images(), times=5)
    assert sides.recorded == 1


def test_numbers_that_are_made_on_the_cpu_do_not_hinder(monkeypatch):
    """They are made where they are read."""
    monkeypatch.setattr(recording, "recorder", Recorder(torch))
    torch._dynamo.reset()
    found = []
    backend = functools.partial(tilewright, report=found.append, mode="reduce-overhead")
    with torch.no_grad():
        call = torch.compile(lambda x: x + torch.arange(4).to(x.device), backend=backend)
        call(torch.empty(2, 4, device="meta"))
    assert not found[0].calls.reason


def test_modes_of_inference_take_turns(sides):
    x = sides.images()
    for _ in range(4):
        sides.compare(x)
        with torch.inference_mode():
            sides.compare(x)


def test_graphs_that_change_a_buffer_are_launched(sides):
    for model in sides.models:
        model.train()
    for _ in range(5):
        sides.compare(sides.images())
        ours, theirs = (model.norm for model in sides.models)
        assert torch.equal(ours.running_mean, theirs.running_mean)
        assert ours.num_batches_tracked == theirs.num_batches_tracked
    assert not sides.recorded
    assert "calls are not replayed: " in str(sides.found[0])


def test_threads_call_at_once(sides):
    inputs = [sides.images() for _ in range(3)]
    expected = [sides.compare(x, times=4) for x in inputs]
    wrong = []

    def call(x, wanted):
        with torch.no_grad():
            for _ in range(20):
                found = sides.calls[0](x)
                wrong.extend(a for a, b in zip(found, wanted, strict=True) if not torch.equal(a, b))

    threads = [
        threading.Thread(target=call, args=pair) for pair in zip(inputs, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_cannot_be_recorded_is_launched(sides):
    if sides.device == "cuda":
        pytest.skip("a stand-in fails on the CPU")
    sides.record.fails = {0}
    sides.compare(sides.images(), times=6)
    assert not sides.recorded
    assert "calls are not replayed: OutOfMemoryError: no memory" in str(sides.found[0])


@pytest.mark.needs_cuda
def test_a_graph_of_the_callers_holds_the_kernels():
    torch._dynamo.reset()
    with torch.no_grad():
        sides = Sides("cuda", None)
        x = sides.images()
        expected = [y.clone() for y in sides.compare(x, times=4)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = sides.calls[0](x)
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            again = sides.calls[0](x)
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(again, expected, strict=True))
