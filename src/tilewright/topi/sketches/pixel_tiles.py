"""Depthwise convolution on a GPU, channels last, of tiles of the image in shared memory.

A block goes down the image tile by tile. What a tile sees of some channels, halo and padding
included, comes into shared memory as one box, by TMA, while the tile before it is computed: no
thread has a guard or computes an address, and neighbours share what both of them see. A thread
computes ``rows`` by ``columns`` pixels of ``vector`` channels, row by row; a row of the input that
it read and converted serves all outputs whose windows hold it.
"""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule
from tilewright.target.instructions import tma_load
from tilewright.topi.declare import Declaration
from tilewright.topi.nn.depthwise_byte_dots import DotDeclaration
from tilewright.topi.pieces.byte_dots import share_words, sum_dots, turn_words
from tilewright.topi.pieces.loop_order import ROLLING, place_loads
from tilewright.topi.pieces.pixel_boxes import BoxTile, seen, stage_image
from tilewright.topi.pieces.shared_filter import share_filter
from tilewright.topi.pieces.tiling import bind
from tilewright.topi.pieces.windows import load_whole, sum_windows
from tilewright.topi.stages import Stages, begin, image_axes


def schedule_pixel_tiles(d: Declaration, tile: BoxTile = BoxTile()) -> Schedule:
    """The schedule of the declaration of :func:`~tilewright.topi.pieces.pixel_boxes.form`."""
    words = d.words if isinstance(d, DotDeclaration) else None
    st, p = begin(d, words), d.problem
    s, out, sums = st.schedule, st.out, st.sums
    kind = str(st.sum.dtype)
    image = stage_image(s, d, tile, words or st.sum)
    data = words or s.cache_read(image, "local", [st.sum], kind)

    n, c, h, w = image_axes(out, p.layout)
    c, lane = out.split(c, factor=tile.vector)
    cb, tx = out.split(c, factor=tile.threads_x)
    w, column = out.split(w, factor=tile.columns)
    wb, ty = out.split(w, factor=tile.threads_y)
    h, row = out.split(h, factor=tile.rows)
    h, tz = out.split(h, factor=tile.threads_z)
    hb, turn = out.split(h, factor=tile.turns)
    out.reorder(n, hb, wb, cb, tz, ty, tx, turn, row, column, lane)
    block = bind(out, out.fuse(n, hb, wb, cb), tz, ty, tx)
    out.unroll(row, column)
    even = p.result_channels % tile.vector == 0
    (out.vectorize if even else out.unroll)(lane)

    sums.compute_at(out, row)
    di = sum_dots(st) if words else sum_windows(st)

    loads = s[data]
    place_loads(loads, ROLLING, out, row, tx, sums, di)
    if words:
        turn_words(loads)
    else:
        load_whole(loads, True)

    box = s[image]
    box.compute_at(out, turn)
    if tile.stages > 1:
        box.pipeline(tile.stages)
    box.tensorize(box.op.axis[0], tma_load((1, *seen(p, tile)), p.dtype))

    threads = tile.threads_z, tile.threads_y, tile.threads_x
    share = share_words if words else share_filter
    filter, kept = share(st, threads, kind, bool(tile.keeps))
    filter.compute_at(out, turn if tile.turns == 1 else block)
    if kept is not None:
        kept.compute_at(out, turn)
    _load_early(st, tx, even, kept is not None)
    return s


def _load_early(st: Stages, thread: IterVar, even: bool, keeps: bool) -> None:
    """What the epilogue reads of a thread's channels, which scales the filter that it ``keeps``:
    nothing moves a load over the wait for a tile afterwards, and one behind it would be waited for
    as well."""
    s, d = st.schedule, st.declaration
    own = s.stages[s.stages.index(st.sums) :]
    if keeps and d.scaled is not None:
        own.append(s[d.scaled])
    for step in d.problem.epilogue:
        for name, shape in step.tensors:
            tensor = d.inputs[name]
            readers = [stage.op for stage in own if tensor in stage.op.inputs]
            if shape == "channel" and readers:
                loads = s[s.cache_read(tensor, "local", readers)]
                loads.compute_at(st.out, thread)
                (loads.vectorize if even else loads.unroll)(loads.op.axis[0])
