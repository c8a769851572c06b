"""scan: recurrences, whose elements are computed of those before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import sub
from tilewright.te.axes import declared
from tilewright.te.operation import ComputeOp, PlaceholderOp
from tilewright.te.tensor import Tensor, make_buffer


class ScanOp(ComputeOp):
    """Steps along the first dimension: ``outputs[k][t] = updates[k][t]``, in order of ``t``.

    Before the first step, ``inits[k]`` are the first rows. ``states[k]``, which the updates read,
    stand for the outputs as far as they are computed: in memory they are the same.
    """

    inits: tuple[Tensor, ...]
    updates: tuple[Tensor, ...]
    states: tuple[Tensor, ...]
    apart: tuple[tuple[IterVar, ...], ...] = ()  # the axes of each output, where shapes differ

    @property
    def scan_axis(self) -> IterVar:
        """The axis of the steps, from the number of the first rows on."""
        return self.axis[0]

    @property
    def spatial_axis_(self) -> tuple[IterVar, ...]:
        """The other axes, output by output, under TVM's name."""
        if self.apart:
            return self.axis[1:]
        return self.axis[1:] * len(self.outputs)

    @property
    def inputs(self) -> list[Tensor]:
        return list(dict.fromkeys((*self.inits, *super().inputs)))

    def derive(self, body: tuple[Expr, ...], axis: tuple[IterVar, ...] | None = None) -> ComputeOp:
        made = ScanOp.__new__(ScanOp)
        made.__dict__.update(self.__dict__)
        made.body, made.axis = body, self.axis if axis is None else axis
        return made

    def part(self, k: int) -> ComputeOp:
        """What computes the output ``k`` alone, of states of different shapes."""
        made = ComputeOp.derive(self, (self.body[k],), self.apart[k])
        made.outputs = (self.outputs[k],)
        return made

    def steps(self) -> list[Any]:
        """The operations that are carried out again in every step, in no order: those that are
        computed of a state."""
        again: dict[Any, bool] = {state.op: True for state in self.states}
        waiting = [t.op for t in super().inputs]
        while waiting:
            op = waiting[-1]
            unknown = [t.op for t in op.inputs if t.op not in again]
            if op not in again and unknown:
                waiting += unknown
                continue
            waiting.pop()
            again.setdefault(op, any(again[t.op] for t in op.inputs))
        own = {state.op for state in self.states}
        return [op for op, repeated in again.items() if repeated and op not in own]


def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state_placeholder: Tensor | Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None,
    name: str = "scan",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """The rows that ``update`` computes one after the other, each of those before it.

    Parameters
    ----------
    init : the first rows, computed; several tensors for several states, of as many rows.
    update : of the shape of the result, computed; element ``[t, ...]`` reads ``state`` at rows
        before ``t``.
    state_placeholder : stands for the result in ``update``, and has its shape.
    inputs : TVM's list of further inputs, which are found without it.

    Where the number of rows is a variable, it is at least that of the first rows from now on.

    >>> from tilewright import te
    >>> X, state = te.placeholder((8, 4), name="X"), te.placeholder((8, 4), name="state")
    >>> first = te.compute((1, 4), lambda _, i: X[0, i], name="first")
    >>> step = te.compute((8, 4), lambda t, i: state[t - 1, i] + X[t, i], name="step")
    >>> scan(first, step, state, name="cumsum")
    Tensor(cumsum, shape=[8, 4], dtype=float32)

    Raises :class:`LanguageError` where the shapes or types do not fit one another.
    """
    inits, updates, states = (
        tuple(x) if isinstance(x, (list, tuple)) else (x,)
        for x in (init, update, state_placeholder)
    )
    if not len(inits) == len(updates) == len(states) > 0:
        raise LanguageError(
            f"scan {name}: {len(inits)} initial tensors, {len(updates)} updates and {len(states)} "
            "states, which are to be as many"
        )
    steps = updates[0].shape[:1]
    for first, step, state in zip(inits, updates, states, strict=True):
        if not isinstance(state.op, PlaceholderOp):
            raise LanguageError(f"scan {name}: the state {state.name} is to be a te.placeholder")
        for made in (first, step):
            if not isinstance(made.op, ComputeOp) or made.op.num_outputs > 1:
                raise LanguageError(
                    f"scan {name}: {made.name} is to be made by a te.compute of its own"
                )
        if not state.shape or state.shape != step.shape or first.shape[1:] != step.shape[1:]:
            raise LanguageError(
                f"scan {name}: the state {state.name} {list(state.shape)}, its update "
                f"{list(step.shape)} and the rows before it {list(first.shape)} are to have one "
                "shape but for the first dimension of the last"
            )
        if not first.dtype == step.dtype == state.dtype:
            raise LanguageError(
                f"scan {name}: {first.name}, {step.name} and {state.name} are to be of one type"
            )
        if state.shape[:1] != steps or first.shape[:1] != inits[0].shape[:1]:
            raise LanguageError(
                f"scan {name}: all states are to have as many rows, and as many of them before "
                f"the first step: {state.name} has {state.shape[0]} and {first.shape[0]}, "
                f"{states[0].name} has {steps[0]} and {inits[0].shape[0]}"
            )
    begin, end = inits[0].shape[0], steps[0]
    if isinstance(end, Var) and isinstance(begin, IntImm):  # which the host checks from now on
        end.demand(begin.value)
    op = ScanOp(name, tag, attrs)
    op.inits, op.updates, op.states = inits, updates, states
    count = Range.from_extent(begin, sub(end, begin))
    along = declared(IterVar(count, Var.make(f"{name}.idx", end.dtype), "data"))

    def axes(shape: tuple[Expr, ...], name: str) -> tuple[IterVar, ...]:
        found = [
            IterVar(Range.from_extent(0, e), Var.make(f"{name}{k}", e.dtype), "data")
            for k, e in enumerate(shape[1:], 1)
        ]
        return (along, *map(declared, found))

    if all(state.shape == states[0].shape for state in states):
        op.axis = axes(states[0].shape, f"{name}.i")
        op.body = tuple(step(*(a.var for a in op.axis)) for step in updates)
    else:
        op.apart = tuple(axes(s.shape, f"{name}.v{k}.i") for k, s in enumerate(states))
        op.axis = tuple(dict.fromkeys(a for own in op.apart for a in own))
        op.body = tuple(
            step(*(a.var for a in own)) for step, own in zip(updates, op.apart, strict=True)
        )
    names = [name] if len(states) == 1 else [f"{name}.v{k}" for k in range(len(states))]
    op.outputs = tuple(
        Tensor(op, k, make_buffer(n, state.shape, state.dtype))
        for k, (n, state) in enumerate(zip(names, states, strict=True))
    )
    return op.outputs if isinstance(init, (list, tuple)) else op.outputs[0]
