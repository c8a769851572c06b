"""Attention of PyTorch's tensors, and of models that are compiled."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("plain_code")]
nn, F = torch.nn, torch.nn.functional

import tilewright.torch as tt  # noqa: E402
from tilewright.graph.fx.attention import is_faster  # noqa: E402
from tilewright.target import Target  # noqa: E402
from tilewright.topi import Attention  # noqa: E402
from tilewright.torch import attention  # noqa: E402
from tilewright.torch.backend import tilewright  # noqa: E402


@pytest.fixture
def calls(monkeypatch):
    """The problems that were computed here."""
    found = []

    def compute(operator, *tensors, **values):
        found.append(operator.of_shapes(*(t.shape for t in tensors), **values))
        return tt.compute(operator, *tensors, **values)

    monkeypatch.setattr(attention, "compute", compute)
    return found


def tensors(*shapes, dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.randn(s).to(dtype) for s in shapes]


Q, K = (2, 4, 9, 8), (2, 4, 13, 8)


@pytest.mark.parametrize(("shapes", "values"), [
    ((Q, K, K), {}),
    ((Q, K, (2, 4, 13, 5)), {"scale": 0.2}),
    ((Q, K, K), {"is_causal": True}),
    ((Q, (2, 2, 13, 8), (2, 2, 13, 8)), {"enable_gqa": True}),
    ((Q[1:], K[1:], K[1:]), {}),
    ((Q[2:], K[2:], K[2:]), {}),
    (((3, *Q), (3, *K), (3, *K)), {}),
    (((2, 1, 8, 1),) * 3, {}),
])  # fmt: skip
def test_it_is_pytorchs_function(calls, shapes, values):
    given = tensors(*shapes)
    found = tt.scaled_dot_product_attention(*given, **values)
    assert error(found, F.scaled_dot_product_attention(*given, **values)) < 1e-6
    assert len(calls) == 1


@pytest.mark.parametrize("shape", [(9, 13), (4, 1, 13), (2, 1, 9, 13), (2, 4, 9, 13), (1, 1, 9, 1)])
@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_masks_are_as_pytorch_takes_them(calls, shape, kind):
    given = tensors(Q, K, K)
    mask = torch.randn(shape) > 0
    mask[..., :1, :] = False  # a row that attends to no key
    if kind is torch.float32:
        mask = torch.where(mask, torch.randn(shape), -math.inf)
    found = tt.scaled_dot_product_attention(*given, mask)
    wanted = F.scaled_dot_product_attention(*given, mask)
    assert error(found, wanted) < 1e-6
    assert not found.isnan().any()
    assert len(calls) == 1


def test_a_mask_of_more_batches_is_spread_over_them(calls):
    given = tensors((3, *Q), (3, *K), (3, *K))
    mask = torch.randn(3, 1, 1, 9, 13)
    wanted = F.scaled_dot_product_attention(*given, mask)
    assert error(tt.scaled_dot_product_attention(*given, mask), wanted) < 1e-6
    assert len(calls) == 1


def test_heads_that_were_transposed_are_read_where_they_lie(calls):
    given = [t.transpose(1, 2) for t in tensors((2, 9, 4, 8), (2, 13, 4, 8), (2, 13, 4, 8))]
    found = tt.scaled_dot_product_attention(*given)
    assert error(found, F.scaled_dot_product_attention(*given)) < 1e-6
    assert [p.layout for p in calls] == ["BSHD"]
    assert found.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_types_of_16_bits(calls, dtype, tolerance):
    given = tensors(Q, K, K, dtype=dtype)
    found = tt.scaled_dot_product_attention(*given)
    assert found.dtype is dtype
    assert error(found, F.scaled_dot_product_attention(*(t.double() for t in given))) < tolerance
    # PyTorch has bfloat16 by matrix instructions.
    assert len(calls) == (dtype is torch.float16)


def test_autocast_casts_as_pytorch_does(calls):
    given = tensors(Q, K, K)
    with torch.autocast("cpu", torch.float16):
        found = tt.scaled_dot_product_attention(*given)
        wanted = F.scaled_dot_product_attention(*given)
    assert found.dtype is wanted.dtype is torch.float16
    assert error(found, wanted) < 2e-3
    assert len(calls) == 1


def test_what_needs_gradients_is_pytorchs(calls):
    given = [t.requires_grad_() for t in tensors(Q, K, K)]
    tt.scaled_dot_product_attention(*given).sum().backward()
    assert all(t.grad is not None for t in given)
    with torch.no_grad():
        tt.scaled_dot_product_attention(*given)
    assert len(calls) == 1


@pytest.mark.parametrize("empty", [(0, 4, 9, 8), (2, 4, 0, 8)])
def test_what_has_no_element_is_pytorchs(calls, empty):
    found = tt.scaled_dot_product_attention(
        *tensors(empty, (*empty[:2], 13, 8), (*empty[:2], 13, 8))
    )
    assert found.shape == empty
    assert not calls


def test_a_single_row_is_pytorchs(calls):
    given = tensors((2, 4, 1, 8), K, K)
    wanted = F.scaled_dot_product_attention(*given)
    assert torch.equal(tt.scaled_dot_product_attention(*given), wanted)
    assert not calls


def test_without_keys_the_result_is_zero(calls):
    found = tt.scaled_dot_product_attention(*tensors(Q, (2, 4, 0, 8), (2, 4, 0, 8)))
    assert not found.any()
    assert not calls


@pytest.mark.parametrize(("shapes", "values"), [
    ((Q, (2, 4, 13, 7), K), {}),
    ((Q, (2, 2, 13, 8), (2, 2, 13, 8)), {}),
    ((Q, K, K), {"attn_mask": torch.zeros(8, 13)}),
    ((Q, K, K), {"attn_mask": torch.zeros(9, 13, dtype=torch.int32)}),
])  # fmt: skip
def test_what_pytorch_refuses_is_refused_in_its_words(calls, shapes, values):
    given = tensors(*shapes)
    with pytest.raises(Exception) as wanted:
        F.scaled_dot_product_attention(*given, **values)
    with pytest.raises(type(wanted.value)) as found:
        tt.scaled_dot_product_attention(*given, **values)
    assert str(found.value) == str(wanted.value)
    assert not calls


class Block(nn.Module):
    """A layer of a vision transformer, as timm writes it."""

    def __init__(self, mask=None):
        super().__init__()
        self.norm, self.qkv, self.proj = nn.LayerNorm(24), nn.Linear(24, 72), nn.Linear(24, 24)
        self.mask = mask

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, n, 3, 3, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        return x + self.proj(y.transpose(1, 2).reshape(b, n, c))


def compiled(model, found):
    torch._dynamo.reset()
    return torch.compile(
        model, backend=lambda graph, inputs: tilewright(graph, inputs, report=found.append)
    )


@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_a_layer_is_one_region_that_transposes_nothing(mask):
    torch.manual_seed(0)
    known = {"bool": torch.randn(11, 11) > -1, "float": torch.randn(1, 3, 11, 11), None: None}
    model, found = Block(known[mask]).eval(), []
    x = torch.randn(2, 11, 24)
    with torch.no_grad():
        assert error(compiled(model, found)(x), model(x)) < 1e-6
    (taken,) = found
    (region,) = taken.regions
    assert not taken.left
    operators = [n.operator for n in region.executors[0].graph.nodes]
    assert operators.count("attention") == 1
    assert "transpose" not in operators


def test_training_leaves_it_to_pytorch():
    torch.manual_seed(0)
    model, found = Block(), []
    x = torch.randn(2, 11, 24)
    model(x).square().mean().backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    compiled(model, found)(x).square().mean().backward()
    for p, grad in zip(model.parameters(), wanted, strict=True):
        assert error(p.grad, grad) < 1e-5
    assert any("flash_attention" in name for taken in found for name, _ in taken.left)


@pytest.mark.parametrize("keys", [49, 197, 256, 4096])
def test_on_a_gpu_attention_of_many_keys_stays_with_pytorch_if_it_is_causal(keys):
    """Whose kernel leaves half of the scores out."""
    p = Attention(batch=2, heads=3, rows=keys, keys=keys, depth=64, dtype="float16")
    target = Target.parse("cuda -arch=sm_90a")
    assert is_faster(p, target)
    assert is_faster(replace(p, causal=True), target) is (keys <= 256)
    assert not is_faster(replace(p, dtype="float32"), target)
