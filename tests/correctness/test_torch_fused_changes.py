"""What a convolution and those that it takes along are made of may change at any time."""

from __future__ import annotations

import copy

import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "plain_code")]
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


def _as_a_mean_teacher(model):
    student = Unit(8, nn.ReLU())
    for p, q in zip(model.parameters(), student.parameters(), strict=True):
        p.data.mul_(0.5).add_(q.data, alpha=0.5)


def _copied_through_data(model):
    for p in model.parameters():
        p.data.copy_(torch.randn_like(p))


def _all_at_once_through_data(model):
    torch._foreach_mul_([p.data for p in model.parameters()], -0.5)


def _in_memory_shared_with_numpy(model):
    for p in model.parameters():
        array = p.detach().numpy()
        array *= -0.5


def _through_a_view_of_data(model):
    for p in model.parameters():
        p.data.view(-1)[::2] = -1


def _averaged(model):
    average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    fresh = Unit(8, nn.ReLU())
    trained(fresh)
    for _ in range(2):
        average.update_parameters(fresh)
    for p, q in zip(model.parameters(), average.parameters(), strict=True):
        p.data.copy_(q.data)


def _swapped(model):
    for p in model.parameters():
        torch.utils.swap_tensors(p, nn.Parameter(torch.randn_like(p)))


def _there_and_back(model):
    model.half().float()


def _in_inference_mode(model):
    with torch.inference_mode():
        for t in model.state_dict().values():
            t.add_(1)


def _settings(model):
    model[0].stride, model[1].eps = (2, 2), 0.5


CHANGES = [
    _load, _assign, _optimizer_step, _through_data, _as_a_mean_teacher, _copied_through_data,
    _all_at_once_through_data, _in_memory_shared_with_numpy, _through_a_view_of_data, _averaged,
    _swapped, _there_and_back, _in_inference_mode, _settings, lambda m: m[1].reset_running_stats(),
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


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("region", [False, True])
def test_a_mean_teacher_answers_with_the_weights_that_it_has(region, fuse, without):
    """Written through ``.data`` after each step, which no version of a tensor counts."""
    teacher, student = sequence(nn.ReLU6()), sequence(nn.ReLU6())
    fast = copy.deepcopy(teacher)
    tt.optimize_(fast, fuse=fuse)
    x, answers = torch.randn(2, 8, 9, 10), []
    for _ in range(5):
        with without(), torch.autocast("cpu", torch.bfloat16, enabled=region):
            answers.append(teacher(x))
            assert error(fast(x), answers[-1]) < (2e-2 if region else 1e-6)
        for model in (teacher, fast):
            for p, q in zip(model.parameters(), student.parameters(), strict=True):
                p.data.mul_(0.5).add_(q.data, alpha=0.5)
    assert error(answers[-2], answers[0]) > 0.1


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
