"""Dot products of words of four pixels, for depthwise convolutions of bytes on a GPU."""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.target.instructions import dp4a, dp4a_u8_s8, turned_bytes
from tilewright.topi.pieces.tiling import bind_all, spread, thread_axes
from tilewright.topi.stages import Stages

#: Threads of a block that packs a filter, and bytes that one of another brings at once.
_PACKING, _BROUGHT = 128, 16


def sum_dots(st: Stages) -> IterVar:
    """The loops of the sum, written out but for the four products of an instruction. Returns the
    loop over rows of the filter."""
    sums = st.sums
    di, g, k = sums.op.reduce_axis
    sums.reorder(di, g, *sums.op.axis, k)
    sums.unroll(di, g, *sums.op.axis)
    sums.tensorize(k, dp4a if st.declaration.problem.dtype == "int8" else dp4a_u8_s8)
    return di


def turn_words(words: Stage) -> None:
    """Words of four channels, from four pixels at once."""
    *outer, channel, _ = words.op.axis
    words.set_scope("local")
    words.unroll(*outer)
    words.tensorize(channel, turned_bytes[words.op.outputs[0].dtype])


def share_words(
    st: Stages, threads: tuple[int, int, int], kind: str | None, keeps: bool
) -> tuple[Stage, Stage | None]:
    """As :func:`~tilewright.topi.pieces.shared_filter.share_filter`, of filters packed to words;
    ``kind`` is theirs. A constant one is packed before."""
    s, packed = st.schedule, st.packed
    assert packed is not None
    tensor, constant = packed.op.outputs[0], "filter" in st.declaration.problem.constants
    filter = s.cache_read(tensor, "shared", [st.sum])
    kept = s[s.cache_read(filter, "local", [st.sum])] if keeps else None
    if constant:
        spread(packed, packed.op.axis, _PACKING)
    else:
        packed.compute_inline()
    if kept is not None:
        kept.unroll(*kept.op.axis[:-2])
        kept.vectorize(kept.fuse(*kept.op.axis[-2:]))
    shared = s[filter]
    rest = shared.fuse(*shared.op.axis)
    if constant:
        rest, lane = shared.split(rest, factor=4)
        shared.vectorize(lane)
    bind_all(shared, rest, thread_axes(*threads))
    return shared, kept
