"""Schedules drawn at random in which windows become matrices.

Some stages are declared over loops that were skewed and padded, and read copies of what they read
that are indexed by their axes; loops of others are skewed and padded as they are.
"""

from __future__ import annotations

import math
from typing import Any

from tests.support.gpu_plans import GPUPlan
from tests.support.plans import CPUPlan, Leaf, Nest, Plan

from tilewright.arith.affine import as_affine
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Expr, IntImm, Load, Reduce
from tilewright.ir.visit import distinct, free_vars
from tilewright.schedule import Stage
from tilewright.te import ComputeOp

#: The largest integer up to which TF32 has all.
TF32 = 2048


class WindowPlan(Plan):
    """What :class:`Plan` draws, and windows."""

    def attempt(self, line: str) -> bool:
        """A line that may be refused, and then is left out."""
        try:
            self.text.do(line)
        except ScheduleError:
            self.text.lines.pop()
            return False
        return True

    # -- new stages -----------------------------------------------------------------------

    def caches(self) -> None:
        super().caches()
        for stage in list(self.s.stages):
            if isinstance(stage.op, ComputeOp) and self.dice.chance(40):
                self.in_tf32(stage)
        for stage in list(self.s.stages):
            if isinstance(stage.op, ComputeOp) and self.dice.chance(60):
                self.redeclare(stage)
        for stage in list(self.s.stages):
            if isinstance(stage.op, ComputeOp) and self.dice.chance(45):
                self.reindex(stage)

        for stage in list(self.s.stages):
            if isinstance(stage.op, ComputeOp) and self.dice.chance(10):
                self.partition(stage)

    def partition(self, stage: Stage) -> None:
        """Parts of what a stage makes, which may be inlined into its readers."""
        dice, name = self.dice, self.tensors[stage.op.outputs[0].buffer]
        k = dice.number(0, max(0, len(stage.op.axis) - 1))
        points = sorted({dice.number(1, 9) for _ in range(dice.number(1, 2))})
        made = [self.text.fresh("Q") for _ in range(len(points) + 1)]
        line = f"{', '.join(made)} = s.partition({name}, s[{name}].op.axis[{k}], {points})"
        if not stage.op.axis or not self.attempt(line):
            return
        for part in made:
            self.tensors[self.text[part].buffer] = part
        if stage.op not in self.s.outputs and dice.chance(50):
            self.attempt(f"s[{name}].compute_inline()")

    def in_tf32(self, stage: Stage) -> None:
        """Products of parts: exact where a factor has none that is small, one where both do."""
        known = {
            t.name: max(abs(t.low), abs(t.high)) for t in (*self.graph.inputs, *self.graph.made)
        }
        sizes = [known.get(self.tensors.get(t.buffer, ""), math.inf) for t in stage.op.inputs]
        if not sizes or self.graph.wild or min(sizes) > TF32:
            return
        terms = 1 if max(sizes) <= TF32 and self.dice.chance(50) else 3
        parts = [self.text.fresh("P"), self.text.fresh("P")]
        name = self.tensors[stage.op.outputs[0].buffer]
        if self.attempt(f"{', '.join(parts)} = s.in_tf32({name}, {terms})"):
            for part in parts:
                self.tensors[self.text[part].buffer] = part

    def redeclare(self, stage: Stage) -> None:
        """Declare a stage over loops that are skewed and padded."""
        op, dice = stage.op, self.dice
        reduced = op.reduce_axis
        known = all(isinstance(e, IntImm) for a in reduced for e in (a.dom.min, a.dom.extent))
        if not known or not op.axis:
            return
        names = [self.tensors[t.buffer] for t in op.outputs]
        s = f"s[{names[0]}]"
        by, factor = self.text.fresh("y"), dice.number(1, 5)
        k = dice.number(0, len(op.axis) - 1)
        self.text.do(f"{by} = {s}.op.axis[{k}]")
        if len(op.axis) > 1 and dice.chance(25):
            other = f"{s}.op.axis[{k - 1}]"
            self.text.do(f"{s}.skew({other}, {by}{self.distances()})")
        if dice.chance(75):
            self.text.do(f"{by} = {s}.pad_to({by}, {factor * dice.number(1, 2)})")
            self.text.do(f"_, {by} = {s}.split({by}, {factor})")
        elif not reduced:
            self.text.do(f"{by} = {s}.pad_to({by}, {factor})")
        if reduced:
            j = self.text.fresh("z")
            self.text.do(f"{j} = {s}.op.reduce_axis[{dice.number(0, len(reduced) - 1)}]")
            if dice.chance(25):
                self.text.do(f"_, {j} = {s}.split({j}, {dice.number(2, 3)})")
            if dice.chance(85):
                self.text.do(f"{j} = {s}.skew({j}, {by}{self.distances()})")
            if dice.chance(50):
                self.text.do(f"{j} = {s}.pad_to({j}, {dice.number(1, 6)})")
            if dice.chance(30):
                self.text.do(f"{s}.split({j}, {dice.number(2, 4)})")
        made = [self.text.fresh("W") for _ in names]
        listed = f"[{', '.join(names)}]" if len(names) > 1 else names[0]
        memory = dice.pick(self.memories)
        self.text.do(f'{", ".join(made)} = s.cache_write({listed}, "{memory}")')
        for name in made:
            self.tensors[self.text[name].buffer] = name

    def distances(self) -> str:
        dice = self.dice
        found = ""
        for name, least, most in (("scale", 1, 3), ("step", 1, 3), ("offset", 0, 4)):
            if dice.chance(40):
                found += f", {name}={dice.number(least, most)}"
        return found

    def reindex(self, stage: Stage) -> None:
        """Copies of what a stage reads, and the condition of a sum as their zeros."""
        op, dice = stage.op, self.dice
        name = self.tensors[op.outputs[0].buffer]
        made: list[str] = []
        for tensor in op.inputs:
            read = self.tensors.get(tensor.buffer, "")
            indices = {
                e.indices
                for body in op.body
                for e in distinct(body)
                if isinstance(e, Load) and e.buffer is tensor.buffer
            }
            if not read or len(indices) != 1 or not dice.chance(75):
                continue
            axes = self.axes_of(stage, name, indices.pop())
            copy = self.text.fresh("M")
            memory = dice.pick(("", *self.memories))
            if self.attempt(f'{copy} = s.reindex({read}, {name}, [{", ".join(axes)}], "{memory}")'):
                self.tensors[self.text[copy].buffer] = copy
                made.append(copy)
                if dice.chance(25):
                    self.reindex(self.s[self.text[copy]])
        body = op.body[0]
        # Of values that are not finite, zeros would make other ones.
        if made and isinstance(body, Reduce) and not self.graph.wild:
            own = [f"s[{name}].op.axis[{k}]" for k in range(len(op.axis))]
            own += [f"s[{name}].op.reduce_axis[{k}]" for k in range(len(body.axes))]
            over = f"[{', '.join(dice.some(own, 50))}]"
            if dice.chance(30):
                each = [
                    f"{copy}: [{', '.join(dice.some(own, 50))}]" for copy in dice.some(made, 80)
                ]
                over = f"{{{', '.join(each)}}}"
            more = f", around=[{', '.join(dice.some(own, 50))}]" if dice.chance(40) else ""
            line = f"s[{name}].guard_by_zeros({', '.join(made)}, over={over}, finite=True{more})"
            self.attempt(line)

    def axes_of(self, stage: Stage, name: str, indices: tuple[Expr, ...]) -> list[str]:
        """Axes that indices are made of: those of the reader, or sums of them."""
        dice = self.dice
        own: dict[Any, str] = {}
        for kind in ("axis", "reduce_axis"):
            for k, axis in enumerate(getattr(stage.op, kind)):
                own[axis.var] = f"s[{name}].op.{kind}[{k}]"
        found: list[str] = []
        for index in indices:
            form = as_affine(index)
            if form.terms and all(a in own for a in form.terms) and dice.chance(40):
                found.append(" + ".join(f"{own[a]}.var * {k}" for a, k in form.terms.items()))
            else:
                found += [own[v] for v in free_vars(index) if v in own]
        found += dice.some(list(own.values()), 15)
        if found and dice.chance(15):
            k = dice.number(0, len(found) - 1)
            whole = f"te.Range.from_extent({-dice.number(0, 3)}, {dice.number(8, 24)})"
            found[k] = f"({found[k]}, {whole})"
        unique = list(dict.fromkeys(found))
        return dice.shuffled(unique) if dice.chance(50) else unique

    # -- loops ----------------------------------------------------------------------------

    def transform(self, nest: Nest) -> None:
        super().transform(nest)
        dice = self.dice
        if dice.chance(60):
            self.skew(nest)
        for k in range(len(nest.leaves)):
            if dice.chance(20):
                self.pad(nest, k)
        if dice.chance(30):
            self.split(nest, dice.number(0, len(nest.leaves) - 1))
        if dice.chance(40):
            self.reorder(nest, dice.shuffled(nest.leaves))

    def skew(self, nest: Nest) -> None:
        dice = self.dice
        data = [leaf for leaf in nest.leaves if leaf.kind == "data"]
        places = [k for k, leaf in enumerate(nest.leaves) if leaf.kind == "reduce"]
        if not data or not places:
            return
        by, k = dice.pick(data), dice.pick(places)
        made = self.text.fresh("z")
        how = self.distances()
        self.text.do(f"{made} = {nest.s}.skew({nest.leaves[k].name}, {by.name}{how})")
        relation = nest.stage.relations[-1]
        first, second = by.extent, nest.leaves[k].extent
        extent = relation.scale * (first - 1) + relation.step * (second - 1) + 1 + relation.offset
        exact = by.exact and nest.leaves[k].exact
        nest.leaves[k] = Leaf(made, "reduce", extent if first and second else 0, exact=exact)

    def pad(self, nest: Nest, k: int) -> None:
        leaf, whole = nest.leaves[k], self.dice.number(1, 5)
        made = self.text.fresh("y")
        self.text.do(f"{made} = {nest.s}.pad_to({leaf.name}, {whole})")
        nest.leaves[k] = Leaf(made, leaf.kind, -(-leaf.extent // whole) * whole, exact=leaf.exact)


class CPUWindowPlan(WindowPlan, CPUPlan):
    """For llvm."""


class GPUWindowPlan(WindowPlan, GPUPlan):
    """For sim and opencl."""
