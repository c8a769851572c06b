"""Kernels take arrays of any library, without copying."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from tests.support.cpu import kernel, poisoned
from tests.support.kernels import buffer, loop, store

from tilewright import runtime
from tilewright.ir import dtype, ops
from tilewright.runtime import Kernel, view


def double(type: str = "float32") -> Kernel:
    a, b = buffer("a", (4, 2), type=type), buffer("b", (4, 2), type=type)
    return kernel(
        [a, b],
        loop("i", 4, lambda i: loop("j", 2, lambda j: store(b, (i, j), a[i, j] + a[i, j]))),
    )


class OnlyDLPack:
    """A producer that speaks nothing else; ``old`` knows only the protocol before 1.0."""

    def __init__(self, array: np.ndarray, old: bool = False) -> None:
        self.array, self.old = array, old

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("old", [False, True])
def test_dlpack_is_read_and_written_in_place(old: bool) -> None:
    x, found = np.arange(8, dtype=np.float32).reshape(4, 2), poisoned((4, 2))
    double()(OnlyDLPack(x, old), OnlyDLPack(found, old))
    np.testing.assert_array_equal(found, 2 * x)


def test_dlpack_views_tell_shape_strides_and_offset() -> None:
    x = np.arange(24, dtype=np.int16).reshape(4, 6)[1:, ::2]
    seen = view(OnlyDLPack(x))
    assert (seen.pointer, seen.shape, seen.strides) == (x.ctypes.data, (3, 3), (6, 2))
    assert (seen.dtype, seen.device, seen.readonly) == ("int16", "cpu", False)


def test_dlpack_memory_outlives_its_producer() -> None:
    seen = view(OnlyDLPack(np.arange(1000.0)))
    start = ctypes.cast(seen.pointer, ctypes.POINTER(ctypes.c_double))
    again = np.ctypeslib.as_array(start, (1000,))
    np.testing.assert_array_equal(again, np.arange(1000.0))


def test_read_only_memory_is_seen_as_such() -> None:
    x = np.arange(4.0)
    x.setflags(write=False)
    assert view(x).readonly
    assert view(OnlyDLPack(x)).readonly


@pytest.mark.parametrize("type", ["float64", "float16", "int8", "uint16", "int64", "bool"])
def test_types_of_numpy(type: str) -> None:
    seen = view(np.zeros((2, 3), type))
    assert seen.dtype is dtype(type)
    assert seen.strides == (3, 1)


def test_bfloat16_travels_as_its_bits() -> None:
    bits = np.array([0x3F80, 0x4000, 0xBF80, 0] * 2, np.uint16).reshape(4, 2)
    found = poisoned((4, 2), np.uint16)
    double("bfloat16")(bits, found)
    np.testing.assert_array_equal(found, np.array([0x4000, 0x4080, 0xC000, 0] * 2).reshape(4, 2))


def test_bfloat16_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.arange(8).reshape(4, 2).astype(ml_dtypes.bfloat16)
    found = np.zeros_like(x)
    double("bfloat16")(x, found)
    np.testing.assert_array_equal(found.astype(np.float32), 2 * np.arange(8).reshape(4, 2))


def test_extents_of_one_and_empty_arrays_have_any_strides() -> None:
    a, b = buffer("a", (1, 4)), buffer("b", (4, 1))
    run = kernel([a, b], loop("i", 4, lambda i: store(b, (i, 0), a[0, i])))
    x, found = np.arange(4, dtype=np.float32)[None, :], poisoned((1, 4)).T
    run(np.lib.stride_tricks.as_strided(x, strides=(400, 4)), found)
    np.testing.assert_array_equal(found[:, 0], x[0])


def test_subclasses_of_arrays_are_taken() -> None:
    class Mine(np.ndarray):
        pass

    x, found = np.ones((4, 2), np.float32).view(Mine), poisoned((4, 2)).view(Mine)
    double()(x, found)
    np.testing.assert_array_equal(np.asarray(found), 2)


def test_arguments_checked_once_can_be_launched_often() -> None:
    x, found = np.ones((4, 2), np.float32), poisoned((4, 2))
    launch = double().bind(x, found)
    for value in (1, 5):
        x[...] = value
        launch()
        np.testing.assert_array_equal(found, 2 * value)


def test_a_changed_array_is_checked_anew() -> None:
    run, x, found = double(), np.ones((4, 2), np.float32), poisoned((4, 2))
    run(x, found)
    x.shape = (2, 4)
    with pytest.raises(ValueError, match="expected"):
        run(x, found)
    x.shape = (4, 2)
    found.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        run(x, found)


def test_arrays_of_our_own() -> None:
    x = runtime.array(np.arange(8, dtype=np.float32).reshape(4, 2))
    y = runtime.empty((4, 2), "float32", "cpu")
    double()(x, y)
    np.testing.assert_array_equal(y.numpy(), 2 * x.asnumpy())
    z = y.copyto("cpu")
    y.copyfrom(np.zeros((4, 2)))
    assert z.numpy().sum() == 56
    assert (z.shape, z.dtype, str(z.device)) == ((4, 2), "float32", "cpu")
    x.copyto(y)
    np.testing.assert_array_equal(y.numpy(), x.numpy())


@pytest.mark.parametrize("type", ["float32", "float64", "bfloat16", "int8"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 7, 11), (1, 96, 96, 256)])
def test_arrays_of_our_own_begin_on_a_line_of_the_caches(shape: Any, type: str) -> None:
    made = [runtime.empty(shape, type) for _ in range(4)]
    assert [view(a).pointer % 64 for a in made if a.nbytes] == [0 for a in made if a.nbytes]
    assert [a.numpy().shape for a in made] == [shape] * 4


def test_arrays_of_our_own_in_bfloat16() -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    made = runtime.empty((2,), "bfloat16").copyfrom(bits)
    np.testing.assert_array_equal(made.numpy().view(np.uint16), bits)


@pytest.mark.needs_torch
def test_tensors_of_torch() -> None:
    import torch

    run = double()
    x, found = torch.arange(8.0).reshape(4, 2), torch.full((4, 2), torch.nan)
    run(x, found)
    assert torch.equal(found, 2 * x)
    with pytest.raises(ValueError, match=r"\.contiguous\(\)"):
        run(torch.ones(2, 4).t(), found)
    with pytest.raises(ValueError, match="float64"):
        run(x.double(), found)
    with pytest.raises(ValueError, match="shares memory"):
        run(found, found)
    b = torch.arange(8.0).reshape(4, 2).bfloat16()
    out = torch.zeros_like(b)
    double("bfloat16")(b, out)
    assert torch.equal(out, b + b)


def test_quick_and_slow_ways_of_binding_agree() -> None:
    from tilewright.ir import Func, Module
    from tilewright.ir.expr import Var
    from tilewright.target import Target

    n = Var.make("n")
    a, b = buffer("a", (n, 3)), buffer("b", (3, n))
    body = loop("i", n, lambda i: loop("j", 3, lambda j: store(b, (j, i), a[i, j])))
    run = runtime.build(Module("t", (a, b), (Func("t", (a, b, n), body),)), Target.parse("llvm"))
    x, found = np.arange(15, dtype=np.float32).reshape(5, 3), poisoned((3, 5))
    run(x, found)
    np.testing.assert_array_equal(found, x.T)
    pointers, scalars = run._quick(x, found)
    views, values = run.signature.bind((x, found))
    assert list(pointers) == [v.pointer for v in views]
    assert scalars == tuple(values[v.name] for v in run.signature.variables)
    assert run._quick(x, poisoned((3, 6))) is None
    assert run._quick(x.T, found) is None
    assert run._quick(x, x) is None


def test_floats_of_python_are_constants_of_the_kernel() -> None:
    a = buffer("a", (2,))
    found = poisoned(2)
    kernel([a], loop("i", 2, lambda i: store(a, i, ops.cast("float32", i) + 0.5)))(found)
    np.testing.assert_array_equal(found, [0.5, 1.5])
