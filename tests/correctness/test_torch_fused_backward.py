"""Both gradients of a convolution and what follows are one launch where launches can be joined."""

from __future__ import annotations

import copy
import ctypes

import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels")]
F = torch.nn.functional

from tests.support.sequences import sequence  # noqa: E402

import tilewright.torch as tt  # noqa: E402
from tilewright.torch import calls, cast_cache  # noqa: E402


@pytest.fixture
def joining(monkeypatch):
    """Joined launches, as on a GPU, that do one after the other; what each took."""
    made = []

    def join(launches, takes, addresses, temporaries=()):
        made.append((takes, list(temporaries)))

        def launch(pointers):
            assert len(pointers) == addresses
            between = [torch.empty(n, dtype=torch.uint8) for n in temporaries]
            given = (*pointers, *(t.data_ptr() for t in between))
            for one, own in zip(launches, takes, strict=True):
                one(tuple(given[k] for k in own))

        return launch

    monkeypatch.setattr("tilewright.torch.fused_backward.join", join)
    calls.forget()
    yield made
    calls.forget()


def conversion(like, dtype):
    """As on a GPU: its launch is on addresses."""
    numbers, kinds = like.numel(), (like.dtype, dtype)

    def launch(pointers):
        source, made = (
            torch.frombuffer(
                (ctypes.c_char * (numbers * kind.itemsize)).from_address(p), dtype=kind
            )
            for p, kind in zip(pointers, kinds, strict=True)
        )
        made.copy_(source)

    def convert(tensor):
        return tensor.to(dtype)

    vars(convert)["parts"] = (lambda: torch.empty(like.shape, dtype=dtype)), launch
    return convert


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_gradients_by_one_launch_are_those_of_several(
    autocast, with_bias, last, joining, monkeypatch
):
    if autocast:
        monkeypatch.setattr("tilewright.torch.cast_cache._cast_cache", cast_cache._CastCache())
        for module in ("eager_fast_path", "gradients"):
            monkeypatch.setattr(f"tilewright.torch.{module}.conversion", conversion)
    torch.manual_seed(0)
    form = torch.channels_last if last else torch.contiguous_format
    dtype = torch.bfloat16 if autocast else torch.float32
    x = torch.randn(2, 4, 7, 6, dtype=dtype).to(memory_format=form).requires_grad_()
    w = torch.nn.Parameter(torch.randn(4, 1, 3, 3))
    b = torch.nn.Parameter(torch.randn(4)) if with_bias else None
    operands = [t for t in (x, w, b) if t is not None]
    for _ in range(4):
        with torch.autocast("cpu", torch.bfloat16, autocast):
            y, wanted = tt.depthwise_conv2d(x, w, b, 1, 1), F.conv2d(x, w, b, 1, 1, 1, 4)
        g = torch.randn_like(y)
        found, right = (torch.autograd.grad(t, operands, g) for t in (y, wanted))
        for a, c in zip(found, right, strict=True):
            assert a.dtype == c.dtype
            assert error(a, c) < (2e-2 if autocast else 1e-5)
    plain = ([(0, 1, 2), (3, 0, 4)], [])
    converting = ([(0, 1, 2), (3, 0, 5), (5, 4)], [72])
    casting = [] if with_bias else [([(1, 2), (0, 2, 3)], [])]
    assert joining == ([plain, *casting, converting] if autocast else [plain])


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_what_follows_a_convolution_takes_the_casts_along_in_each_launch(
    last, with_bias, joining, monkeypatch
):
    monkeypatch.setattr("tilewright.torch.fused_backward.conversion", conversion)
    model = sequence(torch.nn.ReLU6(), 4, bias=with_bias)
    other = copy.deepcopy(model)
    tt.optimize_(model)
    x = torch.randn(2, 4, 7, 6)
    x = x.to(memory_format=torch.channels_last) if last else x
    with torch.no_grad():
        for _ in range(4):
            with torch.autocast("cpu", torch.bfloat16):
                found, wanted = model(x), other(x)
            assert error(found, wanted) < 2e-2
            for m in (model, other):
                m[0].weight.data.mul_(-0.5)
    with_bias_takes = [(1, 8), (2, 9), (0, 8, 9, 3, 4, 5, 6, 7)], [72, 8]
    takes = [(1, 7), (0, 7, 2, 3, 4, 5, 6)], [72]
    assert joining == [with_bias_takes if with_bias else takes]


def test_gradients_of_the_parameter_alone_are_launched_by_themselves(joining):
    x, w = torch.randn(2, 4, 7, 6), torch.nn.Parameter(torch.randn(4, 1, 3, 3))
    for _ in range(3):
        (found,) = torch.autograd.grad(tt.depthwise_conv2d(x, w, None, 1, 1).sum(), w)
    (wanted,) = torch.autograd.grad(F.conv2d(x, w, None, 1, 1, 1, 4).sum(), w)
    assert error(found, wanted) < 1e-5
    assert joining == []
