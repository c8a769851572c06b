"""In training the modules behind a convolution do what they did, past their calls or by them."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "plain_code")]
nn = torch.nn

from tests.support.sequences import Unit, trained  # noqa: E402
from tests.support.torch_checks import close  # noqa: E402

import tilewright.torch as tt  # noqa: E402


def pair(activation=None, **settings):
    torch.manual_seed(0)
    other = Unit(8, activation or nn.ReLU6(), **settings)
    trained(other)
    model = copy.deepcopy(other)
    assert tt.optimize_(model).fused
    return model.train(), other.train()


def image(batch=2):
    return torch.randn(batch, 8, 6, 6)


def same(model, other, x=None):
    """Results, gradients and statistics, over some steps."""
    for _ in range(3):
        x = image() if x is None else x
        found, wanted = model(x), other(x)
        assert close(found, wanted)
        for made in (found, wanted):
            made.sin().sum().backward()
        for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
            assert close(p.grad, q.grad, 1e-4), name
        for (name, b), c in zip(model.named_buffers(), other.buffers(), strict=True):
            assert close(b, c), name
        x = None


ACTIVATIONS = [nn.ReLU6(), nn.ReLU(inplace=True), nn.Hardtanh(-0.5, 0.7), nn.SiLU(), nn.Identity()]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_a_step_is_what_it_was(activation):
    same(*pair(activation))


def no_momentum(norm):
    norm.momentum = None


def not_tracked(norm):
    norm.track_running_stats = False


def no_statistics(norm):
    norm.running_mean = norm.running_var = norm.num_batches_tracked = None


def not_counted(norm):
    norm.num_batches_tracked = None


def not_affine(norm):
    norm.weight = norm.bias = None


SETTINGS = [no_momentum, not_tracked, no_statistics, not_counted, not_affine]


@pytest.mark.parametrize("change", SETTINGS)
@pytest.mark.parametrize("late", [False, True])
def test_settings_of_the_normalisation_are_its_own(change, late):
    model, other = pair()
    if late:
        same(model, other)
    for m in (model, other):
        change(m[1])
        m.zero_grad()
    same(model, other)


def test_a_normalisation_that_does_not_train_among_modules_that_do():
    model, other = pair()
    for m in (model, other):
        m[1].eval()
    x = image()
    assert close(model(x), other(x))


HOOKS = ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
         "register_full_backward_pre_hook"]  # fmt: skip


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_are_called(hook, which):
    model, other = pair()
    same(model, other)
    seen = []
    handle = getattr(model[which], hook)(lambda module, *_: seen.append(module))
    x = image().requires_grad_()
    model(x).sum().backward()
    assert seen == [model[which]]
    handle.remove()
    model(image()).sum().backward()
    assert len(seen) == 1


@pytest.mark.parametrize("name", ["forward_hook", "forward_pre_hook", "full_backward_hook"])
def test_hooks_of_all_modules_are_called(name):
    model, other = pair()
    same(model, other)
    seen = []
    register = getattr(nn.modules.module, f"register_module_{name}")
    handle = register(lambda module, *_: seen.append(type(module)))
    try:
        model(image().requires_grad_()).sum().backward()
    finally:
        handle.remove()
    assert {type(m) for m in model} <= set(seen)


def test_another_forward_pass_is_taken():
    model, _ = pair()
    model(image())
    for module in model:
        before, seen = module.forward, []
        module.forward = lambda x, before=before, seen=seen: seen.append(1) or before(x)
        model(image())
        assert seen == [1]
        del module.forward


@pytest.mark.parametrize("name", ["__call__", "_call_impl"])
def test_who_watches_every_call_sees_these(name, monkeypatch):
    model, _ = pair()
    model(image())
    seen, before = [], getattr(nn.Module, name)

    def watched(self, *args, **more):
        seen.append(type(self))
        return before(self, *args, **more)

    monkeypatch.setattr(nn.Module, name, watched)
    model(image())
    assert {type(m) for m in model} <= set(seen)


def test_who_watched_before_the_import_sees_them_too():
    program = """
import torch
from torch import nn
seen, before = [], nn.Module.__call__
def watched(self, *args, **more):
    seen.append(type(self).__name__)
    return before(self, *args, **more)
nn.Module.__call__ = watched
import tilewright.torch as tt
model = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), nn.ReLU6())
assert tt.optimize_(model).fused
for _ in range(3):
    seen.clear()
    model(torch.randn(2, 4, 6, 6))
assert {"DepthwiseConv2d", "BatchNorm2d", "ReLU6"} <= set(seen), seen
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize(
    ("place", "name"), [(nn.BatchNorm2d, "forward"), (torch.nn.functional, "batch_norm")]
)
def test_another_normalisation_is_taken(place, name, monkeypatch):
    model, _ = pair()
    model(image())
    seen, before = [], getattr(place, name)

    def another(*args, **more):
        seen.append(name)
        return before(*args, **more)

    monkeypatch.setattr(place, name, another)
    model(image())
    assert seen


def test_profiles_have_the_modules():
    model, _ = pair()
    model(image())
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True
    ) as profile:
        model(image())
    named = {e.name.split("nn.Module: ")[-1].rpartition("_")[0] for e in profile.events()
             if e.name.startswith("nn.Module: ")}  # fmt: skip
    assert {type(m).__name__ for m in model} <= named


def test_parameters_of_another_place_are_taken():
    model, other = pair()
    x, state = image(), {name: p + 0.5 for name, p in other.named_parameters()}
    model(x)
    found, wanted = (torch.func.functional_call(m, state, (x,)) for m in (model, other))
    assert close(found, wanted)


def test_a_parametrised_normalisation_is_its_module():
    model, other = pair()

    class Twice(nn.Module):
        def forward(self, weight):
            return 2 * weight

    for m in (model, other):
        torch.nn.utils.parametrize.register_parametrization(m[1], "weight", Twice())
    x = image()
    assert close(model(x), other(x))


def test_what_modules_refuse_is_refused():
    model, other = pair(kernel_size=1, padding=0)
    one = torch.randn(1, 8, 1, 1)
    for m in (model, other):
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            m(one)
        with pytest.raises(ValueError, match="expected 4D input"):
            m(torch.randn(8, 6, 6))
