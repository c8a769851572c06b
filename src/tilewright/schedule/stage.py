"""A stage: one operation and how it is to be computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.ir.errors import LoweringError, ScheduleError, user_location
from tilewright.ir.expr import Expr, StringImm
from tilewright.ir.itervar import IterVar
from tilewright.ir.stmt import ForKind, Pragma
from tilewright.schedule.absent import absent
from tilewright.schedule.relations import Relation, consumed, said
from tilewright.te.operation import Operation, PlaceholderOp
from tilewright.te.tensor import Tensor

if TYPE_CHECKING:
    from tilewright.schedule.group import Group
    from tilewright.schedule.schedule import Schedule


#: TVM's numbers of the kinds of axes.
ITER_TYPES = {"DataPar": 0, "ThreadIndex": 1, "CommReduce": 2, "Ordered": 3, "Opaque": 4,
              "Unrolled": 5, "Vectorized": 6, "Parallelized": 7, "Tensorized": 8}  # fmt: skip


@dataclass(slots=True)
class AxisMark:
    """What a schedule says of one leaf axis."""

    kind: ForKind = ForKind.SERIAL
    thread: IterVar | None = None
    pragmas: dict[Pragma, Any] = field(default_factory=dict)
    prefetches: list[tuple[Tensor, Expr]] = field(default_factory=list)
    instruction: Any = None
    where: str = ""

    @property
    def iter_type(self) -> int:
        """TVM's number of how its iterations are carried out."""
        if self.instruction is not None:
            return ITER_TYPES["Tensorized"]
        if self.thread is not None:
            return ITER_TYPES["ThreadIndex"]
        names = {
            ForKind.UNROLLED: "Unrolled",
            ForKind.VECTORIZED: "Vectorized",
            ForKind.PARALLEL: "Parallelized",
        }
        return ITER_TYPES[names.get(self.kind, "DataPar")]

    @property
    def tensor_intrin(self) -> Any:
        """``instruction``, under TVM's name."""
        return self.instruction

    @property
    def pragma_keys(self) -> list[StringImm]:
        """The names of its pragmas, as TVM gives them."""
        return [StringImm(str(key)) for key in self.pragmas]

    @property
    def said(self) -> str:
        """What the schedule said of the axis, as "the axis is already ..." goes on."""
        if self.thread is not None:
            return f"bound to {self.thread.tag}"
        if self.instruction is not None:
            return f"tensorized with {self.instruction.name}"
        if self.kind is not ForKind.SERIAL:
            return str(self.kind.value)
        if self.pragmas:
            return f"under pragma {next(iter(self.pragmas))}"
        return "prefetched along" if self.prefetches else ""


@dataclass(slots=True)
class Attachment:
    """Where a stage is computed: at the root, at an axis of another stage, or inlined."""

    kind: str = "root"  # "root", "at", "inline"
    stage: Stage | None = None
    axis: IterVar | None = None
    where: str = ""


