"""The filter of a block's channels in shared memory, channels last."""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.topi.pieces.tiling import bind_all, thread_axes
from tilewright.topi.stages import Stages


def share_filter(
    st: Stages, threads: tuple[int, int, int], kind: str | None, keeps: bool
) -> tuple[Stage, Stage | None]:
    """Bring the packed filter to shared memory with all threads of a block, in its order there.

    Parameters
    ----------
    threads : of a block, along z, y and x.
    kind : the type of the copy that is multiplied with, None for the filter's own.
    keeps : whether a thread has that copy in registers, with the type of the filter before; it is
        scaled, where it is, as it gets there.

    Returns the stage in shared memory, and that in registers or None; the caller says where both
    are computed.
    """
    s, packed, scaled = st.schedule, st.declaration.packed, st.declaration.scaled
    assert packed is not None
    s[packed].compute_inline()
    if scaled is None:
        filter = s.cache_read(packed, "shared", [st.sum], None if keeps else kind)
        kept = s[s.cache_read(filter, "local", [st.sum], kind)] if keeps else None
    elif keeps:
        filter = s.cache_read(packed, "shared", [scaled])
        kept = s[s.cache_read(scaled, "local", [st.sum])]
    else:
        filter, kept = s.cache_read(scaled, "shared", [st.sum]), None
    if kept is not None:
        kept.unroll(*kept.op.axis[:-1])
        kept.vectorize(kept.op.axis[-1])
    shared = s[filter]
    *positions, channel = shared.op.axis
    shared.reorder(channel, *positions)  # as the filter lies
    bind_all(shared, shared.fuse(channel, *positions), thread_axes(*threads))
    return shared, kept


def load_early(st: Stages, thread: IterVar, even: bool, keeps: bool) -> None:
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
