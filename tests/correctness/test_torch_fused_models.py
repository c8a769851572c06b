"""Models whose convolutions take along what follows them are the same models: in their state, for
compilers, in reports."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
from tests.support.torch_checks import close, error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "plain_code")]
nn = torch.nn

from tests.support.sequences import Unit, sequence, trained, watched  # noqa: E402

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls  # noqa: E402


class Model(nn.Module):
    """Sequences as models write them: with other layers in a row, and of classes of their own."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, 2, 1, groups=8), nn.BatchNorm2d(8),
            nn.LeakyReLU(0.1), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8),
            nn.Conv2d(8, 8, 1),
        )  # fmt: skip
        self.unit = Unit(8, nn.SiLU(inplace=True), kernel_size=5, padding=2)

    def forward(self, x):
        return self.unit(self.stem(x))


@pytest.fixture
def models():
    torch.manual_seed(0)
    model = Model().eval()
    trained(model)
    return model, copy.deepcopy(model)


@pytest.fixture
def x():
    return torch.randn(2, 3, 12, 13)


def test_the_report_says_what_convolutions_take_along(models):
    model, other = models
    report = tt.optimize_(model)
    assert report.replaced == ["stem.1", "stem.4", "unit.0"]
    assert report.fused == {
        "stem.1": ("stem.2", "stem.3"), "stem.4": ("stem.5",), "unit.0": ("unit.1", "unit.2"),
    }  # fmt: skip
    lines = str(report).splitlines()
    assert lines[3].endswith("replaced, with BatchNorm2d and LeakyReLU")
    assert lines[4].endswith("replaced, with BatchNorm2d")
    assert lines[-1] == (
        "3 of 5 convolutions replaced, 3 take along what follows them in inference"
    )
    again = tt.optimize_(model)
    assert again.fused == report.fused
    assert "is Tilewright's already, with BatchNorm2d and SiLU" in str(again)
    left = tt.optimize_(other, lambda _, name: name.startswith("unit"))
    assert list(left.fused) == ["unit.0"]
    assert type(other.stem) is nn.Sequential


def test_the_model_is_what_it_was(models, x):
    model, other = models
    inside = list(model.modules())
    tt.optimize_(model)
    assert list(model.modules()) == inside
    assert isinstance(model.unit, Unit)
    assert list(model.state_dict()) == list(other.state_dict())
    assert [n for n, _ in model.named_modules()] == [n for n, _ in other.named_modules()]
    with torch.no_grad():
        model(x)
    assert list(model.state_dict()) == list(other.state_dict())
    other.load_state_dict(model.state_dict())
    # What the sequence holds can be called by itself.
    with torch.no_grad():
        y = model.stem[0](x)
        assert close(model.stem[1](y), other.stem[1](y))
        assert close(model.stem[1:3](y), other.stem[1:3](y))


@pytest.mark.parametrize("undo", ["report", "function", "function on a copy"])
def test_it_can_be_what_it_was_again(undo, models, x, monkeypatch):
    model, other = models
    kinds = [type(m) for m in model.modules()]
    report = tt.optimize_(model)
    with torch.no_grad():
        model(x)
    if undo == "report":
        report.undo()
    else:
        model = copy.deepcopy(model) if undo.endswith("copy") else model
        assert tt.undo_(model) == ["stem.1", "stem.4", "unit.0"]
    assert [type(m) for m in model.modules()] == kinds
    assert all(vars(m).keys() == vars(n).keys() for m, n in zip(model.modules(), other.modules()))
    calls = watched(monkeypatch, model)
    with torch.no_grad():
        assert close(model(x), other(x))
    assert calls() == 2 * 5


def _saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy, _saved, lambda m: pickle.loads(pickle.dumps(m)),
        lambda m: pickle.loads(pickle.dumps(m, protocol=0)),
    ],
)  # fmt: skip
def test_copies_are_models_of_their_own(copied, models, x, monkeypatch):
    model, other = models
    tt.optimize_(model)
    with torch.no_grad():
        wanted = model(x)
        made = copied(model)
        assert type(made.unit) is type(model.unit)
        calls = watched(monkeypatch, model)
        assert made(x).equal(wanted)
        trained(made)
        changed = made(x)
        assert calls() == 0
        assert model(x).equal(wanted)
        other.load_state_dict(made.state_dict())
        assert close(changed, other(x))
        assert error(changed, wanted) > 0.1


