"""Windows become matrices by schedule primitives, and compute what they did."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support.schedules import assert_computes, integers, run

import tilewright
from tilewright import te
from tilewright.arith.conditions import conjuncts
from tilewright.ir.errors import VerificationError
from tilewright.ir.expr import Load, Reduce, Select
from tilewright.ir.visit import distinct, free_vars
from tilewright.lower.pipeline import form

ROWS = 3


class Window(NamedTuple):
    """A row of windows: their extents, where they begin, and how they are cut."""

    width: int
    taps: int
    stride: int = 1
    dilation: int = 1
    padding: int = 0
    tile: int = 8
    offset: int = 0
    whole: int = 1


WINDOWS = [
    Window(20, 3),
    Window(21, 5, stride=2, padding=2, tile=4, offset=6, whole=8),
    Window(30, 4, dilation=3, padding=3, tile=5, offset=1, whole=16),
    Window(17, 3, stride=2, dilation=2, tile=7, whole=4),
    Window(9, 1, padding=1, tile=3, whole=5),
    Window(11, 11, tile=4, offset=3),
    Window(40, 7, stride=3, dilation=2, padding=6, tile=8, offset=2, whole=8),
]

#: OpenCL C takes long to compile, and says no more than sim but for one of them.
some_everywhere = pytest.mark.parametrize(
    ("w", "target"),
    [
        *((w, target) for w in WINDOWS for target in ("llvm", "sim")),
        pytest.param(WINDOWS[2], "opencl", marks=pytest.mark.needs_opencl),
    ],
    ids=str,
)
on_two = pytest.mark.parametrize("target", ["llvm", "sim"])


class Convolution:
    """``Y[n, i] = sum(X[n, i * stride + k * dilation - padding] * F[k], k)``."""

    def __init__(self, w: Window, type: str = "float32", reducer: Any = te.sum) -> None:
        self.window = w
        self.x = te.placeholder((ROWS, w.width), type, name="X")
        self.f = te.placeholder((w.taps,), type, name="F")
        k = te.reduce_axis((0, w.taps), "k")
        out = (w.width + 2 * w.padding - (w.taps - 1) * w.dilation - 1) // w.stride + 1

        def element(n: Any, i: Any) -> Any:
            at = i * w.stride + k * w.dilation - w.padding
            inside = te.all(at >= 0, at < w.width)
            return reducer(self.x[n, at] * self.f[k], axis=k, where=inside)

        self.y = te.compute((ROWS, out), element, name="Y")
        self.s = te.create_schedule(self.y.op)
        self.args = [self.x, self.f, self.y]
        self.inputs = [integers(ROWS, w.width, type=type), integers(w.taps, type=type, seed=1)]

    @property
    def expected(self) -> np.ndarray:
        w, (x, f) = self.window, self.inputs
        padded = np.pad(x, ((0, 0), (w.padding, w.padding)))
        reads = [[i * w.stride + k * w.dilation for k in range(w.taps)]
                 for i in range(self.y.shape[1].value)]  # fmt: skip
        found: np.ndarray = padded[:, reads] @ f
        return found.astype(x.dtype)

    def skewed(self) -> tuple[Any, Any]:
        """Tiles of results and positions of their windows: the loops over both."""
        w, stage = self.window, self.s[self.y]
        i = stage.pad_to(stage.op.axis[1], w.tile)
        _, inner = stage.split(i, w.tile)
        j = stage.skew(
            stage.op.reduce_axis[-1], inner, scale=w.stride, step=w.dilation, offset=w.offset
        )
        return inner, stage.pad_to(j, w.whole)

    def banded(self, finite: bool = True) -> Any:
        """The sums as products of tiles of ``X`` with a banded matrix of ``F``."""
        s, w = self.s, self.window
        self.skewed()
        total = s.cache_write(self.y, "local")
        n, tile, i = s[total].op.axis
        (j,) = s[total].op.reduce_axis
        matrix = s.reindex(self.f, total, [i, j])
        i_of, j_of = s[matrix].op.axis
        s.reindex(self.f, matrix, [j_of.var - i_of.var * w.stride])
        seen = s.reindex(self.x, total, [n, tile.var * (w.tile * w.stride) + j.var])
        s[total].guard_by_zeros(matrix, seen, over=[i, j], finite=finite)
        return total

    def bind(self, target: str) -> None:
        """A kernel, where the target is a GPU: results along its threads."""
        if target == "llvm":
            return
        for stage in self.s.stages:
            if stage.op.axis and stage.attachment.kind == "root":
                outer, inner = stage.split(stage.op.axis[-1], 16)
                stage.bind(outer, te.thread_axis("blockIdx.x"))
                stage.bind(inner, te.thread_axis("threadIdx.x"))
                stage.set_scope("global")


@some_everywhere
def test_loops_that_are_skewed_and_padded(w: Window, target: str) -> None:
    c = Convolution(w)
    stage = c.s[c.y]
    inner, j = c.skewed()
    outer, n = stage.leaf_iter_vars[1], stage.leaf_iter_vars[0]
    jo, ji = stage.split(j, 4)
    stage.reorder(n, outer, jo, inner, ji)
    read = c.s.cache_read(c.x, "local" if target == "llvm" else "shared", [c.y])
    c.s[read].compute_at(stage, jo)
    if target != "llvm":
        stage.bind(n, te.thread_axis("blockIdx.x"))
        stage.bind(inner, te.thread_axis("threadIdx.x"))
    assert_computes(c.s, c.args, c.inputs, c.expected, target)


@some_everywhere
def test_products_with_a_banded_matrix(w: Window, target: str) -> None:
    c = Convolution(w)
    total = c.banded()
    body = c.s[total].op.body[0]
    assert isinstance(body, Reduce)
    assert str(body.condition) == "True"
    c.bind(target)
    assert_computes(c.s, c.args, c.inputs, c.expected, target)


@pytest.mark.spread
@pytest.mark.parametrize("terms", [1, 3])
@some_everywhere
def test_products_of_tf32_with_a_banded_matrix(w: Window, target: str, terms: int) -> None:
    """Factors in parts, copied between zeros; sums of each chunk are added in another stage."""
    c = Convolution(w)
    s = c.s
    of_image, of_filter = s.in_tf32(c.y, terms)
    s[of_image].compute_inline()
    _, j = c.skewed()
    s[c.y].split(j, 4)
    total = s.cache_write(c.y, "local")
    n, tile, i = s[total].op.axis
    term, jo, ji = s[total].op.reduce_axis
    x_part, f_part = ((term + 1) // 2, (term + 1) % 2) if terms == 3 else (term, term)
    j = jo.var * 4 + ji.var
    matrix = s.reindex(of_filter, total, [f_part, i, j])
    s[of_filter].compute_inline()
    seen = s.reindex(of_image, total, [x_part, n, tile.var * (w.tile * w.stride) + j])
    loaded = s.reindex(c.x, seen, s[seen].op.axis[1:])
    assert sum(isinstance(e, Select) for e in distinct(s[seen].op.body[0])) == (terms == 3)
    s[total].guard_by_zeros(matrix, seen, over={matrix: [i, ji], seen: [i, jo, ji]}, finite=True)
    chunks = s.rfactor(total, s[total].op.reduce_axis[1])
    assert {t.name for t in s[chunks].op.inputs} == {matrix.name, seen.name}
    assert [t.name for t in s[loaded].op.inputs] == ["X"]
    c.bind(target)
    assert_computes(s, c.args, c.inputs, c.expected, target)


@on_two
def test_the_loops_of_a_skew_in_any_order_and_on_threads(target: str) -> None:
    c = Convolution(Window(26, 5, tile=4))
    stage = c.s[c.y]
    inner, j = c.skewed()
    stage.reorder(j, inner)
    stage.vectorize(inner)
    if target != "llvm":
        stage.bind(stage.leaf_iter_vars[0], te.thread_axis("blockIdx.x"))
        stage.bind(stage.leaf_iter_vars[1], te.thread_axis("threadIdx.x"))
    assert_computes(c.s, c.args, c.inputs, c.expected, target)


def test_a_skew_goes_by_the_part_that_is_computed() -> None:
    """Attached to a tile of 4, a skew by all of an axis has 4 + 5 - 1 positions."""
    c = Convolution(Window(26, 5))
    total = c.s.cache_write(c.y, "local")
    outer, _ = c.s[c.y].split(c.s[c.y].op.axis[1], 4)
    c.s[total].compute_at(c.s[c.y], outer)
    c.s[total].skew(c.s[total].op.reduce_axis[0], by=c.s[total].op.axis[1])
    assert "for k_skewed in range(8)" in str(form(c.s, c.args, "llvm"))
    assert_computes(c.s, c.args, c.inputs, c.expected, "llvm")


def test_sums_keep_their_order() -> None:
    """The result of a skew alone is equal bit by bit, of floats too, where no vectors are made of
    the loops."""
    found = []
    for skewed in (False, True):
        c = Convolution(Window(50, 13, padding=6, tile=16, offset=1, whole=16))
        rng = np.random.default_rng(0)
        inputs = [rng.standard_normal(a.shape, "float32") for a in c.inputs]
        if skewed:
            c.skewed()
        c.s[c.y].bind(c.s[c.y].op.axis[0], te.thread_axis("blockIdx.x"))
        found += run(c.s, c.args, inputs, "sim")
    np.testing.assert_array_equal(*found)


@on_two
def test_a_maximum_may_be_skewed_and_reindexed(target: str) -> None:
    """What needs no zeros: the condition stays."""
    c = Convolution(Window(21, 4, padding=1, tile=4, whole=4), reducer=te.max)
    s = c.s
    c.skewed()
    total = s.cache_write(c.y, "local")
    _, _, i = s[total].op.axis
    s.reindex(c.f, total, [i, *s[total].op.reduce_axis])
    c.bind(target)
    x, f = c.inputs
    padded = np.pad(x, ((0, 0), (1, 1)), constant_values=np.nan)
    windows = np.stack([padded[:, k : k + 20] * f[k] for k in range(4)])
    assert_computes(s, c.args, c.inputs, np.nanmax(windows, 0), target)


@on_two
def test_symbolic_extents_are_padded(target: str) -> None:
    n = te.var("n")
    x = te.placeholder((n, 6), name="X")
    k = te.reduce_axis((0, 6), "k")
    y = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="Y")
    s = te.create_schedule(y.op)
    i = s[y].pad_to(s[y].op.axis[0], 8)
    s[y].pad_to(s[y].op.reduce_axis[0], 4)
    if target != "llvm":
        s[y].bind(i, te.thread_axis("blockIdx.x"))
    a = integers(13, 6)
    assert_computes(s, [x, y], [a], a.sum(1), target)


def test_padding_alone_makes_tiles_of_a_copy() -> None:
    """A stage that reads beyond its tensor in the last tile keeps its guard."""
    x = te.placeholder((10, 6), name="X")
    y = te.compute((10,), lambda i: x[i, 0] * 2.0, name="Y")
    s = te.create_schedule(y.op)
    s[y].split(s[y].pad_to(s[y].op.axis[0], 4), 4)
    local = s.cache_write(y, "local")
    assert [int(e) for e in local.shape] == [3, 4]
    a = integers(10, 6)
    assert_computes(s, [x, y], [a], a[:, 0] * 2, "llvm")


def test_an_inlined_image_is_copied_with_its_padding() -> None:
    """The copy of an inlined stage reads what that reads, under one condition."""
    x = te.placeholder((9,), name="X")
    padded = te.compute(
        (11,), lambda i: te.if_then_else(te.all(i >= 1, i < 10), x[i - 1], 0.0), name="P"
    )
    k = te.reduce_axis((0, 3), "k")
    y = te.compute((9,), lambda i: te.sum(padded[i + k], axis=k), name="Y")
    s = te.create_schedule(y.op)
    s[padded].compute_inline()
    i, (k,) = s[y].op.axis[0], s[y].op.reduce_axis
    copy = s.reindex(padded, y, [i.var + k.var])
    assert [t.name for t in s[copy].op.inputs] == ["X"]
    a = integers(9)
    want = np.convolve(a, np.ones(3, "float32"), "same")
    assert_computes(s, [x, y], [a], want, "llvm")


def test_a_channel_is_skewed_by_itself_and_copied_with_its_neighbour() -> None:
    """A sum over one tap and both channels of a pair: products of a matrix that is zero between
    them."""
    x, f = (te.placeholder(shape, name=name) for shape, name in (((6, 8), "X"), ((8,), "F")))
    k = te.reduce_axis((0, 1), "k")
    y = te.compute((6, 8), lambda i, c: te.sum(x[i, c] * f[c], axis=k), name="Y")
    s = te.create_schedule(y.op)
    _, own = s[y].split(y.op.axis[1], 2)
    _, one = s[y].split(k, 1)
    s[y].skew(one, by=own)
    total = s.cache_write(y, "local")
    i, pair, own = s[total].op.axis
    _, other = s[total].op.reduce_axis
    seen = s.reindex(x, total, [i, pair, other])
    matrix = s.reindex(f, total, [pair, other, own])
    s[total].guard_by_zeros(seen, matrix, over=[other, own], finite=True)
    assert [int(e) for e in seen.shape] == [6, 4, 2]
    a, b = integers(6, 8), integers(8, seed=1)
    assert_computes(s, [x, f, y], [a, b], a * b, "llvm")


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 3), (3, 2)])
@on_two
def test_sums_along_diagonals_of_products(stride: int, dilation: int, target: str) -> None:
    """Each element of one factor by each of the other, over images: what a tap is, is the sum of a
    diagonal of these."""
    images, out, taps = 7, 6, 4
    width = (out - 1) * stride + (taps - 1) * dilation + 1
    x, y = (te.placeholder((images, w), name=n) for w, n in ((width, "X"), (out, "Y")))
    n, o = te.reduce_axis((0, images), "n"), te.reduce_axis((0, out), "o")
    d = te.compute(
        (taps,),
        lambda k: te.sum(x[n, o * stride + k * dilation] * y[n, o], axis=[n, o]),
        name="D",
    )
    s = te.create_schedule(d.op)
    part = s.rfactor(d, o, -1)
    k, o = s[part].op.axis
    s[part].skew(k, o, scale=stride, step=dilation, offset=3)
    made = s.cache_write(part, "local" if target == "llvm" else "global")
    w, o = s[made].op.axis
    (n,) = s[made].op.reduce_axis
    one, other = s.reindex(x, made, [n, w]), s.reindex(y, made, [n, o])
    assert {t.name for t in s[made].op.inputs} == {one.name, other.name}
    s[part].compute_inline()
    if target != "llvm":
        for stage in s.stages:
            if stage.op.axis and stage.attachment.kind == "root":
                stage.bind(stage.leaf_iter_vars[0], te.thread_axis("blockIdx.x"))
                stage.set_scope("global")
    a, b = integers(images, width), integers(images, out, seed=1)
    want = [
        sum((a[:, i * stride + t * dilation] * b[:, i]).sum() for i in range(out))
        for t in range(taps)
    ]
    assert_computes(s, [x, y, d], [a, b], np.array(want, "float32"), target)


@on_two
def test_parts_of_a_copy_have_loops_of_their_own(target: str) -> None:
    """A row that each of four threads has with what stands before and behind: its own eight
    elements in two vectors, the others one by one."""
    x = te.placeholder((4, 32), name="X")
    k = te.reduce_axis((0, 5), "k")

    def element(n: Any, q: Any, i: Any) -> Any:
        at = q * 8 + i + k - 2
        return te.sum(x[n, at], axis=k, where=te.all(at >= 0, at < 32))

    y = te.compute((4, 4, 8), element, name="Y")
    s = te.create_schedule(y.op)
    n, q, i = y.op.axis
    row = s.reindex(x, y, [n, q, i.var + k.var - 2], "local")
    parts = s.partition(row, s[row].op.axis[-1], [2, 10])
    assert [int(part.shape[-1]) for part in parts] == [2, 8, 2]
    s[row].compute_inline()
    for part in parts:
        s[part].compute_at(s[y], q)
    own = s[parts[1]].op.axis[-1]
    s[parts[1]].vectorize(s[parts[1]].split(own, 4)[1])
    s[y].unroll(i, k)
    if target == "sim":
        s[y].bind(n, te.thread_axis("blockIdx.x"))
        s[y].bind(q, te.thread_axis("threadIdx.x"))
    assert "X.local.from2" in str(tilewright.lower(s, [x, y], target))
    a = integers(4, 32)
    padded = np.pad(a, ((0, 0), (2, 2)))
    want = sum(padded[:, t : t + 32] for t in range(5)).reshape(4, 4, 8)
    assert_computes(s, [x, y], [a], want, target)


def test_parts_of_a_copy_are_read_where_they_are_whatever_the_reader_does() -> None:
    x = te.placeholder((3, 12), name="X")
    y = te.compute((3, 12), lambda n, i: x[n, 11 - i] * 2.0, name="Y")
    s = te.create_schedule(y.op)
    copy = s.cache_read(x, "local", [y])
    parts = s.partition(copy, s[copy].op.axis[1], [1, 4, 5])
    s[copy].compute_inline()
    s[parts[2]].compute_at(s[y], s[y].op.axis[0])
    a = integers(3, 12)
    assert_computes(s, [x, y], [a], a[:, ::-1] * 2, "llvm")


@pytest.mark.parametrize("stride", [2, 3])
@on_two
def test_a_window_with_gaps_is_read_by_phases(stride: int, target: str) -> None:
    """Positions of a stride apart are of one phase; what reads them is a sum with a quotient."""
    taps, out = 4, 8
    width = (out - 1) * stride + taps
    x, y = te.placeholder((width,), name="X"), te.placeholder((out,), name="Y")
    o = te.reduce_axis((0, out), "o")
    d = te.compute((taps,), lambda k: te.sum(x[o * stride + k] * y[o], axis=o), name="D")
    s = te.create_schedule(d.op)
    j = s[d].pad_to(s[d].skew(o, d.op.axis[0], step=stride), stride)
    s[d].split(j, stride)
    total = s.cache_write(d, "local" if target == "llvm" else "global")
    (k,), (column, side) = s[total].op.axis, s[total].op.reduce_axis
    seen = s.reindex(x, total, [column, side])
    far = column.var + te.floordiv(side.var - k.var, stride)
    back = s.reindex(y, total, [(far, te.Range.from_extent(-2, out + 4))])
    s[total].guard_by_zeros(seen, back, over=[column], finite=True)
    (condition,) = conjuncts(s[total].op.body[0].condition)
    assert set(free_vars(condition)) == {k.var, side.var}  # whatever column
    if target == "sim":
        for stage in s.stages:
            if stage.op.axis and stage.attachment.kind == "root":
                stage.bind(stage.leaf_iter_vars[0], te.thread_axis("blockIdx.x"))
                stage.set_scope("global")
    a, b = integers(width), integers(out, seed=1)
    want = [(a[t : t + out * stride : stride][:out] * b).sum() for t in range(taps)]
    assert_computes(s, [x, y, d], [a, b], np.array(want, "float32"), target)


def test_a_copy_may_have_more_than_is_read() -> None:
    x = te.placeholder((9,), name="X")
    y = te.compute((9,), lambda i: x[i] * 2.0, name="Y")
    s = te.create_schedule(y.op)
    copy = s.reindex(x, y, [(y.op.axis[0], te.Range.from_extent(-3, 16))])
    assert [int(e) for e in copy.shape] == [16]
    a = integers(9)
    assert_computes(s, [x, y], [a], a * 2, "llvm")


def test_a_copy_may_have_what_is_read_where_the_condition_of_its_reader_holds() -> None:
    x = te.placeholder((7,), name="X")
    y = te.compute((10,), lambda i: te.if_then_else(i < 7, x[i], 0.0), name="Y")
    s = te.create_schedule(y.op)
    copy = s.reindex(x, y, [(y.op.axis[0], te.Range.from_extent(-1, 9))])
    assert [int(e) for e in copy.shape] == [9]
    a = integers(7)
    assert_computes(s, [x, y], [a], np.pad(a, (0, 3)), "llvm")


def test_a_copy_has_no_condition_that_follows_from_another() -> None:
    x = te.placeholder((9,), name="X")
    padded = te.compute((12,), lambda i: te.if_then_else(i >= 3, x[i - 3], 0.0), name="P")
    y = te.compute((12,), lambda i: te.if_then_else(i >= 1, padded[i], 0.0), name="Y")
    s = te.create_schedule(y.op)
    s[padded].compute_inline()
    copy = s.reindex(padded, y, y.op.axis)
    (at,) = s[copy].op.axis
    assert str(s[copy].op.body[0].condition) == str(at.var >= 3)
    assert isinstance(s[y].op.body[0], Load)  # the copy is zero where its reader was
    a = integers(9)
    assert_computes(s, [x, y], [a], np.pad(a, (3, 0)), "llvm")


def test_a_sum_leaves_out_tiles_of_zeros() -> None:
    """Of three chunks of a padded row, one has elements that count; the axis begins and ends
    there."""
    c = Convolution(Window(8, 7, padding=3, tile=8, offset=5, whole=8))
    c.skewed()
    c.s[c.y].split(c.s[c.y].leaf_iter_vars[-1], 8)
    total = c.s.cache_write(c.y, "local")
    n, tile, i = c.s[total].op.axis
    jo, ji = c.s[total].op.reduce_axis
    j = jo.var * 8 + ji.var
    matrix = c.s.reindex(c.f, total, [i, j])
    seen = c.s.reindex(c.x, total, [n, tile, j])
    assert int(jo.dom.extent) == 3
    c.s[total].guard_by_zeros(matrix, seen, over=[i, ji], finite=True)
    jo, _ = c.s[total].op.reduce_axis
    assert (int(jo.dom.min), int(jo.dom.extent)) == (1, 1)
    assert_computes(c.s, c.args, c.inputs, c.expected, "llvm")


class Tiles(NamedTuple):
    """A row of windows in tiles of four, of which two share what they see, in stages of two."""

    s: te.Schedule
    y: Any
    sums: Any
    image: Any
    matrix: Any
    args: list[Any]
    inputs: list[np.ndarray]
    expected: np.ndarray


def two_tiles(around: bool) -> Tiles:
    """``Y[i] = sum(X[i + k - 5] * F[k], k)``, of which the positions of a tile are skewed by both
    tiles, though each sees a part of them."""
    x, f = (te.placeholder((n,), name=name) for n, name in ((16, "X"), (11, "F")))
    k = te.reduce_axis((0, 11), "k")
    padded = te.compute(
        (26,), lambda i: te.if_then_else(te.all(i >= 5, i < 21), x[i - 5], 0.0), name="P"
    )
    y = te.compute((16,), lambda i: te.sum(padded[i + k] * f[k], axis=k), name="Y")
    s = te.create_schedule(y.op)
    s[padded].compute_inline()
    _, i = s[y].split(y.op.axis[0], 8)
    j = s[y].pad_to(s[y].skew(k, by=i), 2)
    s[y].split(j, 2)
    s[y].split(i, 4)
    sums = s.cache_write(y, "local")
    block, tile, i = s[sums].op.axis
    turn, ji = s[sums].op.reduce_axis
    j = turn.var * 2 + ji.var
    image = s.reindex(padded, sums, [block.var * 8 + j], "local")
    matrix = s.reindex(f, sums, [tile.var * 4 + i.var - j], "local")
    s[sums].guard_by_zeros(
        image, matrix, over=[i], finite=True, around=[tile, ji] if around else ()
    )
    a, b = integers(16), integers(11, seed=1)
    return Tiles(s, y, sums, image, matrix, [x, f, y], [a, b], np.convolve(a, b[::-1], "same"))


@on_two
@pytest.mark.parametrize("around", [False, True])
def test_a_copy_is_as_large_as_guards_let_it_be_read(target: str, around: bool) -> None:
    """Of the filter between zeros, what one tile reads under the condition of its sum."""
    t = two_tiles(around)
    block, i = t.s[t.y].split(t.y.op.axis[0], 8)
    tile, i = t.s[t.y].split(i, 4)
    if target != "llvm":
        t.s[t.y].bind(block, te.thread_axis("blockIdx.x"))
    t.s[t.sums].compute_at(t.s[t.y], tile)
    _, _, i = t.s[t.sums].op.axis
    turn, ji = t.s[t.sums].op.reduce_axis
    t.s[t.sums].reorder(turn, ji, i)
    t.s[t.matrix].compute_at(t.s[t.y], block)
    t.s[t.image].compute_at(t.s[t.sums], turn)
    text = str(tilewright.lower(t.s, t.args, target))
    (size,) = re.findall(r"F_local = T.allocate\(\[(\d+)\]", text)
    assert int(size) == 11 + 2 * 3  # taps, and what stands beside them for rows of a tile
    assert_computes(t.s, t.args, t.inputs, t.expected, target)


def test_what_nothing_counts_for_is_left_out_around() -> None:
    """Conditions of a loop alone, by which it begins and ends where something counts."""
    plain, around = (two_tiles(around).s.stages for around in (False, True))
    first, second = (
        next(s.op.body[0].condition for s in stages if s.op.name == "Y.local")
        for stages in (plain, around)
    )
    before, after = ({str(c): c for c in conjuncts(e)} for e in (first, second))
    assert before.keys() < after.keys()
    for more in after.keys() - before.keys():
        assert {v.name for v in free_vars(after[more])} == {"i.outer.c", "k.skewed.padded.outer"}


@pytest.mark.parametrize("type", ["int32", "int8"])
def test_integers_need_no_promise(type: str) -> None:
    c = Convolution(Window(20, 3, tile=8), type)
    c.banded(finite=False)
    assert_computes(c.s, c.args, c.inputs, c.expected, "llvm")


def test_what_is_not_finite_spreads_along_a_tile_with_zeros_only() -> None:
    """As guard_by_zeros says; without it a skew leaves infinity where it was."""
    w = Window(4, 2, tile=3)
    x = np.array([[np.inf, 1, 1, 1]] * ROWS, "float32")
    f = np.ones(2, "float32")
    plain = Convolution(w)
    plain.skewed()
    np.testing.assert_array_equal(run(plain.s, plain.args, [x, f], "llvm")[0][0], [np.inf, 2, 2])
    zeros = Convolution(w)
    zeros.banded()
    np.testing.assert_array_equal(
        run(zeros.s, zeros.args, [x, f], "llvm")[0][0], [np.inf, np.nan, np.nan]
    )


def test_the_guard_of_a_skew_is_proved() -> None:
    """Without the condition that reindex leaves, the program reads beyond the filter."""
    c = Convolution(Window(20, 3, tile=8))
    c.skewed()
    total = c.s.cache_write(c.y, "local")
    stage = c.s[total]
    body = stage.op.body[0]
    open_ = Reduce(body.reducer, body.source, body.axes, te.const(True), body.index, body.init)
    stage.op = stage.op.derive((open_,))
    with pytest.raises(VerificationError):
        tilewright.build(c.s, c.args, "llvm")
