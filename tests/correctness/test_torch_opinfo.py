"""PyTorch's own samples of convolutions give PyTorch's results, with a group for each channel."""

from __future__ import annotations

import warnings

import pytest
from tests.support.torch_checks import error, gradient_errors
from tests.support.torch_samples import OPERATORS, samples

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels", "plain_code")]


BOUND = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.needs_cuda)]
#: On a CPU 16-bit types are drawn elsewhere, and float64 has its derivatives checked.
TYPES = [("cpu", torch.float32)]
TYPES += [pytest.param("cuda", t, marks=pytest.mark.needs_cuda) for t in BOUND]


@pytest.mark.parametrize(("device", "dtype"), TYPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_values_and_gradients_are_those_of_pytorch(name, dtype, device):
    seen = 0
    for sample in samples(name, dtype, device):
        ours = sample.ours()
        wide = [t if t is None else t.double() for t in sample.operands()]
        wanted = sample.theirs(*wide)
        assert ours.shape == wanted.shape, sample
        assert ours.dtype == dtype
        assert error(ours, wanted) < BOUND[dtype], sample
        errors = gradient_errors(ours, wanted, sample.operands())
        assert all(e < 3 * BOUND[dtype] for e in errors), sample
        seen += 1
    assert seen >= 8


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OPERATORS)
def test_first_and_second_derivatives_are_right(name, device):
    for sample in samples(name, torch.float64, device):
        assert error(sample.ours(), sample.theirs()) < BOUND[torch.float64], sample
        operands = [t for t in sample.operands() if t is not None]

        def f(*given, sample=sample, none=(None,) * (3 - len(operands))):
            return sample.ours(*given, *none)

        # The fast mode compares a random projection of the Jacobian instead of all its rows.
        assert torch.autograd.gradcheck(f, operands, fast_mode=True), sample
        assert torch.autograd.gradgradcheck(f, operands, fast_mode=True), sample


@pytest.mark.parametrize("name", OPERATORS)
def test_other_types_are_pytorchs_gradients_and_all(name):
    for dtype in (torch.complex128, torch.int64):
        for sample in samples(name, dtype, gradient=dtype.is_complex):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ours = sample.ours()
                assert ours.equal(sample.theirs()), sample
                if dtype.is_complex:
                    operands = [t for t in sample.operands() if t is not None]
                    g = torch.randn_like(ours)
                    found = torch.autograd.grad(ours, operands, g)
                    for f, e in zip(found, torch.autograd.grad(sample.theirs(), operands, g)):
                        assert torch.allclose(f, e), sample
