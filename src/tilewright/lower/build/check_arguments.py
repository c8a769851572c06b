"""What a program is called with: the arguments given to lowering, and the variables in use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Load, Var
from tilewright.ir.stmt import Stmt
from tilewright.ir.visit import exprs, free_vars
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.te.axes import axis_kind
from tilewright.te.operation import ComputeOp, PlaceholderOp
from tilewright.te.tensor import Tensor, tensor_of


def check_params(
    schedule: Schedule,
    params: tuple[Any, ...],
    args: Sequence[Any],
    inner: Collection[Buffer] = (),
    partial: bool = False,
    bound: Collection[Any] = (),
) -> None:
    """Raises :class:`LoweringError` for arguments that are none, twice there, or missing, of
    which ``inner`` ones and with ``partial`` all may be. ``bound`` ones are passed otherwise."""
    for p in params:
        if not isinstance(p, (Buffer, Var)):
            is_array = hasattr(p, "__array_interface__") or hasattr(p, "__dlpack__")
            raise LoweringError(
                "arguments are tensors and symbolic variables, got "
                + (f"an array, a {type(p).__name__}" if is_array else repr(p)),
                mend="List what te.placeholder, te.compute and te.var made; arrays are passed to "
                "the kernel that is built",
            )
        if isinstance(p, Var) and not p.dtype.is_int and p not in bound:
            raise LoweringError(
                f"argument {p.name!r} is a scalar of {p.dtype}: those of a kernel are integers",
                mend=f"Pass a tensor of one element: {p.name} = te.placeholder((1,), "
                f"{str(p.dtype)!r}), read as {p.name}[0]",
            )
        if sum(other is p for other in params) > 1:
            raise LoweringError(f"argument {p.name!r} is listed twice", mend="List it once")
    given = frozenset(params)
    for stage in schedule.stages:
        _check_ends(stage, given)
        outer = isinstance(stage.op, PlaceholderOp) or stage.op in schedule.outputs
        for tensor in stage.op.outputs:
            if outer and not partial and tensor.buffer not in given and tensor.buffer not in inner:
                kind = "input" if isinstance(stage.op, PlaceholderOp) else "output"
                raise stage.contradiction(
                    f"{tensor.name!r} is an {kind} of the schedule, but not among the arguments",
                    mend="Add it to the list",
                )
    for arg in args:
        if isinstance(arg, Tensor) and schedule.stage_of(arg.buffer) is None:
            if not isinstance(arg.op, PlaceholderOp):
                raise LoweringError(
                    f"argument {arg.name!r} is not computed by this schedule, or inlined",
                    stage=arg.op.name,
                    where=arg.op.where,
                    mend="Pass its operation to create_schedule, or leave it out of the arguments",
                )


def _check_ends(stage: Stage, given: Collection[Any]) -> None:
    """Raises where how often a reduction runs is computed, and only a part of that is kept."""
    for e in stage.op.ends if isinstance(stage.op, ComputeOp) else ():
        for read in exprs(e):
            tensor = tensor_of(read.buffer) if isinstance(read, Load) else None
            if tensor is None or isinstance(tensor.op, PlaceholderOp) or tensor.buffer in given:
                continue
            raise stage.contradiction(
                f"how often a reduction runs is read from {tensor.name!r}, which is computed",
                mend=f"Make {tensor.name!r} an output of the schedule and an argument, too",
            )


def check_variables(body: Stmt, params: tuple[Any, ...]) -> None:
    """Raises :class:`LoweringError` where a variable is in use that nothing gives a value."""
    known = {e for p in params for e in (p.shape if isinstance(p, Buffer) else (p,))}
    shapes = (e for p in params if isinstance(p, Buffer) for e in p.shape)
    used = dict.fromkeys(free_vars(body))
    for extent in shapes:
        used.update(dict.fromkeys(free_vars(extent)))
    for var in used:
        if var not in known and axis_kind(var) is not None:
            raise LoweringError(
                f"axis {var.name!r} is in use where there is no loop over it",
                mend="A store predicate may use thread axes that the stage, or one that it is "
                "computed in, binds, and the stage's own data axes",
            )
        if var not in known:
            raise LoweringError(
                f"variable {var.name!r} is in use, but neither an argument nor an extent of one",
                mend="Add it to the list of arguments",
            )
