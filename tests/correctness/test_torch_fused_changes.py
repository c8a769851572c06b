"""What a convolution and those that it takes along are made of may change at any time."""

from __future__ import annotations

import copy

import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels")]
nn = torch.nn

from tests.support.sequences import Unit, sequence, trained  # noqa: E402

import tilewright.torch as tt  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def _load(model):
    fresh = Unit(8, nn.ReLU())
    trained(fresh)
    model.load_state_dict(fresh.state_dict())


def _assign(model):
    fresh = Unit(8, nn.ReLU())
    trained(fresh)
    model.load_state_dict(fresh.state_dict(), assign=True)


def _optimizer_step(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    model.train()
    with torch.enable_grad():
        model(torch.randn(4, 8, 9, 10)).square().sum().backward()
    optimizer.step()
    model.eval()


def _through_data(model):
    for p in model.parameters():
        p.data = torch.randn_like(p)


def _through_data_in_training(model):
    model.train()
    for p in model.parameters():
        p.data.add_(0.5)
    model.eval()


def _there_and_back(model):
    model.half().float()


def _in_inference_mode(model):
    with torch.inference_mode():
        for t in model.state_dict().values():
            t.add_(1)


def _settings(model):
    model[0].stride, model[1].eps = (2, 2), 0.5


CHANGES = [
    _load, _assign, _optimizer_step, _through_data, _through_data_in_training, _there_and_back,
    _in_inference_mode, _settings, lambda m: m[1].reset_running_stats(),
    lambda m: m[1].running_mean.add_(1), lambda m: m.__setitem__(2, nn.LeakyReLU(0.5)),
    lambda m: m.insert(1, nn.ReLU()), lambda m: m.append(nn.Hardswish()),
    lambda m: m.__delitem__(2), lambda m: setattr(m[0], "weight", nn.Parameter(m[0].weight * 2)),
]  # fmt: skip


@pytest.mark.parametrize("region", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_counts_from_the_next_call_on(change, region):
    model = sequence(nn.ReLU())
    tt.optimize_(model)
    x = torch.randn(2, 8, 9, 10)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=region):
        before = [model(x) for _ in range(3)][2]
        change(model)
        wanted = x
        for module in copy.deepcopy(model):
            wanted = module(wanted)
        for _ in range(2):
            assert error(model(x), wanted) < (1e-2 if region else 1e-6)
    assert wanted.shape != before.shape or error(before, wanted) > (0 if change is _there_and_back
                                                                    else 1e-2)  # fmt: skip


def test_images_may_change_from_call_to_call():
    model = sequence(nn.GELU())
    other = copy.deepcopy(model)
    tt.optimize_(model)
    x = torch.randn(2, 8, 9, 10)
    images = [x, x[:1], torch.randn(2, 8, 12, 7), x.to(memory_format=torch.channels_last), x]
    with torch.no_grad():
        for region in (False, True, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=region):
                for x in images:
                    y, wanted = model(x), other(x)
                    assert error(y, wanted) < (1e-2 if region else 1e-6)
                    assert (y.dtype, y.stride()) == (wanted.dtype, wanted.stride())
