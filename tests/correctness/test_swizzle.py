"""A swizzle moves chunks of 16 bytes within shared memory, and changes nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.support.tile_programs import transposed

import tilewright
from tilewright import te
from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import IntImm, Ramp
from tilewright.ir.ops import const
from tilewright.ir.stmt import Allocate, Store
from tilewright.ir.swizzle import WIDTHS, pattern, swizzle_of, width_of
from tilewright.ir.visit import allocated, statements
from tilewright.lower.backend.open_swizzles import open_swizzles
from tilewright.lower.ir_builder import axes, func, loop, store
from tilewright.lower.pipeline import lower
from tilewright.runtime.sass import opcodes

TYPES = ("int8", "float16", "float32", "float64")


def tile(width: int, element: str, rows: int = 16) -> Buffer:
    t = dtype(element)
    columns = width // t.bytes
    layout = Layout((const(columns), const(1)), swizzle=swizzle_of(width, t))
    return Buffer("S", (const(rows), const(columns)), t, "shared", layout)


def offset(b: Buffer, i: int, j: int) -> int:
    found = b.offset((const(i), const(j)))
    assert isinstance(found, IntImm)
    return found.value


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_chunks_are_permuted_within_their_rows(width: int, element: str) -> None:
    b = tile(width, element)
    columns, size = int(b.shape[1]), b.dtype.bytes
    per = 16 // size
    seen = set()
    for i, j in itertools.product(range(16), range(columns)):
        at = offset(b, i, j)
        assert at // columns == i
        assert at % per == j % per
        # As PTX has it: the number of the 128 bytes, XORed to that of the chunk.
        chunk = (j // per) ^ (i * width // 128 % (width // 16))
        assert at % columns // per == chunk
        seen.add(at)
    assert len(seen) == 16 * columns
    assert width_of(b) == width


@pytest.mark.parametrize("width", WIDTHS)
def test_it_repeats_after_eight_times_its_width(width: int) -> None:
    b = tile(width, "float16", 32)
    period = pattern(width) // 2
    columns = int(b.shape[1])
    rows = period // columns
    for i, j in itertools.product(range(32 - rows), range(columns)):
        assert offset(b, i + rows, j) == offset(b, i, j) + period
    odd = tile(width, "float16", 3)
    assert isinstance(odd.size, IntImm)
    assert odd.size.value % period == 0


@pytest.mark.parametrize("element", ["float32", "float16"])
@pytest.mark.parametrize("target", ["sim", "llvm"])
def test_a_tile_holds_what_was_put_into_it(target: str, element: str) -> None:
    width = 128 if element == "float32" else 64
    schedule, args = transposed(element, swizzle=width, gpu=target == "sim")
    x = np.random.default_rng(0).integers(-100, 100, (64, 64)).astype(element)
    y = np.zeros((64, 64), element)
    tilewright.build(schedule, list(args), target)(x, y)
    np.testing.assert_array_equal(y, x.T)


def read_of_tile(swizzle: int) -> Any:
    schedule, args = transposed(swizzle=swizzle)
    x, y = (np.zeros((64, 64), "float32") for _ in range(2))
    report = tilewright.build(schedule, list(args), "sim").simulate(x, y)
    assert report.ok, report
    return next(a for a in report.accesses if a.scope == "shared" and not a.store)


def test_a_column_is_spread_over_eight_times_as_many_banks() -> None:
    assert read_of_tile(0).degree == 32
    assert read_of_tile(128).degree == 4


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("element", ["float32", "float16"])
def test_rows_are_still_written_by_16_bytes(element: str) -> None:
    width = 128 if element == "float32" else 64
    schedule, args = transposed(element, swizzle=width)
    program = tilewright.build(schedule, list(args), "cuda -arch=sm_80").program
    assert "STS.128" in opcodes(program.assembly)


@pytest.mark.needs_nvrtc
def test_swizzled_memory_begins_where_the_permutation_does() -> None:
    schedule, args = transposed()
    module = lower(schedule, list(args), "cuda -arch=sm_80")
    assert [b.align for f in module.funcs for b in allocated(f.body)] == [1024]
    source = tilewright.build(schedule, list(args), "cuda -arch=sm_80").source
    assert "__shared__ __align__(1024) float A_shared[1024];" in source


@pytest.mark.needs_cuda
@pytest.mark.parametrize("element", ["float32", "float16"])
def test_a_tile_holds_what_was_put_into_it_on_a_gpu(element: str) -> None:
    schedule, args = transposed(element, swizzle=128 if element == "float32" else 64)
    x = np.random.default_rng(0).integers(-100, 100, (64, 64)).astype(element)
    y = np.zeros((64, 64), element)
    tilewright.build(schedule, list(args), "cuda")(x, y)
    np.testing.assert_array_equal(y, x.T)


def test_copies_of_a_pipeline_begin_where_the_permutation_does() -> None:
    """Also those of three rows, which are less than what it repeats after."""
    a = te.placeholder((24, 32), name="A")
    k = te.reduce_axis((0, 8), "k")
    b = te.compute((3, 32), lambda i, j: te.sum(a[k * 3 + i, j], axis=k), name="B")
    s = te.create_schedule(b.op)
    shared = s.cache_read(a, "shared", [b])
    s[b].reorder(b.op.axis[1], k, b.op.axis[0])
    s[shared].compute_at(s[b], k)
    s[shared].swizzle(128)
    s[shared].pipeline(3)
    for stage in (b, shared):
        s[stage].bind(s[stage].op.axis[1], te.thread_axis((0, 32), "threadIdx.x"))
    module = lower(s, [a, b], "sim")
    (held,) = (x for f in module.funcs for x in allocated(f.body) if x.scope == "shared")
    assert held.layout is not None
    assert repr(held.layout.strides) == "(256, 32, 1)"
    x = np.random.default_rng(0).integers(-9, 9, (24, 32)).astype("float32")
    y = np.zeros((3, 32), "float32")
    tilewright.build(s, [a, b], "sim")(x, y)
    np.testing.assert_array_equal(y, x.reshape(8, 3, 32).sum(0))


@pytest.mark.parametrize("element", ["int8", "float16", "float32"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("across", [8, 16, 32])
def test_what_loops_written_out_add_is_permuted_last(width: int, element: str, across: int) -> None:
    """Pairs at ``(row, j * across + pair * 2)``, where j is written out: each where the layout has
    it, and with one XOR for each j where a row is a block of 128 bytes."""
    b, (row, j, pair) = tile(width, element), axes("row j pair")
    columns, pairs = int(b.shape[1]), across // 2
    if columns % across or columns == across:
        pytest.skip("no loop is left")
    lanes = Ramp(j * across + pair * 2, const(1, j.dtype), 2)
    stored = store(b[row, lanes], const(0, b.dtype))
    body = loop(row, 16, loop(pair, pairs, loop(j, columns // across, stored, kind="unrolled")))
    opened = open_swizzles(func(Allocate(b, body))).body
    (access,) = (s for s in statements(opened) if isinstance(s, Store))
    (index,) = access.indices
    assert isinstance(index, Ramp)
    for r, k, n in itertools.product(range(16), range(columns // across), range(pairs)):
        at = eval(str(index.base), {"row": r, "j": k, "pair": n})
        assert at == offset(b, r, k * across + n * 2)
    if width == 128:
        assert str(index.base).count("j") == 1
