"""Schedules drawn at random: what every target has in common.

Choices are made so that most schedules are legal; what the compiler still refuses is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.drawing import Dice, Text
from tests.support.graphs import Graph

from tilewright.ir.expr import IntImm, Reduce
from tilewright.schedule import Stage
from tilewright.te import ComputeOp, PlaceholderOp


@dataclass
class Leaf:
    """A loop of a stage: its name in the text, its kind, about how many iterations it has."""

    name: str
    kind: str  # "data" or "reduce"
    extent: int  # an upper bound; 0 where it is symbolic
    mark: str = ""  # how it is carried out, a thread's tag where it is bound to one
    exact: bool = True  # wherever the stage is computed
    thread: str = ""  # the thread axis in the text


@dataclass
class Nest:
    """A stage of the schedule with its loops as they stand."""

    tensor: str  # any output, by which the text speaks of the stage
    tensors: tuple[str, ...]
    stage: Stage
    leaves: list[Leaf] = field(default_factory=list)
    at: tuple[Nest, int] | None = None
    inline: bool = False
    scope: str = ""
    children: list[tuple[Nest, int]] = field(default_factory=list)

    @property
    def s(self) -> str:
        return f"s[{self.tensor}]"

    @property
    def reduces(self) -> bool:
        op = self.stage.op
        return isinstance(op, ComputeOp) and isinstance(op.body[0], Reduce)

    def ancestors(self) -> list[tuple[Nest, int]]:
        """Where it stands: the nests around it and the leaf of each that it is inside of."""
        found, at = [], self.at
        while at is not None:
            found.append(at)
            at = at[0].at
        return found

    @property
    def root(self) -> Nest:
        around = self.ancestors()
        return around[-1][0] if around else self

    def around(self) -> list[Leaf]:
        """The loops that it is inside of, the innermost first."""
        return [leaf for nest, k in self.ancestors() for leaf in reversed(nest.leaves[: k + 1])]


class Plan:
    """A schedule of ``graph`` being drawn; subclasses say which loops run how."""

    memories: tuple[str, ...] = ("global", "local")
    #: Whether verify has to prove it: not where threads were chosen without a care.
    promised = True
    #: Of a hundred stages that may be computed inside of another, how many are.
    attached = 65

    def __init__(self, graph: Graph, dice: Dice) -> None:
        self.graph, self.dice = graph, dice
        self.text = Text(graph.text)
        ops = ", ".join(f"{name}.op" for name in graph.outputs)
        self.text.do(f"s = te.create_schedule([{ops}])")
        self.s = self.text["s"]
        self.tensors: dict[Any, str] = {}  # buffers to names
        for known in (*graph.inputs, *graph.made):
            self.tensors[self.text[known.name].buffer] = known.name
        self.nests: list[Nest] = []

    def draw(self) -> None:
        """Write the schedule."""
        self.caches()
        for stage in self.s.stages:
            if not isinstance(stage.op, PlaceholderOp):
                names = tuple(self.tensors[t.buffer] for t in stage.op.outputs)
                self.nests.append(Nest(names[0], names, stage))
        for nest in self.nests:
            if self._may_inline(nest) and self.dice.chance(25):
                self.text.do(f"{nest.s}.compute_inline()")
                nest.inline = True
        for nest in reversed(self.nests):
            if not nest.inline:
                self.transform(nest)
                self.attach(nest)
                self.place(nest)
        for nest in self.nests:
            if not nest.inline:
                self.marks(nest)

    def place(self, nest: Nest) -> None:
        """Choose memory and threads, once it is known where the stage is computed."""

    def marks(self, nest: Nest) -> None:
        """Say how the loops are carried out."""

    # -- new stages -----------------------------------------------------------------------

    def caches(self) -> None:
        """Copies in other memories, and reductions in two steps."""
        dice = self.dice
        for stage in list(self.s.stages):
            names = [self.tensors[t.buffer] for t in stage.op.outputs]
            if isinstance(stage.op, ComputeOp) and dice.chance(12):
                self.rfactor(stage, names)
            if isinstance(stage.op, ComputeOp) and dice.chance(20):
                made = [self.text.fresh("L") for _ in names]
                listed = f"[{', '.join(names)}]" if len(names) > 1 else names[0]
                memory = dice.pick(self.memories)
                self.text.do(f'{", ".join(made)} = s.cache_write({listed}, "{memory}")')
                for name in made:
                    self.tensors[self.text[name].buffer] = name
                if dice.chance(20):
                    self.rfactor(self.s[self.text[made[0]]], made)
            for name in names:
                readers = self.s.consumers(self.s[self.text[name]])
                reading = [
                    r
                    for r in readers
                    if any(t.buffer is self.text[name].buffer for t in r.op.inputs)
                ]
                if reading and dice.chance(15):
                    self.cache_read(name, reading)

    def cache_read(self, name: str, readers: list[Stage]) -> None:
        chosen = self.dice.some(readers, 70) or readers[:1]
        listed = ", ".join(self.tensors[r.op.outputs[0].buffer] for r in chosen)
        made = self.text.fresh("R")
        memory = self.dice.pick(self.memories)
        self.text.do(f'{made} = s.cache_read({name}, "{memory}", [{listed}])')
        self.tensors[self.text[made].buffer] = made
        if self.dice.chance(8):  # a copy of the copy
            self.cache_read(made, chosen)

    def rfactor(self, stage: Stage, names: list[str]) -> None:
        if not isinstance(stage.op.body[0], Reduce):
            return
        dice, s = self.dice, f"s[{names[0]}]"
        axes = len(stage.op.reduce_axis)
        name = f"{s}.op.reduce_axis[{dice.number(0, axes - 1)}]"
        if dice.chance(60):
            outer, inner = self.text.fresh("o"), self.text.fresh("i")
            how = dice.pick(("factor", "nparts"))
            self.text.do(f"{outer}, {inner} = {s}.split({name}, {how}={dice.number(2, 4)})")
            name = dice.pick((outer, inner))
        made = [self.text.fresh("F") for _ in names]
        place = dice.number(0, len(stage.op.axis)) if dice.chance(30) else 0
        more = f", {place}" if place else ""
        self.text.do(f"{', '.join(made)} = s.rfactor({names[0]}, {name}{more})")
        for name in made:
            self.tensors[self.text[name].buffer] = name

    def _may_inline(self, nest: Nest) -> bool:
        stage = nest.stage
        return (
            len(nest.tensors) == 1
            and not nest.reduces
            and stage.op not in self.s.outputs
            and not nest.inline
        )

    # -- loops ----------------------------------------------------------------------------

    def transform(self, nest: Nest) -> None:
        """Split, fuse and reorder the loops of a stage."""
        op, dice = nest.stage.op, self.dice
        self._axes(nest, "data", op.axis, "op.axis")
        if not nest.leaves or dice.chance(1):
            self.single(nest)
        self._axes(nest, "reduce", op.reduce_axis, "op.reduce_axis")
        for _ in range(dice.pick((0, 1, 1, 2, 2, 3, 4))):
            match dice.number(0, 5):
                case 0 | 1 | 2:
                    self.split(nest, dice.number(0, len(nest.leaves) - 1))
                case 3:
                    self.fuse(nest)
                case 4:
                    self.reorder(nest, dice.shuffled(nest.leaves))
                case 5:
                    self.tile(nest)

    def single(self, nest: Nest) -> None:
        """A loop of one iteration outside of all others."""
        made = self.text.fresh("y")
        self.text.do(f"{made} = {nest.s}.fuse()")
        nest.leaves.insert(0, Leaf(made, "data", 1))

    def _axes(self, nest: Nest, kind: str, axes: Any, where: str) -> None:
        names = [self.text.fresh("y" if kind == "data" else "z") for _ in axes]
        if not names:
            return
        comma = "," if len(names) == 1 else ""
        self.text.do(f"{', '.join(names)}{comma} = {nest.s}.{where}")
        for name, axis in zip(names, axes):
            found = axis.dom.extent
            extent = found.value if isinstance(found, IntImm) else 0
            nest.leaves.append(Leaf(name, kind, extent, exact=kind == "reduce"))

    def split(self, nest: Nest, k: int, factor: int = 0) -> None:
        leaf, dice = nest.leaves[k], self.dice
        outer, inner = self.text.fresh("y"), self.text.fresh("y")
        count = factor or dice.number(1, 7)
        # A count of parts of a symbolic extent is no affine form, which nothing is proved about.
        parts = not factor and leaf.extent > 0 and dice.chance(25)
        how = "nparts" if parts else "factor"
        self.text.do(f"{outer}, {inner} = {nest.s}.split({leaf.name}, {how}={count})")
        rest = -(-leaf.extent // count)
        first, second = (count, rest) if parts else (rest, count)
        nest.leaves[k : k + 1] = [
            Leaf(outer, leaf.kind, first, exact=parts),
            Leaf(inner, leaf.kind, second, exact=not parts),
        ]

    def fuse(self, nest: Nest) -> None:
        pairs = [
            k
            for k in range(len(nest.leaves) - 1)
            if nest.leaves[k].kind == nest.leaves[k + 1].kind
            and nest.leaves[k + 1].extent > 0  # a product of symbols is no affine form
        ]
        if pairs:
            self.fuse_at(nest, self.dice.pick(pairs))

    def fuse_at(self, nest: Nest, k: int) -> None:
        a, b = nest.leaves[k : k + 2]
        made = self.text.fresh("y")
        self.text.do(f"{made} = {nest.s}.fuse({a.name}, {b.name})")
        nest.leaves[k : k + 2] = [Leaf(made, a.kind, a.extent * b.extent, exact=a.exact & b.exact)]

    def reorder(self, nest: Nest, order: list[Leaf]) -> None:
        if order != nest.leaves:
            self.text.do(f"{nest.s}.reorder({', '.join(leaf.name for leaf in order)})")
            nest.leaves = order

    def tile(self, nest: Nest) -> None:
        data = [leaf for leaf in nest.leaves if leaf.kind == "data"]
        if len(data) < 2:
            return
        a, b = data[-2:]
        fa, fb = self.dice.number(1, 4), self.dice.number(1, 4)
        names = [self.text.fresh("y") for _ in range(4)]
        self.text.do(f"{', '.join(names)} = {nest.s}.tile({a.name}, {b.name}, {fa}, {fb})")
        made = [
            Leaf(names[0], "data", -(-a.extent // fa)),
            Leaf(names[1], "data", -(-b.extent // fb)),
            Leaf(names[2], "data", fa),
            Leaf(names[3], "data", fb),
        ]
        # a.outer, a.inner, ..., b.outer, b.inner with the four dealt out again
        order: list[Leaf] = []
        fresh = iter(made)
        for leaf in nest.leaves:
            order += [next(fresh), next(fresh)] if leaf in (a, b) else [leaf]
        nest.leaves = order

    # -- where ----------------------------------------------------------------------------

    def readers(self, nest: Nest) -> list[Nest]:
        """The nests that read it, by way of inlined ones too."""
        found: list[Nest] = []
        for stage in self.s.consumers(nest.stage):
            reader = next(n for n in self.nests if n.stage is stage)
            found += self.readers(reader) if reader.inline else [reader]
        return list({id(n): n for n in found}.values())

    def places(self, nest: Nest) -> list[tuple[Nest, int]]:
        """The loops that all readers are inside of."""
        common: list[tuple[Nest, int]] | None = None
        for reader in self.readers(nest):
            inside = [(reader, k) for k in range(len(reader.leaves))]
            inside += [(n, j) for n, k in reader.ancestors() for j in range(k + 1)]
            common = inside if common is None else [p for p in common if p in inside]
        return common or []

    def attach(self, nest: Nest) -> None:
        if nest.stage.op in self.s.outputs:
            return
        places = [p for p in self.places(nest) if self.may_attach(nest, *p)]
        if not places or not self.dice.chance(self.attached):
            return
        parent, k = self.dice.pick(places)
        self.text.do(f"{nest.s}.compute_at({parent.s}, {parent.leaves[k].name})")
        nest.at = (parent, k)
        parent.children.append((nest, k))

    def may_attach(self, nest: Nest, parent: Nest, k: int) -> bool:
        return True

    # -- remarks that every target takes ----------------------------------------------------

    def storage(self, nest: Nest) -> None:
        """Alignments, double buffers."""
        dice = self.dice
        axes = len(nest.stage.op.axis)
        if nest.stage.op in self.s.outputs or not axes:
            return
        if dice.chance(8):
            axis = f"{nest.s}.op.axis[{dice.number(0, axes - 1)}]"
            factor = dice.pick((2, 4, 8, 3))
            offset = dice.number(0, factor - 1)
            self.text.do(f"{nest.s}.storage_align({axis}, {factor}, {offset})")
        if nest.at is not None and dice.chance(8):
            axis = f"{nest.s}.op.axis[{dice.number(0, axes - 1)}]"
            factor = dice.pick((2, 4, 3))
            offset = dice.number(0, factor - 1) if dice.chance(30) else 0
            more = f", {offset}" if offset else ""
            self.text.do(f"{nest.s}.align_bounds({axis}, {factor}{more})")
        if nest.at is not None and dice.chance(8):
            self.text.do(f"{nest.s}.double_buffer()")

    def mark(self, nest: Nest, leaf: Leaf, how: str) -> None:
        self.text.do(f"{nest.s}.{how}({leaf.name})")
        leaf.mark = how

    def holds(self, nest: Nest, leaf: Leaf) -> bool:
        """Whether another stage is computed inside the loop."""
        at = nest.leaves.index(leaf)
        return any(k >= at for _, k in nest.children)

    def prefetch(self, nest: Nest, leaf: Leaf) -> None:
        attached = {name for other in self.nests if other.at for name in other.tensors}
        inputs = [self.tensors[t.buffer] for t in nest.stage.op.inputs]
        outside = [name for name in inputs if name not in attached]
        if outside:
            ahead = self.dice.number(1, 2)
            self.text.do(f"{nest.s}.prefetch({self.dice.pick(outside)}, {leaf.name}, {ahead})")

    def unroll_and_pragma(self, nest: Nest) -> None:
        dice = self.dice
        for leaf in nest.leaves:
            if dice.chance(3):
                self.prefetch(nest, leaf)
            if leaf.mark or leaf.extent == 0:
                continue
            if leaf.extent <= 6 and dice.chance(12):
                self.mark(nest, leaf, "unroll")
            elif dice.chance(5):
                key, value = dice.pick(
                    (("auto_unroll_max_step", 16), ("unroll_explicit", True), ("trim", False),
                     ("partition", False), ("stream_stores", True))
                )  # fmt: skip
                self.text.do(f'{nest.s}.pragma({leaf.name}, "{key}", {value})')


class CPUPlan(Plan):
    """A schedule for llvm."""

    def place(self, nest: Nest) -> None:
        if nest.at is not None and self.dice.chance(25):
            nest.scope = self.dice.pick(("local", "shared", "global"))
            self.text.do(f'{nest.s}.set_scope("{nest.scope}")')
        self.storage(nest)

    def marks(self, nest: Nest) -> None:
        dice = self.dice
        data = [leaf for leaf in nest.leaves if leaf.kind == "data"]
        most = 96 if dice.chance(15) else 16
        fits = [leaf for leaf in data if 0 < leaf.extent <= most]
        if fits and dice.chance(45):
            leaf = fits[-1] if dice.chance(75) else dice.pick(fits)
            if not self.holds(nest, leaf) or dice.chance(10):
                self.mark(nest, leaf, "vectorize")
        free = [leaf for leaf in data if not leaf.mark]
        if free and dice.chance(30 if nest.at is None else 6):
            self.mark(nest, free[0] if dice.chance(80) else dice.pick(free), "parallel")
        self.unroll_and_pragma(nest)
