"""The modules of RepLKNet, SLaK and UniRepLKNet train and infer on kernels as in PyTorch."""

from __future__ import annotations

import contextlib
import copy

import pytest
from tests.support.torch_checks import close, error

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.usefixtures("only_kernels", "one_thread", "plain_code"),
]

from tests.support.large_kernels import CHANNELS, NETWORKS, Block  # noqa: E402

import tilewright.torch as tt  # noqa: E402

SIZE = 14
#: How many times PyTorch's error ours may be, and what more: the rounding of one number.
SLACK, ROUNDING = 2.0, {"": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # those of so small images would wait for one another
    yield
    torch.set_num_threads(before)


def trained(model, x, g, dtype):
    """The output and all gradients of one pass, forward and backward."""
    x = x.clone().requires_grad_()
    kind = x.device.type
    cast = torch.autocast(kind, getattr(torch, dtype)) if dtype else contextlib.nullcontext()
    with cast:
        y = model(x)
    y.backward(g.to(y.dtype))
    return [y, x.grad, *(p.grad for p in model.parameters())]


def train_beside_pytorch(network, dtype, last, device="cpu"):
    """A block's output and gradients err no more than PyTorch's do."""
    torch.manual_seed(0)
    form = torch.channels_last if last else torch.contiguous_format
    theirs = Block(network).to(device, memory_format=form)
    ours, exact = copy.deepcopy(theirs), copy.deepcopy(theirs).double()
    report = tt.optimize_(ours)
    assert len(report.replaced) == len(NETWORKS[network])
    assert set(report.skipped) == {"before", "after.1"}  # of 1x1, and dense
    x, g = torch.randn(2, 2, CHANNELS, SIZE, SIZE, device=device)
    x = x.contiguous(memory_format=form)
    wanted = trained(exact, x.double(), g.double(), "")
    for found, other, right in zip(
        trained(ours, x, g, dtype), trained(theirs, x, g, dtype), wanted, strict=True
    ):
        if right.detach().norm() > 1e-9:  # biases before normalisations have no gradient
            assert error(found, right) <= SLACK * error(other, right) + ROUNDING[dtype]


@pytest.mark.parametrize(
    ("network", "dtype", "last"),
    [
        ("RepLKNet", "", False), ("RepLKNet", "bfloat16", True), ("SLaK", "", False),
        ("UniRepLKNet", "", False), ("UniRepLKNet", "float16", False),
    ],
)  # fmt: skip
def test_a_block_trains_as_precisely_as_pytorchs(network, dtype, last):
    train_beside_pytorch(network, dtype, last)


@pytest.mark.needs_cuda
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("dtype", ["", "float16", "bfloat16"])
@pytest.mark.parametrize("last", [False, True])
def test_a_block_trains_as_precisely_on_a_gpu(network, dtype, last):
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        train_beside_pytorch(network, dtype, last, "cuda")


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
