"""Nests that depend on constants alone leave a module: another one runs them once, ahead of it.

A module computes ``Packed`` of ``W``, which is the same in every call, and reads it:

>>> from tilewright.ir.func import Module
>>> from tilewright.lower.ir_builder import axes, buffer, func, loop, store
>>> i, j = axes("i j")
>>> W, X, Y, Packed = (buffer(name, 4) for name in ("W", "X", "Y", "Packed"))
>>> pack, use = store(Packed[i], W[3 - i]), store(Y[j], X[j] * Packed[j])
>>> whole = Module("main", (X, W, Y), (func(loop(i, 4, pack), loop(j, 4, use)),), (Packed,))
>>> before, after = split_prepared(whole, [W])
>>> print(before.params[0].name, before.params[1].name, [p.name for p in after.params])
W Packed ['X', 'Packed', 'Y']
>>> print(after.funcs[0].body)
for j in range(4):
    Y[j] = X[j] * Packed[j]

It is derived from the program, whatever operator it is of: on a GPU whole kernels leave, on a CPU
nests at the top of the one function. What is computed inside of a task stays there. It stands
behind all other passes, which see one program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Var
from tilewright.ir.func import Func, Module
from tilewright.ir.stmt import Allocate, Let, Remark, Seq, Stmt, seq
from tilewright.ir.visit import Rewriter, Steps, allocated, written_by
from tilewright.lower.loops.split_kernels import buffers_of, parameters, top_level


@dataclass(frozen=True, eq=False)
class _Part:
    """A kernel, or a nest at the top of one, with what stood around it: what of the module it
    touches, and which buffers of these it writes."""

    body: Stmt
    whole: Stmt
    touched: frozenset[Buffer | Var]
    written: frozenset[Buffer]


def split_prepared(module: Module, constants: Sequence[Buffer]) -> tuple[Module, Module] | None:
    """The module that prepares workspaces from ``constants``, which it takes before them, and the
    rest, whose parameters have them in front of its outputs; None where nothing is to be prepared.

    A constant that only the first reads is no parameter of the second.
    """
    parts = [part for func in module.funcs for part in _parts(func)]
    known = _prepared(parts, frozenset(constants), frozenset(module.workspaces))
    ahead = [p for p in parts if p.written & known]
    rest = {b for p in parts if p not in ahead for b in p.touched}
    made = tuple(b for b in module.workspaces if b in known and b in rest)
    if not made:
        return None
    taken = [b for b in constants if any(b in p.touched for p in ahead)]
    inner = tuple(b for b in module.workspaces if b in known and b not in rest)
    name = f"{module.name}_prepare"
    first = Module(name, (*taken, *made), (), inner, module.target)
    results = written_by(*(f.body for f in module.funcs))
    kept = [p for p in module.params if p not in taken or p in rest]
    place = next((k for k, p in enumerate(kept) if p in results), len(kept))
    second = replace(
        module,
        params=(*kept[:place], *made, *kept[place:]),
        workspaces=tuple(b for b in module.workspaces if b not in known),
    )
    bodies = {id(p.body) for p in ahead}
    return (
        replace(first, funcs=tuple(_ahead(first, module, ahead))),
        replace(second, funcs=tuple(_rest(second, bodies))),
    )


def _parts(func: Func) -> Iterator[_Part]:
    if func.launch:
        yield _Part(func.body, func.body, frozenset(func.params), written_by(func.body))
        return
    for nest in top_level(func.body)[0]:
        whole = nest.statement()
        touched = frozenset(parameters(func.params, (), whole)) | _foreign(func, whole)
        yield _Part(nest.body, whole, touched, written_by(whole) - {*allocated(whole)})


def _foreign(func: Func, whole: Stmt) -> frozenset[Buffer]:
    """Buffers that are allocated around several nests."""
    return frozenset(buffers_of(whole)) - {*func.params, *allocated(whole)}


def _prepared(
    parts: Sequence[_Part], constants: frozenset[Buffer], known: frozenset[Buffer]
) -> frozenset[Buffer]:
    """The workspaces among ``known`` that are computed from constants, and from one another, by
    parts that compute nothing else."""
    while True:
        wrong = frozenset(
            b for p in parts for b in p.written
            if not (p.touched <= constants | known and p.written <= known)
        )  # fmt: skip
        if not wrong & known:
            return known
        known -= wrong


def _ahead(first: Module, module: Module, ahead: Sequence[_Part]) -> Iterable[Func]:
    if module.funcs[0].launch:
        bodies = {id(p.body) for p in ahead}
        return [f for f in module.funcs if id(f.body) in bodies]
    body = seq(*(p.whole for p in ahead))
    own = parameters(first.params, first.workspaces, body)
    return [Func(first.name, own, body, target=module.target)]


def _rest(second: Module, bodies: set[int]) -> Iterable[Func]:
    for func in second.funcs:
        if not func.launch:
            body = _Without(bodies).stmt(func.body)
            params = parameters(second.params, second.workspaces, body)
            yield replace(func, params=params, body=body)
        elif id(func.body) not in bodies:
            yield func


class _Without(Rewriter):
    """Takes statements out, and what stood around nothing else."""

    def __init__(self, dropped: set[int]) -> None:
        self.dropped = dropped

    def steps(self, s: Stmt) -> Steps:
        if id(s) in self.dropped:
            return Seq(())
        match s:
            case Seq(stmts):
                made = []
                for x in stmts:
                    made.append((yield self.steps(x)))
                return seq(*made)
            case Allocate() | Remark() | Let():
                made_stmt = yield from super().steps(s)
                inner = made_stmt.body
                return inner if isinstance(inner, Seq) and not inner.stmts else made_stmt
        return s
