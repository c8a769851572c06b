"""Nests that copy a box of a tensor, where it has the elements, become one instruction.

A tile at the edge of a tensor is copied as far as the tensor goes; beyond, a stage has zeros where
it is declared with ``if_then_else``, or nothing that is ever used. Both are what such an
instruction does, which copies a whole box with zeros outside of the tensor:

>>> from tilewright.lower.ir_builder import axes, buffer, loop, store
>>> from tilewright.ir.expr import Var
>>> from tilewright.ir.ops import if_then_else
>>> from tilewright.target.instructions import tma_load
>>> i, j, n = *axes("i j"), Var.make("n")
>>> A, S = buffer("A", 20, 32), buffer("S", 16, 32, scope="shared")
>>> zero = const(0.0)
>>> nest = loop(i, 16, loop(j, 32, store(S[i, j], if_then_else(n * 16 + i < 20, A[n * 16 + i, j],
...     zero))))
>>> analyzer = Analyzer()
>>> analyzer.bind(n, 0, 2)
>>> match_box(nest, tma_load((16, 32), "float32"), analyzer)
with T.instruction('tma_load_float32_16x32', S[i, j], A[n * 16 + i, j]):
    for i in range(16):
        for j in range(32):
            S[i, j] = T.if_then_else(n * 16 + i < 20, A[n * 16 + i, j], T.float32(0))
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.arith.conditions import conjuncts
from tilewright.ir.expr import Expr, IfThenElse, Load, Select
from tilewright.ir.ops import const, is_const, logical_and
from tilewright.ir.stmt import Access, For, If, Instr, Remark, Stmt, Store
from tilewright.target.boxes import Box, box_of, inside, limits, start_problem
from tilewright.target.instruction import Instruction
from tilewright.target.matching import match_instruction
from tilewright.target.windows import window_of


def match_box(nest: Stmt, instruction: Instruction, analyzer: Analyzer) -> Instr | str:
    """``nest`` as ``instruction``, or why it is not, as the end of a sentence."""
    loops, conditions, store = _taken_apart(nest)
    if isinstance(store, str):
        return store
    plain: Stmt = store
    for loop in reversed(loops):
        plain = replace(loop, body=plain)
    found = match_instruction(plain, instruction, analyzer)
    if isinstance(found, str):
        return found
    assert isinstance(store.value, Load)
    boxed: Store | Load = store.value if instruction.boxed else store
    problem = _refused(loops, conditions, Access(boxed.buffer, boxed.indices), analyzer)
    return problem or _boxed(found, analyzer)


def _taken_apart(nest: Stmt) -> tuple[list[For], list[Expr], Store | str]:
    """The loops of a nest, the conditions in it, and what it copies where they hold, or why it
    copies nothing."""
    loops: list[For] = []
    conditions: list[Expr] = []
    while not isinstance(nest, Store):
        match nest:
            case For():
                loops.append(nest)
                nest = nest.body
            case Remark(body=body):
                nest = body
            case If(condition, then, None):
                conditions += conjuncts(condition)
                nest = then
            case _:
                return loops, conditions, f"its loops hold no store but {type(nest).__name__}"
    value = nest.value
    while isinstance(value, Select) and is_const(value.on_false, 0):
        conditions += conjuncts(value.condition)
        value = value.on_true
    if not isinstance(value, Load) or value.predicate is not None:
        reason = f"it stores {value}, no element of a tensor or, where that has none, zero"
        return loops, conditions, reason
    return loops, conditions, replace(nest, value=value)


def _refused(loops: list[For], conditions: list[Expr], source: Access, analyzer: Analyzer) -> str:
    """Why what is copied is not just what lies in the tensor; empty if it is."""
    name = source.buffer.name
    bounds = inside(source, source.buffer.shape)
    with analyzer.scope():
        for loop in loops:
            analyzer.bind(loop.var, loop.min, loop.extent)
        for condition in conditions:
            if not _follows(analyzer, condition, bounds):
                return (
                    f"it copies only where {condition}, which is not where {name} has elements: "
                    f"give {name} the extent that is meant, or copy rows with copy_async"
                )
        for bound in bounds:
            if not _follows(analyzer, bound, conditions):
                return f"it is not known that {bound}, which is where {name} has elements"
    return ""


def _follows(analyzer: Analyzer, condition: Expr, known: list[Expr]) -> bool:
    if condition in known or condition in map(analyzer.simplify, known):
        return True
    if any(is_const(fact, 0) for fact in known):  # the box lies outside of the tensor: all follows
        return True
    # All together may tell more, but a fact about a quotient rewrites the remainder in what is to
    # be proved, and not in the other facts.
    return any(_proves(analyzer, condition, facts) for facts in (known, *([k] for k in known)))


def _proves(analyzer: Analyzer, condition: Expr, known: list[Expr]) -> bool:
    with ExitStack() as stack:
        for fact in known:
            stack.enter_context(analyzer.assume(fact))
        return analyzer.prove(condition)


def _boxed(found: Instr, analyzer: Analyzer) -> Instr | str:
    """The instruction with zeros where the box is outside of the tensor, or without what is."""
    declared: Instruction = found.instruction
    assert declared.boxed is not None
    target, source = found.operands
    tensor, name = found.operands[declared.boxed], declared.operands[declared.boxed].name
    extents = [axis.extent for axis in declared.axes]
    box: Box | str | None = None
    if not declared.windows:
        box = box_of(tensor, found.axes, extents, analyzer)
    problem = limits(tensor.buffer, box if isinstance(box, Box) else None)
    if problem:
        return problem
    if declared.windows:
        window = window_of(source, found.axes, extents, analyzer)
        if isinstance(window, str):
            return f"operand {name} is of no windows: {window}"
        found = replace(found, operands=(target, replace(source, window=window)))
    if isinstance(box, str):
        return f"operand {name} is no box of {tensor.buffer.name}: {box}"
    problem = start_problem(tensor, found.axes, box, analyzer)
    if problem:
        return problem
    # Later the map is made without the proof that is at hand here, and has to join the same.
    if box is not None and box_of(tensor, found.axes, extents, analyzer, proved=True) != box:
        return (
            f"operand {name} is no box of {tensor.buffer.name}: of its dimensions, which are more "
            "than a map has, some are not known to join as others do"
        )
    with analyzer.scope():
        for axis, extent in zip(found.axes, extents, strict=True):
            analyzer.bind(axis, 0, const(extent))
        bounds = inside(tensor, tensor.buffer.shape)
        unknown = logical_and(*(b for b in bounds if not analyzer.prove(b)))
    value: Expr = Load(source.buffer, source.indices, None)
    whole = is_const(unknown, 1)
    if not whole and tensor is source:
        value = IfThenElse(unknown, value, const(0, source.buffer.dtype))
    body: Stmt = Store(target.buffer, target.indices, value)
    if not whole and tensor is target:
        body = If(unknown, body)
    innermost = found.body
    loops: list[For] = []
    while isinstance(innermost, For):
        loops.append(innermost)
        innermost = innermost.body
    for loop in reversed(loops):
        body = replace(loop, body=body)
    return replace(found, body=body)
