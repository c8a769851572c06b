"""The simulator's figures are those of the hardware's rules: banks, sectors, divergence."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tests.support.kernels import Launch, barrier, buffer, loop, module, store

from tilewright.ir import Buffer, Layout, Module, dtype
from tilewright.ir import stmt as S
from tilewright.ir.expr import Load, Ramp
from tilewright.ir.ops import const, floordiv, floormod, if_then_else, logical_and
from tilewright.ir.stmt import seq
from tilewright.runtime.array import view
from tilewright.runtime.sim import SimReport, compile_module, simulate
from tilewright.runtime.sim.report import AccessCost
from tilewright.target import Target


def shared_read(stride: int, type: str = "float32", lanes: int = 1) -> AccessCost:
    """What it costs 32 threads to read vectors of ``lanes`` elements, ``stride`` apart."""
    size = 32 * stride + lanes
    s, b = buffer("S", (size,), "shared", type), buffer("B", (32, lanes), type=type)
    at = Launch(threadIdx_x=32)
    t = at.threadx
    count = -(-size // 32)
    fill = loop("i", count, lambda i: S.If(t * count + i < size, store(s, t * count + i, 1)))
    index, into = t * stride, const(0)
    if lanes > 1:
        index, into = Ramp(index, const(1), lanes), Ramp(into, const(1), lanes)
    read = S.Store(b, (t, into), Load(s, (index,), None))
    m = module(at.func("k", [b], S.Allocate(s, seq(fill, barrier(), read))))
    report = simulate(m, [np.zeros((32, lanes), type)])
    assert report.ok, str(report)
    return next(a for a in report.accesses if a.scope == "shared" and not a.store)


def test_reading_with_a_stride_of_32_words_is_a_conflict_of_32() -> None:
    found = shared_read(32)
    assert (found.degree, found.worst, found.requests) == (32, 32, 1)


@pytest.mark.parametrize(("stride", "degree"), [(0, 1), (1, 1), (2, 2), (3, 1), (4, 4), (33, 1)])
def test_conflicts_are_those_of_32_banks(stride: int, degree: int) -> None:
    assert shared_read(stride).degree == degree


def test_halves_of_one_word_are_no_conflict() -> None:
    assert shared_read(1, "float16").degree == 1
    assert shared_read(64, "float16").degree == 32


def test_wide_accesses_are_served_by_half_and_quarter_warps() -> None:
    two, four = shared_read(2, lanes=2), shared_read(4, lanes=4)
    assert (two.degree, two.ideal) == (1, 2)
    assert (four.degree, four.ideal) == (1, 4)
    assert shared_read(8, lanes=4).degree == 2
    assert shared_read(1, "float64").degree == 1


def test_padding_and_swizzling_take_conflicts_away() -> None:
    def column(layout: Layout | None) -> AccessCost:
        s = Buffer("S", (const(32), const(32)), dtype("float32"), "shared", layout)
        b = buffer("B", (32, 32))
        at = Launch(threadIdx_x=32, threadIdx_y=32)
        x, y = at.threadx, at.thready
        body = seq(store(s, (y, x), 1.0), barrier(), store(b, (y, x), s[x, y]))
        report = simulate(
            module(at.func("k", [b], S.Allocate(s, body))), [np.zeros((32, 32), "f4")]
        )
        assert report.ok
        return next(a for a in report.accesses if a.scope == "shared" and not a.store)

    assert column(None).degree == 32
    assert column(Layout((const(33), const(1)))).degree == 1
    assert column(Layout((const(32), const(1)), swizzle=(5, 0, 5))).degree == 1


def global_read(stride: int, lanes: int = 1) -> tuple[AccessCost, SimReport]:
    a, b = buffer("A", (64 * stride,)), buffer("B", (64, lanes))
    at = Launch(threadIdx_x=64)
    index, into = at.threadx * stride, const(0)
    if lanes > 1:
        index, into = Ramp(index, const(1), lanes), Ramp(into, const(1), lanes)
    m = module(at.func("k", [a, b], S.Store(b, (at.threadx, into), Load(a, (index,), None))))
    report = simulate(m, [np.zeros(64 * stride, "f4"), np.zeros((64, lanes), "f4")])
    assert report.ok
    return report.accesses[0], report


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (8, 32), (100, 32)])
def test_strided_access_to_global_memory_moves_sectors_in_vain(stride: int, sectors: int) -> None:
    found, report = global_read(stride)
    assert (found.sectors, found.requests) == (sectors, 2)
    assert found.efficiency == 4 / sectors
    assert bool(report.uncoalesced()) == (stride > 1)


def test_a_wide_load_is_one_request_of_all_its_sectors() -> None:
    found, _ = global_read(4, lanes=4)
    assert (found.requests, found.sectors, found.efficiency) == (2, 16, 1.0)


def test_the_report_counts_traffic_flops_barriers_and_divergence() -> None:
    a, b = buffer("A", (4, 64)), buffer("B", (4, 64))
    at = Launch(blockIdx_x=4, threadIdx_x=64)
    i, t = at.blockx, at.threadx
    body = seq(
        barrier(),
        S.If(t < 40, store(b, (i, t), a[i, t] * 2.0 + 1.0), store(b, (i, t), 0.0)),
        barrier(),
    )
    arrays = [np.zeros((4, 64), "f4") for _ in range(2)]
    report = simulate(module(at.func("k", [a, b], body)), arrays)
    assert report.flops == 2 * 4 * 40
    assert report.barriers == {"k": 8}
    assert report.traffic["global"].bytes_loaded == 4 * 4 * 40
    assert report.traffic["global"].stores == 4 * 64
    (branch,) = report.branches
    assert (branch.divergent, branch.warps) == (4, 8)
    text = str(report)
    assert "2 barriers a block" in text
    assert "if threadIdx_x < 40:" in text


def cached_depthwise(channels: int, size: int, taps: int) -> Module:
    """Depthwise convolution with a padded plane of the input in shared memory, one a block."""
    a, o = buffer("A", (channels, size, size)), buffer("O", (channels, size, size))
    f = buffer("F", (channels, taps, taps))
    wide, pad = size + taps - 1, taps // 2
    s, acc = buffer("S", (wide, wide), "shared"), buffer("acc", (1,), "local")
    at = Launch(blockIdx_x=channels, threadIdx_x=256)
    c, t = at.blockx, at.threadx

    def fill(i: object) -> S.Stmt:
        p = i * 256 + t
        y, x = floordiv(p, wide), floormod(p, wide)
        inside = logical_and(y >= pad, y < size + pad, x >= pad, x < size + pad)
        return S.If(
            p < wide * wide, store(s, (y, x), if_then_else(inside, a[c, y - pad, x - pad], 0.0))
        )

    def point(i: object) -> S.Stmt:
        p = i * 256 + t
        y, x = floordiv(p, size), floormod(p, size)
        add = lambda kh, kw: store(acc, 0, acc[0] + s[y + kh, x + kw] * f[c, kh, kw])  # noqa: E731
        taps_ = loop("kh", taps, lambda kh: loop("kw", taps, lambda kw: add(kh, kw)))
        return seq(store(acc, 0, 0.0), taps_, store(o, (c, y, x), acc[0]))

    body = seq(
        loop("i", -(-wide * wide // 256), fill), barrier(), loop("i", size * size // 256, point)
    )
    return module(at.func("depthwise", [a, f, o], S.Allocate(s, S.Allocate(acc, body))))


def test_article_sized_kernels_run_in_well_under_a_second() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (12, 32, 32)).astype("float32")
    f = rng.integers(-4, 5, (12, 7, 7)).astype("float32")
    y = np.zeros_like(x)
    program = compile_module(cached_depthwise(12, 32, 7), Target.parse("sim"))
    views = [view(array) for array in (x, f, y)]
    took = min(_seconds(lambda: program.launch(views, {})) for _ in range(2))
    padded = np.pad(x, ((0, 0), (3, 3), (3, 3)))
    taps = [(i, j) for i in range(7) for j in range(7)]
    expected = sum(padded[:, i : i + 32, j : j + 32] * f[:, i, j, None, None] for i, j in taps)
    assert (y == expected).all()
    assert took < 1


def _seconds(run: object) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
