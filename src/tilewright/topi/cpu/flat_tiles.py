"""The tiles worth trying for windows in rows, after the cycles that they are predicted to take."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import features, lanes, power, registers
from tilewright.topi.nn.flat_windows import LANES, FlatWindows
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.flat_windows import FlatTile
from tilewright.topi.template import DEPTHWISE

#: Tiles of single numbers by vectors.
_SHAPES = (
    (14, 2), (13, 2), (9, 3), (8, 2), (8, 3), (6, 4), (5, 4), (7, 3), (7, 2), (4, 4), (4, 6),
    (12, 2), (10, 2), (6, 2), (4, 3), (4, 2), (14, 1), (8, 1), (4, 1), (2, 4), (2, 2), (1, 4),
    (1, 1), (5, 5), (3, 7), (7, 4),
)  # fmt: skip
#: Cycles that an element costs: copied as it lies, copied by strides, turned, and packed.
_COPY, _STRIDED, _TURNED, _PACKED = 0.2, 0.7, 1.5, 2.0
#: Filters that are read at once, one number of each: more of them, a multiple of some kilobytes
#: apart, put one another out of a first-level cache of as many ways.
_FILTERS = 8
#: Lines of the first-level cache whose addresses are a multiple of these bytes apart, and how much
#: longer products take of a tile with more pixels in the same place.
_WAYS, _PLACES, _CROWDED = 8, 4096, 1.3
#: How much longer they take of a tile whose pixels are of other rows each time, and have addresses
#: of their own.
_BROKEN = 1.05
#: Bytes of the first-level cache that numbers of the filter keep, and times of a product in which a
#: vector of them comes from the second otherwise, if of 64 bytes.
_FIRST, _FROM_SECOND = 2**15, 4.6
#: How much of a vector from the second-level cache products of whole tiles do not hide.
_SEEN = 0.3
#: Where a core multiplies two vectors of 512 bits in a cycle: the time of a load beyond those that
#: as many products hide, each this part of one; bytes of a tile's filter, above which as much of a
#: vector of it is seen; and how long an addition takes.
_LOADED, _HIDDEN, _LARGE, _SEEN_LARGE, _ADDED = 0.45, 0.4, 3 * 2**17, 1.6, 8
#: Bytes that a task keeps in the second-level cache.
_KEPT = 2**19
#: How much longer sums of whole tiles take with each doubling of what a task keeps, and at most
#: within twice a second-level cache.
_FARTHER, _FARTHEST = 0.04, 0.15
#: The time of a pixel's results of a tile that go to memory, whatever vectors they are.
WRITTEN = 30.0
#: Tiles that read the same numbers of a filter and are so few that what the first of them waits for
#: counts, and how many channels ahead it is prefetched then.
_FEW, _AHEAD = 16, 16
#: How long a thread waits for a number that another one has written: up to 2.5 on a Xeon, where few
#: products hide it, and no time on an EPYC, whose cores share a cache.
_OTHERS = 1.0
#: How much of a task a thread waits for others at the end, which take tasks that nobody has begun.
_WAITS = 0.03
#: Bytes of the second-level cache.
_SECOND = 2**20
#: Bytes of a filter that come from the last-level cache in the time of a vector of products, beside
#: these.
_LAST = 5
#: Bytes that are read from the last-level cache, or from memory, while a vector is multiplied.
_NEAR, _FAR = 32, 11


@dataclass(frozen=True)
class _Cores:
    """Threads, each of a core, and whether it multiplies two vectors of 512 bits in a cycle, as
    those with AMX do. Others that do, as Skylake-SP, are priced like those that multiply one; so
    are several threads, with which networks were not faster by these prices."""

    threads: int
    twice: bool

    @classmethod
    def of(cls, target: Target) -> _Cores:
        from tilewright.runtime.llvm_host import thread_count

        threads = thread_count(target)
        return cls(threads, threads == 1 and "amx-tile" in features(target))


def suits(p: Problem) -> bool:
    """Whether it is a convolution that is dense or in groups, in a type that vectors have, and no
    gradient of one with strides other than those of :class:`FlatWindows`."""
    if not isinstance(p, Convolution) or p.operator in DEPTHWISE:
        return False
    if p.channels_last is None or FlatWindows(p).factors not in ("float32", "float64"):
        return False
    if p.pass_ == "dgrad":
        dims = zip(p.kernel, p.stride, p.dilation, strict=True)
        return all(s == 1 or (d == 1 and (s == 2 or s <= k)) for k, s, d in dims)
    return p.pass_ == "forward"


def flat_times(p: Convolution, target: Target) -> dict[FlatTile, float]:
    """For :func:`~tilewright.topi.sketches.flat_windows.schedule_flat`, with what each takes."""
    either = [FlatWindows.of(p, across) for across in (False, True)]
    cores, most, found = _Cores.of(target), lanes(p, target), {}
    streams = _passes_caches(p, target)
    per, phases = either[1].filters[0], math.prod(either[1].phases)
    # Where vectors across channels lie as images do, there is nothing to gain along pixels.
    along = not is_whole(either[1], 1) or per < most or (p.groups > 1 and per % most > 0)
    for (rows, vectors), across in product(_SHAPES, (0, 1)):
        windows = either[across]
        wide = min(most, power(per if across else windows.results))
        if not across and (rows > _FILTERS or not along):
            continue
        if not _fits(windows, rows, vectors, across, registers(target, most)):
            continue
        step = vectors * wide if across else rows
        # Filters are filled up to whole vectors.
        most_of = -(-per // wide) * wide if is_whole(windows, across) and per > wide else per
        if step > most_of and rows * vectors > 1:
            continue
        if p.groups > 1 and per % step:  # a tile is of one group
            continue
        by_phase = windows.by_phase(bool(across))
        if (per // phases if by_phase else step) % (step if by_phase else phases):
            continue  # and of one phase, or of all
        height = windows.result[0]
        shares = height, -(-height // cores.threads), 28, 14, 8, 4, 2, 1
        bands = dict.fromkeys(min(n, height) for n in shares)
        for band, parts in product(bands, (1,) if by_phase else (1, 2, 4)):
            tile = FlatTile(rows, vectors, wide, band, parts, across)
            lines = is_whole(windows, across) and wide == LANES and per % wide == 0
            tile = replace(tile, trimmed=int(_trims(windows, tile)), stream=int(streams and lines))
            pixels = band * _row(windows, tile)
            if is_whole(windows, across) and pixels <= _FEW * rows and _filter(windows) > _SECOND:
                tile = replace(tile, ahead=_AHEAD)
            enough = pixels >= (rows if across else vectors * wide)
            if (enough or rows * vectors == 1 or phases > 1) and -(-per // step) % parts == 0:
                found[tile] = _price(windows, tile, cores)
    return found


def _passes_caches(p: Problem, target: Target) -> bool:
    """Whether what is read and written is more than half of the last-level cache, of which others
    may use as much: what reads the result afterwards hardly finds it there."""
    from tilewright.runtime.caches import last_level
    from tilewright.runtime.llvm_host import thread_count

    return p.bytes > last_level(thread_count(target)) // 2


def _price(w: FlatWindows, tile: FlatTile, cores: _Cores) -> float:
    """The time of a tile in that of a vector of products, with what reading the filter takes, to be
    compared with other schedules."""
    p, bands = w.problem, -(-w.result[0] // tile.band)
    tasks = -(-p.batch * bands * p.groups * tile.parts // cores.threads)
    # A thread goes through the parts of a band before the next one.
    every = p.groups * tile.parts
    mine = min(tasks, every) / every * _filter(w)
    passes = -(-tasks // every) if mine > _SECOND else 1
    return _cycles(w, tile, cores) + passes * mine / _LAST


def reading(whole: int, parts: int, beside: int, times: float, second: int = _SECOND) -> float:
    """How long a thread reads one of ``parts`` of a filter of ``whole`` bytes as many times, in the
    time of a vector of products: once, where a second-level cache of ``second`` bytes keeps it with
    the bytes ``beside``."""
    from tilewright.runtime.caches import last_level

    rate, nbytes = _NEAR if whole <= last_level() else _FAR, whole / parts
    return (times if nbytes + beside > second else min(times, 1.0)) * nbytes / rate


def is_whole(w: FlatWindows, across: int) -> bool:
    """Whether a tile's sums go from registers through the epilogue."""
    p = w.problem
    return bool(across and p.channels_last and set(w.phases) == {1} and not p.is_quantized)