class Stage:
    """How one operation is computed; made by a schedule, read with ``s[tensor]``.

    Attributes
    ----------
    op : the operation; ``op.axis`` and ``op.reduce_axis`` are the axes to start from.
    leaf_iter_vars : the loops from the outermost in, as the primitives have left them.
    scope : the memory of its outputs: "global", "shared", "warp", "fragment", "local", ""
        where not chosen.
    """

    def __init__(self, schedule: Schedule, op: Operation) -> None:
        self.schedule = schedule
        self.op = op
        self.scope = ""
        self.relations: list[Relation] = []
        self.attachment = Attachment()
        self.marks: dict[IterVar, AxisMark] = {}
        self.group: Group | None = None
        self.env: tuple[IterVar, ...] = ()
        self.store_predicate: Expr | None = None
        self.pipelined, self.pipelined_by = 0, ""  # copies of its memory, and the primitive's name
        self.pipelined_over: IterVar | None = None  # a loop whose iterations it goes on across
        self.produced = False  # whether a warp of its own copies what the pipeline has copied
        self.rolling, self.ahead = False, 0
        self.rolls_along: IterVar | None = None  # its loop that goes along with the attachment's
        self.beside: Stage | None = None  # the reduction with which it does, and ends
        self.lines: dict[str, str] = {}  # where primitives on the whole stage were called
        self.swizzled = 0  # bytes of the rows whose chunks are permuted
        self.alignments: dict[int, tuple[int, int]] = {}
        self.bounds_alignments: dict[int, tuple[int, int]] = {}
        self.roots: tuple[IterVar, ...] = (*op.axis, *op.reduce_axis)
        self.leaf_iter_vars: list[IterVar] = list(self.roots)

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def attach_stage(self) -> Stage | None:
        """The stage that it is computed in, under TVM's name."""
        return self.attachment.stage

    @property
    def kept_at(self) -> Attachment:
        """Where the memory of its outputs is: where it is computed, or what it is computed with."""
        return self.attachment if self.beside is None else self.beside.kept_at

    @property
    def attach_type(self) -> int:
        """TVM's number of its place: 1 at the root, 2 inlined, 4 at an axis."""
        return {"root": 1, "inline": 2, "at": 4}[self.attachment.kind]

    @property
    def iter_var_attrs(self) -> dict[IterVar, AxisMark]:
        """What the schedule says of axes, under TVM's name."""
        return self.marks

    def replace_op(self, op: Operation) -> None:
        """Compute the outputs by another operation; what was scheduled is forgotten."""
        self.op = op
        self.relations.clear()
        self.marks.clear()
        self.roots = (*op.axis, *op.reduce_axis)
        self.leaf_iter_vars = list(self.roots)

    def mark(self, axis: IterVar) -> AxisMark:
        """The remarks on a leaf axis, made if there are none."""
        return self.marks.setdefault(axis, AxisMark())

    def leaf(self, axis: Any, primitive: str) -> int:
        """The position of a leaf axis.

        Raises :class:`ScheduleError` for anything that is not a leaf of this stage.
        """
        if not isinstance(axis, IterVar):
            names = ", ".join(a.name for a in self.leaf_iter_vars) or "none"
            mend = f"Its loops are now {names}"
            if any(leaf.var is axis for leaf in self.leaf_iter_vars):
                mend = "Pass the axis itself, not its variable"
            raise self.error(f"{primitive} takes an axis of the stage, got {axis!r}", mend=mend)
        for position, leaf in enumerate(self.leaf_iter_vars):
            if leaf is axis:
                return position
        became = [r for r in self.relations if axis in consumed(r)]
        if became:
            problem = f"{primitive}: the axis was already {said(became[0])}"
        else:
            owner = next((x.name for x in self.schedule.stages if x._has_had(axis)), "")
            problem = f"{primitive}: the axis does not belong to this stage"
            problem += f", but to {owner!r}" * bool(owner)
        leaves = ", ".join(a.name for a in self.leaf_iter_vars)
        mend = f"Its loops are now {leaves}"
        if not leaves:
            mend = "It has no loops"
            if isinstance(self.op, PlaceholderOp):
                mend += (
                    ": schedule the stage that reads it, or a copy, s.cache_read(it, scope, [...])"
                )
        raise self.error(problem, axis, mend)

    def _has_had(self, axis: IterVar) -> bool:
        """Whether an axis is, or was, one of this stage."""
        before = [a for r in self.relations for a in consumed(r)]
        return any(a is axis for a in (*self.roots, *self.leaf_iter_vars, *before))

    def unmarked(self, axis: IterVar, primitive: str) -> None:
        """Raises :class:`ScheduleError` where something is said of an axis about to disappear."""
        mark = self.marks.get(axis)
        if mark is not None and mark.said:
            raise self.error(
                f"{primitive}: the axis is already {mark.said}, which would be lost",
                axis,
                f"Call {primitive} first, and mark the axis that it returns",
            )

    def unused(self, primitive: str) -> None:
        """Raises :class:`ScheduleError` where another stage is computed at an axis of this one.

        For primitives that take the axes of a stage away.
        """
        for other in self.schedule.stages:
            at = other.attachment
            if at.kind == "at" and at.stage is self:
                raise self.error(
                    f"{primitive}: stage {other.name!r} is computed at an axis of this stage "
                    f"({at.where})",
                    at.axis,
                    f"Call {primitive} before compute_at",
                )

    def error(self, problem: str, axis: IterVar | None = None, mend: str = "") -> ScheduleError:
        """An error about this stage, at the user's line."""
        return ScheduleError(
            problem,
            stage=self.name,
            axis=axis.name if axis is not None else "",
            where=user_location(),
            mend=mend,
        )

    def contradiction(
        self, problem: str, axis: IterVar | None = None, mend: str = "", where: str = ""
    ) -> LoweringError:
        """An error about this stage that shows when it is lowered; ``where`` is its cause.

        Without one, it is the line where the stage is declared.
        """
        return LoweringError(
            problem,
            stage=self.name,
            axis=axis.name if axis is not None else "",
            where=where or self.op.where,
            mend=mend,
        )

    def __getattr__(self, name: str) -> Any:
        raise absent(self, "a stage", name)

    def __repr__(self) -> str:
        return f"Stage({self.name})"

    # -- primitives, each in a file of its own ---------------------------------------------

    def split(
        self,
        parent: IterVar,
        factor: Any = None,
        nparts: Any = None,
        disable_predication: bool = False,
    ) -> tuple[IterVar, IterVar]:
        """See :func:`tilewright.schedule.split.split`; ``disable_predication`` is TVM's, and has no
        effect: guards that provably hold are dropped, and others are needed."""
        from tilewright.schedule.split import split

        return split(self, parent, factor, nparts)

    def fuse(self, *axes: Any) -> IterVar:
        """See :func:`tilewright.schedule.fuse.fuse`."""
        from tilewright.schedule.fuse import fuse

        return fuse(self, axes)

    def skew(
        self, axis: IterVar, by: IterVar, scale: int = 1, step: int = 1, offset: int = 0
    ) -> IterVar:
        """See :func:`tilewright.schedule.skew.skew`."""
        from tilewright.schedule.skew import skew

        return skew(self, axis, by, scale, step, offset)

    def pad_to(self, axis: IterVar, whole: int) -> IterVar:
        """See :func:`tilewright.schedule.pad_to.pad_to`."""
        from tilewright.schedule.pad_to import pad_to

        return pad_to(self, axis, whole)

    def reorder(self, *axes: IterVar) -> None:
        """See :func:`tilewright.schedule.reorder.reorder`."""
        from tilewright.schedule.reorder import reorder

        reorder(self, axes)

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: Any, y_factor: Any
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """See :func:`tilewright.schedule.tile.tile`."""
        from tilewright.schedule.tile import tile

        return tile(self, x_parent, y_parent, x_factor, y_factor)

    def bind(self, axis: IterVar, thread: IterVar) -> None:
        """See :func:`tilewright.schedule.bind.bind`."""
        from tilewright.schedule.bind import bind

        bind(self, axis, thread)

    def env_threads(self, threads: Any) -> None:
        """See :func:`tilewright.schedule.bind.env_threads`."""
        from tilewright.schedule.bind import env_threads

        env_threads(self, threads)

    def parallel(self, axis: IterVar) -> None:
        """See :func:`tilewright.schedule.annotate.annotate`."""
        from tilewright.schedule.annotate import annotate

        annotate(self, axis, ForKind.PARALLEL)

    def vectorize(self, axis: IterVar) -> None:
        """See :func:`tilewright.schedule.annotate.annotate`."""
        from tilewright.schedule.annotate import annotate

        annotate(self, axis, ForKind.VECTORIZED)

    def unroll(self, *axes: IterVar) -> None:
        """See :func:`tilewright.schedule.annotate.annotate`; each of several loops."""
        from tilewright.schedule.annotate import annotate

        for axis in axes:
            annotate(self, axis, ForKind.UNROLLED)

    def pragma(self, axis: IterVar, key: str, value: Any = None) -> None:
        """See :func:`tilewright.schedule.annotate.pragma`."""
        from tilewright.schedule.annotate import pragma

        pragma(self, axis, key, value)

    def compute_at(self, parent: Stage, axis: IterVar) -> None:
        """See :func:`tilewright.schedule.attach.compute_at`."""
        from tilewright.schedule.attach import compute_at

        compute_at(self, parent, axis)

    def compute_inline(self) -> None:
        """See :func:`tilewright.schedule.attach.compute_inline`."""
        from tilewright.schedule.attach import compute_inline

        compute_inline(self)

    def compute_root(self) -> None:
        """See :func:`tilewright.schedule.attach.compute_root`."""
        from tilewright.schedule.attach import compute_root

        compute_root(self)

    def set_scope(self, scope: str) -> Stage:
        """See :func:`tilewright.schedule.storage.set_scope`."""
        from tilewright.schedule.storage import set_scope

        return set_scope(self, scope)

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """See :func:`tilewright.schedule.storage.storage_align`."""
        from tilewright.schedule.storage import storage_align

        storage_align(self, axis, factor, offset)

    def swizzle(self, bytes: int) -> None:
        """See :func:`tilewright.schedule.swizzle.swizzle`."""
        from tilewright.schedule.swizzle import swizzle

        swizzle(self, bytes)

    def align_bounds(self, axis: IterVar, factor: int, offset: int = 0) -> None:
        """See :func:`tilewright.schedule.storage.align_bounds`."""
        from tilewright.schedule.storage import align_bounds

        align_bounds(self, axis, factor, offset)

    def rolling_buffer(self, ahead: int = 0) -> None:
        """See :func:`tilewright.schedule.storage.rolling_buffer`."""
        from tilewright.schedule.storage import rolling_buffer

        rolling_buffer(self, ahead)

    def rolling_update(self, axis: IterVar, parent: Stage, loop: IterVar) -> None:
        """See :func:`tilewright.schedule.rolling_update.rolling_update`."""
        from tilewright.schedule.rolling_update import rolling_update

        rolling_update(self, axis, parent, loop)

    def compute_with(self, axis: IterVar, parent: Stage, loop: IterVar) -> None:
        """See :func:`tilewright.schedule.rolling_update.compute_with`."""
        from tilewright.schedule.rolling_update import compute_with

        compute_with(self, axis, parent, loop)

    def pipeline(self, stages: int, over: IterVar | None = None, producer: bool = False) -> None:
        """See :func:`tilewright.schedule.storage.pipeline`."""
        from tilewright.schedule.storage import pipeline

        pipeline(self, stages, over, producer=producer)

    def double_buffer(self) -> None:
        """See :func:`tilewright.schedule.storage.double_buffer`."""
        from tilewright.schedule.storage import double_buffer

        double_buffer(self)

    def set_store_predicate(self, predicate: Any) -> None:
        """See :func:`tilewright.schedule.storage.set_store_predicate`."""
        from tilewright.schedule.storage import set_store_predicate

        set_store_predicate(self, predicate)

    def guard_by_zeros(
        self, *operands: Tensor, over: Any = (), finite: bool = False, around: Any = ()
    ) -> None:
        """See :func:`tilewright.schedule.guard_by_zeros.guard_by_zeros`."""
        from tilewright.schedule.guard_by_zeros import guard_by_zeros

        guard_by_zeros(self, operands, over, finite, around)

    def transform_layout(self, mapping: Any) -> list[Any]:
        """See :func:`tilewright.schedule.transform_layout.transform_layout`."""
        from tilewright.schedule.transform_layout import transform_layout

        return transform_layout(self, mapping)

    def prefetch(self, tensor: Tensor, axis: IterVar, offset: Any = 1) -> None:
        """See :func:`tilewright.schedule.prefetch.prefetch`."""
        from tilewright.schedule.prefetch import prefetch

        prefetch(self, tensor, axis, offset)

    def tensorize(self, axis: IterVar, instruction: Any) -> None:
        """See :func:`tilewright.schedule.tensorize.tensorize`."""
        from tilewright.schedule.tensorize import tensorize

        tensorize(self, axis, instruction)
