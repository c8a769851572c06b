"""Training steps that are replayed make what those make that are launched, bit for bit."""

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
REPLAY = {"replay": True}


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.needs_cuda)])
def sides(request, monkeypatch):
    """Two models alike, of which the steps of the first are replayed."""
    record = Recorder(torch)
    if request.param == "cpu":
        monkeypatch.setattr(recording, "recorder", record)
    return Sides(request.param, record)


class Net(nn.Module):
    def __init__(self, drop=0.0):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.drop, self.head = nn.Dropout(drop), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.drop(torch.relu(self.norm(self.conv(x)))).mean((2, 3)))


class Sides:
    """Models, what calls them compiled, and what records."""

    def __init__(self, device, record):
        self.device, self.record = device, record

    def of(self, model, wrap=lambda m: m):
        models = [model.to(self.device), copy.deepcopy(model).to(self.device)]
        self.models, self.found = [m.train() for m in models], []
        ours, theirs = self.models
        replayed = functools.partial(tilewright, options=REPLAY, report=self.found.append)
        launched = functools.partial(tilewright, options={"replay": False})
        self.calls = [
            torch.compile(wrap(ours), backend=replayed),
            torch.compile(wrap(theirs), backend=launched),
        ]
        return self

    def images(self, count=4):
        return torch.randn(count, 3, 9, 9, device=self.device)

    def run(self, what, count=5):
        """Do ``what`` with each model and its call, some times, with random numbers alike, and
        compare what it returns, and gradients and buffers."""
        for _ in range(count):
            seed = torch.randint(1 << 30, ()).item()
            found = []
            for model, call in zip(self.models, self.calls, strict=True):
                torch.manual_seed(seed)
                made = what(model, call)
                grads = [p.grad for p in model.parameters()]
                found.append([*(made or []), *grads, *model.buffers()])
            torch.manual_seed(seed + 1)
            for place, (ours, theirs) in enumerate(zip(*found, strict=True)):
                if ours is not theirs:
                    ours, theirs = ours.nan_to_num(7.0), theirs.nan_to_num(7.0)
                    off = (ours.double() - theirs.double()).abs().max()
                    assert torch.equal(ours, theirs), f"{place} is off by {off:.2g}"

    @property
    def passes(self):
        """How many passes of the first model are recorded."""
        return sum(len(s._passes) for s in {t.steps for t in self.found if t.steps})


def descend(model, loss, **kwargs):
    """One step of training."""
    model.zero_grad()
    loss.backward(**kwargs)
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad


def test_steps_are_those_that_are_launched(sides):
    sides.of(Net())

    def step(model, call):
        before = [b._version for b in model.buffers()]
        y = call(sides.images())
        assert all(b._version > old for b, old in zip(model.buffers(), before, strict=True))
        descend(model, y.square().sum())
        return [y, *(p.detach().clone() for p in model.parameters())]

    sides.run(step, 6)
    assert sides.passes == 2
    if sides.device == "cpu":
        assert sides.record.runs == [0, 1] * 4


def test_the_mode_of_pytorchs_compiler_replays(sides):
    sides.of(Net())
    sides.calls[0] = torch.compile(
        sides.models[0], backend="tilewright", mode="reduce-overhead", dynamic=False
    )
    sides.run(lambda model, call: descend(model, call(sides.images()).square().sum()), 4)
    if sides.device == "cpu":
        assert sides.record.runs == [0, 1] * 2


def test_results_and_gradients_are_the_callers(sides):
    """A gradient that is kept, or added to, and a result that is changed in place."""
    sides.of(Net())
    kept = []

    def step(model, call):
        y = call(sides.images())
        y.sin().sum().backward()  # adds to the gradients
        kept.append(
            [
                (t, t.detach().clone())
                for t in (
                    y,
                    *torch.autograd.grad(call(sides.images()).sum(), list(model.parameters())),
                )
            ]
        )
        y.detach().mul_(2)
        return [y]

    sides.run(step)
    assert all(torch.equal(a, b) for each in kept for a, b in each[1:])
    assert sides.passes == 2


@pytest.mark.parametrize("last_first", [False, True])
def test_several_forward_passes_before_a_backward_pass(sides, last_first):
    sides.of(Net())

    def step(model, call):
        model.zero_grad()
        losses = [call(sides.images()).square().sum() for _ in range(3)]
        for loss in reversed(losses) if last_first else losses:
            loss.backward()

    sides.run(lambda model, call: descend(model, call(sides.images()).square().sum()), 3)
    sides.run(step, 3)
    sides.run(lambda model, call: descend(model, call(sides.images()).square().sum()), 2)
    assert sides.passes == 2


def test_a_graph_is_retained(sides):
    sides.of(Net())

    def step(model, call):
        model.zero_grad()
        loss = call(sides.images()).square().sum()
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        loss.backward()

    sides.run(step, 5)
    sides.run(lambda model, call: descend(model, call(sides.images()).square().sum()), 5)
    sides.run(step, 2)
    assert sides.passes == 2