def _trims(w: FlatWindows, t: FlatTile) -> bool:
    """Whether a tile, of whole sums or of one phase, is of a row, and of some rows taps see
    padding alone."""
    across = bool(t.across)
    if w.planar(across) or not (is_whole(w, across) or w.by_phase(across)):
        return False
    return w.result[-1] % t.rows == 0 and _inside(w) < 1


def _inside(w: FlatWindows) -> float:
    """The part of taps, in the mean of planes and rows, that see any of the image."""
    return math.prod(d.pairs / (d.results * d.taps) for d in w.problem.dims[:-1])


def _fits(w: FlatWindows, rows: int, vectors: int, across: int, limit: int) -> bool:
    """Whether registers hold a tile: of whole ones all, with a vector for each and a number, whose
    loops hold nothing else, else as many as leave a quarter."""
    if is_whole(w, across):
        return rows * vectors + vectors + 1 <= limit * 4 // 3
    return rows * vectors <= limit


def _filter(w: FlatWindows) -> int:
    """Bytes of the filter."""
    return 4 * w.problem.groups * math.prod(w.filters) * math.prod(w.kernel)


def _row(w: FlatWindows, t: FlatTile) -> int:
    """Results that are computed for a row of them."""
    return math.prod((w.result if t.across else w.stored)[1:])


