"""On a GPU a convolution and what follows it are one launch, on any stream and in graphs."""

from __future__ import annotations

import copy

import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.needs_cuda,
    pytest.mark.usefixtures("only_kernels"),
]
nn = torch.nn

from tests.support.sequences import in_float64, sequence, trained  # noqa: E402

import tilewright.torch as tt  # noqa: E402

FORMS = [torch.contiguous_format, torch.channels_last]
#: What a call computes in, and how: parameters in float32 in a region of autocast, or all in it.
WAYS = [(torch.float32, False), (torch.float16, False), (torch.float16, True),
        (torch.bfloat16, True)]  # fmt: skip


def pair(channels=32, **settings):
    model = sequence(nn.ReLU6(), channels, **settings).cuda()
    other = copy.deepcopy(model)
    assert tt.optimize_(model).fused
    return model, other


def image(form=torch.contiguous_format, dtype=torch.float32):
    return torch.randn(4, 32, 28, 28, device="cuda", dtype=dtype).to(memory_format=form)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("kernel", [3, 7])
@pytest.mark.parametrize(("dtype", "region"), WAYS)
def test_it_is_as_exact_as_one_by_one(dtype, region, kernel, form):
    """But for the last bit of float32: over several models, of one it is a matter of chance."""
    errors = {"found": 0.0, "one by one": 0.0}
    for seed in range(4):
        torch.manual_seed(seed)
        model, other = pair(kernel_size=kernel, padding=kernel // 2)
        x = image(form, dtype)
        if not region:
            model, other = model.to(dtype), other.to(dtype)
        with torch.no_grad():
            exact = in_float64(other, x)
            with torch.autocast("cuda", dtype, enabled=region):
                one_by_one = other(x)
                calls = [model(x) for _ in range(3)]  # each is recognised otherwise
            for found in calls:
                assert found.dtype == one_by_one.dtype
                assert found.stride() == one_by_one.stride()
            errors["found"] += max(error(found, exact) for found in calls)
            errors["one by one"] += error(one_by_one, exact)
    # The filter's products with the scale are rounded too.
    assert errors["found"] <= max(1.4 * errors["one by one"], 4 * 2.0**-23)


@pytest.mark.parametrize("region", [False, True])
def test_a_call_is_one_launch(region):
    model, _ = pair()
    x = image(dtype=torch.float16 if region else torch.float32)
    with torch.no_grad(), torch.autocast("cuda", torch.float16, enabled=region):
        for _ in range(3):
            model(x)
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            model(x)
            torch.cuda.synchronize()
    kernels = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert len(kernels) <= 1 + region  # what is profiled casts its filter


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("region", [False, True])
def test_a_graph_sees_the_parameters_as_they_are_when_it_is_replayed(region, affine, known):
    model, other = pair()
    if not affine:
        for m in (model, other):
            m[1].weight = m[1].bias = None
    x = image(dtype=torch.float16 if region else torch.float32)

    def result(module):
        # PyTorch keeps what it has cast until a region ends, so that each call has its own.
        with torch.autocast("cuda", torch.float16, enabled=region):
            return module(x)

    limit = 2e-3 if region else 1e-5
    with torch.no_grad():
        result(model)  # compiles
        if not known:
            model.eval()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = result(model)
        for _ in range(2):
            graph.replay()
            assert error(y, result(other)) < limit
            for t in (*model.parameters(), model[1].running_mean):
                t.add_(0.25)
            other.load_state_dict(model.state_dict())
            assert error(result(model), result(other)) < limit
            assert error(y, result(other)) > 1e-2
        for p in model.parameters():
            p.data.mul_(-0.5)
        other.load_state_dict(model.state_dict())
        assert error(result(model), result(other)) < limit
        torch.cuda.empty_cache()
        graph.replay()
        assert error(y, result(other)) < limit


def test_casts_belong_to_a_stream():
    model, other = pair()
    x = image(dtype=torch.float16)
    streams = [torch.cuda.Stream() for _ in range(2)]
    with torch.no_grad(), torch.autocast("cuda", torch.float16):
        wanted = other(x)
        torch.cuda.synchronize()
        for k in range(6):
            stream = streams[k % 2]
            with torch.cuda.stream(stream):
                if k == 0:
                    torch.cuda._sleep(100_000_000)  # its cast is late
                found = model(x)
            if k:
                stream.synchronize()
                assert error(found, wanted) < 2e-3


def test_statistics_may_change_in_a_graph_that_trains():
    """No version of a tensor counts what a replay writes."""
    model, other = pair()
    x = image()
    with torch.no_grad():
        model(x)
        model.train()
        model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(x)
        model.eval()
        before = model(x).clone()
        for _ in range(20):
            graph.replay()
        other.load_state_dict(model.state_dict())
        assert error(model(x), other(x)) < 1e-5
        assert error(before, other(x)) > 1e-2


def test_parameters_may_move_there_and_back():
    model, other = pair()
    x = image()
    with torch.no_grad():
        model(x)
        assert error(model.cpu()(x.cpu()), other.cpu()(x.cpu())) < 1e-5
        trained(model)
        other.load_state_dict(model.state_dict())
        assert error(model.cuda()(x), other.cuda()(x)) < 1e-5
