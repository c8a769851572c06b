"""What the schedules of a GPU make a thread and a block do: those whose threads read the images
from memory themselves; others say so of themselves (:mod:`~tilewright.select.staged`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.select.counts import Array, Cost
from tilewright.select.staged import Staged
from tilewright.target.devices import WIDEST
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.gpu.register_model import Window
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.loop_order import AHEAD, EARLY, ROLLING, WHOLE
from tilewright.topi.templates import TEMPLATES


def cost(p: Conv, template: str, values: Array) -> Cost | Staged:
    """Of a template of :data:`DESCRIBED`, with parameters (sets, parameters) in the order of its
    dataclass."""
    if template not in _COUNTS:
        return Staged.of(p, TEMPLATES[template], values)
    return _COUNTS[template](p, *(values[:, k] for k in range(values.shape[1])))


class _Tiles:
    """What the tiles of forward passes and gradients by the input have in common. Of a gradient
    with several filters a channel the products of one are counted, as the trees are fitted."""

    def __init__(self, p: Conv, rows: Array, columns: Array, taps: Array, order: Array) -> None:
        self.p, self.window, self.order = p, Window(p), order
        self.rows, self.columns = rows, columns
        self.rolls = (order == ROLLING) | (order == EARLY)
        self.size = dtype(p.dtype).bytes
        self.h, self.w = self.window.groups
        self.kinds = math.prod(self.window.phases)
        self.whole, self.across = self.window.taps(0), self.window.taps(1)
        self.step = (1, 1) if self.window.gathers else p.stride
        self.read = p.out_image if self.window.gathers else p.image
        all_rows = np.minimum(np.ceil(taps / self.window.phases[0]), self.whole)
        self.taps = np.where(order == WHOLE, all_rows, self.whole)
        self.passes = np.ceil(self.whole / self.taps)
        self.seen = self._seen(1, columns, self.across)
        self.down = self._seen(0, rows, self.taps)
        self.strips = np.ceil(self.h / rows)
        self.groups = np.ceil(self.w / columns)
        self.ones = np.ones(len(rows))

    def _seen(self, k: int, results: Array, taps: Array | int) -> Array:
        """Inputs along a dimension, as :meth:`Window.seen` has them."""
        spread = 1 if self.window.phases[k] > 1 else self.p.dilation[k]
        return np.asarray((results - 1) * self.step[k] + (taps - 1) * spread + 1.0)

    def held(self, lanes: Array | int) -> Array:
        """Registers for sums and inputs of ``lanes`` channels, or filters."""
        sums = self.columns * self.kinds * lanes
        narrow = 2 if self.size == 2 else 1
        return np.where(
            self.order == WHOLE,
            self.rows * sums + self.down * self.seen / narrow,
            sums + np.where(self.rolls, (self.whole + (self.order == EARLY)) * self.seen,
                            (self.down + self.whole) / 2 * self.seen / narrow),
        )  # fmt: skip

    def rounds(self) -> Array:
        """Times that a thread waits for loads; those that come a row early wait half as long."""
        rows = self.rows * np.where(self.order == EARLY, 0.5, 1.0)
        return np.where(self.rolls, rows, self.passes)

    def ahead(self, row: Array | int) -> Array:
        """Loads under way at once, given those that a row of the input takes."""
        one = row * np.where(self.order == EARLY, 2, 1)
        return np.where(self.rolls, one, self.down * row)

    def conversions(self) -> Array:
        """Of inputs of fewer bits, for one channel; where they are kept as they are, once a use."""
        if self.size > 2:
            return 0 * self.ones
        loaded = self.down * self.seen * self.passes
        again = np.maximum(loaded, 0.7 * self.rows * self.whole * self.seen)
        return np.where(self.order == AHEAD, again, loaded)

    def area(self, rows: Array, columns: Array) -> Array:
        """Pixels that a block reads for its results of a kind."""
        high = np.minimum(self._seen(0, rows, self.whole), self.read[0])
        return high * np.minimum(self._seen(1, columns, self.across), self.read[1])


def _strips(
    p: Conv, rows: Array, vector: Array, y: Array, x: Array, z: Array, taps: Array, order: Array
) -> Cost:
    t = _Tiles(p, rows, vector, taps, order)
    filters = p.multiplier if p.pass_ == "forward" else 1
    wide = np.where(t.read[1] % vector == 0, vector, 1)
    halo = np.where(wide > 1, 2 * np.ceil(np.maximum(t.seen - vector, 0) / 2 / wide) * wide, 0)
    span = np.where(wide > 1, np.ceil(t.seen / wide) * wide, t.seen)
    aligned = np.ceil(vector * t.step[1] / wide) * wide + halo
    crosses = (wide > 1) & (t.seen > vector)
    span = np.where(crosses, np.maximum(span, np.minimum(aligned, span + wide)), span)
    results = rows * vector * t.kinds * filters
    planes = p.batch * p.result_channels / filters
    stored = vector * t.window.phases[1]
    stored = np.where(p.result_shape[-1] % stored == 0, stored, 1)
    taps_of_all = t.whole * t.across
    return Cost(
        threads=x * y * z, x=x,
        blocks=np.ceil(planes / z) * np.ceil(t.strips / y) * np.ceil(t.groups / x),
        results=results, turns=t.ones, held=t.held(filters), shared=0 * t.ones,
        loads=t.down * span / wide * t.passes, load_bytes=wide * t.size,
        ahead=t.ahead(span / wide), rounds=t.rounds(),
        stores=results / stored, store_bytes=np.minimum(stored * t.size, WIDEST),
        multiplies=results * taps_of_all, conversions=t.conversions(),
        filter_loads=taps_of_all * t.kinds * filters * t.ones,
        others=20 + 3 * t.down * t.passes, unique=z * t.area(rows * y, vector * x) * t.size,
        code=results * t.taps * t.across, run=x * vector * t.step[1] * t.size,
        step=vector * t.step[1] * t.size, store_step=vector * t.window.phases[1] * t.size,
        chunks=t.ones, extra=0 * t.ones,
        spare=(t.strips * rows / t.h, t.groups * vector / t.w, np.ceil(t.strips / y) * y / t.strips,
               np.ceil(t.groups / x) * x / t.groups, np.ceil(planes / z) * z / planes),
        tile=(rows, vector, z, taps, order, 0 * t.ones, 0 * t.ones, 0 * t.ones), kind=order,
    )  # fmt: skip


def _planes(p: Conv, planes: Array, rows: Array, columns: Array, order: Array) -> Cost:
    t = _Tiles(p, rows, columns, np.full(len(rows), p.kernel_h), order)
    threads = planes * t.strips * t.groups
    source = planes * math.prod(t.read) * t.size
    made = planes * math.prod(_made(p)) * t.size
    wide, stored = _divides(source, t.size), _divides(made, t.size)
    copies = np.ceil(source / WIDEST / threads)
    results, pixels = rows * columns, t.down * t.seen
    read, written = (
        bank_conflicts(_strip_places(t, image, *size) * t.size, t.ones * t.size)
        for image, size in (
            (t.read, (rows * t.step[0], columns * t.step[1])),
            (_made(p), (rows, columns)),
        )
    )
    return Cost(
        threads=threads, x=threads, blocks=p.batch * p.result_channels / planes, results=results,
        turns=t.ones, held=t.held(1), shared=source + made, loads=copies * WIDEST / wide,
        load_bytes=wide, ahead=copies, rounds=1 + copies / 8,
        stores=np.ceil(made / WIDEST / threads) * WIDEST / stored, store_bytes=stored,
        multiplies=results * t.whole * t.across, conversions=t.conversions(),
        filter_loads=t.whole * t.across * t.ones, others=30 + pixels + results + 2 * copies,
        unique=source, code=results * t.whole * t.across, run=source, step=WIDEST * t.ones,
        store_step=WIDEST * t.ones, chunks=t.ones, extra=0 * t.ones,
        spare=(t.strips * rows / t.h, t.groups * columns / t.w, stored, threads % 32,
               WIDEST * threads * copies / source, read, written, pixels * read,
               np.log2((pixels * read + results * written) / (results * t.whole * t.across))),
        tile=(rows, columns, planes, t.taps, order, 0 * t.ones, 0 * t.ones, 0 * t.ones),
        kind=order,
    )  # fmt: skip


def _made(p: Conv) -> tuple[int, ...]:
    """Rows and columns of the image that is written."""
    return p.image if p.pass_ == "dgrad" else p.out_image


def _strip_places(t: _Tiles, image: tuple[int, ...], rows: Array, columns: Array) -> Array:
    """(sets, threads of a warp): the element of planes of ``image`` where each thread begins, whose
    tiles are that number of rows and columns apart."""
    thread = np.arange(32)[None, :]
    rest, across = thread // t.groups[:, None], thread % t.groups[:, None]
    plane, down = rest // t.strips[:, None], rest % t.strips[:, None]
    high, wide = image
    return (plane * high + down * rows[:, None]) * wide + across * columns[:, None]


def _divides(extent: Array, size: int) -> Array:
    """Bytes of the widest access that divides an extent."""
    return np.where(extent % 16 == 0, 16, np.where(extent % 4 == 0, 4, size))


def _pixels(
    p: Conv, rows: Array, columns: Array, vector: Array, y: Array, x: Array, taps: Array,
    order: Array, z: Array, keeps: Array,
) -> Cost:  # fmt: skip
    t = _Tiles(p, rows, columns, taps, order)
    wide = np.where(p.result_channels % vector == 0, vector, 1)
    pixels = t.down * t.seen * t.passes
    results = rows * columns * vector * t.kinds
    channels = np.ceil(p.result_channels / vector)
    blocks = p.batch * np.ceil(t.strips / z) * np.ceil(t.groups / y) * np.ceil(channels / x)
    kept = np.where(t.rolls & (keeps == 0), dtype(p.accumulate).bytes, t.size)
    filter_rows = np.where(t.passes > 1, np.minimum(taps, p.kernel_h), p.kernel_h)
    shared = filter_rows * p.kernel_w * x * vector * p.multiplier * kept
    weights = p.kernel_h * p.kernel_w * np.where((order == WHOLE) | (keeps == 1), 1, rows)
    weights = weights * np.ceil(vector * kept / WIDEST)
    narrow = (kept == 2) & (t.size == 2)
    return Cost(
        threads=x * y * z, x=x, blocks=blocks, results=results, turns=t.ones,
        held=vector * (t.held(1) + keeps * t.whole * p.kernel_w), shared=shared,
        loads=pixels * vector / wide,
        load_bytes=wide * t.size,
        ahead=t.ahead(t.seen * vector / wide), rounds=t.rounds() + 1, stores=results / wide,
        store_bytes=wide * t.size, multiplies=results * t.whole * t.across,
        conversions=vector * t.conversions() + np.where(narrow, weights * 8, 0),
        filter_loads=weights,
        others=20 + 2 * pixels + p.kernel_h * p.kernel_w * vector / (y * z) * 3,
        unique=t.area(rows * z, columns * y) * x * vector * t.size,
        code=results * t.taps * t.across, run=x * vector * t.size,
        step=vector * t.size, store_step=vector * t.size, chunks=t.ones, extra=shared * blocks,
        spare=(t.strips * rows / t.h, t.groups * columns / t.w,
               np.ceil(t.strips / z) * z / t.strips, np.ceil(t.groups / y) * y / t.groups,
               np.ceil(channels / x) * x / channels),
        tile=(rows, columns, vector, taps, order, y, z, keeps), kind=order + 8 * keeps,
    )  # fmt: skip


def _reductions(
    p: Conv, rows: Array, columns: Array, taps: Array, vector: Array, lanes: Array,
    threads: Array, chunks: Array,
) -> Cost:  # fmt: skip
    last, size = p.layout.endswith("C"), dtype(p.dtype).bytes
    (oh, ow), (kh, kw), ones = p.out_image, p.kernel, np.ones(len(rows))
    taps = np.minimum(taps, kh)
    tiles = p.batch * np.ceil(oh / rows) * np.ceil(ow / columns)
    turns = np.ceil(np.ceil(tiles / lanes) / chunks)
    parts = np.ceil(kh / taps)
    across = np.ceil(np.ceil(p.out_channels / vector) / threads)
    seen = (columns - 1) * p.stride[1] + (kw - 1) * p.dilation[1] + 1
    down = (rows - 1) * p.stride[0] + (taps - 1) * p.dilation[0] + 1
    if last:
        wide = np.where((p.channels % vector == 0) & (p.multiplier == 1), vector, 1)
        stored = wide
        x_loads, y_loads = down * seen * vector / wide, rows * columns * vector / wide
    else:
        wide = np.where(p.width % columns == 0, columns, 1)
        stored = np.where(ow % columns == 0, columns, 1)
        x_loads = down * np.where(wide > 1, np.ceil(seen / wide + 0.5), seen)
        y_loads = rows * columns / stored
    load_bytes = np.minimum(wide * size, WIDEST)
    loads = (x_loads + y_loads) * np.maximum(1, wide * size / WIDEST)
    sums, pixels = taps * kw * vector, rows * columns * vector
    narrow = 2 if size == 2 else 1
    return Cost(
        threads=lanes * threads, x=threads if last else lanes, blocks=chunks * parts * across,
        results=pixels * turns / parts, turns=turns,
        held=sums + (taps * seen * vector + columns * vector) / narrow,
        shared=lanes * threads * sums * 4 if last else 0 * ones, loads=loads,
        load_bytes=load_bytes, ahead=loads, rounds=turns * np.ceil(loads / 16) + chunks / 8,
        stores=sums * ((np.log2(lanes) * 2 + 3) if last else 6), store_bytes=4 * ones,
        multiplies=pixels * taps * kw,
        conversions=(down * seen + rows * columns) * vector * (1 if size == 2 else 0),
        filter_loads=0 * ones, others=20 + 2 * loads,
        unique=turns * lanes * threads * (x_loads * load_bytes + y_loads * stored * size),
        code=pixels * taps * kw, run=(threads * vector if last else columns) * size,
        step=(vector if last else columns * p.stride[1]) * size, store_step=4 * ones,
        chunks=chunks, extra=2.0 * chunks * p.out_channels * kh * kw * 4,
        spare=(np.ceil(oh / rows) * rows / oh, np.ceil(ow / columns) * columns / ow,
               turns * chunks * lanes / tiles, across * threads * vector / p.out_channels,
               parts * taps / kh),
        tile=(rows, columns, vector, taps, lanes, threads, np.log2(chunks), 0 * ones),
        kind=0 * ones,
    )  # fmt: skip


#: By template whose threads read the images from memory themselves, what is known of it.
_COUNTS: dict[str, Callable[..., Cost]] = {
    "gpu.strips": _strips,
    "gpu.planes": _planes,
    "gpu.pixels": _pixels,
    "gpu.reduction_planes": _reductions,
    "gpu.reduction_pixels": _reductions,
}
#: The templates that are described: these, and those that say what their blocks do.
DESCRIBED = {*_COUNTS, *(name for name, t in TEMPLATES.items() if t.work is not None)}
