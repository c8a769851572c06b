"""An array whose memory does not hold what it stands for is refused, and never read or written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.ir import dtype
from tilewright.ir.errors import ArgumentError
from tilewright.runtime import Kernel
from tilewright.runtime.array_view import ArrayView, dense_strides


@pytest.fixture(scope="module")
def plus_one() -> Kernel:
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="B")
    return tilewright.build(te.create_schedule(b.op), [a, b])


class _Interface:
    """An object that has nothing but ``__array_interface__``."""

    def __init__(self, **changed: Any) -> None:
        self.__array_interface__ = {
            "version": 3, "shape": (8, 8), "typestr": "<f4", "data": (0, False), **changed
        }  # fmt: skip


class _Capsule:
    """A producer of DLPack whose tensor has no data; the capsule is made by hand."""

    def __dlpack__(self, **_: Any) -> Any:
        import ctypes

        from tilewright.runtime import dlpack

        self.shape = (ctypes.c_int64 * 2)(8, 8)
        self.tensor = dlpack._Tensor(
            None, dlpack._Device(1, 0), 2, dlpack._DataType(2, 32, 1), self.shape, None, 64
        )
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), b"dltensor", None)


WITHOUT = {
    "an interface": _Interface,
    "an interface without an address": lambda: _Interface(data=(None, False)),
    "DLPack": _Capsule,
    "a view": lambda: ArrayView(0, (8, 8), dense_strides((8, 8)), dtype("float32")),
}
TORCH = ("fake", "freed", "freed, a part", "zero", "meta", "sparse", "nested")


def without_memory(torch: Any, what: str) -> Any:
    """A tensor of 8 x 8 that has no memory of its own."""
    if what == "fake":
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode():
            return torch.zeros(8, 8)
    if what == "zero":
        return torch._efficientzerotensor(8, 8)
    if what == "meta":
        return torch.zeros(8, 8, device="meta")
    if what == "sparse":
        return torch.eye(8).to_sparse()
    if what == "nested":
        return torch.nested.nested_tensor([torch.ones(8), torch.ones(8)])
    whole = torch.ones(10, 8)
    part = whole[2:] if what == "freed, a part" else whole[:8]
    whole.untyped_storage().resize_(0)  # as FullyShardedDataParallel frees parameters
    return part


@pytest.mark.parametrize("what", WITHOUT)
@pytest.mark.parametrize("place", ["input", "output"])
def test_an_array_at_no_address_is_refused(plus_one: Kernel, what: str, place: str) -> None:
    none, some = WITHOUT[what](), np.zeros((8, 8), np.float32)
    for call in (plus_one, plus_one.bind, plus_one.time):
        with pytest.raises(ArgumentError, match="has no memory"):
            call(*((none, some) if place == "input" else (some, none)))


@pytest.mark.parametrize(
    "changed", [{"data": 5}, {"typestr": "f"}, {"shape": 8}, {"shape": ("a", 8)}, {"typestr": None}]
)
def test_an_interface_that_is_none_is_refused(plus_one: Kernel, changed: Any) -> None:
    with pytest.raises(ArgumentError):
        plus_one(_Interface(**changed), np.zeros((8, 8), np.float32))


@pytest.mark.parametrize("address", [0, 4096])
def test_an_empty_array_may_lie_anywhere(address: int) -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    kernel = tilewright.build(te.create_schedule(b.op), [a, b])
    kernel(_Interface(shape=(0,), data=(address, False)), np.zeros(0, np.float32))


@pytest.mark.needs_torch
@pytest.mark.parametrize("what", TORCH)
@pytest.mark.parametrize("place", ["input", "output"])
@pytest.mark.filterwarnings("ignore:Accessing the data pointer", "ignore:The PyTorch API of nested")
def test_a_tensor_without_memory_is_refused(plus_one: Kernel, what: str, place: str) -> None:
    torch = pytest.importorskip("torch")
    none, some = without_memory(torch, what), torch.zeros(8, 8)
    for _ in range(2):  # the second by the quick way
        with pytest.raises(ArgumentError, match=r"argument [01] \([AB]\)"):
            plus_one(*((none, some) if place == "input" else (some, none)))
    plus_one(some, torch.zeros(8, 8))


@pytest.mark.needs_torch
def test_what_pytorch_negates_lazily_is_copied_or_refused(plus_one: Kernel) -> None:
    torch = pytest.importorskip("torch")
    x, out = torch.arange(64.0).reshape(8, 8), torch.zeros(8, 8)
    plus_one(torch._neg_view(x), out)
    assert torch.equal(out, 1 - x)
    for call, args in (
        (plus_one, (x, torch._neg_view(out))),
        (plus_one.bind, (torch._neg_view(x), out)),
    ):
        with pytest.raises(ArgumentError, match=r"negative bit.*\.resolve_neg\(\)"):
            call(*args)
    with pytest.raises(ArgumentError, match="complex64"):
        plus_one(torch.ones(8, 8, dtype=torch.complex64).conj(), out)


@pytest.mark.needs_torch
@pytest.mark.parametrize("what", ["freed", "freed, a part", "zero"])
@pytest.mark.parametrize("of", ["input", "weight", "bias"])
def test_a_convolution_of_pytorchs_refuses_it_too(what: str, of: str) -> None:
    torch = pytest.importorskip("torch")
    import tilewright.torch as tt

    def operands() -> dict[str, Any]:
        return {
            "input": torch.randn(1, 4, 6, 6), "weight": torch.randn(4, 1, 3, 3),
            "bias": torch.randn(4),
        }  # fmt: skip

    tt.depthwise_conv2d(**operands())
    given = operands()
    shape = given[of].shape
    for known in (False, True):
        whole = torch.randn(4 + given[of].numel())
        given[of] = whole[4 * (what != "freed") :][: shape.numel()].view(shape)
        if known:  # by the way of calls like one before, with this very weight
            tt.depthwise_conv2d(**given)
        if what == "zero":
            given[of] = torch._efficientzerotensor(tuple(shape))
            expected = torch.nn.functional.conv2d(**given, groups=4)
            torch.testing.assert_close(tt.depthwise_conv2d(**given), expected)
            continue
        whole.untyped_storage().resize_(0)
        with pytest.raises(ArgumentError, match="has no memory"):
            tt.depthwise_conv2d(**given)
