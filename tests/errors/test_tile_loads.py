"""Misuse of swizzles and of boxes loaded by TMA: what does not fit, and what does instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.misuse import cannot_lower, refuses

import tilewright
from tilewright import te
from tilewright.ir.errors import LanguageError, LoweringError, TargetError
from tilewright.runtime.cuda_maps import tiled
from tilewright.schedule import Schedule
from tilewright.target.boxes import Box, TensorMap
from tilewright.target.instructions import tma_load, wgmma

HOPPER = "cuda -arch=sm_90a"


class Tiles:
    """``B = A + 1`` by way of tiles of 64 by 64 in shared memory."""

    def __init__(
        self, shape: tuple[int, ...] = (200, 72), value: Any = None, element: str = "float16",
        lanes: int = 32,
    ) -> None:  # fmt: skip
        self.a = te.placeholder(shape, element, name="A")
        zero, m, k = te.const(0, element), shape[-2], shape[-1]

        def inside(i: Any, j: Any) -> Any:
            own = (*[0] * (len(shape) - 2), i, j)
            return te.if_then_else(te.all(i < m, j < k), self.a[own], zero)

        self.tile = te.compute((256, 128), value(self.a) if value else inside, name="tile")
        self.b = te.compute((m, k), lambda i, j: self.tile[i, j] + te.const(1, element), name="B")
        self.s: Schedule = te.create_schedule(self.b.op)
        i, j = self.s[self.b].op.axis
        outer_i, outer_j, _, inner = self.s[self.b].tile(i, j, 64, 64)
        self.s[self.b].bind(outer_i, te.thread_axis("blockIdx.x"))
        _, lane = self.s[self.b].split(inner, lanes)
        self.s[self.b].bind(lane, te.thread_axis((0, lanes), "threadIdx.x"))
        self.stage = self.s[self.tile]
        self.stage.set_scope("shared")
        self.stage.compute_at(self.s[self.b], outer_j)
        for axis in self.tile.op.axis:
            self.stage.align_bounds(axis, 64)

    def refused(self, *said: str) -> None:
        """The load cannot be lowered, for a reason with a mend, both ``said``."""
        with pytest.raises(LoweringError) as caught:
            tilewright.lower(self.s, [self.a, self.b], HOPPER)
        assert (caught.value.stage, caught.value.axis) == ("tile", "i")
        for text in said:
            assert text in str(caught.value)

    def load(self, box: tuple[int, ...] = (64, 64), swizzle: int = 0) -> None:
        self.stage.tensorize(self.tile.op.axis[0], tma_load(box, "float16", swizzle))


def test_a_producer_copies_boxes() -> None:
    tiles = Tiles()
    tiles.stage.pipeline(3, producer=True)
    with pytest.raises(LoweringError, match="a producer copies boxes, and these are none. Tensor"):
        tilewright.lower(tiles.s, [tiles.a, tiles.b], HOPPER)


def test_a_producer_needs_whole_warps() -> None:
    tiles = Tiles(lanes=16)
    tiles.load()
    tiles.stage.pipeline(3, producer=True)
    with pytest.raises(LoweringError, match="Bind whole warps, or leave out `producer`"):
        tilewright.lower(tiles.s, [tiles.a, tiles.b], HOPPER)


def placed(column: Callable[[Any], Any]) -> Any:
    """Tiles in which column j is ``column(j)`` of the tensor."""
    zero = te.const(0, "float16")

    def value(a: Any) -> Any:
        m, k = a.shape

        def element(i: Any, j: Any) -> Any:
            there = te.all(i < m, column(j) >= 0, column(j) < k)
            return te.if_then_else(there, a[i, column(j)], zero)

        return element

    return value


class TestSwizzle:
    def test_of_a_width_that_there_is_not(self) -> None:
        t = Tiles()
        refuses(
            lambda: t.stage.swizzle(16), "there is none of 16 bytes", stage="tile",
            mend="32, 64, 128 bytes",
        )  # fmt: skip

    def test_of_an_argument(self) -> None:
        t = Tiles()
        refuses(
            lambda: t.s[t.a].swizzle(64), "argument or output", stage="A", mend="cache_read",
        )  # fmt: skip

    def test_with_gaps_between_rows(self) -> None:
        t = Tiles()
        t.stage.storage_align(t.tile.op.axis[0], 72, 0)
        refuses(
            lambda: t.stage.swizzle(64), "storage_align has put gaps", stage="tile",
            mend="Leave out one",
        )  # fmt: skip
        t = Tiles()
        t.stage.swizzle(64)
        refuses(
            lambda: t.stage.storage_align(t.tile.op.axis[0], 72, 0), "swizzled by 64 bytes",
            stage="tile", axis="i", mend="Leave out one",
        )  # fmt: skip

    def test_outside_of_shared_memory(self) -> None:
        t = Tiles()
        t.stage.set_scope("local")

        def do() -> None:
            t.stage.swizzle(64)

        do()
        cannot_lower(
            t.s, [t.a, t.b], "sim", "the stage is in local memory", stage="tile",
            cause=do, mend="set_scope('shared')",
        )  # fmt: skip

    def test_of_rows_that_it_does_not_divide(self) -> None:
        a = te.placeholder((8, 24), "float16", name="A")
        b = te.compute((8, 24), lambda i, j: a[i, j], name="B")
        s = te.create_schedule(b.op)
        shared = s.cache_read(a, "shared", [b])
        s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
        s[shared].compute_at(s[b], b.op.axis[0])

        def do() -> None:
            s[shared].swizzle(32)

        do()
        cannot_lower(
            s, [a, b], "sim", "24 float16, which is no multiple of 32 bytes", stage="A.shared",
            cause=do, mend="align_bounds()",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("box", "swizzle", "problem"),
    [
        ((300, 64), 0, r"1 to 5 extents of 1 to 256\. Split the axes"),
        ((1, 1, 1, 1, 1, 64), 0, "1 to 5 extents"),
        ((), 0, "1 to 5 extents"),
        ((64, 20), 0, r"40 bytes long, no multiple of 16\. Copy rows .* with copy_async"),
        ((64, 64), 64, r"128 bytes long, .* 32 elements wide, or swizzle by 128 bytes"),
        ((64, 24), 64, r"48 bytes long, .* 32 elements wide, or swizzle by 0 bytes"),
        ((64, 64), 48, "no swizzle of 48 bytes"),
    ],
)
def test_a_box_that_there_is_not(box: tuple[int, ...], swizzle: int, problem: str) -> None:
    with pytest.raises(LanguageError, match=problem):
        tma_load(box, "float16", swizzle)


def test_a_box_of_a_type_that_maps_do_not_have() -> None:
    with pytest.raises(LanguageError, match=r"no tensor maps of bool\. Copy rows"):
        tma_load((64, 64), "bool")


def test_products_of_swizzles_that_there_are_not() -> None:
    with pytest.raises(LanguageError, match="A in registers is not swizzled"):
        wgmma(64, swizzles=(128, 0))
    with pytest.raises(LanguageError, match="swizzled by 0 and 16 bytes"):
        wgmma(64, swizzles=(0, 16))


def test_products_of_bytes_or_words_that_lie_otherwise() -> None:
    for element, left, right in (("int8", "registers", "k"), ("tf32", "registers", "j"),
                                 ("tf32", "i", "k")):  # fmt: skip
        with pytest.raises(LanguageError, match=f"no wgmma of {element} with left='{left}'"):
            wgmma(64, element, left, right)


def test_products_of_columns_that_there_are_not() -> None:
    for columns, element in ((100, "float16"), (264, "float16"), (40, "int8"), (0, "bfloat16")):
        with pytest.raises(LanguageError, match=f"no wgmma of {columns} columns of {element}"):
            wgmma(columns, element, left="k", right="k")
    with pytest.raises(LanguageError, match="104 columns that lie in rows of 64: take whole rows"):
        wgmma(104, left="k", right="j", swizzles=(128, 128))


class TestWindows:
    """``Y[p, k] = X[n, y, x, k]`` in tiles of 64 pixels, of what results see through a tap."""

    @staticmethod
    def refused(
        value: Any, said: str, shape: tuple[int, ...] = (4, 9, 9, 64), results: int = 324
    ) -> None:
        x = te.placeholder(shape, "float16", name="X")
        wide = min(int(shape[-1]), 64)
        seen = te.compute((512, wide), lambda p, k: value(x, p, k), name="seen")
        y = te.compute((results, wide), lambda p, k: seen[p, k] + te.const(1, "float16"), name="Y")
        s = te.create_schedule(y.op)
        block, row = s[y].split(y.op.axis[0], 64)
        s[y].bind(block, te.thread_axis("blockIdx.x"))
        s[y].bind(row, te.thread_axis("threadIdx.x"))
        s[seen].set_scope("shared")
        s[seen].compute_at(s[y], block)
        s[seen].align_bounds(seen.op.axis[0], 64)
        s[seen].tensorize(seen.op.axis[0], tma_load((64, wide), windows=True))
        with pytest.raises(LoweringError, match=said):
            tilewright.lower(s, [x, y], HOPPER)

    def test_of_a_box_of_three_extents(self) -> None:
        with pytest.raises(LanguageError, match="one of windows has results by channels"):
            tma_load((8, 8, 64), windows=True)

    def test_of_indices_that_count_no_results(self) -> None:
        zero = te.const(0, "float16")

        def same(x: Any, p: Any, k: Any) -> Any:
            return te.if_then_else(p < 4, x[p, 0, 0, k], zero)

        self.refused(same, "is of no windows: index .* is not the number of a result", results=4)

    def test_of_columns_of_other_results(self) -> None:
        zero = te.const(0, "float16")

        def other(x: Any, p: Any, k: Any) -> Any:
            return te.if_then_else(p // 81 < 4, x[p // 81, p // 9 % 9, (p + 1) % 9, k], zero)

        self.refused(other, "is not that of a result")

    def test_of_results_that_are_too_far_apart(self) -> None:
        zero = te.const(0, "float16")

        def far(x: Any, p: Any, k: Any) -> Any:
            return te.if_then_else(p // 81 < 4, x[p // 81, p // 9 % 9 * 9, p % 9 * 9, k], zero)

        self.refused(far, "at most 8", shape=(4, 81, 81, 64))

    def test_of_windows_that_begin_too_far_before(self) -> None:
        zero = te.const(0, "float16")

        def before(x: Any, p: Any, k: Any) -> Any:
            row, column = p // 9 % 9, p % 9 - 130
            there = te.all(p // 81 < 4, column >= 0, column < 9)
            return te.if_then_else(there, x[p // 81, row, column, k], zero)

        self.refused(before, "within 128")


class TestLoads:
    def test_rows_that_are_no_multiple_of_16_bytes_apart(self) -> None:
        t = Tiles((200, 70))
        t.load()
        t.refused("140 bytes apart", "copy rows of it with copy_async")

    def test_images_that_are_further_apart_than_40_bits_count(self) -> None:
        t = Tiles((2, 1 << 24, 1 << 16))
        t.load()
        t.refused(f"{1 << 41} bytes apart", "copy rows of it with copy_async")

    def test_a_tensor_of_six_dimensions(self) -> None:
        t = Tiles((1, 1, 1, 1, 200, 72))
        t.load()
        t.refused("A has 6 dimensions", "some of them joined")

    def test_a_part_of_the_tensor_that_ends_before_it_does(self) -> None:
        zero = te.const(0, "float16")
        t = Tiles(value=lambda a: lambda i, j: te.if_then_else(i < 200, a[i, j % 72], zero))
        t.load()
        t.refused("is no box of A: index (j_outer * 64 + j) % 72 is not one axis of the box")
        t = Tiles(
            value=lambda a: lambda i, j: te.if_then_else(te.all(i < 100, j < 72), a[i, j], zero)
        )
        t.load()
        t.refused("< 100, which is not where A has elements", "copy_async")

    def test_something_else_than_zero_outside_of_the_tensor(self) -> None:
        one = te.const(1, "float16")
        t = Tiles(
            value=lambda a: lambda i, j: te.if_then_else(te.all(i < 200, j < 72), a[i, j], one)
        )
        t.load()
        t.refused("no element of a tensor or, where that has none, zero")

    def test_a_box_of_another_size(self) -> None:
        t = Tiles()
        t.load((32, 64))
        t.refused("i of 64, j of 64, the instruction's axes are d0 of 32")

    def test_a_swizzle_that_the_tile_does_not_have(self) -> None:
        t = Tiles()
        t.load(swizzle=128)
        t.refused("is not swizzled, and is to be by 128", "swizzle()")
        t = Tiles()
        t.stage.swizzle(128)
        t.load()
        t.refused("is swizzled by 128 bytes, and is to be by none", "swizzle()")

    @pytest.mark.parametrize(
        ("before", "said"),
        [(2, "j it begins at element j_outer * 64 - 2"), (12, "- 12"), (-1, "+ 1"), (4, "- 4")],
    )
    def test_rows_that_begin_between_chunks_of_16_bytes(self, before: int, said: str) -> None:
        t = Tiles((200, 120), value=placed(lambda j: j - before))
        t.load()
        t.refused(said, "is a multiple of 8 float16", "16 bytes: begin the stage", "copy_async")

    @pytest.mark.parametrize("before", [0, 8, 72, -16])
    def test_rows_that_begin_at_chunks_of_16_bytes_are_copied(self, before: int) -> None:
        t = Tiles((200, 120), value=placed(lambda j: j - before))
        t.load()
        assert "tma_load" in repr(tilewright.lower(t.s, [t.a, t.b], HOPPER))

    def test_rows_that_begin_where_only_a_call_tells(self) -> None:
        """Some multiple of eight is fine, and whatever else may be none is not."""
        n = te.var("n")
        t = Tiles((200, 120), value=placed(lambda j: j - n * 8))
        t.load()
        assert "tma_load" in repr(tilewright.lower(t.s, [t.a, t.b, n], HOPPER))
        t = Tiles((200, 120), value=placed(lambda j: j - n * 4))
        t.load()
        with pytest.raises(LoweringError, match=r"not known that this is a multiple of 8 float16"):
            tilewright.lower(t.s, [t.a, t.b, n], HOPPER)

    def test_rows_of_blocks_that_begin_between_chunks_of_16_bytes(self) -> None:
        """The first of them is at such a chunk, and the others are not."""
        t = Tiles((200, 136), value=placed(lambda j: j // 64 * 68 + j % 64))
        t.load()
        t.refused("j_outer * 68", "multiple of 8 float16")

    def test_loops_that_threads_share(self) -> None:
        t = Tiles()
        rows, columns = t.tile.op.axis
        outer, inner = t.stage.split(rows, 2)
        t.stage.bind(outer, te.thread_axis((0, 32), "threadIdx.x"))
        t.stage.tensorize(inner, tma_load((2, 64)))
        with pytest.raises(LoweringError, match=r"along threadIdx\.x: one thread of a block asks"):
            tilewright.lower(t.s, [t.a, t.b], HOPPER)
        assert columns.name == "j"

    @pytest.mark.needs_nvrtc
    def test_a_box_that_begins_anywhere(self) -> None:
        a = te.placeholder((64, 8), "float16", name="A")
        b = te.compute((64, 8), lambda i, j: a[i, j] + te.const(1, "float16"), name="B")
        s = te.create_schedule(b.op)
        shared = s.cache_read(a, "shared", [b])
        s[b].bind(b.op.axis[0], te.thread_axis((0, 64), "threadIdx.x"))
        s[shared].compute_root()
        s[shared].compute_at(s[b], b.op.axis[0])
        _, inner = s[shared].split(s[shared].op.axis[0], 4)
        s[shared].tensorize(inner, tma_load((4, 8)))
        with pytest.raises(LoweringError, match="multiple of 128 bytes"):
            tilewright.lower(s, [a, b], HOPPER)


def test_strides_that_a_call_fixes() -> None:
    n = te.var("n")
    x = te.placeholder((4, n), "float16", name="X").buffer
    assert tiled(TensorMap(0, Box((0, 1), (4, 8))), x, {"n": 24}).strides == (48,)
    with pytest.raises(tilewright.ir.errors.ArgumentError, match="44 bytes apart"):
        tiled(TensorMap(0, Box((0, 1), (4, 8))), x, {"n": 22})
    with pytest.raises(tilewright.ir.errors.ArgumentError, match="no elements along dimension 1"):
        tiled(TensorMap(0, Box((0, 1), (4, 8))), x, {"n": 0})


def test_a_file_of_cuda_cannot_make_maps() -> None:
    t = Tiles()
    t.load()
    kernel = tilewright.build(t.s, [t.a, t.b], HOPPER)
    with pytest.raises(TargetError, match=r"kernel\.export\(folder\) writes a program with it"):
        kernel.export_c("tiles.cu")
