"""Models compiled by ``torch.compile(backend="tilewright")`` compute what they compute in eager
mode."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch
nn, F = torch.nn, torch.nn.functional

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import tilewright.torch as tt  # noqa: E402
from tilewright.graph.errors import ModelError  # noqa: E402
from tilewright.ir.errors import ArgumentError  # noqa: E402
from tilewright.runtime import progress  # noqa: E402
from tilewright.target import Target  # noqa: E402
from tilewright.torch import compile as compiling  # noqa: E402
from tilewright.torch import region, registered  # noqa: E402
from tilewright.torch.backend import tilewright  # noqa: E402
from tilewright.torch.constructors import made_where_read  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    torch.manual_seed(0)


class Net(nn.Module):
    """A stem, an inverted residual with squeeze and excite, and a head."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.head = nn.Linear(8, 5)
        nn.init.uniform_(self.norm.running_mean, -0.1, 0.1)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x):
        x = F.relu6(self.norm(self.stem(x)))
        y = F.hardswish(self.deep(x))
        y = y * F.hardsigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return self.head(F.adaptive_avg_pool2d(x + y, 1).flatten(1))


@pytest.fixture
def net():
    return Net().eval()


def compiled(model, found=None, **options):
    """The model compiled; ``found`` takes what was taken of each graph."""
    report = None if found is None else found.append

    def backend(graph, inputs):
        return tilewright(graph, inputs, options=options, report=report)

    return torch.compile(model, backend=backend, dynamic=None)


def test_a_network_is_one_region_of_folded_kernels(net):
    found = []
    with torch.no_grad():
        again = compiled(net, found)
        for form in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(2, 3, 12, 12).to(memory_format=form)
            assert error(again(x), net(x)) < 1e-6
    assert all(len(t.regions) == 1 and not t.left for t in found)
    turned, as_it_lay = (t.regions[0].executors[0].steps for t in found)
    # Normalisation is in the weights: two of seven kernels are means. No kernel turns an image that
    # the first convolution reads as it lies.
    assert [s.node.operator for s in turned] == [s.node.operator for s in as_it_lay]
    assert sum("conv" in s.node.operator for s in as_it_lay) == 2
    assert len(as_it_lay) == 7
    assert "operators taken, in 1 region" in str(found[0])


