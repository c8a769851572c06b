"""Programs with extents at and over 2^31, lowered and proved but not run.

What is checked instead: every loop, grid and block has exactly the extent that the schedule gives
it in Python's integers, and at the ends of their loops no expression leaves its type and no access
its buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.drawing import Dice
from tests.support.drawn_programs import Outcome
from tests.support.gpu_plans import GPUPlan
from tests.support.graph_stages import axes_of
from tests.support.graphs import Axis, Graph, Term
from tests.support.interpreter import BadAccess, Env, Interpreter, Threads
from tests.support.plans import CPUPlan, Nest, Plan

from tilewright.ir import Buffer, Func
from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.dtype import int_range
from tilewright.ir.errors import LoweringError, ScheduleError, VerificationError
from tilewright.ir.visit import walk
from tilewright.lower.pipeline import lower
from tilewright.verify import verify

TARGETS = ("llvm", "sim", "opencl", "cuda -arch=sm_90a")
LARGE = (2**31 - 1, 2**31, 2**31 + 5, 2**32, 2**33 + 7)
MIDDLE = (46341, 65536, 70000, 40000, 2**16 + 1, 2**20)


def _extents(dice: Dice) -> list[int]:
    """Of one to three axes, whose product is at and over 2^31 and below 2^62."""
    match dice.number(0, 3):
        case 0:
            made = [dice.pick(LARGE)]
        case 1:
            made = [dice.pick(MIDDLE), dice.pick(MIDDLE)]
        case 2:
            made = [dice.pick(LARGE), dice.number(1, 9)]
        case _:
            made = [dice.pick(MIDDLE), dice.number(1, 70), dice.pick(MIDDLE)]
    return dice.shuffled(made)


def _mapped(g: Graph) -> None:
    """A function of every element of a tensor, of another one's, or of neither."""
    dice = g.dice
    shape = _extents(dice)
    axes = axes_of(shape)
    if dice.chance(60):
        indices = [a.name for a in axes]
        t = g.placeholder(shape, "int8")
    else:
        a, size = dice.pick(axes), dice.pick((7, 1000, 2**31 + 9))
        t = g.placeholder((size,), "int8")
        indices = [f"({a.name} + {dice.number(0, 3)}) {dice.pick(('%', '% 5 +  0 *'))} {size}"]
    g.compute(axes, Term(f'{g.read(t, indices).text} + te.const(1, "int8")', "int8", -3, 5))


def _reduced(g: Graph) -> None:
    """A sum over large axes."""
    extents = _extents(g.dice)
    names = []
    for extent in extents:
        names.append(g.text.fresh("r"))
        g.text.do(f'{names[-1]} = te.reduce_axis((0, {extent}), "{names[-1]}")')
    reads = [g.read(g.placeholder((e,), "int8"), [r]).text for r, e in zip(names, extents)]
    text = f"te.sum(({' + '.join(reads)}).astype('int64'), axis=[{', '.join(names)}])"
    g.compute([Axis("i", g.dice.number(1, 3))], Term(text, "int64", -(2**60), 2**60))


class _AtRoot(Plan):
    """Every stage in loops of its own, whose extents the plan so knows exactly."""

    def caches(self) -> None:
        pass

    def attach(self, nest: Nest) -> None:
        pass


class _WideCPU(_AtRoot, CPUPlan):
    pass


class _WideGPU(_AtRoot, GPUPlan):
    pass


