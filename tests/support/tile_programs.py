"""Products of matrices whose tiles are loaded as boxes, and other uses of swizzled memory."""

from __future__ import annotations

from math import ceil
from typing import Any

from tests.support.tensor_programs import through_shared

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.target.instructions import tma_load, wgmma


def boxed(
    left: str = "k", right: str = "k", element: str = "float16", m: int = 56, n: int = 72,
    k: int = 136, columns: int = 64, swizzles: tuple[int, int] = (128, 128), stages: int = 3,
) -> tuple[Schedule, Any]:  # fmt: skip
    """``C[i, j] = sum(A[i, k] * B[j, k])`` in tiles of 64 by ``columns``, 64 of k at a time.

    ``left`` and ``right`` say along which axis neighbours of A and B lie side by side, in global
    memory and in shared, in rows as long as the swizzle; A in fragments for "registers".
    """
    a = te.placeholder((k, m) if left == "i" else (m, k), element, name="A")
    b = te.placeholder((k, n) if right == "j" else (n, k), element, name="B")
    steps = ceil(k / 64) * 64
    zero = te.const(0, element)

    def tile(t: Any, size: int, width: int, along_k: bool, swizzle: int) -> Any:
        """Rows as long as the swizzle, those that follow each other one box after the other."""
        row = swizzle // 2
        whole = ceil(size / width) * width
        if along_k:
            return te.compute(
                (steps // row, whole, row),
                lambda o, i, x: te.if_then_else(
                    te.all(i < size, o * row + x < k), t[i, o * row + x], zero
                ),
                name=f"{t.name}_tile",
            )
        return te.compute(
            (whole // row, steps, row),
            lambda o, x, i: te.if_then_else(
                te.all(o * row + i < size, x < k), t[x, o * row + i], zero
            ),
            name=f"{t.name}_tile",
        )

    def read(t: Any, i: Any, x: Any, along_k: bool, swizzle: int) -> Any:
        row = swizzle // 2
        found = t[x // row, i, x % row] if along_k else t[i // row, x, i % row]
        return found.astype("float32")

    tiles = [tile(b, n, columns, right == "k", swizzles[1])]
    if left == "registers":
        rows = te.compute(
            (ceil(m / 64) * 64, steps),
            lambda i, x: te.if_then_else(te.all(i < m, x < k), a[i, x], zero),
            name="A_rows",
        )
    else:
        tiles.insert(0, tile(a, m, 64, left == "k", swizzles[0]))

    def element_of_a(i: Any, x: Any) -> Any:
        if left == "registers":
            return rows[i, x].astype("float32")
        return read(tiles[0], i, x, left == "k", swizzles[0])

    r = te.reduce_axis((0, steps), name="k")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(
            element_of_a(i, r) * read(tiles[-1], j, r, right == "k", swizzles[1]), axis=r
        ),
        name="C",
    )
    s = te.create_schedule(c.op)
    total = s.cache_write(c, "fragment")
    i, j = s[c].op.axis
    block_i, i = s[c].split(i, 64)
    block_j, j = s[c].split(j, columns)
    s[c].reorder(block_i, block_j, i, j)
    s[c].bind(block_i, te.thread_axis("blockIdx.y"))
    s[c].bind(block_j, te.thread_axis("blockIdx.x"))
    s[total].compute_at(s[c], block_j)
    (i, j), (x,) = s[total].op.axis, s[total].op.reduce_axis
    s[total].align_bounds(i, 64)
    s[total].align_bounds(j, columns)
    step, x = s[total].split(x, 64)
    part, x = s[total].split(x, 16)
    ko, ki = s[total].split(x, 8)
    loops = [i]
    if left != "registers":
        loops = blocks(s[total], i, swizzles[0] if left == "i" else 0)
    loops += blocks(s[total], j, swizzles[1] if right == "j" else 0)
    s[total].reorder(step, part, *loops, ko, ki)
    s[total].unroll(part)
    instruction = wgmma(
        columns, element, left, right, (0 if left == "registers" else swizzles[0], swizzles[1])
    )
    s[total].tensorize(loops[0], instruction)
    if left == "registers":
        s[rows].set_scope("fragment")
        s[rows].compute_at(s[total], step)
        s[rows].align_bounds(s[rows].op.axis[0], 64)
    for tensor, swizzle in zip(tiles, swizzles[-len(tiles) :], strict=True):
        stage = s[tensor]
        stage.set_scope("shared")
        stage.compute_at(s[total], step)
        stage.swizzle(swizzle)
        along_k = (right if tensor is tiles[-1] else left) == "k"
        width = columns if tensor is tiles[-1] else 64
        outer, inner, _ = stage.op.axis
        if along_k:
            stage.align_bounds(inner, width)
        else:
            stage.align_bounds(outer, width * 2 // swizzle)
        box = (width if along_k else 64, swizzle // 2)
        stage.tensorize(inner, tma_load(box, element, swizzle))
        if stages:
            stage.pipeline(stages)
    return s, (a, b, c)


def blocks(stage: Any, axis: Any, swizzle: int) -> list[Any]:
    """The loops over eight neighbours, over as many of these as a row of the swizzle has, and over
    rows, from the outermost in."""
    outer, inner = stage.split(axis, 8)
    if not swizzle:
        return [outer, inner]
    rows, outer = stage.split(outer, swizzle // 16)
    return [rows, outer, inner]


def through_swizzled(
    m: int = 64, n: int = 32, k: int = 128, warps: int = 2, swizzle: int = 64, stages: int = 3
) -> tuple[Schedule, Any]:
    """Swizzled tiles filled by copies of 16 bytes a thread, whose chunks ldmatrix addresses."""
    return through_shared(m, n, k, warps, stages, swizzle)


def transposed(
    element: str = "float32", n: int = 64, swizzle: int = 128, gpu: bool = True
) -> tuple[Schedule, Any]:
    """``B[i, j] = A[j, i]`` through a tile in shared memory that is written by rows of 16 bytes and
    read by columns."""
    a = te.placeholder((n, n), element, name="A")
    b = te.compute((n, n), lambda i, j: a[j, i], name="B")
    s = te.create_schedule(b.op)
    tile = s.cache_read(a, "shared", [b])
    io, jo, _, ji = s[b].tile(*s[b].op.axis, 32, 32)
    s[tile].compute_at(s[b], jo)
    if swizzle:
        s[tile].swizzle(swizzle)
    width = 16 // int(a.dtype.bytes)
    _, vector = s[tile].split(s[tile].op.axis[1], width)
    s[tile].vectorize(vector)
    if gpu:
        s[b].bind(io, te.thread_axis("blockIdx.y"))
        s[b].bind(jo, te.thread_axis("blockIdx.x"))
        s[b].bind(ji, te.thread_axis((0, 32), "threadIdx.x"))
        s[tile].bind(s[tile].op.axis[0], te.thread_axis((0, 32), "threadIdx.x"))
    return s, (a, b)


def windows(
    height: int = 5, swizzle: int = 64, rows: int = 1, stages: int = 0, over: bool = False
) -> tuple[Schedule, Any]:
    """Rows of images with one above and one below, 64 images by 32 columns in a box, or the three
    ``rows`` in one, which in the images are inside of these: a row that an image does not have, and
    images beyond the last, are zero. 100 images of 3 channels.

    With ``stages``, a block goes through all channels, and ``over`` these its pipeline goes on.
    """
    images, channels, width = 100, 3, 24
    x = te.placeholder((images, channels, height, width), "float16", name="X")
    zero = te.const(0, "float16")
    tile = te.compute(
        (channels, height + 2, 128, 32),
        lambda c, h, n, w: te.if_then_else(
            te.all(n < images, h >= 1, h - 1 < height, w < width), x[n, c, h - 1, w], zero
        ),
        name="tile",
    )
    y = te.compute(
        (channels, height, 128, 32),
        lambda c, h, n, w: tile[c, h, n, w] + tile[c, h + 2, n, w],
        name="Y",
    )
    s = te.create_schedule(y.op)
    c, h, n, w = s[y].op.axis
    no, ni = s[y].split(n, 64)
    s[y].reorder(no, c, h, ni, w)
    if stages:
        s[tile].pipeline(stages, over=c if over else None)
    else:
        s[y].bind(c, te.thread_axis("blockIdx.y"))
    s[y].bind(no, te.thread_axis("blockIdx.x"))
    s[y].bind(w, te.thread_axis((0, 32), "threadIdx.x"))
    s[tile].set_scope("shared")
    s[tile].compute_at(s[y], h)
    if swizzle:
        s[tile].swizzle(swizzle)
    box = (64, 32) if rows == 1 else (rows, 64, 32)
    s[tile].tensorize(s[tile].op.axis[-len(box)], tma_load(box, "float16", swizzle))
    return s, (x, y)


def copied(symbolic: bool = False, cached: bool = False) -> tuple[Schedule, Any]:
    """``B = A + 1`` of 72 columns by way of tiles of 64 by 64, whose elements outside of A are
    zero, or nobody's where A is ``cached``; rows are 100 or as many as a call has."""
    m = te.var("m") if symbolic else 100
    a = te.placeholder((m, 72), "float16", name="A")
    one, zero = te.const(1, "float16"), te.const(0, "float16")
    read = a
    if not cached:
        read = te.compute(
            ((m + 63) // 64 * 64, 128),
            lambda i, j: te.if_then_else(te.all(i < m, j < 72), a[i, j], zero),
            name="tile",
        )
    b = te.compute((m, 72), lambda i, j: read[i, j] + one, name="B")
    s = te.create_schedule(b.op)
    tile = s.cache_read(a, "shared", [b]) if cached else read
    io, jo, _, ji = s[b].tile(*s[b].op.axis, 64, 64)
    s[b].bind(io, te.thread_axis("blockIdx.x"))
    s[b].bind(s[b].split(ji, 32)[1], te.thread_axis((0, 32), "threadIdx.x"))
    s[tile].set_scope("shared")
    s[tile].compute_at(s[b], jo)
    for axis in s[tile].op.axis:
        s[tile].align_bounds(axis, 64)
    s[tile].swizzle(128)
    s[tile].tensorize(s[tile].op.axis[0], tma_load((64, 64), "float16", 128))
    return s, (a, b)
