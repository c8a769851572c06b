"""What schedules of large filters make a GPU do: counts, before anything is compiled.

Those for tensor cores multiply matrices, whose sizes the shape of the image fills up to multiples;
:mod:`~tilewright.select.cost` has the counts of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.select.cost import DESCRIBED, cost
from tilewright.select.counts import Cost, parameters
from tilewright.select.staged import Staged
from tilewright.target.devices import WARP
from tilewright.topi.gpu.plane_gradient_tiles import ROW_FLOATS
from tilewright.topi.nn.depthwise_plane_products import PLACES, PlaneProducts
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.band_cuts import Bands
from tilewright.topi.pieces.band_tiles import GROUP_ROWS
from tilewright.topi.pieces.row_product_cuts import ROWS, row_cut
from tilewright.topi.pieces.staged_cuts import StagedBands
from tilewright.topi.templates import TEMPLATES

#: Rows of a product of a warp, and threads of a warpgroup.
_WARP_ROWS, _GROUP = 16, 4 * WARP
#: Multiplications of a pair of rows of small images by one row of results.
_PAIR = _WARP_ROWS * 2 * PLACES * PLACES
#: Registers of a thread that hold neither sums nor images.
_OTHERS = 40


@dataclass(frozen=True)
class Products:
    """Of a block, where nothing else is said: numbers, or columns.

    Attributes
    ----------
    rate : what multiplies: "wgmma", "mma", or "lanes" for CUDA cores.
    multiplies : of whole matrices, or of CUDA cores' vectors of 32.
    threads, blocks : of a block, and blocks in all.
    held : registers of a thread.
    shared : bytes of shared memory, of which ``built`` are written before the first product.
    loaded : bytes that all blocks read of the images.
    rows, rounds : rows of the image that are multiplied one after another, and waits for some.
    ahead : bytes under way at once.
    width, depth : results side by side of one instruction, or of a thread's loop, and columns of
        the image that a tile needs.
    chunks : partial sums of every result, which another kernel adds.
    spare : by dimension, results for which there is room in tiles by those there are.
    issued : instructions of a CUDA core's thread.
    """

    rate: str
    multiplies: Any
    threads: Any
    blocks: Any
    held: Any
    shared: Any
    built: Any
    loaded: Any
    rows: Any
    rounds: Any
    ahead: Any
    width: Any
    depth: Any
    chunks: Any
    spare: tuple[Any, ...]
    issued: Any = 0.0


def products(p: Conv, template: str, configs: Sequence[Any]) -> Products:
    """Of one of :data:`COUNTED` with each of its parameters: columns."""
    if template not in _MATRICES:
        return _lanes(cost(p, template, parameters(configs)))
    every = [vars(_MATRICES[template](p, config)) for config in configs]
    found: dict[str, Any] = {
        name: np.array([one[name] for one in every]) for name in every[0] if name != "rate"
    }
    return Products(**found | {"rate": every[0]["rate"], "spare": tuple(found["spare"].T)})


def inside(p: Conv) -> int:
    """Multiplications of the taps that meet the image.

    >>> inside(Conv(batch=1, channels=3, height=3, width=3, kernel_h=3, kernel_w=3, padding=1))
    147
    """
    found = p.batch * p.out_channels
    shape = zip(p.out_image, p.stride, p.kernel, p.dilation, p.padding, p.image, strict=False)
    for out, stride, size, dilation, before, extent in shape:
        first = np.arange(out)[:, None] * stride + np.arange(size) * dilation - before
        found *= int(((first >= 0) & (first < extent)).sum())
    return found


def _size(p: Conv) -> int:
    return dtype(p.dtype).bytes


def _along(tile: Any) -> int:
    """Channels that a block goes on with, where a template has such a parameter."""
    return int(vars(tile).get("channels", 1))


def _met(cut: Bands, tiles: int, rows: int, steps: int) -> float:
    """Rows of the image that each of ``tiles`` of ``rows`` output rows meets, in the mean: those in
    the padding are not multiplied."""
    (stride, _), (top, _), height = cut.stride, cut.before, cut.image[0]
    first = np.arange(tiles) * rows * stride - top
    return float(np.maximum(np.minimum(first + steps * stride, height) - np.maximum(first, 0), 0)
                 .mean())  # fmt: skip


def _met_taps(cut: Bands) -> float:
    """Rows of the filter that meet a tile of rows of one image, in the mean."""
    (stride, _), (step, _), (top, _) = cut.stride, cut.dilation, cut.before
    first = np.arange(cut.tiles[0])[:, None] * cut.rows * stride - top
    first = first + np.arange(cut.kernel[0]) * step
    met = (first + (cut.rows - 1) * stride >= 0) & (first < cut.image[0])
    return float(met.sum(1).mean())


def _deep(cut: Bands) -> float:
    """Columns of the image by which one tile of results is multiplied; of float32, as many as
    there are blocks with taps."""
    if not cut.terms:
        return cut.depth
    return 8 * cut.products / (cut.columns / 8) * cut.terms


def _by_images(
    p: Conv, tile: Any, rate: str, images: int, lanes: int, teams: int, tiles: int
) -> Products:
    """Products whose rows are ``images`` images of all ``teams``, in ``tiles`` of registers."""
    cut = Bands(p, images // teams, tile.rows, tile.columns)
    (height, width), along = cut.result, _along(tile)
    down, across = -(-height // tile.rows), -(-width // tile.columns)
    below = -(-down // (tile.groups * tile.turns))
    many = -(-p.batch // images)
    own, warps = images // teams, tile.groups * teams
    met = _met(cut, down, tile.rows, cut.steps) * tile.turns * along
    blocks = many * -(-p.result_channels // along) * across * below
    if cut.terms:  # rows of taps, of which a thread makes what it multiplies
        built = cut.matrices * (cut.depth + cut.columns) * 8
    else:
        built = cut.matrix_bytes
    held = tiles * (tile.rows * tile.columns / 2 + tile.stages * cut.depth / 4)
    loads = own * cut.depth * _size(p)
    return Products(
        rate=rate, multiplies=met * own * cut.columns * tile.rows * _deep(cut) * warps,
        threads=lanes * warps, blocks=blocks, held=held + _OTHERS, shared=built,
        built=built * along,
        loaded=blocks * warps * met * own * min(cut.depth, cut.image[1]) * _size(p), rows=met,
        rounds=met, ahead=(tile.stages - 1) * loads * warps, width=tile.rows * tile.columns,
        depth=cut.depth, chunks=1,
        spare=(down * tile.rows / height, across * tile.columns / width,
               many * images / p.batch, below * tile.groups * tile.turns / down),
    )  # fmt: skip


def _direct(p: Conv, tile: Any) -> Products:
    return _by_images(p, tile, "wgmma", GROUP_ROWS, _GROUP, 1, 1)


def _warps(p: Conv, tile: Any) -> Products:
    images = _WARP_ROWS * tile.images * tile.teams
    return _by_images(p, tile, "mma", images, WARP, tile.teams, tile.images)


def _staged(p: Conv, tile: Any) -> Products:
    cut = StagedBands(p, GROUP_ROWS, tile.rows, tile.columns, tile.groups, tile.staged)
    (height, width), along = cut.result, _along(tile)
    down, across = -(-height // tile.rows), -(-width // tile.columns)
    below, many = -(-down // (tile.groups * tile.turns)), -(-p.batch // GROUP_ROWS)
    blocks = many * -(-p.result_channels // along) * across * below
    turns = tile.turns * along
    met = _met(cut, down, tile.rows, cut.steps) * turns
    met_all = _met(cut, below * tile.turns, cut.block_rows, cut.block_steps) * turns
    row, built = GROUP_ROWS * cut.depth * _size(p), cut.matrix_bytes
    high = tile.stages * tile.staged * cut.stride[0] if tile.staged else cut.image[0]
    rounds = -(-cut.block_steps // tile.staged) * turns if tile.staged else along
    return Products(
        rate="wgmma",
        multiplies=met * GROUP_ROWS * cut.columns * tile.rows * cut.depth * tile.groups,
        threads=_GROUP * tile.groups, blocks=blocks, held=tile.rows * tile.columns / 2 + _OTHERS,
        shared=built + high * row, built=built * along, loaded=blocks * met_all * row, rows=met_all,
        rounds=rounds, ahead=((tile.stages - 1) * tile.staged or cut.image[0]) * row,
        width=tile.rows * tile.columns, depth=cut.depth, chunks=1,
        spare=(down * tile.rows / height, across * tile.columns / width,
               many * GROUP_ROWS / p.batch, below * tile.groups * tile.turns / down),
    )  # fmt: skip


def _rows(p: Conv, tile: Any) -> Products:
    cut = Bands(p, 1, _WARP_ROWS * tile.tiles, tile.columns)
    (height, width), (down, across) = cut.result, cut.tiles
    below, many, warps = (
        -(-down // tile.groups),
        -(-p.batch // tile.teams),
        tile.groups * tile.teams,
    )
    blocks, met = many * p.result_channels * across * below, _met_taps(cut)
    parts = 2 if p.dtype == "float32" else 1
    built = cut.kernel[0] * (cut.depth + cut.columns) * _size(p) * parts
    row = cut.rows * cut.depth * _size(p)
    return Products(
        rate="mma", multiplies=met * cut.rows * cut.columns * _deep(cut) * warps,
        threads=WARP * warps, blocks=blocks, held=_held(cut, tile) + _OTHERS, shared=built,
        built=built, loaded=blocks * warps * met * row, rows=met, rounds=met,
        ahead=(tile.stages - 1) * row * warps, width=tile.tiles * tile.columns, depth=cut.depth,
        chunks=1,
        spare=(down * cut.rows / height, across * tile.columns / width,
               many * tile.teams / p.batch, below * tile.groups / down),
    )  # fmt: skip


def _held(cut: Bands, tile: Any) -> float:
    """Registers for sums and rows of an image."""
    return float(tile.tiles * (tile.columns * 2 + tile.stages * cut.depth / 4))


def _gradient(p: Conv, tile: Any) -> Products:
    cut = Bands(p, 1, _WARP_ROWS * tile.tiles, tile.columns)
    (height, width), (down, across) = cut.result, cut.tiles
    turns, many = -(-p.batch // tile.chunks), -(-tile.chunks // tile.teams)
    blocks = many * p.out_channels * down * across
    met, high = _met_taps(cut) * turns, cut.kernel[0]
    taps = high * (cut.depth + cut.columns) * _size(p) * tile.teams
    row = cut.rows * cut.depth * _size(p)
    read = met * row + turns * math.prod(cut.kernel) * _size(p)
    return Products(
        rate="mma", multiplies=met * cut.rows * cut.columns * _deep(cut) * tile.teams,
        threads=WARP * tile.teams, blocks=blocks, held=_held(cut, tile) + _OTHERS,
        shared=taps * (2 if p.dtype == "float32" else 1), built=turns * taps,
        loaded=blocks * tile.teams * read, rows=met, rounds=met,
        ahead=(tile.stages - 1) * row * tile.teams, width=tile.tiles * tile.columns,
        depth=cut.depth, chunks=tile.chunks,
        spare=(down * cut.rows / height, across * tile.columns / width,
               turns * tile.chunks / p.batch, many * tile.teams / tile.chunks),
    )  # fmt: skip


def _row_products(p: Conv, tile: Any) -> Products:
    cut = row_cut(p, tile)
    many, width = -(-p.batch // tile.images), tile.together * cut.columns
    group = np.arange(cut.blocks * tile.groups)[:, None] * tile.together * cut.taps
    first = np.arange(cut.positions) - p.padding[0] + cut.above + group
    met = many * float(((first >= 0) & (first < p.image[0] + cut.above)).sum(1).mean())
    blocks, staged = p.out_channels * cut.blocks, cut.staged * _size(p)
    return Products(
        rate="wgmma", multiplies=met * ROWS * width * tile.images * tile.groups,
        threads=_GROUP * tile.groups, blocks=blocks, held=width / 2 + _OTHERS,
        shared=tile.stages * staged + tile.groups * ROWS * (cut.columns + 8) * 4, built=0,
        loaded=blocks * many * cut.turns * staged, rows=met, rounds=many * cut.turns,
        ahead=(tile.stages - 1) * staged, width=width, depth=tile.images, chunks=1,
        spare=(cut.blocks * cut.rows * cut.taps / p.kernel[0],
               cut.columns / p.image[1] * cut.width / p.out_image[1],
               many * tile.images / p.batch, cut.turns * cut.steps / cut.positions),
    )  # fmt: skip


def _planes(p: Conv, tile: Any) -> Products:
    cut = PlaneProducts(p, tile.channels, _WARP_ROWS * tile.images * tile.turns)
    many, results = -(-p.batch // cut.images), math.prod(cut.result)
    blocks, pairs = many * (p.channels // tile.channels), cut.pairs * tile.images * tile.turns
    plane = tile.channels * _WARP_ROWS * tile.images * _size(p)
    staged = plane * cut.pixels
    return Products(
        rate="mma", multiplies=pairs * cut.result[0] * _PAIR * tile.channels,
        threads=WARP * tile.channels, blocks=blocks,
        held=2 * cut.blocks + 4 * (cut.result[0] + cut.pairs) + _OTHERS,
        shared=tile.stages * staged + plane * results, built=0,
        loaded=blocks * tile.turns * staged, rows=pairs, rounds=tile.turns,
        ahead=max(1, min(tile.turns, tile.stages - 1)) * staged, width=cut.result[0] * PLACES,
        depth=2 * cut.pairs * PLACES, chunks=1,
        spare=(2 * cut.pairs / cut.image[0], PLACES / cut.result[1], many * cut.images / p.batch,
               PLACES / cut.image[1]),
    )  # fmt: skip


def _plane_gradient(p: Conv, tile: Any) -> Products:
    cut = PlaneProducts(p, tile.channels, _WARP_ROWS * tile.images)
    many, pixels = -(-p.batch // cut.images), cut.pixels + math.prod(cut.result)
    blocks, staged = p.channels // tile.channels, cut.images * tile.channels * pixels * _size(p)
    pairs = many * tile.images * cut.pairs * cut.result[0]
    return Products(
        rate="mma", multiplies=pairs * _PAIR * tile.channels, threads=WARP * tile.channels,
        blocks=blocks, held=4 * (cut.blocks + cut.pairs) + 2 * cut.result[0] + _OTHERS,
        shared=min(tile.stages, many) * staged + 4 * tile.channels * p.kernel_h * ROW_FLOATS,
        built=0,
        loaded=blocks * many * staged, rows=many * tile.images * cut.pairs, rounds=many,
        ahead=max(1, tile.stages - 1) * staged, width=cut.result[0] * PLACES,
        depth=_WARP_ROWS, chunks=1,
        spare=(2 * cut.pairs / cut.image[0], PLACES / cut.result[1], many * cut.images / p.batch,
               PLACES / cut.image[1]),
    )  # fmt: skip


def _lanes(k: Cost | Staged) -> Products:
    """Of CUDA cores, from what is known of their templates there."""
    if isinstance(k, Staged):
        issued = k.turns * k.code
        return Products(
            rate="lanes", multiplies=issued * k.threads, threads=k.threads, blocks=k.blocks,
            held=k.work.registers, shared=k.shared, built=0,
            loaded=k.blocks * k.turns * k.work.brought, rows=k.turns, rounds=k.turns,
            ahead=k.stages * k.work.staged, width=issued, depth=1,
            chunks=k.chunks, spare=_four(k.work.spare), issued=issued,
        )  # fmt: skip
    each = k.loads + k.conversions + k.multiplies + k.filter_loads + k.others
    return Products(
        rate="lanes", multiplies=k.turns * k.multiplies * WARP * np.ceil(k.threads / WARP),
        threads=k.threads, blocks=k.blocks, held=k.held + 24, shared=k.shared, built=0,
        loaded=k.blocks * k.unique, rows=k.turns * k.rounds, rounds=k.rounds,
        ahead=k.ahead * k.load_bytes * k.threads, width=k.results, depth=1,
        chunks=k.chunks, spare=_four(k.spare), issued=k.turns * each + k.stores,
    )  # fmt: skip


def _four(spare: Sequence[Any]) -> tuple[Any, ...]:
    return (*spare, 1.0, 1.0, 1.0, 1.0)[:4]


def variant(template: str, config: Any) -> int:
    """A number for the way in which a schedule is written: bits for parameters that the template
    got after it was measured first and that are not as they were before."""
    later = fields(config)[_FIRST.get(template, len(fields(config))) :]
    return sum((getattr(config, f.name) != f.default) << k for k, f in enumerate(later))


#: Parameters of templates for tensor cores when they were measured first.
_FIRST = {
    "gpu.toeplitz": 5, "gpu.toeplitz_staged": 6, "gpu.toeplitz_warps": 7, "gpu.toeplitz_rows": 5,
    "gpu.toeplitz_tf32": 7, "gpu.toeplitz_tf32_rows": 5, "gpu.row_products": 5,
    "gpu.toeplitz_wgrad": 5, "gpu.toeplitz_tf32_wgrad": 5,
}  # fmt: skip
#: By template for tensor cores, what counts.
_MATRICES: dict[str, Callable[[Conv, Any], Products]] = {
    "gpu.toeplitz": _direct,
    "gpu.toeplitz_staged": _staged,
    "gpu.toeplitz_warps": _warps,
    "gpu.toeplitz_rows": _rows,
    "gpu.toeplitz_tf32": _warps,
    "gpu.toeplitz_tf32_rows": _rows,
    "gpu.row_products": _row_products,
    "gpu.toeplitz_wgrad": _gradient,
    "gpu.toeplitz_tf32_wgrad": _gradient,
    "gpu.plane_products": _planes,
    "gpu.plane_gradient": _plane_gradient,
}
#: The templates that are counted: these, and those for CUDA cores.
COUNTED = {*_MATRICES, *(name for name in DESCRIBED if not TEMPLATES[name].channels_last)}
#: Those that came after trees were fitted, whose numbers stay: the others have theirs by name.
_LATER = ("gpu.plane_products", "gpu.plane_gradient", "gpu.plane_tiles", "gpu.plane_bands")
#: The templates in the order in which trees number them.
NUMBERED = (*sorted(COUNTED - set(_LATER)), *_LATER)
