"""In inference a depthwise convolution takes along the normalisation and activation behind it, and
computes what they would, one after the other."""

from __future__ import annotations

import copy
import warnings

import pytest
from tests.support.torch_checks import close, error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "plain_code")]
nn = torch.nn

from tests.support.sequences import (  # noqa: E402
    ACTIVATIONS,
    in_float64,
    sequence,
    trained,
    watched,
)
from torch.nn.utils import prune  # noqa: E402

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls, kernels  # noqa: E402

FORMS = [torch.contiguous_format, torch.channels_last]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def pair(activation=None, **settings):
    """The same modules, fused and one by one."""
    model = sequence(activation, **settings)
    other = copy.deepcopy(model)
    assert tt.optimize_(model).fused
    assert not tt.optimize_(other, fuse=False).fused
    return model, other


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_one_kernel_computes_all_of_it(name, form, monkeypatch):
    model, other = pair(ACTIVATIONS[name](), bias=name in ("SiLU", "none"))
    x = torch.randn(2, 8, 9, 10).to(memory_format=form)
    with torch.no_grad():
        wanted = other(x)
        count = watched(monkeypatch, model)
        for _ in range(3):
            y = model(x)
            assert close(y, wanted, 1e-6)
            assert y.stride() == wanted.stride()
            assert count() == (name == "none")  # the identity


@pytest.mark.parametrize(
    "settings",
    [
        {"stride": 2}, {"dilation": (2, 1), "padding": (2, 1)}, {"kernel_size": (5, 2)},
        {"out_channels": 16, "bias": True}, {"padding": "same", "dilation": 3},
        {"kernel_size": 13, "padding": 6},
    ],
    ids=str,
)  # fmt: skip
def test_whatever_the_convolution_is_told(settings, monkeypatch):
    model, other = pair(nn.ReLU6(), **settings)
    x = torch.randn(2, 8, 14, 15)
    with torch.no_grad():
        wanted = other(x)
        count = watched(monkeypatch, model)
        assert close(model(x), wanted, 1e-6)
        assert count() == 0


def test_channels_last_by_way_of_nchw(monkeypatch):
    """As on a GPU with large filters."""
    model, other = pair(nn.ReLU(), bias=True)
    x = torch.randn(2, 8, 9, 10).to(memory_format=torch.channels_last)
    calls.forget()
    with torch.no_grad():
        wanted = other(x)
        monkeypatch.setattr(calls, "is_by_nchw", lambda *_: True)
        assert [line.problem.layout for line in tt.explain(model, x).lines] == ["NCHW"]
        for _ in range(3):
            y = model(x)
            assert close(y, wanted, 1e-6)
            assert y.stride() == wanted.stride()
    calls.forget()


def test_where_there_is_no_kernel_the_modules_are_called(monkeypatch):
    model, other = pair(nn.ReLU())
    x = torch.randn(2, 8, 9, 10)
    find = kernels.find

    def only_plain(problem, *more):
        return kernels.Selection(None, reason="none") if problem.epilogue else find(problem, *more)

    monkeypatch.setattr(kernels, "find", only_plain)
    calls.forget()
    with torch.no_grad():
        count = watched(monkeypatch, model)
        for _ in range(3):
            assert close(model(x), other(x), 1e-6)
            assert count() == 4
        assert [line.problem.epilogue for line in tt.explain(model, x).lines] == [()]
    calls.forget()


def test_another_policy_chooses_anew():
    model, other = pair(nn.ReLU())
    x = torch.randn(2, 8, 9, 10)
    with torch.no_grad():
        model(x)
        before = tt.set_policy("reproducible")
        try:
            assert not calls._runs
            assert close(model(x), other(x), 1e-6)
            assert calls._runs
        finally:
            tt.set_policy(before)


@pytest.mark.parametrize("affine", [True, False])
def test_a_normalisation_may_have_no_parameters_of_its_own(affine, monkeypatch):
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8, 0.1, affine=affine))
    trained(model.eval())
    other = copy.deepcopy(model)
    tt.optimize_(model)
    x = torch.randn(2, 8, 9, 10)
    with torch.no_grad():
        wanted = other(x)
        count = watched(monkeypatch, model)
        assert all(close(model(x), wanted, 1e-6) for _ in range(3))
        assert count() == 0