def images():
    """A network of images: whole convolutions, depthwise ones, normalisation."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8), nn.Hardswish(), nn.Conv2d(8, 4, 1),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "dtype"), [("cuda -arch=sm_90a", "float16"), ("llvm", "float32")]
)
@pytest.mark.parametrize("training", [False, True])
def test_only_what_does_not_lie_with_channels_last_is_turned(monkeypatch, target, dtype, training):
    graphs = []

    def optimized(graph, **_):
        graphs.append(passes(graph, target=Target.parse(target)))
        raise ModelError("what is computed does not matter here")

    passes = region.optimized
    monkeypatch.setattr(region, "optimized", optimized)
    kind, turned = getattr(torch, dtype), []
    for form in (torch.channels_last, torch.contiguous_format):
        torch._dynamo.reset()
        graphs.clear()
        net = images().train(training).to(kind).to(memory_format=form)
        x = torch.randn(2, 3, 12, 12, dtype=kind).to(memory_format=form)
        with torch.set_grad_enabled(training):
            y = compiled(net)(x)
            if training:
                y.backward(torch.ones_like(y))
        turned.append(sum(n.operator == "transpose" for g in graphs for n in g.nodes))
    last, first = turned
    assert last == 0
    # One out: of few channels, images are read as they lie; in training also what the backward pass
    # reads.
    assert first > 2 if training else first == 1


def test_each_batch_is_computed_by_kernels():
    net, found = images().eval(), []
    again = compiled(net, found)
    with torch.no_grad():
        for n in (1, 2, 3, 7, 2):
            x = torch.randn(n, 3, 8, 8)
            assert error(again(x), net(x)) < 1e-6
    regions = [r for t in found for r in t.regions]
    # One for a batch, one for all others: those are symbols, and kernels are for numbers.
    assert [len(r.executors) for r in regions] == [1, 3]
    # On a GPU those of the others are kernels for any batch, from the first call on.
    assert [len(r._batches.names) for r in regions] == [0, 1]
    assert not any(r.reason for r in regions)
    assert not any(t.left for t in found)


def test_kernels_for_any_batch_are_given_the_number_of_images():
    net, found = Net().eval(), []

    def backend(graph, inputs):
        return tilewright(graph, inputs, report=found.append)

    again = torch.compile(net, backend=backend, dynamic=True)
    with torch.no_grad():
        for batch in (3, 5, 4):
            x = torch.randn(batch, 3, 12, 12)
            assert error(again(x), net(x)) < 1e-6
    made = [e for t in found for r in t.regions for e in r.executors]
    counts = [{n % batch for step in e.steps for n in step.counts}
              for batch, e in zip((3, 5, 4), made, strict=True)]  # fmt: skip
    assert counts[1:] == [{0}, {0}]


def test_what_is_not_supported_stays_with_pytorch():
    def f(x):
        y = torch.sin(x) * 2
        return torch.linalg.inv(y) + 1, y.t()

    found, x = [], torch.randn(4, 4)
    with torch.no_grad():
        made, wanted = compiled(f, found)(x), f(x)
    assert all(error(a, b) < 1e-5 for a, b in zip(made, wanted))
    assert [a.stride() for a in made] == [b.stride() for b in wanted]
    assert [name for name, _ in found[0].left if "inv" in name]
    assert len(found[0].regions) == 2


def test_parameters_that_change_count_from_the_next_call_on(net, monkeypatch):
    monkeypatch.setattr(region, "_CHANGES", 2)
    x = torch.randn(1, 3, 12, 12)
    with torch.no_grad():
        again = compiled(net)
        again(x)
        for change in (
            lambda: net.load_state_dict({k: v * 1.25 for k, v in net.state_dict().items()}),
            lambda: [p.data.mul_(0.5) for p in net.parameters()],
            lambda: setattr(net.head, "weight", nn.Parameter(torch.randn(5, 8))),
            *[lambda: net.norm.running_mean.add_(0.1)] * (region._CHANGES + 2),
        ):
            change()
            assert error(again(x), net(x)) < 1e-6


def test_constants_are_not_frozen_where_that_is_asked_for(net):
    found, x = [], torch.randn(1, 3, 12, 12)
    with torch.no_grad():
        again = compiled(net, found, freeze=False)
        assert error(again(x), net(x)) < 1e-6
        net.head.weight.data[0, 0] += 1  # which no version and no sample tells
        assert error(again(x), net(x)) < 1e-6
    (executor,) = found[0].regions[0].executors
    assert all(c.shape != net.head.weight.shape for c in executor.graph.constants)


def test_fewer_products_are_allowed_by_an_option():
    net, found = nn.Conv2d(16, 16, 3, padding=1).eval(), []
    x = torch.randn(2, 16, 12, 12)
    with torch.no_grad():
        assert error(compiled(net, found, precision="winograd")(x), net(x)) < 1e-5
    (executor,) = found[0].regions[0].executors
    problems = [s.node.problem for s in executor.steps if "conv" in s.node.operator]
    assert [p.precision for p in problems] == ["winograd"]
    with pytest.raises(ArgumentError, match="precision is winograd"):
        tilewright(None, (), options={"precision": "half"})


def test_further_shapes_are_left_to_pytorch():
    found = []
    again = compiled(lambda x: torch.tanh(x) + 1, found, shapes=2)
    with torch.no_grad():
        for n in (3, 4, 5, 6):
            x = torch.randn(n, 7)
            assert error(again(x), torch.tanh(x) + 1) < 1e-6
    regions = [r for t in found for r in t.regions]
    assert len(found) == 2  # one for the first shape, one for any
    assert [len(r.executors) for r in regions] == [1, 2]
    assert "more than 2 shapes" in str(found[1])


def test_gaps_in_memory_are_copied(net):
    x = torch.randn(2, 3, 12, 24)[..., ::2]
    with torch.no_grad():
        assert error(compiled(net)(x), net(x)) < 1e-6


@pytest.mark.parametrize("read", [
    lambda x: (x + 1)[4:].as_strided((4,), (1,), 0), lambda x: x[4:].as_strided((4,), (1,), 0),
    lambda x: (x + 1)[:2].as_strided((8,), (1,)),
    lambda x: (x + 1)[4:].view(2, 2).t().as_strided((2,), (1,), 2),
])  # fmt: skip
def test_memory_is_read_beyond_a_view(read):
    x = torch.randn(8)
    with torch.no_grad():
        assert torch.equal(compiled(lambda x: read(x) * 2)(x), read(x) * 2)


def test_gradients_are_those_of_eager_mode():
    model, x = Net().train(), torch.randn(4, 3, 12, 12, requires_grad=True)
    grads = []
    for step in (model, compiled(model)):
        state = {k: v.clone() for k, v in model.state_dict().items()}
        given = (x, *model.parameters())
        y = step(x)
        statistics = [b.clone() for b in model.buffers()]
        grads.append([*torch.autograd.grad(y.square().sum(), given), y, *statistics])
        model.load_state_dict(state)
    assert all(error(a.double(), b.double()) < 1e-5 for a, b in zip(*grads, strict=True))


class Counted(nn.Module):
    """Scales what it makes by how often it has run, of which the gradient takes a view, too."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4, bias=False)
        self.register_buffer("runs", torch.zeros(1))

    def forward(self, x):
        self.runs.add_(1)
        return self.layer(x) * self.runs.view(()) * self.runs.exp()


