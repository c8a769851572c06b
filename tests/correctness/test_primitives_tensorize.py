"""Schedules that tensorize compute the same, on targets that have the instruction or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.schedules import assert_computes, everywhere, integers, on_cpu, on_gpu

import tilewright
from tilewright import te
from tilewright.ir.stmt import Instr
from tilewright.ir.visit import walk
from tilewright.schedule import Schedule
from tilewright.target.instructions import copy_async, dot, dp4a, gemm, turned_words, vnni


def instructions(s: Schedule, args: list[Any], target: str) -> set[str]:
    return {
        node.instruction.name
        for func in tilewright.lower(s, args, target).funcs
        for node in walk(func.body)
        if isinstance(node, Instr)
    }


def bytes_dot(m: int, n: int, k: int, left: str = "int8") -> tuple[Schedule, list[Any], Any]:
    a, b = te.placeholder((m, k), left, name="A"), te.placeholder((n, k), "int8", name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, r].astype("int32") * b[j, r].astype("int32"), r),
        name="C",
    )
    return te.create_schedule(c.op), [a, b, c], r


@everywhere
def test_dp4a(target: str) -> None:
    s, args, k = bytes_dot(5, 6, 24)
    c = args[-1]
    _, ki = s[c].split(k, factor=4)
    s[c].tensorize(ki, dp4a)
    if target != "llvm":
        s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))
        s[c].bind(c.op.axis[1], te.thread_axis("threadIdx.x"))
    assert instructions(s, args, target) == {"dp4a"}
    x, y = integers(5, 24, type="int8", seed=1), integers(6, 24, type="int8", seed=2)
    x[0], y[0] = -128, 127
    assert_computes(s, args, [x, y], x.astype(np.int32) @ y.astype(np.int32).T, target)


@on_gpu
def test_dp4a_from_shared_memory_into_a_register(target: str) -> None:
    s, args, k = bytes_dot(8, 8, 32)
    c = args[-1]
    acc = s.cache_write(c, "local")
    tiles = [s.cache_read(t, "shared", [acc]) for t in args[:2]]
    s[c].bind(s[c].op.axis[0], te.thread_axis("threadIdx.y"))
    s[c].bind(s[c].op.axis[1], te.thread_axis("threadIdx.x"))
    s[acc].compute_at(s[c], s[c].op.axis[1])
    ko, ki = s[acc].split(k, factor=16)
    _, kii = s[acc].split(ki, factor=4)
    s[acc].tensorize(kii, dp4a)
    for tile in tiles:
        s[tile].compute_at(s[acc], ko)
        s[tile].bind(tile.op.axis[0], te.thread_axis("threadIdx.y"))
        s[tile].bind(s[tile].split(tile.op.axis[1], nparts=8)[0], te.thread_axis("threadIdx.x"))
    x, y = integers(8, 32, type="int8", seed=1), integers(8, 32, type="int8", seed=2)
    assert instructions(s, args, target) == {"dp4a"}
    assert_computes(s, args, [x, y], x.astype(np.int32) @ y.astype(np.int32).T, target)


@pytest.mark.parametrize("arch", ["native", "baseline"])
def test_words_of_rows_change_places(arch: str) -> None:
    m = te.placeholder((16, 70), "int8", name="M")
    t = te.compute((16, 16, 4), lambda k, i, b: m[i, k * 4 + b + 6], name="T")
    s = te.create_schedule(t.op)
    s[t].tensorize(t.op.axis[0], turned_words)
    assert instructions(s, [m, t], "llvm") == {"turned_words"}
    x = np.arange(16 * 70).astype(np.int8).reshape(16, 70)
    want = x[:, 6:].reshape(16, 16, 4).transpose(1, 0, 2)
    assert_computes(s, [m, t], [x], want, f"llvm -arch={arch}")


@pytest.mark.parametrize("arch", ["native", "baseline"])
def test_vnni(arch: str) -> None:
    """Packed as the instruction reads it: 16 groups of four neighbouring bytes."""
    m, n, k = 3, 32, 16
    a = te.placeholder((m, k), "uint8", name="A")
    packed = te.placeholder((n // 16, k // 4, 16, 4), "int8", name="B")
    ko, ki = te.reduce_axis((0, k // 4), "ko"), te.reduce_axis((0, 4), "ki")
    c = te.compute(
        (m, n // 16, 16),
        lambda i, jo, ji: te.sum(
            a[i, ko * 4 + ki].astype("int32") * packed[jo, ko, ji, ki].astype("int32"), [ko, ki]
        ),
        name="C",
    )
    s = te.create_schedule(c.op)
    i, jo, ji = c.op.axis
    s[c].reorder(i, jo, ko, ji, ki)
    s[c].tensorize(ji, vnni)
    assert instructions(s, [a, packed, c], "llvm") == {"avx512_vnni"}
    x = np.random.default_rng(0).integers(0, 256, (m, k)).astype(np.uint8)
    y = np.random.default_rng(1).integers(-128, 128, packed_shape := (2, 4, 16, 4)).astype(np.int8)
    assert packed_shape == tuple(int(e) for e in packed.shape)
    want = np.einsum(
        "mkb,jknb->mjn", x.reshape(m, 4, 4).astype(np.int32), y.astype(np.int32)
    ).astype(np.int32)
    assert_computes(s, [a, packed, c], [x, y], want, f"llvm -arch={arch}")


@pytest.mark.parametrize("shape", [(4, 16, 8), (3, 8, 5), (1, 4, 1)])
@everywhere
def test_a_micro_kernel_of_a_matrix_product(shape: tuple[int, int, int], target: str) -> None:
    tm, tn, tk = shape
    m, n, k = 2 * tm, 3 * tn, 2 * tk
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], r), name="C")
    s = te.create_schedule(c.op)
    io, jo, ii, ji = s[c].tile(*c.op.axis, tm, tn)
    ko, ki = s[c].split(r, factor=tk)
    s[c].reorder(io, jo, ko, ii, ji, ki)
    s[c].tensorize(ii, gemm(tm, tn, tk))
    if target != "llvm":
        s[c].bind(io, te.thread_axis("blockIdx.x"))
        s[c].bind(jo, te.thread_axis("threadIdx.x"))
    assert instructions(s, [a, b, c], target) == {gemm(tm, tn, tk).name}
    x, y = integers(m, k, seed=1), integers(k, n, seed=2)
    assert_computes(s, [a, b, c], [x, y], x @ y, target)


@on_cpu
def test_a_micro_kernel_on_packed_tiles_in_local_memory(target: str) -> None:
    m, n, k, tm, tn, tk = 8, 32, 12, 4, 16, 6
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    packed = te.compute((n // tn, k, tn), lambda jo, r, ji: b[r, jo * tn + ji], name="packed")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * packed[j // tn, r, j % tn], r), name="C")
    s = te.create_schedule(c.op)
    acc = s.cache_write(c, "local")
    io, jo, ii, ji = s[c].tile(*s[c].op.axis, tm, tn)
    s[c].parallel(io)
    s[c].vectorize(ji)
    s[acc].compute_at(s[c], jo)
    ko, ki = s[acc].split(r, factor=tk)
    i, j = acc.op.axis
    s[acc].reorder(ko, i, j, ki)
    s[acc].tensorize(i, gemm(tm, tn, tk))
    x, y = integers(m, k, seed=1), integers(k, n, seed=2)
    assert instructions(s, [a, b, c], target) == {gemm(tm, tn, tk).name}
    assert_computes(s, [a, b, c], [x, y], x @ y, target)
    assert ii in s[c].leaf_iter_vars


@on_gpu
def test_a_copy_in_chunks_that_begin_and_end_in_any_row(target: str) -> None:
    a = te.placeholder((3, 8, 7, 7), "float16", name="A")
    tile = te.compute((3, 8 * 49), lambda n, e: a[n, e // 49, e % 49 // 7, e % 7], name="tile")
    b = te.compute((3, 8 * 49), lambda n, e: tile[n, 8 * 49 - 1 - e], name="B")
    s = te.create_schedule(b.op)
    n, e = b.op.axis
    s[b].bind(n, te.thread_axis("blockIdx.x"))
    s[b].bind(s[b].split(e, factor=64)[1], te.thread_axis("threadIdx.x"))
    s[tile].set_scope("shared")
    s[tile].compute_at(s[b], n)
    chunk, own = s[tile].split(tile.op.axis[1], factor=8)  # 16 bytes of rows of 14
    s[tile].bind(s[tile].split(chunk, factor=64)[1], te.thread_axis("threadIdx.x"))
    s[tile].tensorize(own, copy_async(8, "float16"))
    assert instructions(s, [a, b], target) == {"copy_async_float16_8"}
    x = integers(3, 8, 7, 7, type="float16", seed=1)
    assert_computes(s, [a, b], [x], x.reshape(3, -1)[:, ::-1], target)


@everywhere
def test_a_dot_product_of_floats(target: str) -> None:
    a, b = te.placeholder((6, 32), name="A"), te.placeholder((6, 32), name="B")
    k = te.reduce_axis((0, 32), "k")
    c = te.compute((6,), lambda i: te.sum(a[i, k] * b[i, k], k), name="C")
    s = te.create_schedule(c.op)
    s[c].tensorize(s[c].split(k, factor=8)[1], dot(8))
    if target != "llvm":
        s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
    x, y = integers(6, 32, seed=1), integers(6, 32, seed=2)
    assert_computes(s, [a, b, c], [x, y], (x * y).sum(1), target)