def test_what_was_stored_is_read_once(sides):
    sides.of(Net())

    def step(model, call):
        loss = call(sides.images()).square().sum()
        descend(model, loss)
        with pytest.raises(RuntimeError, match="a second time"):
            loss.backward()

    sides.run(step)


def test_a_forward_pass_without_a_backward_pass(sides):
    """A loss that is dropped, and one that is kept."""
    sides.of(Net())
    kept = []

    def step(model, call):
        call(sides.images())
        loss = call(sides.images()).square().sum()
        kept.append(call(sides.images()))
        descend(model, loss)
        kept.clear()

    sides.run(step, 6)


def test_inference_between_passes(sides):
    sides.of(Net())

    def step(model, call):
        loss = call(sides.images()).square().sum()
        with torch.no_grad():
            y = call(sides.images())
        descend(model, loss)
        model.eval()
        with torch.no_grad():
            w = call(sides.images())
        model.train()
        return [y, w]

    sides.run(step)
    assert sides.passes == 2


def test_images_of_other_sizes(sides):
    sides.of(Net())
    for counts in ((4, 4, 4, 4), (3, 4, 3, 5), (5, 5, 5, 5), (4, 4, 4, 4, 3)):
        for count in counts:
            sides.run(lambda model, call, n=count: descend(
                model, call(sides.images(n)).square().sum()), 1)  # fmt: skip
    assert sides.passes == 2  # of one size


def test_parameters_that_move(sides):
    sides.of(Net())

    def step(model, call):
        descend(model, call(sides.images()).square().sum())

    for _ in range(6):
        sides.run(step, 4)
        for model in sides.models:
            for p in model.parameters():
                p.data = p.data.clone() * 0.5
    sides.run(step, 2)


def test_parameters_that_move_before_a_backward_pass(sides):
    sides.of(Net())

    def step(model, call):
        loss = call(sides.images()).square().sum()
        for p in model.parameters():
            p.data = p.data.clone()
        descend(model, loss)

    sides.run(lambda model, call: descend(model, call(sides.images()).square().sum()), 4)
    sides.run(step, 3)


def test_what_is_stored_is_packed(sides):
    """Hooks that hand on another tensor on the same memory, or a copy."""
    sides.of(Net())

    def step(pack, model, call):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            losses = [call(sides.images()).square().sum() for _ in range(2)]
        for loss in losses:
            descend(model, loss)

    sides.run(lambda model, call: descend(model, call(sides.images()).square().sum()), 4)
    for pack in (torch.Tensor.detach, torch.clone):
        sides.run(functools.partial(step, pack), 3)


def test_a_parameter_changed_before_the_backward_pass_is_refused(sides):
    sides.of(Net())

    def step(model, call):
        loss = call(sides.images()).square().sum()
        with torch.no_grad():
            model.head.weight.add_(1)
        with pytest.raises(RuntimeError, match="inplace operation"):
            loss.backward()

    sides.run(lambda model, call: descend(model, call(sides.images()).square().sum()), 4)
    sides.run(step, 1)


def test_random_numbers(sides):
    sides.of(Net(drop=0.5))

    def step(model, call):
        y = call(sides.images())
        descend(model, y.square().sum())
        return [y, torch.rand(3, device=sides.device)]

    sides.run(step)
    assert sides.passes == 2


def test_threads_at_once(sides):
    """Each has its own gradients of the same parameters."""
    sides.of(Net())
    model, call = sides.models[0].eval(), sides.calls[0]
    images = [sides.images() for _ in range(4)]

    def grads(x, stream=None):
        found = torch.autograd.grad(call(x).square().sum(), list(model.parameters()))
        return [g.clone() for g in found]

    for _ in range(4):
        wanted = [grads(x) for x in images]
    found = [[] for _ in images]

    def work(k):
        for _ in range(5):
            found[k].append(grads(images[k]))
        if sides.device == "cuda":
            torch.cuda.synchronize()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(images))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, each in enumerate(found):
        assert len(each) == 5
        assert all(torch.equal(a, b) for made in each for a, b in zip(made, wanted[k], strict=True))


def test_two_models_and_two_graphs_of_one(sides):
    """A break in a model makes two graphs, whose passes lie within one another."""

    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 3, 3, padding=1), Net()

        def forward(self, x):
            x = torch.relu(self.first(x))
            torch._dynamo.graph_break()
            return self.last(x)

    sides.of(Broken())
    sides.run(lambda model, call: descend(model, call(sides.images()).square().sum()), 5)
    assert sides.passes == 4


def test_two_models_in_turn(sides):
    """One's results are the other's input, and its gradients pass through both."""

    class Maker(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.Tanh())

        def forward(self, x):
            return self.layers(x)

    makers = copy.copy(sides).of(Maker())
    sides.of(Net())
    both = dict(zip(sides.models, zip(makers.models, makers.calls, strict=True), strict=True))

    def step(model, call):
        maker, make = both[model]
        descend(model, (call(sides.images()) - call(make(sides.images()).detach())).sum())
        made = make(sides.images())
        descend(maker, call(made).square().sum())
        return [made, *(p.grad for p in maker.parameters())]

    sides.run(step, 6)


