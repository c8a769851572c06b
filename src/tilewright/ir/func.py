"""Functions over buffers, and the modules of kernels that a schedule becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Stmt


@dataclass(frozen=True, slots=True, eq=False)
class LaunchAxis:
    """One axis of a GPU launch: its tag ("threadIdx.x"), its index, its extent."""

    tag: str
    var: Var
    extent: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Func:
    """A kernel: ``body`` over ``params``.

    ``params`` are buffers in global memory and scalar variables (symbolic extents), in the order
    of the call. ``launch`` is empty on a CPU; on a GPU it lists every hardware axis in use, once,
    and ``body`` is what each thread does. ``target`` is the
    :class:`tilewright.target.target.Target` that it is lowered for, if any. ``tensor_maps`` are the
    boxes that it copies as such, in the order of their parameters, once code is generated
    (:class:`tilewright.target.boxes.TensorMap`). ``constants`` are the places of those ``params``
    that hold the same in every call. With a ``producer``, a block has one more warp than ``launch``
    says, which copies boxes for the others: it does what ``body`` says of that for one thread, and
    they do the rest.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    launch: tuple[LaunchAxis, ...] = ()
    target: Any = None
    tensor_maps: tuple[Any, ...] = ()
    constants: tuple[int, ...] = ()
    producer: bool = False

    @property
    def buffer_map(self) -> dict[Any, Buffer]:
        """The buffers among the parameters by these, under TVM's name."""
        return {p: p for p in self.params if isinstance(p, Buffer)}

    def extent(self, tag: str) -> Expr | None:
        """The extent of a launch axis, None where it is not in use."""
        return next((axis.extent for axis in self.launch if axis.tag == tag), None)

    def __repr__(self) -> str:
        from tilewright.ir.text import func_text  # it knows all nodes, so it imports them

        return func_text(self)


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """What a schedule lowers to: kernels in the order of their launch.

    ``params`` are what the caller passes. A kernel's parameters are among ``params``,
    ``workspaces`` (global buffers that live for one call) and the variables in their shapes,
    which the host reads off the arguments.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    funcs: tuple[Func, ...]
    workspaces: tuple[Buffer, ...] = ()
    target: Any = None

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.funcs))
