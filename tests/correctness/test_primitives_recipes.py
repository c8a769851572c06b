"""Schedules as TVM's tutorials wrote them: many primitives at once, at sizes that do not divide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.schedules import assert_computes, everywhere, integers, on_cpu, on_gpu

from tilewright import te


@pytest.mark.parametrize("size", [32, 37])
@on_cpu
def test_a_matrix_product_in_blocks_packed_and_in_parallel(size: int, target: str) -> None:
    m, n, k, block = size, size + 3, size - 1, 8
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "k")
    tiles = -(-n // block)
    packed = te.compute(
        (tiles, k, block),
        lambda big, z, x: te.if_then_else(big * block + x < n, b[z, big * block + x], 0.0),
        name="packed",
    )
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, r] * packed[j // block, r, te.indexmod(j, block)], r),
        name="C",
    )
    s = te.create_schedule(c.op)
    cached = s.cache_write(c, "global")
    xo, yo, _, yi = s[c].tile(*s[c].op.axis, block, block)
    s[c].vectorize(yi)
    s[cached].compute_at(s[c], yo)
    xc, yc = s[cached].op.axis
    (r,) = s[cached].op.reduce_axis
    ko, ki = s[cached].split(r, factor=4)
    s[cached].reorder(ko, xc, ki, yc)
    s[cached].unroll(ki)
    s[cached].vectorize(yc)
    s[c].parallel(xo)
    _, _, z = s[packed].op.axis
    s[packed].vectorize(z)
    s[packed].parallel(s[packed].op.axis[0])
    x, y = integers(m, k, seed=1), integers(k, n, seed=2)
    assert_computes(s, [a, b, c], [x, y], x @ y, target)


OPENCL = pytest.mark.needs_opencl


@pytest.mark.parametrize(
    ("size", "channels", "filters", "batch", "doubled", "target"),
    [
        (6, 8, 16, 8, False, "sim"),
        (5, 6, 10, 7, False, "sim"),
        (5, 6, 10, 7, True, "sim"),
        pytest.param(6, 8, 16, 8, False, "opencl", marks=OPENCL),
    ],
)
def test_a_convolution_with_virtual_threads(
    size: int, channels: int, filters: int, batch: int, doubled: bool, target: str
) -> None:
    kernel, pad = 3, 1
    a = te.placeholder((size, size, channels, batch), name="A")
    w = te.placeholder((kernel, kernel, channels, filters), name="W")
    padded = te.compute(
        (size + 2 * pad, size + 2 * pad, channels, batch),
        lambda yy, xx, cc, nn: te.if_then_else(
            te.all(yy >= pad, yy - pad < size, xx >= pad, xx - pad < size),
            a[yy - pad, xx - pad, cc, nn],
            te.const(0.0, "float32"),
        ),
        name="padded",
    )
    rc = te.reduce_axis((0, channels), name="rc")
    ry, rx = te.reduce_axis((0, kernel), name="ry"), te.reduce_axis((0, kernel), name="rx")
    b = te.compute(
        (size, size, filters, batch),
        lambda yy, xx, ff, nn: te.sum(
            padded[yy + ry, xx + rx, rc, nn] * w[ry, rx, rc, ff], axis=[ry, rx, rc]
        ),
        name="B",
    )
    s = te.create_schedule(b.op)
    s[padded].compute_inline()
    aa, ww = s.cache_read(padded, "shared", [b]), s.cache_read(w, "shared", [b])
    al, wl = s.cache_read(aa, "local", [b]), s.cache_read(ww, "local", [b])
    bl = s.cache_write(b, "local")

    tile, threads, step, vthread = 2, 2, 4, 2
    block = tile * threads * vthread
    block_x, block_y, block_z = (te.thread_axis(f"blockIdx.{d}") for d in "xyz")
    thread_x = te.thread_axis((0, threads), "threadIdx.x")
    thread_y = te.thread_axis((0, threads), "threadIdx.y")
    thread_xz = te.thread_axis((0, vthread), "vthread", name="vx")
    thread_yz = te.thread_axis((0, vthread), "vthread", name="vy")

    hi, wi, fi, ni = s[b].op.axis
    bz = s[b].fuse(hi, wi)
    by, fi = s[b].split(fi, factor=block)
    bx, ni = s[b].split(ni, factor=block)
    s[b].bind(bz, block_z)
    s[b].bind(by, block_y)
    s[b].bind(bx, block_x)
    tyz, fi = s[b].split(fi, nparts=vthread)
    txz, ni = s[b].split(ni, nparts=vthread)
    ty, fi = s[b].split(fi, nparts=threads)
    tx, ni = s[b].split(ni, nparts=threads)
    s[b].reorder(bz, by, bx, tyz, txz, ty, tx, fi, ni)
    s[b].bind(tyz, thread_yz)
    s[b].bind(txz, thread_xz)
    s[b].bind(ty, thread_y)
    s[b].bind(tx, thread_x)

    s[bl].compute_at(s[b], tx)
    _, _, fi, ni = s[bl].op.axis
    ry, rx, rc = s[bl].op.reduce_axis
    rco, rci = s[bl].split(rc, factor=step)
    s[bl].reorder(rco, ry, rx, rci, fi, ni)
    s[aa].compute_at(s[bl], rx)
    s[ww].compute_at(s[bl], rx)
    s[al].compute_at(s[bl], rci)
    s[wl].compute_at(s[bl], rci)
    for shared in (aa, ww):
        _, _, ci, inner = s[shared].op.axis
        ty, ci = s[shared].split(ci, nparts=threads)
        tx, inner = s[shared].split(inner, nparts=threads)
        _, inner = s[shared].split(inner, factor=4)
        s[shared].reorder(ty, tx, ci, inner)
        s[shared].bind(ty, thread_y)
        s[shared].bind(tx, thread_x)
        s[shared].vectorize(inner)
        if doubled:
            s[shared].double_buffer()
    x = integers(size, size, channels, batch, seed=1)
    f = integers(kernel, kernel, channels, filters, seed=2)
    wide = np.pad(x, ((pad, pad), (pad, pad), (0, 0), (0, 0)))
    expected = sum(
        np.einsum("yxcn,cf->yxfn", wide[i : i + size, j : j + size], f[i, j])
        for i in range(kernel)
        for j in range(kernel)
    )
    assert_computes(s, [a, w, b], [x, f], np.asarray(expected, np.float32), target)


@on_gpu
def test_a_softmax_of_rows_in_one_kernel(target: str) -> None:
    """Maximum, sum and division of a row by one block, from exact powers of two."""
    n, m = 5, 45
    a = te.placeholder((n, m), name="A")
    k, k2 = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "k2")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="top")
    power = te.compute((n, m), lambda i, j: te.exp2(a[i, j] - top[i]), name="power")
    total = te.compute((n,), lambda i: te.sum(power[i, k2], k2), name="total")
    out = te.compute((n, m), lambda i, j: power[i, j] / total[i], name="out")
    s = te.create_schedule(out.op)
    threads = 16
    i, j = out.op.axis
    _, tx = s[out].split(j, factor=threads)
    s[out].bind(i, te.thread_axis("blockIdx.x"))
    s[out].bind(tx, te.thread_axis("threadIdx.x"))
    for stage, axis in ((top, k), (total, k2)):
        s[stage].bind(s[stage].split(axis, factor=threads)[1], te.thread_axis("threadIdx.x"))
        s[stage].compute_at(s[out], i)
        s[stage].set_scope("shared")
    s[power].compute_at(s[out], i)
    s[power].set_scope("shared")
    s[power].bind(
        s[power].split(power.op.axis[1], factor=threads)[1], te.thread_axis("threadIdx.x")
    )
    x = integers(n, m)
    p = np.exp2(x - x.max(1, keepdims=True))
    assert_computes(s, [a, out], [x], (p / p.sum(1, keepdims=True)).astype(np.float32), target)


@everywhere
def test_a_pool_and_a_resize(target: str) -> None:
    """Strided windows, then an index that divides."""
    n = 13
    a = te.placeholder((n, n), name="A")
    ky, kx = te.reduce_axis((0, 3), "ky"), te.reduce_axis((0, 3), "kx")
    m = (n - 3) // 2 + 1
    pool = te.compute(
        (m, m),
        lambda i, j: te.max(a[i * 2 + ky, j * 2 + kx], axis=[ky, kx]),
        name="pool",
    )
    big = te.compute((2 * m, 2 * m), lambda i, j: pool[i // 2, j // 2], name="big")
    s = te.create_schedule(big.op)
    io, jo, ii, ji = s[big].tile(*big.op.axis, 4, 4)
    if target == "llvm":
        s[big].parallel(io)
        s[pool].compute_at(s[big], jo)
    else:
        s[big].bind(io, te.thread_axis("blockIdx.y"))
        s[big].bind(jo, te.thread_axis("blockIdx.x"))
        s[big].bind(ii, te.thread_axis("threadIdx.y"))
        s[big].bind(ji, te.thread_axis("threadIdx.x"))
        s[pool].compute_at(s[big], jo)
        s[pool].set_scope("shared")
        s[pool].bind(pool.op.axis[0], te.thread_axis("threadIdx.y"))
        s[pool].bind(pool.op.axis[1], te.thread_axis("threadIdx.x"))
    x = integers(n, n)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3))[::2, ::2]
    expected = windows.max((2, 3)).repeat(2, 0).repeat(2, 1)
    assert_computes(s, [a, big], [x], expected, target)


@on_gpu
def test_a_prefix_of_producers_in_registers(target: str) -> None:
    """A stage in registers at a thread, another at a loop inside it, one inlined between."""
    n = 50
    a = te.placeholder((n,), name="A")
    stages: list[Any] = [a]
    for name in "BCDE":
        last = stages[-1]
        stages.append(
            te.compute(
                (n,),
                lambda i, t=last: t[i] + te.if_then_else(i > 0, t[i - 1], 0.0),
                name=name,
            )
        )
    _, b, c, d, e = stages
    s = te.create_schedule(e.op)
    thread, rest = s[e].split(e.op.axis[0], factor=7)
    inner, _ = s[e].split(rest, factor=3)
    s[e].bind(thread, te.thread_axis("threadIdx.x"))
    s[d].compute_at(s[e], inner)
    s[c].compute_inline()
    s[b].compute_at(s[e], thread)
    x = integers(n)
    y = x
    for _ in range(4):
        y = y + np.concatenate([[0], y[:-1]]).astype(np.float32)
    assert_computes(s, [a, e], [x], y, target)
