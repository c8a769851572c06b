"""The modules of RepLKNet, SLaK and UniRepLKNet train and infer on kernels as in PyTorch."""

from __future__ import annotations

import contextlib
import copy

import pytest
from tests.support.torch_checks import close, error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "one_thread")]

from tests.support.large_kernels import CHANNELS, NETWORKS, Block  # noqa: E402

import tilewright.torch as tt  # noqa: E402

SIZE = 14
SLACK = {"float32": 4.0, "float16": 1.5, "bfloat16": 1.5}


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # those of so small images would wait for one another
    yield
    torch.set_num_threads(before)


def trained(model, x, g, dtype):
    """The output and all gradients of one pass, forward and backward."""
    x = x.clone().requires_grad_()
    cast = torch.autocast("cpu", getattr(torch, dtype)) if dtype else contextlib.nullcontext()
    with cast:
        y = model(x)
    y.backward(g.to(y.dtype))
    return [y, x.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize(
    ("network", "dtype", "last"),
    [
        ("RepLKNet", "", False), ("RepLKNet", "float16", False), ("SLaK", "", False),
        ("SLaK", "bfloat16", True), ("UniRepLKNet", "", False), ("UniRepLKNet", "float16", False),
    ],
)  # fmt: skip
def test_a_block_trains_as_precisely_as_pytorchs(network, dtype, last):
    torch.manual_seed(0)
    form = torch.channels_last if last else torch.contiguous_format
    theirs = Block(network).to(memory_format=form)
    ours, exact = copy.deepcopy(theirs), copy.deepcopy(theirs).double()
    report = tt.optimize_(ours)
    assert len(report.replaced) == len(NETWORKS[network])
    assert set(report.skipped) == {"before", "after.1"}  # of 1x1, and dense
    x, g = torch.randn(2, 2, CHANNELS, SIZE, SIZE)
    x = x.contiguous(memory_format=form)
    wanted = trained(exact, x.double(), g.double(), "")
    slack = SLACK[dtype or "float32"]
    for found, other, right in zip(
        trained(ours, x, g, dtype), trained(theirs, x, g, dtype), wanted, strict=True
    ):
        if right.detach().norm() > 1e-9:  # biases before normalisations have no gradient
            assert error(found, right) <= slack * error(other, right) + 1e-6


@pytest.mark.parametrize("network", NETWORKS)
def test_a_block_infers_as_in_pytorch(network):
    torch.manual_seed(0)
    theirs = Block(network).eval()
    ours = copy.deepcopy(theirs)
    tt.optimize_(ours)
    x = torch.randn(1, CHANNELS, SIZE, SIZE)
    with torch.no_grad():
        assert close(ours(x), theirs(x))
    lines = tt.explain(ours, x).lines
    assert all(line.kernel.startswith("cpu.") for line in lines)
    assert [(*x.problem.kernel, x.problem.dilation[0]) for x in lines] == list(NETWORKS[network])
