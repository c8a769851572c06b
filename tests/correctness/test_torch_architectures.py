"""Whole architectures do all that they did, swapped: values, gradients, tracers, exporters, copies,
and weights that are written through ``.data``."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
from tests.support.torch_checks import error

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("plain_code"),
]

from tests.support.architectures import ARCHITECTURES, architecture  # noqa: E402

import tilewright.torch as tt  # noqa: E402

#: Of results, by the norm.
LIMIT = 1e-4


@pytest.mark.spread
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_swapped_architecture_does_what_it_did(name):
    torch.manual_seed(0)
    model = architecture(name)
    other, x = copy.deepcopy(model), torch.randn(1, 3, 64, 64)
    assert tt.optimize_(other).replaced
    gradients_are_those_of(model, other, x)
    graphs_are_those_of(model, other, x)
    with torch.no_grad():
        wanted = model(x)
        programs = {
            "eager": other,
            "traced": torch.jit.trace(other, x, check_trace=False),
            "exported": torch.export.export(other, (x,)).module(),
            "ONNX": by_onnx(other, x),
            "copied": copy.deepcopy(other),
            "pickled": pickle.loads(pickle.dumps(other)),
        }
        errors = {variant: error(run(x), wanted) for variant, run in programs.items()}
    assert {variant: e for variant, e in errors.items() if not e < LIMIT} == {}
    teachers_are_alike(model, other, x)
    tt.undo_(other)
    assert [type(m) for m in other.modules()] == [type(m) for m in model.modules()]
    assert list(other.state_dict()) == list(model.state_dict())


def gradients_are_those_of(model, other, x):
    found = []
    for m in (model, other):
        image = x.clone().requires_grad_()
        operands = [image, *m.parameters()]
        found.append(torch.autograd.grad(m(image).square().sum(), operands, allow_unused=True))
    largest = max(float(g.norm()) for g in found[0] if g is not None)
    for wanted, gradient in zip(*found, strict=True):
        assert (gradient is None) is (wanted is None)
        if wanted is not None:
            # Of a bias before a normalisation it is what rounding leaves.
            bound = LIMIT * float(wanted.norm()) + 1e-6 * largest
            assert float((gradient - wanted).norm()) <= bound


def graphs_are_those_of(model, other, x):
    try:
        before = torch.fx.symbolic_trace(model)
    except Exception:  # a model that cannot be traced: neither can this one
        with pytest.raises(Exception, match=""):
            torch.fx.symbolic_trace(other)
        return
    after = torch.fx.symbolic_trace(other)
    assert [(n.op, n.target) for n in after.graph.nodes] == [
        (n.op, n.target) for n in before.graph.nodes
    ]
    assert error(after(x), model(x)) < LIMIT


def by_onnx(model, x):
    """What ONNX Runtime computes; without it, the model."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        return model
    file = io.BytesIO()
    torch.onnx.export(model, (x,), file, dynamo=False)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0].name
    return lambda x: torch.from_numpy(session.run(None, {given: x.numpy()})[0])


def teachers_are_alike(model, other, x):
    """Mean teachers, as they are written: answers under autocast, weights through ``.data``."""
    answers = []
    for _ in range(2):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            answers.append((model(x), other(x)))
        for m in (model, other):
            generator = torch.Generator().manual_seed(1)
            for p in m.parameters():
                student = torch.empty_like(p).normal_(generator=generator)
                p.data.mul_(0.7).add_(student, alpha=0.3 * float(p.detach().abs().mean()))
    for wanted, found in answers:
        assert error(found, wanted) < 5e-2
    assert error(answers[1][0], answers[0][0]) > 0.1