def test_a_model_trains_as_it_did(models, x):
    model, other = models
    tt.optimize_(model)
    for m in models:
        optimizer = torch.optim.SGD(m.parameters(), 0.01)
        for _ in range(2):
            m.train()
            m(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            m.eval()
            with torch.no_grad():
                m(x)
    with torch.no_grad():
        assert close(model(x), other(x), 1e-4)


def test_explain_names_what_is_computed_along(models, x, monkeypatch):
    model, _ = models
    tt.optimize_(model)
    calls_ = watched(monkeypatch, model)
    lines = tt.explain(model, x).lines
    assert calls_() == 0
    assert [line.name for line in lines] == ["stem.1", "stem.4", "unit.0"]
    steps = [[step.name for step in line.problem.epilogue] for line in lines]
    assert steps == [["bias", "batch_norm", "leaky_relu"], ["bias", "batch_norm"],
                     ["batch_norm", "silu"]]  # fmt: skip
    assert all(line.kernel for line in lines)
    assert not calls.observers
    model.train()
    assert [line.problem.epilogue for line in tt.explain(model, x).lines[2:]] == [()]


def test_a_replica_for_another_device_computes_the_same(models, x):
    """Its parameters are attributes, not parameters."""
    model, _ = models
    tt.optimize_(model)
    with torch.no_grad():
        wanted = model(x)
        unit = model.unit._replicate_for_data_parallel()
        for name, module in model.unit._modules.items():
            replica = module._replicate_for_data_parallel()
            for key, parameter in module._parameters.items():
                setattr(replica, key, None if parameter is None else parameter.detach().clone())
            unit._modules[name] = replica
        y = model.stem(x)
        assert close(unit(y), wanted)
        assert close(model(x), wanted)


# -- compilers ---------------------------------------------------------------------------------


@pytest.fixture
def nothing_compiled():
    torch._dynamo.reset()


def targets(graph):
    return [str(n.target) for n in graph.nodes if n.op == "call_function"]


@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.parametrize("region", [False, True])
def test_a_compiled_model_is_one_graph_of_such_kernels(region, models, x):
    from torch._dynamo.testing import EagerAndRecordGraphs

    model, other = models
    tt.optimize_(model)
    recorded = EagerAndRecordGraphs()
    compiled = torch.compile(model, fullgraph=True, backend=recorded)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=region):
        y, wanted = compiled(x), other(x)
    assert y.dtype == wanted.dtype
    assert error(y, wanted) < (2e-2 if region else 1e-6)
    found = targets(recorded.graphs[0].graph)
    assert found.count("tilewright.depthwise_conv2d_norm.default") == 3
    assert not any("batch_norm" in t or "silu" in t for t in found)
    # With gradients, and in training, it is another graph.
    compiled(x).sum().backward()
    other(x).sum().backward()
    assert all(close(p.grad, q.grad) for p, q in zip(model.parameters(), other.parameters()))
    assert not any("conv2d_norm" in t for t in targets(recorded.graphs[-1].graph))
    with torch.no_grad():
        assert close(compiled(x), other(x))
        assert close(compiled.train()(x), other.train()(x), 1e-4)


@pytest.mark.usefixtures("nothing_compiled")
def test_inductor_computes_the_same(models, x):
    model, other = models
    tt.optimize_(model)
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        for image in (x, x.to(memory_format=torch.channels_last)):
            assert close(compiled(image), other(image), 1e-6)
        trained(model)
        other.load_state_dict(model.state_dict())
        assert close(compiled(x), other(x), 1e-6)


def test_a_model_is_exported_with_such_kernels_for_every_batch(models, x):
    model, other = models
    tt.optimize_(model)
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
        found = targets(program.graph)
        assert found.count("tilewright.depthwise_conv2d_norm.default") == 3
        for image in (x, torch.randn(7, 3, 12, 13)):
            assert close(program.module()(image), other(image), 1e-6)
    assert close(torch.export.export(model, (x,)).module()(x), other(x), 1e-6)  # with gradients


def test_a_profile_names_the_operator(models, x):
    model, _ = models
    tt.optimize_(model)
    with torch.no_grad():
        model(x)
        with torch.profiler.profile() as profile:
            model(x)
    names = [event.name for event in profile.events()]
    assert names.count("tilewright::depthwise_conv2d_norm") == 3


def test_the_operator_computes_where_there_is_no_kernel():
    operator = torch.ops.tilewright.depthwise_conv2d_norm
    unit = list(sequence(nn.Hardtanh(-1, 2)))
    x = torch.randn(2, 8, 9, 20)[..., ::2]
    norm = unit[1]
    statistics = norm.running_mean, norm.running_var, norm.weight, norm.bias
    with torch.no_grad():
        for step, end in (("clamp(-1,2)", 3), ("", 2)):
            geometry = ([1, 1], [1, 1, 1, 1], [1, 1])
            y = operator(x, unit[0].weight, None, *statistics, norm.eps, step, *geometry)
            assert close(y, nn.Sequential(*unit[:end])(x), 1e-6)
            torch.library.opcheck(
                operator.default,
                (x.contiguous(), unit[0].weight.detach(), None, norm.running_mean,
                 norm.running_var, None, None, norm.eps, step, *geometry),
                test_utils=("test_schema", "test_faketensor"),
            )  # fmt: skip
