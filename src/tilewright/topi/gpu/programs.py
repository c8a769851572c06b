"""The tiles worth trying for programs on a GPU."""

from __future__ import annotations

import itertools
import math

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Add, IntImm, Sub, Var
from tilewright.ir.ops import is_const
from tilewright.ir.visit import walk
from tilewright.target.devices import LINE, WARP, WIDEST, WORD
from tilewright.target.target import Target
from tilewright.topi.gpu.machine import MACHINE, MEMORY
from tilewright.topi.opencl.candidates import machine, shares_memory
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.operators.program import Program
from tilewright.topi.pieces.columns import columns_of
from tilewright.topi.pieces.counts import declared, elements
from tilewright.topi.pieces.reads import computed, windows_of
from tilewright.topi.pieces.reads import loads as reads
from tilewright.topi.pieces.rows import dots_of, rows_of
from tilewright.topi.pieces.sums import reduces
from tilewright.topi.pieces.tiling import WHOLE_ROWS, Tiling
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.column_sums import ColumnSumTile
from tilewright.topi.sketches.loops import tilings
from tilewright.topi.sketches.rows import RowTile
from tilewright.topi.sketches.turned import TurnTile, shapes_of, turned_of

#: Threads of a block, those that an SM has in use where it waits for memory, and the cost of a
#: step of a reduction among threads in elements.
_THREADS, _RESIDENT, _STEP = 128, 1024, 4
#: Threads that an SM has at least where each loads several vectors, and rows of these at most.
_BUSY, _ROWS = 256, 8
#: Bytes of a load beyond which a row is no sooner there.
_WIDE = 8
#: Bytes that a thread keeps, and elements of a row, and of all rows, that it has then.
_KEPT, _EACH, _ALL = 144, 32, 64
#: Microseconds that a load takes, a launch, a turn of a thread's loads, a chunk that is added up,
#: and a step of a reduction among threads (of 1,300 sums of columns on an H200); bytes on their way
#: where memory is busy.
_LATENCY, _LAUNCH, _ROUND, _CHUNK, _ADDED = 0.7, 2.0, 0.15, 0.03, 0.16
_FLIGHT = MEMORY * _LATENCY
#: Multiplications of a product that is small, and its rows or columns.
_PRODUCTS, _FEW = 1 << 22, 64
#: Elements of a row that is short, and those of a thread that has several of them.
_SHORT, _TURNED = 8, 64
#: Sums of windows that a thread has at most, where it keeps what they read.
_SUMS = 32
#: Elements that a thread loads one by one for a store, how much larger than what is loaded so a
#: result is at most, and how much longer blocks take that begin within rows.
_SINGLE, _TAPS, _PARTS = 4, 16, 1.1
#: Neighbours that make rows long that are turned.
_LINE = 16
#: Blocks that share the elements of a column, or that an SM has then; threads that it holds.
_CHUNKS, _EACH_SM, _HELD = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 3, 4, 8), 1024


def suits_rows(p: Problem) -> bool:
    """Whether :func:`~tilewright.topi.sketches.rows.schedule_rows` is for a problem."""
    return isinstance(p, Program) and rows_of(p) is not None


def has_few_rows(p: Problem, target: Target) -> bool:
    """Whether a group reduces a row sooner than a work-item also where its memory is emulated: rows
    are long, and fewer than what has groups of its own."""
    rows = rows_of(p)
    return rows is not None and rows.length >= _THREADS and rows.count <= machine(target).units


def suits_columns(p: Problem) -> bool:
    """Whether :func:`~tilewright.topi.sketches.column_sums.schedule_column_sums` is for one."""
    return isinstance(p, Program) and columns_of(p) is not None