def test_what_a_graph_changes_is_no_constant_of_it(monkeypatch):
    """In training mode without gradients parameters stay constants: nothing is compiled again."""
    model, made = nn.Sequential(nn.Conv1d(3, 4, 1, bias=False), nn.BatchNorm1d(4)).train(), []
    optimized = region.optimized
    monkeypatch.setattr(
        region, "optimized", lambda *args, **rest: made.append(args) or optimized(*args, **rest)
    )
    step, x = compiled(model), torch.randn(2, 3, 5)
    with torch.no_grad():
        assert all(step(x) is not None for _ in range(3))
        mean = model[0](x).mean((0, 2)) * (1 - 0.9**3)
    assert error(model[1].running_mean, mean) < 1e-5
    assert len(made) == 1


def test_a_gradient_reads_what_the_forward_pass_read_of_a_buffer_that_it_changes():
    model = Counted()
    step = compiled(model)
    for runs in (1.0, 2.0):
        x = torch.randn(3, 4, requires_grad=True)
        (found,) = torch.autograd.grad(step(x).sum(), x)
        wanted = model.layer.weight.sum(0) * (runs * torch.tensor(runs).exp())
        assert error(found, wanted.expand(3, 4)) < 1e-5
    assert model.runs.item() == 2


def test_neither_a_normalised_image_nor_a_mask_is_stored_for_the_gradient():
    layers = [nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 2, 1)]
    x, saved = torch.randn(2, 3, 6, 6), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        compiled(nn.Sequential(*layers).train())(x)
    # What both convolutions read, and what the normalisation does.
    images = [tuple(t.shape) for t in saved if t.ndim == 4 and t.shape[2:] == x.shape[2:]]
    assert sorted(images) == [(2, 3, 6, 6), (2, 8, 6, 6), (2, 8, 6, 6)]


def test_the_backend_has_a_name():
    assert "tilewright" in torch._dynamo.list_backends()
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    groups = tomllib.loads(text)["project"]["entry-points"]
    assert groups[registered.GROUP] == {registered.NAME: registered.VALUE}
    with torch.no_grad():
        made = torch.compile(torch.sin, backend="tilewright", options={"freeze": False})
        assert error(made(torch.ones(3)), torch.ones(3).sin()) < 1e-6