def test_memory_of_what_runs_no_more_is_free(sides):
    other = copy.copy(sides).of(Net())
    other.run(lambda model, call: descend(model, call(sides.images()).square().sum()), 4)
    torch._dynamo.reset()
    sides.of(Net())
    sides.run(lambda model, call: descend(model, call(sides.images()).square().sum()), 3)
    assert sides.passes == 2
    assert other.passes == 0


@pytest.mark.parametrize("fails", [0, 1])
def test_what_cannot_be_recorded_is_launched(monkeypatch, fails):
    record = Recorder(torch)
    record.fails.add(fails)
    monkeypatch.setattr(recording, "recorder", record)
    sides = Sides("cpu", record).of(Net())
    sides.run(lambda model, call: descend(model, call(sides.images()).square().sum()), 5)
    assert sides.passes == 0


def test_what_changes_its_input_is_launched(sides):
    class Changes(Net):
        def forward(self, x):
            x.mul_(2)
            return super().forward(x)

    sides.of(Changes())

    def step(model, call):
        x = sides.images()
        descend(model, call(x).square().sum())
        return [x]

    sides.run(step)
    assert sides.passes == 0
    assert "steps are not replayed: aten.copy_.default changes" in str(sides.found[0])


def test_one_process_of_many(sides, tmp_path):
    """DistributedDataParallel's hooks take gradients as they come."""
    dist = torch.distributed
    backend = "gloo" if sides.device == "cpu" else "nccl"
    if not dist.is_available() or (backend == "nccl" and not dist.is_nccl_available()):
        pytest.skip("PyTorch has no such processes")
    dist.init_process_group(backend, f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        sides.of(Net(), torch.nn.parallel.DistributedDataParallel)
        sides.run(lambda model, call: descend(model, call(sides.images()).square().sum()), 5)
        assert sides.passes == 2
    finally:
        dist.destroy_process_group()


@pytest.mark.needs_cuda
def test_passes_on_several_streams():
    """A step on another stream waits for the one before, whose memory it has."""
    sides = Sides("cuda", None).of(Net())
    streams = [torch.cuda.Stream() for _ in range(2)]

    def step(model, call):
        made = []
        model.zero_grad()
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                y = call(sides.images())
                made += torch.autograd.grad(y.square().sum(), list(model.parameters()))
        torch.cuda.synchronize()
        return made

    sides.run(step, 6)
    assert sides.passes == 2


@pytest.mark.needs_cuda
def test_a_whole_step_is_captured_by_the_caller():
    sides = Sides("cuda", None).of(Net())
    x = sides.images()

    def step(model, call):
        model.zero_grad()
        call(x).square().sum().backward()

    sides.run(step, 5)
    model, call = sides.models[0], sides.calls[0]
    wanted = [p.grad.clone() for p in model.parameters()]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(model, call)
    x.mul_(1)
    graph.replay()
    assert all(torch.equal(p.grad, w) for p, w in zip(model.parameters(), wanted, strict=True))


@pytest.mark.needs_cuda
def test_steps_under_autocast_with_scaled_gradients():
    """Infinite gradients let the scaler skip a step, which is no reason to record again."""
    sides = Sides("cuda", None).of(Net())
    optimizers = {m: torch.optim.AdamW(m.parameters(), 1e-3, fused=True) for m in sides.models}
    scalers = {m: torch.amp.GradScaler("cuda", init_scale=2.0**k) for m, k in zip(
        sides.models, (40, 40), strict=True)}  # fmt: skip

    def step(model, call):
        optimizers[model].zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = call(sides.images()).float().square().sum()
        scalers[model].scale(loss).backward()
        scalers[model].step(optimizers[model])
        scalers[model].update()
        return [p.detach().clone() for p in model.parameters()]

    sides.run(step, 30)
    assert sides.passes == 2


@pytest.mark.needs_cuda
def test_graphs_keep_what_a_step_takes():
    """The memory of a forward pass and of a backward pass is the same."""
    layers = [
        m
        for _ in range(8)
        for m in (nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    ]
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    sides = Sides("cuda", None).of(nn.Sequential(*layers, *head))
    x = torch.randn(16, 16, 128, 128, device="cuda")

    def kept():
        found = torch.cuda.memory_snapshot()
        return sum(s["total_size"] for s in found if tuple(s["segment_pool_id"]) != (0, 0))

    def step(model, call):
        descend(model, call(x).square().mean())

    sides.run(step, 2)
    sides.models[0].zero_grad()
    sides.models[1].zero_grad()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(sides.models[1], sides.calls[1])
    peak = torch.cuda.max_memory_allocated() - before
    step(sides.models[0], sides.calls[0])
    held = kept()
    sides.models[0].zero_grad()
    sides.models[1].zero_grad()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(sides.models[0], sides.calls[0])
    beside = torch.cuda.max_memory_allocated() - before
    print(f"{peak / 2**20:.0f} MiB a step, {held / 2**20:.0f} kept, {beside / 2**20:.0f} beside")
    assert 0.5 * peak < held < 1.25 * peak + 2**26
    assert beside < 0.1 * peak