@pytest.mark.parametrize("how", ["autocast", "parameters"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_it_is_as_exact_as_one_by_one_and_of_the_same_type(dtype, how, monkeypatch):
    """Nothing is rounded on the way."""
    wide = dtype == torch.float32
    model, other = pair(nn.SiLU(), channels=32)
    x = torch.randn(4, 32, 14, 14)
    if how == "parameters":
        model, other, x = model.to(dtype), other.to(dtype), x.to(dtype)
    elif wide:
        pytest.skip("autocast is to 16 bits")
    else:  # what comes from another convolution of the region
        x = x.to(dtype)
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=how == "autocast"):
        count = watched(monkeypatch, other)
        one_by_one = other(x)
        assert count() == 2
        found = [model(x) for _ in range(2)][1]
        assert count() == 0
    with torch.no_grad():
        exact = in_float64(other, x)
    assert found.dtype == one_by_one.dtype == dtype
    assert error(found, exact) <= error(one_by_one, exact) * (1.2 if wide else 1.0)


def test_float64_is_float64_throughout():
    model, other = pair(nn.GELU())
    model, other = model.double(), other.double()
    x = torch.randn(2, 8, 9, 10, dtype=torch.float64)
    with torch.no_grad():
        assert close(model(x), other(x), 1e-15)


def test_inputs_of_float32_are_cast_in_a_region_of_autocast(monkeypatch):
    model, other = pair(nn.ReLU(), bias=True)
    x = torch.randn(2, 8, 9, 10)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        wanted = other(x)
        count = watched(monkeypatch, model)
        for _ in range(3):
            y = model(x)
            assert y.dtype == torch.bfloat16
            assert error(y, wanted) < 1e-2
        assert count() == 0
    with torch.no_grad():
        assert model(x).dtype == torch.float32


# -- when the modules are called one by one ----------------------------------------------------


def _hook(k):
    return lambda m: m[k].register_forward_hook(lambda *_: None)


def _pre_hook(k):
    return lambda m: m[k].register_forward_pre_hook(lambda *_: None)


def _own_forward(k):
    def change(m):
        forward = m[k].forward
        m[k].forward = lambda x: forward(x)

    return change


class _Half(nn.Module):
    def forward(self, weight):
        return weight * 0.5


REASONS = {
    "training": lambda m: m.train(),
    "the normalisation trains": lambda m: m[1].train(),
    "no statistics": lambda m: setattr(m[1], "running_mean", None),
    **{f"a hook of {k}": _hook(k) for k in range(3)},
    **{f"a hook before {k}": _pre_hook(k) for k in range(3)},
    **{f"{k} has a forward pass of its own": _own_forward(k) for k in range(3)},
    "a convolution of its own": lambda m: setattr(m[0], "_conv_forward", m[0]._conv_forward),
    "pruning": lambda m: prune.random_unstructured(m[0], "weight", 0.5),
    "spectral normalisation": lambda m: nn.utils.spectral_norm(m[0]),
    "padding by reflection": lambda m: setattr(m[0], "padding_mode", "reflect"),
    "a parametrization": lambda m: nn.utils.parametrize.register_parametrization(
        m[0], "weight", _Half()
    ),
    "weights that are not dense": lambda m: setattr(
        m[0].weight, "data", torch.randn(8, 1, 3, 6)[..., ::2]
    ),
}  # fmt: skip


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("why", REASONS)
def test_the_modules_are_called_one_by_one(why, known, monkeypatch):
    """Whether there was a call of the kernel before or not."""
    model, x = sequence(nn.Hardswish()), torch.randn(2, 8, 9, 10)
    tt.optimize_(model)
    with torch.no_grad():
        for _ in range(2 * known):
            model(x)
        if why == "no statistics":
            model[1].running_var = None
        REASONS[why](model)
        other = copy.deepcopy(model)
        wanted = other[2](other[1](other[0](x)))
        count = watched(monkeypatch, model)
        assert close(model(x), wanted, 1e-6)
        assert count() > 0


def test_gradients_are_those_of_the_modules(monkeypatch):
    model, other = pair(nn.SiLU())
    x = torch.randn(2, 8, 9, 10)
    with torch.no_grad():
        model(x)
    count = watched(monkeypatch, model)
    for m in (model, other):
        m(x).square().sum().backward()
    assert count() == 4
    assert all(close(p.grad, q.grad) for p, q in zip(model.parameters(), other.parameters()))
    for p in model.parameters():
        p.requires_grad_(False)
    assert close(model(x), other(x), 1e-6)
    assert close(model(x), other(x), 1e-6)
    assert count() == 4  # of the other
    z = x.clone().requires_grad_()
    model(z).sum().backward()
    assert count() == 2
    assert z.grad is not None


def test_a_hook_of_all_modules_sees_all(monkeypatch):
    model, x, seen = sequence(nn.ReLU()), torch.randn(2, 8, 9, 10), []
    tt.optimize_(model)
    with torch.no_grad():
        model(x)
        handle = nn.modules.module.register_module_forward_hook(
            lambda module, *_: seen.append(module)
        )
        try:
            model(x)
        finally:
            handle.remove()
    assert seen == [*model, model]


@pytest.fixture
def quiet(only_kernels):
    """What is left to PyTorch is, without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.usefixtures("quiet")
def test_transformations_and_what_is_traced_see_the_modules():
    model, other = pair(nn.ReLU6())
    x = torch.randn(3, 2, 8, 9, 10)
    with torch.no_grad():
        wanted = other(x.flatten(0, 1))
        assert close(torch.func.vmap(model)(x).flatten(0, 1), wanted)
        model(x[0])
        assert close(torch.func.vmap(model)(x).flatten(0, 1), wanted)
        traced = torch.jit.trace(model, x[0])
        assert "batch_norm" in str(traced.inlined_graph)
        moved = {name: p + 0.1 for name, p in model.named_parameters()}
        found = torch.func.functional_call(model, moved, x[0])
        assert close(found, torch.func.functional_call(other, moved, x[0]), 1e-6)


@pytest.mark.usefixtures("quiet")
def test_mistakes_are_told_as_by_the_modules():
    model, other = pair(nn.ReLU())
    with torch.no_grad():
        model(torch.randn(1, 8, 5, 5))
        for x in (torch.randn(8, 5, 5), torch.randn(1, 7, 5, 5), torch.randn(1, 8, 5, 5).double()):
            with pytest.raises((RuntimeError, ValueError)) as wanted:
                other(x)
            with pytest.raises(wanted.type) as found:
                model(x)
            assert str(found.value) == str(wanted.value)
