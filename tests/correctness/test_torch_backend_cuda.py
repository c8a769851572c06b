"""Models on a GPU compiled by ``torch.compile(backend="tilewright")``, also in CUDA graphs."""

from __future__ import annotations

import copy

import pytest
from tests.correctness.test_torch_backend import Net, compiled
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
from tilewright.torch.backend import tilewright  # noqa: E402

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_cuda]


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_network_is_captured_in_a_graph(dtype):
    kind = getattr(torch, dtype)
    bound = 1e-5 if dtype == "float32" else 1e-2
    net, found = Net().eval().cuda().to(kind), []
    exact = copy.deepcopy(net).double()
    x = torch.randn(2, 3, 12, 12, device="cuda", dtype=kind)
    x = x.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        again = compiled(net, found)
        assert error(again(x).double(), exact(x.double())) < bound
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = again(x)
        x.mul_(-0.5)
        graph.replay()
        assert error(y.double(), exact(x.double())) < bound
    assert not found[0].left
    assert not found[0].regions[0].reason


def test_what_is_made_of_numbers_on_the_cpu_is_captured():
    x = torch.randn(2, 4, device="cuda")

    def f(x):
        mask = ~torch.zeros(x.shape).to(device=x.device, dtype=torch.bool)
        return x * mask.cumsum(1) + torch.tensor([1.0, 2.0, 4.0, 8.0]).to(x.device)

    with torch.no_grad():
        again, wanted = compiled(f), f(x)
        assert error(again(x), wanted) < 1e-6
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = again(x)
        graph.replay()
    assert error(y, wanted) < 1e-6


def test_gradients_on_a_gpu():
    model, x = Net().train().cuda(), torch.randn(4, 3, 12, 12, device="cuda")
    wide = copy.deepcopy(model).double()
    wanted = torch.autograd.grad(wide(x.double()).square().sum(), [*wide.parameters()])
    found = torch.autograd.grad(compiled(model)(x).square().sum(), [*model.parameters()])
    assert all(error(a.double(), b) < 1e-4 for a, b in zip(found, wanted, strict=True))


def test_steps_under_autocast_are_those_of_eager_mode():
    """Weights are cast at once, statistics lie in one block, and what is stored for gradients is
    freed on the way; two calls before a backward pass, which runs twice."""
    block = [
        torch.nn.Conv2d(8, 8, 1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.SiLU(),
        torch.nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), torch.nn.BatchNorm2d(8),
    ]  # fmt: skip
    net = torch.nn.Sequential(*(copy.deepcopy(m) for _ in range(4) for m in block)).cuda()
    images = [torch.randn(4, 8, 14, 14, device="cuda") for _ in range(2)]

    def step(model, run, half):
        with torch.autocast("cuda", torch.float16, half):
            results = [run(x) for x in images]
        loss = sum((y.float().sin() * k).sum() for k, y in enumerate(results, 1))
        loss.backward(retain_graph=True)
        loss.backward()
        return [torch.cat([t.double().flatten() for t in each])
                for each in ([p.grad for p in model.parameters()], model.buffers())]  # fmt: skip

    exact, eager = (copy.deepcopy(net) for _ in range(2))
    found = []
    made = step(net, compiled(net, found), True)
    for ours, theirs, wanted in zip(
        made, step(eager, eager, True), step(exact, exact, False), strict=True
    ):
        assert error(ours, wanted) < 1.5 * error(theirs, wanted) + 5e-3
    assert found[0].left["aten._to_copy.default", "PyTorch casts all of them by one call"] == 8
    assert not any(r.reason for graph in found for r in graph.regions)


def test_batches_share_kernels():
    """Where PyTorch's batch is a symbol, kernels are for any of about as many images."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(64, 128, 1), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(128, 10),
    )  # fmt: skip
    net = net.eval().cuda().half().to(memory_format=torch.channels_last)
    exact, found = copy.deepcopy(net).double(), []

    def backend(graph, inputs):
        return tilewright(graph, inputs, report=found.append)

    again = torch.compile(net, backend=backend, dynamic=True)
    with torch.no_grad():
        for batch in (3, 5, 4, 9, 1):
            x = torch.randn(batch, 64, 8, 8, device="cuda", dtype=torch.half)
            x = x.contiguous(memory_format=torch.channels_last)
            assert error(again(x).double(), exact(x.double())) < 1e-2
    regions = [r for t in found for r in t.regions]
    assert not any(r.reason for r in regions)
    made = [e for r in regions for e in r.executors]
    _, five, four, _, _ = (set(map(id, e.kernels)) for e in made)
    assert five == four
    assert all(step.counts for e in made[1:4] for step in e.steps)