def _cycles(w: FlatWindows, t: FlatTile, cores: _Cores) -> float:
    p, (per, own), threads = w.problem, w.filters, cores.threads
    extents, taps = w.extents(bool(t.across)), float(math.prod(w.kernel))
    if w.by_phase(bool(t.across)):  # the taps that a phase has, in the mean
        taps = math.prod(p.kernel) / math.prod(w.phases)
    taps *= _inside(w) if t.trimmed else 1.0
    bands, each = -(-w.result[0] // t.band), math.prod(extents[1:])
    tasks = p.batch * bands * p.groups * t.parts
    across = -(-per // t.channels) / t.parts
    whole, copies = is_whole(w, t.across), not w.reads_image(bool(t.across))
    sums = across * _sums(w, t, own * taps, cores)
    if whole and (left := -(-per // t.lanes) % t.vectors):  # the last has fewer vectors
        some = _sums(w, replace(t, vectors=left), own * taps, cores)
        sums = ((per // t.channels) * _sums(w, t, own * taps, cores) + some) / t.parts
    if whole and p.batch * bands < threads:  # each has one part of some, and waits for the longest
        sums = math.ceil(-(-per // t.channels) / t.parts) * _sums(w, t, own * taps, cores)
    turned = bool(t.across) != p.channels_last
    apart = set(w.stride) != {1} and not t.across
    if t.across:
        held = own * each * (t.band * w.stride[0] + extents[0] - w.result[0] * w.stride[0])
    else:
        held = own * each * math.prod(w.stride) * (t.band + extents[0] - w.result[0] - 1)
    copied = held * (_TURNED * turned + (_STRIDED if apart else _COPY)) * copies
    written = t.band * math.prod(w.result[1:])
    stored = written * per / t.parts * (_TURNED if turned else _COPY)
    if whole:
        stored = written * across * WRITTEN
    packed = p.groups * per * own * taps * _PACKED * w.packs(bool(t.across))
    packed *= "filter" not in p.constants
    if whole:
        # Some channels at a time are written, of pixels a whole image apart.
        tensors = 0 if copies else 1 + sum(step.name == "residual" for step in p.epilogue)
        kept = 4 * (held + tensors * written * p.groups * per)
        doublings = max(0.0, math.log2(kept / (_SECOND / 2)))
        worse = min(_FARTHER * doublings, _FARTHEST)
        worse += _FARTHER * max(0.0, math.log2(kept / (2 * _SECOND)))
    else:
        worse = 0.1 * (4 * held > _KEPT)
    # Of rows that several threads read, each has written its share.
    others = 1.0 - min(p.batch * bands / threads, 1.0)
    cost = sums * (1 + worse) + copied + stored + others * held * _OTHERS + 500
    rounds = -(-tasks // threads) + (_WAITS if threads > 1 else 0.0)
    return float(rounds * cost + packed / threads)


def _sums(w: FlatWindows, t: FlatTile, depth: float, cores: _Cores) -> float:
    """Of a task and a tile's channels, the time of all sums of ``depth`` products each."""
    whole, copies = is_whole(w, t.across), not w.reads_image(bool(t.across))
    pixels, single = t.band * _row(w, t), t.rows if t.across else t.vectors * t.lanes
    step, count, rest = _step(t, t.rows, cores), -(-pixels // single), 0.0
    if whole and pixels % single:  # a tile of fewer
        count, rest = count - 1, _step(t, pixels % single, cores)
    row = w.result[-1]
    if whole and copies and t.rows % row and row % t.rows and not cores.twice:
        step *= _BROKEN
    if whole and not copies and t.rows > _WAYS * _apart(w.problem):
        step *= _CROWDED
    if t.across and depth * t.channels * 4 > _FIRST:  # all of it for each tile
        step = max(step, _FROM_SECOND * t.vectors * t.lanes / 16)
        large = cores.twice and depth * t.channels * 4 > _LARGE
        step += (_SEEN_LARGE if large else _SEEN) * t.vectors * whole
    return depth * (count * step + rest) + 3 * -(-pixels // single) * t.rows * t.vectors


def _apart(p: Convolution) -> int:
    """How many places of a cache neighbouring pixels of an image as it lies are in."""
    return _PLACES // math.gcd(_PLACES, 4 * p.channels * p.stride[-1])


def _step(t: FlatTile, rows: int, cores: _Cores) -> float:
    """The time of a tile of as many single numbers in that of a vector of products: a load takes
    as long, an addition four cycles, and a tile of few sums waits for it. Of two products in a
    cycle, loads take a part of the time."""
    products, loads = rows * t.vectors, rows + t.vectors
    if not cores.twice:
        return max(products, loads, 4) + 0.5
    seen = _LOADED * max(0.0, loads - _HIDDEN * products)
    return max(products + seen, loads, _ADDED) + 0.5