@pytest.mark.parametrize("faster", [False, True])
def test_compile_keeps_the_faster_one(net, monkeypatch, faster):
    times = {"before": 1.0, "after": 0.5 if faster else 1.5}
    monkeypatch.setattr(compiling, "_medians", lambda *_: times)
    x = torch.randn(1, 3, 12, 12)
    report = tt.compile_(net, x)
    assert report.kept is faster
    assert (net._compiled_call_impl is not None) is faster
    assert ("compiled" if faster else "which is faster") in str(report)
    if faster:  # a second call compares one compiled model with another
        times["after"] = 1.5
        assert "left as it was, compiled before" in str(tt.compile_(net, x))
        assert net._compiled_call_impl is not None
    report.undo()
    assert net._compiled_call_impl is None


def test_compile_measures_both_and_changes_nothing(monkeypatch, capfd):
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    monkeypatch.setenv("TILEWRIGHT_PROGRESS", "1")
    model = Net().train()
    x = torch.randn(2, 3, 17, 13)  # of this test alone: nothing is shown of kernels that are known
    before = {k: v.clone() for k, v in model.state_dict().items()}
    report = tt.compile_(model, x, seconds=0.01)
    assert report.before > 0
    assert report.after > 0
    assert report.kept is (report.after < report.before)
    told = re.findall(r"compiling kernels: (\d+) of (\d+), \d+ s\n", capfd.readouterr().err)
    assert told
    assert told[-1][0] == told[-1][1]
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_gradient_that_is_rounding_alone_is_compared_with_its_modules():
    """A bias in front of a batch normalisation has none."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).train()
    report = tt.compile_(model, torch.randn(2, 3, 12, 12), seconds=0.01)
    assert report.before > 0, report.reason
    wanted = {"gradient by c.weight": torch.ones(8), "gradient by c.bias": torch.full((2,), 1e-7)}
    noisy = wanted | {"gradient by c.bias": torch.full((2,), -3e-7)}
    assert compiling._difference(wanted, noisy) == ""
    wrong = wanted | {"gradient by c.bias": torch.full((2,), 1e-2)}
    assert "its gradient by c.bias differs" in compiling._difference(wanted, wrong)
    assert "its result 0" in compiling._difference(
        {"result 0": torch.ones(2)}, {"result 0": torch.full((2,), torch.nan)}
    )


def test_sparse_gradients_are_compared():
    rows = torch.tensor([[0, 2]])
    wanted = {"gradient by e.weight": torch.sparse_coo_tensor(rows, torch.ones(2, 3), (4, 3))}
    found = {"gradient by e.weight": wanted["gradient by e.weight"] * 1.5}
    assert compiling._difference(wanted, wanted) == ""
    assert "e.weight differs by 0.5" in compiling._difference(wanted, found)


def test_a_number_in_place_of_an_infinity_is_a_difference():
    wanted = {"result 0": torch.tensor([-torch.inf, 1.0])}
    assert "its result 0" in compiling._difference(wanted, {"result 0": torch.tensor([0.0, 1.0])})


@pytest.mark.parametrize(("wanted", "found", "reason"), [
    ([1.0, torch.nan], [1.0, torch.nan], ""),
    ([torch.inf, 1.0], [torch.inf, 1.0], ""),
    ([torch.nan, 1.0], [0.0, 1.0], "NaN or infinities in other places"),
    ([0.0, 1.0], [torch.nan, 1.0], "NaN or infinities in other places"),
    ([torch.inf, 1.0], [-torch.inf, 1.0], "NaN or infinities in other places"),
    ([torch.nan, 1.0], [torch.nan, 2.0], "differs by 1"),
    ([0.0, 0.0], [0.0, 1.0], "differs by 1"),
    ([0.0, 0.0], [0.0, 1e-8], ""),
    ([1, 2], [1, 3], "differs in 1 of 2 elements"),
    ([True, False], [True, False], ""),
    ([1j, 2j], [1j, 2.5j], "differs by"),
    ([1.0, 2.0], [1.0], r"is torch.float32 of (1,), not torch.float32 of (2,)"),
])  # fmt: skip
def test_results_are_compared_in_every_element(wanted, found, reason):
    given = ({"result 0": torch.tensor(x)} for x in (wanted, found))
    said = compiling._difference(*given)
    assert reason in said
    assert bool(said) == bool(reason)


class Attention(nn.Module):
    """Queries, keys and values are parts of one product; of seven rows attention is PyTorch's."""

    def __init__(self):
        super().__init__()
        self.parts, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        b, n, c = x.shape
        parts = self.parts(x).reshape(b, n, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        found = F.scaled_dot_product_attention(q, k, v)
        return self.out(found.transpose(1, 2).reshape(b, n, c))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.mean((2, 3)), lambda x: F.adaptive_avg_pool2d(x, 1),
        lambda x: x.norm(p=2, dim=(1, 2)), lambda x: F.normalize(x, dim=1),
    ],
)  # fmt: skip
def test_sums_of_float16_are_wide(f):
    """Sums of an image, and of squares, are more than float16 holds; what is made of them is
    not."""
    x = (torch.randn(1, 8, 40, 40) * 40 + 300).half()
    with torch.no_grad():
        assert error(compiled(f)(x).double(), f(x.double())) < 1e-3


