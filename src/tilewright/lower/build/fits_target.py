"""What a schedule asks for without effect, or of the wrong target, said of the line that asks for
it."""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.ir.stmt import For, ForKind
from tilewright.ir.visit import walk
from tilewright.lower.build.attached import Nesting, enclosing_loops
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.target.devices import compute_capability
from tilewright.target.target import Target
from tilewright.te.operation import ExternOp, PlaceholderOp
from tilewright.te.scan import ScanOp

#: The architecture from which on blocks form clusters.
_CLUSTERS = 90


def check_fits(schedule: Schedule, target: Target) -> None:
    """Raises :class:`LoweringError` where a stage is scheduled for another kind of machine.

    That is: for a CPU, an axis bound to blocks or threads; for a GPU, a parallel axis, a stage at
    the root of which nothing is bound, or one whose memory does not last until it is read. On
    either, two buffers without a loop to use them in turn.
    """
    nesting, binding = Nesting(), _binding(schedule)
    for stage in schedule.stages:
        if isinstance(stage.op, PlaceholderOp) or stage.attachment.kind == "inline":
            continue
        if stage.pipelined and stage.attachment.kind != "at":
            raise stage.contradiction(
                f"{stage.pipelined_by}: the stage is computed once, at the root",
                mend="Compute it at a loop of a consumer with compute_at()",
                where=stage.lines["pipeline"],
            )
        if stage.pipelined_over is not None:
            _goes_on(stage, stage.pipelined_over)
        if not target.is_gpu:
            _no_threads(stage, target.kind)
            continue
        _no_parallel(stage, target.kind)
        _has_clusters(stage, target)
        _memory_lasts(stage, nesting)
        if stage.attachment.kind == "root" and stage not in binding:
            raise stage.contradiction(
                f"the stage binds no axis to threads, so target {target.kind!r} cannot run it",
                mend="Bind an axis of it with bind(axis, te.thread_axis('blockIdx.x')) or "
                "'threadIdx.x', or compute it inside another stage with compute_inline() or "
                "compute_at()",
            )


def _no_threads(stage: Stage, kind: str) -> None:
    mend = "Use parallel() and vectorize() on a CPU, or build for cuda, opencl or sim"
    for axis, mark in stage.marks.items():
        if mark.kind is ForKind.THREAD and mark.thread is not None:
            raise stage.contradiction(
                f"the axis is bound to {mark.thread.tag}, which target {kind!r} does not have",
                axis,
                mend,
                mark.where,
            )
    if stage.env:
        raise stage.contradiction(
            f"env_threads launches {stage.env[0].tag}, which target {kind!r} does not have",
            mend=mend,
            where=stage.lines["env_threads"],
        )


def _no_parallel(stage: Stage, kind: str) -> None:
    for axis, mark in stage.marks.items():
        if mark.kind is ForKind.PARALLEL:
            raise stage.contradiction(
                f"the axis is parallel, which is for the threads of a CPU and not for {kind!r}",
                axis,
                "Bind it with bind(axis, te.thread_axis('blockIdx.x'))",
                mark.where,
            )


def _has_clusters(stage: Stage, target: Target) -> None:
    """Blocks of a cluster share memory on Hopper, and on sim."""
    old = target.kind == "cuda" and target.arch and compute_capability(target.arch) < _CLUSTERS
    if stage.scope == "cluster" and (old or target.kind not in ("cuda", "sim")):
        raise stage.contradiction(
            f"target {target} has no memory that blocks of a cluster share",
            mend="Keep it in global memory, computed at the root, or build for sm_90 or sim",
            where=stage.lines.get("set_scope", ""),
        )


def _memory_lasts(stage: Stage, nesting: Nesting) -> None:
    """On chip, memory lasts for one kernel; in global memory, all threads of one share it."""
    scope = stage.scope or nesting.default_scope(stage)
    scan = stage.attachment.stage
    if scan is not None and isinstance(scan.op, ScanOp):
        if any(stage.op.outputs[0] is update for update in scan.op.updates):
            return  # it is kept in the output of the scan
    if stage.attachment.kind == "root" and scope != "global":
        raise stage.contradiction(
            f"the stage is computed at the root, in a kernel of its own, but kept in {scope} "
            "memory, which lasts for one kernel",
            mend="Compute it inside its consumer with compute_at(), or keep it in global memory",
            where=stage.lines.get("set_scope", ""),
        )
    if stage.attachment.kind == "at" and scope == "global":
        raise stage.contradiction(
            "the stage is computed inside a kernel, but kept in global memory, where each thread "
            "would need its own",
            stage.attachment.axis,
            "Use set_scope('shared') or set_scope('local'), or compute it at the root",
            stage.lines.get("set_scope", stage.attachment.where),
        )


def _binding(schedule: Schedule) -> set[Stage]:
    """The stages that run, or of which one computed inside runs, on blocks or threads."""
    found: set[Stage] = set()
    for stage in schedule.stages:
        around: Stage | None = stage if _binds(stage) else None
        while around is not None and around not in found:
            found.add(around)
            at = around.attachment
            around = at.stage if at.kind == "at" else None
    return found


def _binds(stage: Stage) -> bool:
    """Whether the stage itself runs on blocks or threads."""
    if stage.env or any(mark.kind is ForKind.THREAD for mark in stage.marks.values()):
        return True
    if isinstance(stage.op, ExternOp):
        loops = (s for s in walk(stage.op.body) if isinstance(s, For))
        return any(loop.kind is ForKind.THREAD for loop in loops)
    return False


def _goes_on(stage: Stage, over: IterVar) -> None:
    """The axis across which a pipeline goes on is a serial loop around the stage."""
    serial = [
        leaf
        for parent, leaf in enclosing_loops(stage)
        if leaf not in parent.marks or parent.marks[leaf].kind in (ForKind.SERIAL, ForKind.UNROLLED)
    ]
    if over not in serial:
        names = ", ".join(leaf.name for leaf in serial)
        raise stage.contradiction(
            "pipeline: it cannot go on over an axis that is no serial loop around the stage",
            over,
            f"Name one of these: {names}",
            stage.lines["pipeline"],
        )
