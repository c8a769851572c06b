"""Products of matrices on tensor cores, as schedules."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.schedule import Schedule
from tilewright.target.instructions import (
    copy_async,
    ldmatrix_a_f16,
    ldmatrix_b_f16,
    ldmatrix_b_trans_f16,
    mma_bf16,
    mma_f16,
    mma_s8,
    mma_tf32,
    mma_u8,
    wgmma,
)

#: By type: the instruction, its depth and the type of sums.
MMA = {
    "float16": (mma_f16, 16, "float32"),
    "bfloat16": (mma_bf16, 16, "float32"),
    "float32": (mma_tf32, 8, "float32"),
    "int8": (mma_s8, 32, "int32"),
    "uint8": (mma_u8, 32, "int32"),
}


def product(m: int, n: int, k: int, element: str) -> tuple[Any, Any, Any]:
    """``C[i, j] = sum(A[i, k] * B[j, k])``; of float32 what tensor cores read of it."""
    result = MMA[element][2]

    def read(x: Any) -> Any:
        return te.truncate_tf32(x) if element == "float32" else x.astype(result)

    a = te.placeholder((m, k), element, name="A")
    b = te.placeholder((n, k), element, name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(read(a[i, r]) * read(b[j, r]), axis=r),
        name="C",
    )
    return a, b, c


def from_registers(
    element: str, m: int = 32, n: int = 24, k: int = 64, stages: int = 0
) -> tuple[Schedule, Any]:
    """Each thread loads its share of the rows with 16 bytes at once, which permutes the sums.

    ``stages`` iterations are under way.
    """
    instruction, depth, _ = MMA[element]
    a, b, c = product(m, n, k, element)
    s = te.create_schedule(c.op)
    total = s.cache_write(c, "fragment")
    left, right = (s.cache_read(x, "fragment", [total]) for x in (a, b))
    io, _ = s[c].split(s[c].op.axis[0], 16)
    s[c].bind(io, te.thread_axis("blockIdx.x"))
    s[total].compute_at(s[c], io)
    i, j = s[total].op.axis
    (r,) = s[total].op.reduce_axis
    step = 2 * depth
    ko, r = s[total].split(r, step)
    thread, r = s[total].split(r, step // 4)
    which, r = s[total].split(r, step // 8)
    half, low = s[total].split(r, step // 16)
    jo, ji = s[total].split(j, 8)
    s[total].reorder(ko, which, jo, i, ji, half, thread, low)
    s[total].unroll(which)
    s[total].tensorize(i, instruction)
    for loads in (left, right):
        s[loads].compute_at(s[total], ko)
        _, inner = s[loads].split(s[loads].op.axis[1], step // 4)
        s[loads].vectorize(inner)
        if stages:
            s[loads].pipeline(stages)
    return s, (a, b, c)


def through_shared(
    m: int = 64, n: int = 32, k: int = 64, warps: int = 2, stages: int = 0, swizzle: int = 0
) -> tuple[Schedule, Any]:
    """Tiles of 16-bit floats through shared memory, loaded by ldmatrix. Its rows are padded, or as
    long as a ``swizzle`` and filled by copies in the background."""
    a, b, c = product(m, n, k, "float16")
    s = te.create_schedule(c.op)
    total = s.cache_write(c, "fragment")
    tiles = [s.cache_read(x, "shared", [total]) for x in (a, b)]
    left, right = (s.cache_read(x, "fragment", [total]) for x in tiles)
    ty = te.thread_axis((0, warps), "threadIdx.y")
    i, j = s[c].op.axis
    block, i = s[c].split(i, 16 * warps)
    warp, i = s[c].split(i, 16)
    s[c].reorder(block, warp, i, j)
    s[c].bind(block, te.thread_axis("blockIdx.x"))
    s[c].bind(warp, ty)
    s[total].compute_at(s[c], warp)
    i, j = s[total].op.axis
    (r,) = s[total].op.reduce_axis
    ko, r = s[total].split(r, swizzle // 2 or 32)
    ks, r = s[total].split(r, 16)
    jo, ji = s[total].split(j, 8)
    s[total].reorder(ko, ks, jo, i, ji, r)
    s[total].tensorize(i, mma_f16)
    for tile in tiles:
        s[tile].compute_at(s[total], ko)
        if swizzle:
            s[tile].swizzle(swizzle)
        else:
            s[tile].storage_align(s[tile].op.axis[0], 40, 0)
        rows, columns = s[tile].op.axis
        chunk, vector = s[tile].split(columns, 8)
        flat = s[tile].fuse(rows, chunk)
        _, own = s[tile].split(flat, 32 * warps)
        y, x = s[tile].split(own, 32)
        s[tile].bind(y, ty)
        s[tile].bind(x, te.thread_axis((0, 32), "threadIdx.x"))
        if swizzle:
            s[tile].tensorize(vector, copy_async(8, "float16"))
        else:
            s[tile].vectorize(vector)
        if stages:
            s[tile].pipeline(stages)
    for loads, instruction in ((left, ldmatrix_a_f16), (right, ldmatrix_b_f16)):
        s[loads].compute_at(s[total], ks)
        row, column = s[loads].op.axis
        ro, ri = s[loads].split(row, 16)
        s[loads].reorder(ro, ri, column)
        s[loads].tensorize(ri, instruction)
    return s, (a, b, c)


def transposed(m: int = 16, n: int = 32, k: int = 32) -> tuple[Schedule, Any]:
    """``C[i, j] = sum(A[i, k] * B[k, j])`` with B as it lies, transposed on the way."""
    a = te.placeholder((m, k), "float16", name="A")
    b = te.placeholder((k, n), "float16", name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, r].astype("float32") * b[r, j].astype("float32"), axis=r),
        name="C",
    )
    s = te.create_schedule(c.op)
    total = s.cache_write(c, "fragment")
    tile = s.cache_read(b, "shared", [total])
    left, right = s.cache_read(a, "fragment", [total]), s.cache_read(tile, "fragment", [total])
    io, _ = s[c].split(s[c].op.axis[0], 16)
    s[c].bind(io, te.thread_axis("blockIdx.x"))
    s[tile].compute_at(s[c], io)
    s[total].compute_at(s[c], io)
    s[tile].bind(s[tile].op.axis[1], te.thread_axis((0, 32), "threadIdx.x"))
    i, j = s[total].op.axis
    (r,) = s[total].op.reduce_axis
    ko, r = s[total].split(r, 16)
    jo, j = s[total].split(j, 8)
    s[total].reorder(ko, jo, i, j, r)
    s[total].tensorize(i, mma_f16)
    s[left].compute_at(s[total], ko)
    s[right].compute_at(s[total], ko)
    row, column = s[right].op.axis
    co, ci = s[right].split(column, 16)
    s[right].reorder(co, row, ci)
    s[right].tensorize(row, ldmatrix_b_trans_f16)
    return s, (a, b, c)


def by_warpgroups(
    element: str = "float16", m: int = 128, n: int = 64, k: int = 64, columns: int = 32,
    stages: int = 0,
) -> tuple[Schedule, Any]:  # fmt: skip
    """Rows in registers, columns in blocks in shared memory: a warpgroup for 64 rows."""
    kind = "float32" if element == "tf32" else element
    chunk = 16 // dtype(kind).bytes
    a = te.placeholder((m, k), kind, name="A")
    b = te.placeholder((n, k), kind, name="B")
    blocks = te.compute(
        (n // 8, k // chunk, 8, chunk), lambda jo, ko, ji, ki: b[jo * 8 + ji, ko * chunk + ki],
        name="blocks",
    )  # fmt: skip
    ko, ki = te.reduce_axis((0, k // chunk), name="ko"), te.reduce_axis((0, chunk), name="ki")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(
            a[i, ko * chunk + ki].astype("float32")
            * blocks[j // 8, ko, j % 8, ki].astype("float32"),
            axis=[ko, ki],
        ),
        name="C",
    )
    s = te.create_schedule(c.op)
    total = s.cache_write(c, "fragment")
    left = s.cache_read(a, "fragment", [total])
    s[blocks].set_scope("shared")
    tx, ty = te.thread_axis((0, 128), "threadIdx.x"), te.thread_axis((0, 2), "threadIdx.y")
    i, j = s[c].op.axis
    jb, j = s[c].split(j, columns)
    group, i = s[c].split(i, 64)
    s[c].reorder(jb, group, i, j)
    s[c].bind(jb, te.thread_axis("blockIdx.x"))
    s[c].bind(group, ty)
    s[blocks].compute_at(s[c], jb)
    flat = s[blocks].fuse(*s[blocks].op.axis)
    _, own = s[blocks].split(flat, 256)
    y, x = s[blocks].split(own, 128)
    s[blocks].bind(y, ty)
    s[blocks].bind(x, tx)
    s[total].compute_at(s[c], group)
    i, j = s[total].op.axis
    ko, ki = s[total].op.reduce_axis
    turn, ko = s[total].split(ko, 4)
    step, ko = s[total].split(ko, 2)
    jo, ji = s[total].split(j, 8)
    s[total].reorder(turn, step, i, jo, ji, ko, ki)
    s[total].unroll(step)
    s[total].tensorize(i, wgmma(columns, element))
    s[left].compute_at(s[total], turn)
    _, pair = s[left].split(s[left].op.axis[1], 2)
    s[left].vectorize(pair)
    if stages:
        s[left].pipeline(stages)
    return s, (a, b, c)


def staged(
    left: str = "k", right: str = "k", element: str = "float16", m: int = 64, n: int = 64,
    k: int = 128, together: int = 8, stages: int = 3,
) -> tuple[Schedule, Any]:  # fmt: skip
    """Both operands in blocks in shared memory, copied there ``together`` elements at once.

    ``left`` and ``right`` say along which axis neighbours of A and B lie side by side, in global
    memory and in shared; k that is no multiple of 32 is padded with zeros.
    """
    chunks = -(-k // 32)
    a = te.placeholder((m, k) if left == "k" else (k, m), element, name="A")
    b = te.placeholder((n, k) if right == "k" else (k, n), element, name="B")

    def blocks(t: Any, extent: int, order: str) -> Any:
        def block(o: Any, ko: Any, y: Any, x: Any) -> Any:
            own, at = (o * 8 + y, ko * 8 + x) if order == "k" else (o * 8 + x, ko * 8 + y)
            value = t[own, at] if order == "k" else t[at, own]
            return value if k % 32 == 0 else te.if_then_else(at < k, value, te.const(0, element))

        return te.compute((extent // 8, chunks * 4, 8, 8), block, name=f"{t.name}_blocks")

    left_blocks, right_blocks = blocks(a, m, left), blocks(b, n, right)
    ko, ki = te.reduce_axis((0, chunks * 4), name="ko"), te.reduce_axis((0, 8), name="ki")

    def element_of(t: Any, at: Any, order: str) -> Any:
        inner = (at % 8, ki) if order == "k" else (ki, at % 8)
        return t[at // 8, ko, *inner].astype("float32")

    c = te.compute(
        (m, n),
        lambda i, j: te.sum(
            element_of(left_blocks, i, left) * element_of(right_blocks, j, right), axis=[ko, ki]
        ),
        name="C",
    )
    s = te.create_schedule(c.op)
    total = s.cache_write(c, "fragment")
    tx = te.thread_axis((0, 128), "threadIdx.x")
    i, j = s[c].op.axis
    block, i = s[c].split(i, 64)
    s[c].bind(block, te.thread_axis("blockIdx.x"))
    s[total].compute_at(s[c], block)
    i, j = s[total].op.axis
    ko, ki = s[total].op.reduce_axis
    chunk, ko = s[total].split(ko, 4)
    step, ko = s[total].split(ko, 2)
    io, ii = s[total].split(i, 8)
    jo, ji = s[total].split(j, 8)
    s[total].reorder(chunk, step, io, ii, jo, ji, ko, ki)
    s[total].unroll(step)
    s[total].tensorize(io, wgmma(n, element, left, right))
    for tensor in (left_blocks, right_blocks):
        stage = s[tensor]
        stage.set_scope("shared")
        stage.compute_at(s[total], chunk)
        *axes, last = stage.op.axis
        outer, inner = stage.split(last, together)
        _, x = stage.split(stage.fuse(*axes, outer), 128)
        stage.bind(x, tx)
        stage.tensorize(inner, copy_async(together, element))
        if stages:
            stage.pipeline(stages)
    return s, (a, b, c)