def row_tiles(p: Problem, target: Target) -> dict[RowTile, float]:
    """The tiles worth trying, the better the less their threads have to do."""
    rows = rows_of(p)
    assert rows is not None, p
    size = max((dtype(p.inputs()[n].dtype).bytes for n in rows.read), default=16)
    group, found = machine(target).group, dict[RowTile, float]()
    for lanes in (n for n in (1 << k for k in range(10)) if n <= group):
        for vector in (1, 2, 4, 8, 16):
            each = -(-rows.length // (lanes * vector)) * vector
            kept = vector > 1
            if vector * size > 16 or (each * lanes >= 2 * rows.length and lanes > 1):
                continue
            if kept and (len(rows.shape) > 1 or each * lanes != rows.length):
                continue
            most = min(_EACH, _ALL // len(rows.read))
            if kept and (each * size * len(rows.read) > _KEPT or each > most):
                continue
            again = 1 if kept else rows.reductions + rows.whole
            line = min(128, lanes * vector * size)  # bytes that are neighbours
            loads = again * each * (64 / min(64, line) if kept else 512 / line)
            steps = _STEP * (math.log2(2 * lanes) + 2 * (lanes > WARP))
            wide = min(vector, max(1, _WIDE // size))
            work = (loads + each + rows.reductions * steps) / wide**0.25
            waves = max(1.0, rows.count * lanes / (MACHINE.sms * _RESIDENT))
            down = max(1, min(_THREADS // lanes, rows.count // MACHINE.sms))
            tile = RowTile(1 << down.bit_length() - 1, lanes, vector, int(kept))
            found.setdefault(tile, waves * (work + 16))
    return found


def column_sum_tiles(p: Problem, target: Target) -> dict[ColumnSumTile, float]:
    """The tiles worth trying, and how long they are predicted to take."""
    c = columns_of(p)
    assert c is not None, p
    size = max((dtype(p.inputs()[n].dtype).bytes for n in c.read), default=16)
    moved = c.outer * c.count * c.length * size / MEMORY
    found = dict[ColumnSumTile, float]()
    for vector in (8, 4, 2, 1):
        if vector * size > 16 or c.count % vector or (vector * size < WORD and found):
            continue
        across = 1 << min(5, (-(-c.count // vector) - 1).bit_length())
        for x in (n for n in (across, across // 2, across // 4) if n):
            row = x * vector * size
            line = min(64, row) / 64 * (min(LINE, row) / LINE) ** 0.1
            waste = -(-c.count // (x * vector)) * x * vector / c.count
            wide = c.outer * -(-c.count // (x * vector))
            shared = {*_CHUNKS, *(n * MACHINE.sms // wide for n in _EACH_SM)} - {0}
            for threads, loads, chunks in itertools.product((128, 256, 512), (8, 4, 2, 1), shared):
                down = threads // x
                steps = c.length / (down * loads * chunks)
                if steps < 1 and (down > x or loads > 1 or chunks > 1):
                    continue
                blocks, resident = wide * chunks, MACHINE.sms * (_HELD // threads)
                flying = min(blocks, resident) * threads / waste * loads * vector * size
                busy = min(1.0, flying / (2 * _FLIGHT), 2 * blocks / MACHINE.sms) * line
                # Of the SM with most blocks, or of turns; and of the last step of a chunk.
                turns = max(1.0, blocks / (MACHINE.sms if blocks <= resident else resident))
                uneven = math.sqrt(math.ceil(turns) / turns) * math.ceil(steps) / max(1.0, steps)
                time = moved / busy * uneven + _LAUNCH * (chunks > 1)
                time += _ROUND * math.ceil(steps) + _CHUNK * chunks
                time += _ADDED * vector * math.log2(2 * down)
                found[ColumnSumTile(vector, x, down, loads, chunks)] = time
    return found or {ColumnSumTile(1, 32, 2, 1): 0.0}


def suits_dots(p: Problem) -> bool:
    """Whether :func:`~tilewright.topi.sketches.rows.schedule_rows` is for a product: one of few
    rows or columns, and of at most ``_PRODUCTS``. Of more, tensor cores pay; but where there are
    none, and a matrix is read once, threads that read what lies side by side are all there is."""
    if not isinstance(p, Gemm):
        return False
    few = min(p.result.shape[-2:])
    small = few <= _FEW and p.flops <= 2 * _PRODUCTS
    once = few == 1 and p.dtype == p.accumulate == "float32" and p.precision != "tf32"
    return (small or once) and dots_of(p) is not None


def suits_turned(p: Problem) -> bool:
    """Whether :func:`~tilewright.topi.sketches.turned.schedule_turned` is for a problem: rows are
    long both ways, so that neither would be read or written in full sectors by loops."""
    return isinstance(p, Program) and turned_of(p) is not None and min(shapes_of(p)) >= _LINE


def turn_tiles(p: Problem, target: Target) -> dict[TurnTile, float]:
    """The tiles worth trying, the better the wider loads and stores, and the fewer are not
    full."""
    turned = turned_of(p)
    assert turned is not None, p
    found, (down, across) = dict[TurnTile, float](), shapes_of(p)
    size, own = (dtype(t.dtype).bytes for t in (p.inputs()[turned[0]], p.result))
    for rows, columns in itertools.product((32, 64), repeat=2):
        waste = math.prod(-(-n // t) * t / n for n, t in ((down, rows), (across, columns)))
        for loads, stores in itertools.product((1, 2, 4, 8), repeat=2):
            wide = max(loads * size, stores * own)
            if down % loads or across % stores or wide > WIDEST:
                continue
            narrow = 1 + 2 / (loads * size) + 2 / (stores * own)
            tile = TurnTile(rows, columns, 2 * _THREADS, loads, stores)
            found[tile] = waste * narrow * (1 + 256 / rows / columns)
    return found


def dot_tiles(p: Problem, target: Target) -> dict[RowTile, float]:
    """The tiles worth trying, the better the longer vectors and the fewer turns, while threads of
    a GPU are left."""
    rows = dots_of(p)
    assert rows is not None, p
    size = max(dtype(p.inputs()[n].dtype).bytes for n in rows.read)
    found = dict[RowTile, float]()
    for vector in (v for v in (1, 2, 4, 8, 16) if v * size <= WIDEST and rows.length % v == 0):
        for lanes in (1, 2, 4, 8, 16, 32):
            turns = -(-rows.length // (lanes * vector))
            if lanes > 1 and turns * lanes * vector >= 2 * rows.length:
                continue
            waves = max(1.0, rows.count * lanes / (MACHINE.sms * _RESIDENT))
            cost = waves * (4 * turns * (1 + vector / 4) + _STEP * math.log2(2 * lanes))
            down = max(1, min(_THREADS, rows.count * lanes // MACHINE.sms) // lanes)
            found[RowTile(1 << down.bit_length() - 1, lanes, vector, 0)] = cost
    return found


def loop_tiles(p: Problem, target: Target) -> list[Tiling]:
    """The tiles of :func:`~tilewright.topi.sketches.loops.schedule_gpu`: of programs on large GPUs
    rows of vectors of 16 bytes. What all rows share a thread computes once, and it has several as
    far as there is work for all threads. Where rows are short, as of images of three channels that
    are turned, they are a vector together."""
    found = tilings(p, target)
    if not isinstance(p, Program) or not shares_memory(target):
        return found
    *above, last = p.result.shape
    high, count = above[-1] if above else 1, math.prod(p.result.shape)
    types = (*p.inputs().values(), p.result)
    size = min(dtype(t.dtype).bytes for t in types)
    full = sum(math.prod(t.shape) >= count for t in types[:-1])
    windows = any(windows_of(op) is not None for op in computed(declared(p).output))
    made = []
    if above and (moved := _moved(p)):
        for rows in (r for r in (WIDEST // moved, 4, 2) if high % r == 0 and last * r <= _TURNED):
            made.append((0.0, Tiling(rows, last, _THREADS, 0, WHOLE_ROWS)))
            break
    gathers = _gathers(p)
    most = _SINGLE * size if gathers else WIDEST
    for vector in (v for v in (2, 4, 8, 16) if v * size <= most and last % v == 0):
        for rows in (r for r in (1, 2, 4, 7, 8) if high % r == 0 and r * full <= _ROWS):
            tiles = count / (vector * rows)
            idle = math.sqrt(max(1.0, MACHINE.sms * _BUSY / tiles))
            cost = idle * (1 + 1 / rows) * (1 + WIDEST / (4 * vector * size))
            threads = _THREADS if tiles > 2 * _THREADS * MACHINE.sms else _THREADS // 2
            if gathers and last // vector * (high // rows) % threads:
                cost *= _PARTS
            if windows and rows > 1 and rows * vector <= _SUMS:
                made.append((cost / 2, Tiling(rows, vector, threads, 0, 1, 1)))
            made.append((cost, Tiling(rows, vector, threads, 0, 1)))
    return [*(tile for _, tile in sorted(made, key=lambda x: x[0])), *found]


def _gathers(p: Program) -> bool:
    """Whether neighbours of the result are not neighbours in a large one that they are made of, so
    that each is a load of its own."""
    d = declared(p)
    read = [x for op in computed(d.output) for x in op.inputs]
    large = {x.buffer for x in read if elements(x) * _TAPS >= elements(d.output)}
    return any(
        not all(isinstance(e, (Var, IntImm, Add, Sub)) for e in walk(x.indices[-1]))
        for op in computed(d.output) for x in reads(op) if x.buffer in large and x.indices
    )  # fmt: skip


def _moved(p: Program) -> int:
    """The bytes of an element of what is as large as the result, of programs that have short rows
    of elements, and move each at most to where other dimensions say; 0 for others."""
    d = declared(p)
    size, last = dtype(p.result.dtype).bytes, p.result.shape[-1]
    if last * size >= WIDEST or not 1 < last <= _SHORT:
        return 0
    for op in computed(d.output):
        own = {a.var for a in op.axis}
        if reduces(op) or any(
            i not in own and not is_const(i) for x in reads(op) for i in x.indices
        ):
            return 0
    count = math.prod(p.result.shape)
    return max(
        (dtype(t.dtype).bytes for t in p.inputs().values() if math.prod(t.shape) >= count),
        default=0,
    )