def of_numbers(x):
    """Reads what is made of numbers on the CPU; returns what stays there, too."""
    mask = ~torch.zeros(x.shape[0], 4).to(device=x.device, dtype=torch.bool)
    steps = (torch.arange(4) * 2).to(x.device) * torch.full((), 3.0)
    table = torch.tensor([1.0, 2.0, 4.0, 8.0]).to(x.device)
    kept = torch.ones(4)
    noise = torch.rand(4)
    return x + mask.cumsum(1) + steps * table + kept.to(x.device) + noise.to(x.device), kept


def test_what_is_made_of_numbers_is_made_where_it_is_read():
    x = torch.randn(2, 4)
    graph = make_fx(of_numbers)(x.to("meta"))
    assert len(on_cpu(graph)) == 8
    made_where_read(graph)
    # What is returned stays, and what draws random numbers, which are others on another device.
    assert on_cpu(graph) == ["ones", "rand"]
    assert graph(x.to("meta"))[1].device.type == "cpu"
    again = make_fx(of_numbers)(x)
    made_where_read(again)
    torch.manual_seed(1)
    wanted, _ = of_numbers(x)
    torch.manual_seed(1)
    assert torch.equal(again(x)[0], wanted)


def test_numbers_are_moved_while_a_graph_is_compiled_without_data():
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    graphs = []

    def compiler(graph, _):
        made_where_read(graph)
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=compiler, inference_compiler=compiler)
    with torch.no_grad():
        made, _ = torch.compile(of_numbers, backend=backend)(torch.empty(2, 4, device="meta"))
    assert made.device.type == "meta"
    assert on_cpu(graphs[0]) == ["ones", "rand"]


def on_cpu(graph):
    """The names of what a graph makes there."""
    found = [(n, getattr(n.meta.get("val"), "device", None)) for n in graph.graph.nodes]
    return [n.target.__name__.partition(".")[0] if n.op == "call_function" else n.name
            for n, d in found if d is not None and d.type == "cpu"]  # fmt: skip


@pytest.mark.parametrize("training", [False, True])
def test_what_only_pytorch_reads_is_a_view_of_a_result(training):
    model, found = Attention().train(training), []
    run = compiled(model, found)
    x = torch.randn(2, 7, 32, requires_grad=training)
    with torch.set_grad_enabled(training):
        y = run(x)
        torch.testing.assert_close(y, model(x), rtol=1e-4, atol=1e-5)
    left = {name for name, _ in found[0].left}
    assert {"aten.unbind.int", "aten.permute.default"} <= left
    if training:
        (one,) = torch.autograd.grad(y.square().sum(), x)
        (other,) = torch.autograd.grad(model(x).square().sum(), x)
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
