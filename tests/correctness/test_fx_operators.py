"""ATen's operators as values of a graph: of constants, they are what PyTorch computes."""

from __future__ import annotations

import math
import re

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("plain_code")]
F = torch.nn.functional
aten = torch.ops.aten

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: E402

from tilewright.graph import Constant  # noqa: E402
from tilewright.torch.backend import decompositions  # noqa: E402
from tilewright.torch.partition import obstacle  # noqa: E402
from tilewright.torch.region import array_of, interpret, tensor_of  # noqa: E402


def of(*shape, dtype=torch.float32):
    """A tensor of positive and negative numbers."""
    made = (torch.arange(math.prod(shape)) * 7 % 13 - 6) / 4
    return made.reshape(shape).to(dtype)


X, Y, I = of(2, 3, 4), of(3, 1), of(2, 3, 4, dtype=torch.int64)
IMAGE = of(2, 3, 6, 8)
BITS = X > 0
PLACES = torch.tensor([2, 0, 1])

#: What the cases are functions of.
OPERANDS = {"X": X, "Y": Y, "I": I, "IMAGE": IMAGE, "BITS": BITS, "PLACES": PLACES}
CASES = {
    "arithmetic": lambda: (X + Y, X - 2 * Y, torch.rsub(X, 3, alpha=2), X * I, X / (Y.abs() + 1)),
    "scalars": lambda: (X.add(Y, alpha=0.5), 2 - X, 3 / (X.abs() + 1), I * 2, I + 1.5),
    "rounded division": lambda: (
        torch.div(X, 0.3, rounding_mode="trunc"), torch.div(I, 2, rounding_mode="trunc"),
    ),
    "division that rounds down": lambda: (
        torch.div(X, 0.3, rounding_mode="floor"), X // -0.5, X // Y, I // 2, I // -4,
        (X / 0.0) // 2.0, X // 0.0, X // math.inf,
    ),
    "remainders": lambda: (X % 1.5, torch.fmod(X, 1.5), I % 4, X % 0.3, torch.fmod(X, -0.3)),
    "powers": lambda: (X**2, X.abs() ** 0.5, X.square(), (X.abs() + 1).rsqrt()),
    "comparisons": lambda: (X == Y, X != 0, X < Y, I >= 1, I > 0.5, BITS == True),  # noqa: E712
    "logic": lambda: (BITS & ~BITS, BITS | (X > 1), torch.logical_and(X, Y), BITS ^ (X < 1)),
    "choices": lambda: (
        torch.where(BITS, X, Y), torch.where(BITS, X, 0.0), X.masked_fill(BITS, float("-inf")),
    ),
    "bounds": lambda: (X.clamp(-1, 1), X.clamp_min(0), X.clamp(max=Y), torch.maximum(X, Y)),
    "functions": lambda: (X.exp(), X.tanh(), X.abs().sqrt(), X.sin(), X.erf(), X.floor(), X.sign()),
    "activations": lambda: (
        F.relu(X), F.gelu(X), F.gelu(X, approximate="tanh"), F.silu(X), F.hardswish(X),
        F.hardsigmoid(X), F.leaky_relu(X, 0.2), F.elu(X), F.softplus(X), F.mish(X), F.relu6(X),
    ),
    "types": lambda: (X.to(torch.float64), I.float(), X.half() + X, BITS.float(), BITS + 1),
    "sums": lambda: (X.sum(), X.sum((0, 2)), X.mean(-1, keepdim=True), I.sum(1), BITS.sum()),
    "extrema": lambda: (X.amax((1, 2)), X.max(), *X.max(1), *X.min(-1, keepdim=True), X.argmax()),
    "NaN": lambda: (
        (X / X).amax(1), *(X / X).min(2), (X / X).argmax(), (X / X).clamp(-1, 0), (X / X).sign(),
        aten.threshold_backward(X, X / X, 0),
        F.max_pool1d(X / X, 2), torch.maximum(X / X, Y),
    ),
    "variances": lambda: (X.var(1), *torch.var_mean(X, (1, 2), correction=0), X.std((0, 1))),
    "softmax": lambda: (X.softmax(-1), X.log_softmax(1)),
    "running sums": lambda: (X.cumsum(1), X.prod(2), BITS.any(1)),
    "views": lambda: (X.view(6, 4), X.reshape(2, -1), X.permute(2, 0, 1), X.mT, X.flatten(1)),
    "dimensions": lambda: (X.unsqueeze(1), X[:, None, ..., 1], X[:1].squeeze(0), Y.expand(3, 5)),
    "parts": lambda: (X[:, 1:], X[..., ::2], X[1], X[:, -1], *X.split(2, 2), *X.split([1, 2], 1)),
    "more parts": lambda: (*X.unbind(1), *X.chunk(2, -1), X.narrow(2, 1, 2)),
    "joins": lambda: (torch.cat([X, X[:, :1]], 1), torch.stack([Y, Y], -1), Y.repeat(2, 3)),
    "orders": lambda: (X.flip((0, 2)), X.roll((1, -1), (1, 2)), X.tril(), X.triu(1)),
    "memory": lambda: (
        X.as_strided((4, 6), (1, 4)), X.mT.as_strided((24,), (1,)),
        torch.as_strided_scatter(X.mT, IMAGE[0, 0, :4, :6], (4, 6), (1, 4)),
        aten.copy(I, Y),
    ),
    "indices": lambda: (X[:, PLACES], X[PLACES[1:], PLACES[:2]], X.index_select(1, PLACES)),
    "lookups": lambda: (F.embedding(PLACES, Y), X.gather(2, I[..., :2] % 4)),
    "borders": lambda: (
        F.pad(X, (1, 2), value=3), F.pad(X, (1, -1, 2, 0)), F.pad(IMAGE, (2, 1, 1, 0), "reflect"),
        F.pad(IMAGE, (1, 1, 1, 1), "replicate"),
    ),
    "made of nothing": lambda: (
        X + torch.arange(4), X + torch.full((4,), 2.0), torch.ones_like(X), X.new_zeros(2, 2) + 1,
    ),
    "pooling": lambda: (
        *F.max_pool2d(IMAGE, 3, 2, 1, return_indices=True), F.max_pool2d(IMAGE, 2, ceil_mode=True),
        F.avg_pool2d(IMAGE, 3, 2, 1), F.avg_pool2d(IMAGE, 3, 2, 1, count_include_pad=False),
        F.adaptive_avg_pool2d(IMAGE, 1), F.adaptive_avg_pool2d(IMAGE, (3, 2)),
        F.adaptive_avg_pool2d(IMAGE, (4, 11)),
    ),
    "resizing": lambda: (
        F.interpolate(IMAGE, scale_factor=2), F.interpolate(IMAGE, (9, 5)),
        F.interpolate(IMAGE, (9, 5), mode="bilinear"),
        F.interpolate(IMAGE, (9, 5), mode="bilinear", align_corners=True),
        F.interpolate(IMAGE, scale_factor=1.5, mode="bicubic"),
        F.interpolate(IMAGE[:, :, None], scale_factor=1.7),
    ),
    "shuffles": lambda: (F.pixel_shuffle(of(1, 8, 2, 3), 2), F.pixel_unshuffle(IMAGE, 2)),
    "normalisations": lambda: (
        F.layer_norm(X, (3, 4), of(3, 4), of(3, 4)), F.group_norm(IMAGE, 3, of(3), of(3)),
        aten._native_batch_norm_legit_no_training(
            IMAGE, of(3), of(3), of(3), of(3).abs() + 1, 0.1, 1e-5
        )[0],
        F.normalize(X, dim=1),
    ),
    "gradients": lambda: (
        aten.threshold_backward(X, X * 2, 0), aten.gelu_backward(X, X), aten.silu_backward(X, X),
        aten.hardswish_backward(X, X), aten.hardtanh_backward(X, X, -1, 1),
        aten._softmax_backward_data(X, X.softmax(-1), -1, torch.float32),
        aten.sigmoid_backward(X, X), aten.tanh_backward(X, X),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_constants_become_what_pytorch_computes(name, monkeypatch):
    wanted = CASES[name]()

    def traced(*operands):
        for variable, tensor in zip(OPERANDS, operands, strict=True):
            monkeypatch.setitem(globals(), variable, tensor)
        return CASES[name]()

    module = make_fx(traced, decompositions(), tracing_mode="fake")(*OPERANDS.values())
    inputs = module.graph.find_nodes(op="placeholder")
    known = {n: Constant(array_of(x)) for n, x in zip(inputs, OPERANDS.values(), strict=True)}
    found = interpret(module, known)
    for k, (node, y) in enumerate(zip(found, wanted, strict=True)):
        value = known[node]
        assert isinstance(value, Constant), f"{k}: {node.format_node()}"
        made = tensor_of(value.array, y.device)
        assert (made.shape, made.dtype) == (y.shape, y.dtype), f"{k}: {node.format_node()}"
        torch.testing.assert_close(made, y, rtol=2e-5, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize(("function", "problem"), [
    (lambda x: torch.linalg.inv(x[0, :3, :3]), "inv_ex.* is not supported"),
    (lambda x: x.round(decimals=2), "it rounds decimals"),
    (lambda x: x.long().isinf(), "of integers"),
    (lambda x: x.long() ** x.long(), "integers are not divided"),
    (lambda x: x.nonzero() + 1, "depends on data"),
])  # fmt: skip
def test_what_is_not_supported_is_left_with_a_reason(function, problem):
    shapes = ShapeEnv(allow_dynamic_output_shape_ops=True)
    mode = FakeTensorMode(shape_env=shapes)
    module = make_fx(function, decompositions())(mode.from_tensor(of(1, 4, 4)))
    reasons = [obstacle(n) for n in module.graph.nodes if n.op == "call_function"]
    assert any(re.search(problem, r) for r in reasons), reasons