class Wide:
    """A large declaration and a schedule of it."""

    def __init__(self, dice: Dice) -> None:
        self.graph = Graph(dice)
        dice.pick((_mapped, _mapped, _reduced))(self.graph)
        self.graph.outputs = [t.name for t in self.graph.made]
        self.target = dice.pick(TARGETS)
        self.plan = (_WideCPU if self.target == "llvm" else _WideGPU)(self.graph, dice)
        self.dice, self.refusal = dice, ""
        try:
            self.plan.draw()
        except ScheduleError as error:
            self.refusal = str(error)

    def outcome(self) -> Outcome:
        if self.refusal:
            return Outcome("refused", self.refusal)
        names = [*(k.name for k in self.graph.inputs), *self.graph.outputs]
        known = {leaf.extent for nest in self.plan.nests for leaf in nest.leaves} | {1}
        wrong: list[str] = []

        def loops(name: str, program: Any) -> None:
            if name == "loops":
                wrong.extend(_unknown(program, known))

        try:
            args = [self.plan.text[name] for name in names]
            module = lower(self.plan.s, args, self.target, trace=loops)
        except (LoweringError, ScheduleError) as error:
            return Outcome("refused", str(error))
        if wrong:
            return Outcome("wrong", wrong[0])
        try:
            for func in module.funcs:
                verify(func)
        except VerificationError as error:
            limits = "threads" in str(error) or "blocks" in str(error) or "grid" in str(error)
            return Outcome("rejected" if limits else "doubted", str(error))
        try:
            for func in module.funcs:
                for _ in range(12):
                    Corner(self.dice).visit(func)
        except BadAccess as error:
            return Outcome("missed", str(error))
        return Outcome("right")

    def __repr__(self) -> str:
        return f"# {self.target}\n{self.plan.text}"


def _unknown(program: Func, known: set[int]) -> Iterator[str]:
    """Loops of an extent that the schedule gives to none."""
    for node in walk(program.body):
        if isinstance(node, S.For) and isinstance(node.extent, E.IntImm):
            if node.extent.value not in known:
                yield f"loop {node.var} has {node.extent} iterations, of {sorted(known)}"


class Corner(Interpreter):
    """One iteration of every loop, the first, the last or one between, in the machine's types."""

    def __init__(self, dice: Dice) -> None:
        super().__init__()
        self.dice = dice

    def visit(self, func: Func) -> None:
        env: Env = {}
        for p in func.params:
            if isinstance(p, Buffer):
                self.allocate(p, env, {})
        body = func.body
        for axis in reversed(func.launch):
            zero = E.IntImm(axis.var.dtype, 0)
            body = S.For(axis.var, zero, axis.extent, S.ForKind.SERIAL, body, "")
        for _ in self.run(body, env, {}):
            pass

    def value(self, e: E.Expr, env: Env, threads: Threads, lane: int = 0) -> Any:
        if isinstance(e, E.Call) and e.name == "shuffle_xor":  # it is alone, and gets its own
            return self.value(e.args[0], env, threads, lane)
        found = super().value(e, env, threads, lane)
        exact = found
        if isinstance(e, E.Cast) and e.value.dtype.is_int:
            exact = self.value(e.value, env, threads, lane)
        if e.dtype.is_int and isinstance(e, (E.Binary, E.Cast)):
            low, high = int_range(e.dtype.element)
            if found != exact or not low <= exact <= high:
                raise BadAccess(f"{e} is {exact}, which {e.dtype} does not hold")
        return found

    def read(self, buffer: Buffer, index: tuple[int, ...], threads: Threads) -> Any:
        self.place(buffer, index, threads)
        return 1

    def allocate(self, buffer: Buffer, env: Env, threads: Threads) -> None:
        self.shapes[buffer] = tuple(self.value(n, env, threads) for n in buffer.shape)

    def run(self, s: S.Stmt, env: Env, threads: Threads) -> Iterator[None]:
        match s:
            case S.For(var, low, extent, _, body, _):
                start, count = self.value(low, env, threads), self.value(extent, env, threads)
                last = int_range(var.dtype)[1]
                if start + count > last + 1:
                    raise BadAccess(f"loop {var} of {var.dtype} has {count} iterations")
                if count > 0:
                    at = self.dice.pick((0, count - 1, count // 2, min(1, count - 1)))
                    yield from self.run(body, {**env, var: start + at}, threads)
            case S.Store(buffer, indices, value, predicate):
                for lane in range(max([value.dtype.lanes, *(i.dtype.lanes for i in indices)])):
                    if predicate is None or self.value(predicate, env, threads, lane):
                        at = tuple(self.value(i, env, threads, lane) for i in indices)
                        self.place(buffer, at, threads)
                        self.value(value, env, threads, lane)
            case S.AllReduce():
                for e in s.source:
                    self.value(e, env, threads)
            case _:
                yield from super().run(s, env, threads)
