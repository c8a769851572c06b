"""Depthwise convolution on Hopper of tiles of the image in shared memory.

A block goes from tile to tile: channels first, to the same one of the next image, channels last,
down the image. What a tile sees of some channels, halo and padding included, comes into shared
memory as one box, by TMA, while the tile before it is computed: no thread has a guard or computes
an address, and neighbours share what both of them see. A thread computes rows of a few columns, one
below the other, of one channel, or of a vector of them; a row of the image that it read and
converted serves all rows of results whose windows hold it.

Channels first, a thread has the filter of its channel in registers, and reads vectors wherever rows
of the image begin as these do. Channels last, the filter of a block's channels is in shared memory,
and from there in registers.
"""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import tma_load
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.nn.depthwise_byte_dots import DotDeclaration
from tilewright.topi.pieces.byte_dots import share_words, sum_dots, turn_words
from tilewright.topi.pieces.loop_order import ROLLING, place_loads
from tilewright.topi.pieces.pixel_boxes import BoxTile, seen, stage_image
from tilewright.topi.pieces.plane_tiles import PlaneBoxTile, in_tiles, plane_cut, read_at_once
from tilewright.topi.pieces.shared_filter import load_early, share_filter
from tilewright.topi.pieces.tiling import bind
from tilewright.topi.pieces.windows import load_vectors, load_whole, sum_windows
from tilewright.topi.stages import begin, image_axes, scheduled


def schedule_boxes(d: Declaration, tile: PlaneBoxTile | BoxTile = BoxTile()) -> Schedule:
    """The schedule, by a :class:`PlaneBoxTile`, of :func:`~tilewright.topi.declare.declare`, of a
    convolution in NCHW of one filter a channel, whose gradients by the input have stride 1; by a
    :class:`BoxTile`, of the declaration of :func:`~tilewright.topi.pieces.pixel_boxes.form`."""
    return _planes(d, tile) if isinstance(tile, PlaneBoxTile) else _pixels(d, tile)


def _planes(d: Declaration, tile: PlaneBoxTile) -> Schedule:
    p, cut, s = d.problem, plane_cut(d.problem, tile), scheduled(d.output, d.sum)
    total, image = in_tiles(s, d, cut)
    if d.sum is not d.output:
        s[d.sum].compute_inline()
    out, sums = s[d.output], s[total]
    loads = s[s.cache_read(image, "local", [total], p.accumulate)]
    kept = s[s.cache_read(d.weights, "local", [total], p.accumulate)]
    _, thread, turn, row = _share_out(out, d, tile)
    sums.compute_at(out, row)
    sums.unroll(*sums.op.reduce_axis, *sums.op.axis)
    place_loads(loads, ROLLING, out, row, thread, sums, sums.op.reduce_axis[0])
    load_vectors(loads, read_at_once(p, tile, cut))
    kept.compute_at(out, thread)
    kept.unroll(*kept.op.axis)
    *_, plane, _, column = s[image].op.axis
    s[image].align_bounds(column, cut.row_stride)
    _copy(s, image, (out, turn), tile, plane, cut.box)
    return s


def _pixels(d: Declaration, tile: BoxTile) -> Schedule:
    words = d.words if isinstance(d, DotDeclaration) else None
    st, p = begin(d, words), d.problem
    s, out, sums, kind = st.schedule, st.out, st.sums, str(st.sum.dtype)
    image = stage_image(s, d, tile, words or st.sum)
    loads = s[words or s.cache_read(image, "local", [st.sum], kind)]
    block, thread, turn, row = _share_out(out, d, tile)
    sums.compute_at(out, row)
    rows = sum_dots(st) if words else sum_windows(st)
    place_loads(loads, ROLLING, out, row, thread, sums, rows)
    if words:
        turn_words(loads)
    else:
        load_whole(loads, True)
    _copy(s, image, (out, turn), tile, s[image].op.axis[0], (1, *seen(p, tile)))
    share = share_words if words else share_filter
    filter, kept = share(st, tile.threads, kind, bool(tile.keeps))
    filter.compute_at(out, turn if tile.turns == 1 else block)
    if kept is not None:
        kept.compute_at(out, turn)
    load_early(st, thread, p.result_channels % tile.vector == 0, kept is not None)
    return s


def _share_out(
    out: Stage, d: Declaration, tile: PlaneBoxTile | BoxTile
) -> tuple[IterVar, IterVar, IterVar, IterVar]:
    """The result among blocks, threads, of which the last are neighbours along what lies last, and
    what each has. Returns the loops over blocks, threads, tiles of a block and rows of a thread."""
    n, c, h, w = image_axes(out, d.layout)
    grid = [h, w, c] if d.channels_last else [c, h, w]
    own, threads = [], []
    for k, (size, count) in enumerate(zip(tile.own, tile.threads, strict=True)):
        if size:
            grid[k], each = out.split(grid[k], factor=size)
            own.append(each)
        grid[k], thread = out.split(grid[k], factor=count)
        threads.append(thread)
    if d.channels_last:
        grid[0], turn = out.split(grid[0], factor=tile.turns)
    else:
        n, turn = out.split(n, factor=tile.turns)
    out.reorder(n, *grid, *threads, turn, *own)
    block = bind(out, out.fuse(n, *grid), *threads)
    *rows, last = own
    out.unroll(*rows)
    (out.unroll if d.problem.result_shape[-1] % tile.own[-1] else out.vectorize)(last)
    return block, threads[-1], turn, own[0]


def _copy(
    s: Schedule, image: Tensor, at: tuple[Stage, IterVar], tile: PlaneBoxTile | BoxTile,
    first: IterVar, box: tuple[int, ...],
) -> None:  # fmt: skip
    """What a tile sees, as one box, while the one before it is computed."""
    stage = s[image]
    stage.compute_at(*at)
    if tile.stages > 1:
        stage.pipeline(tile.stages)
    stage.tensorize(first, tma_load(box, str(image.dtype)))
