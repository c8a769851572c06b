"""One function becomes the kernels of a module: each top-level nest, with its threads hoisted.

Every loop over a hardware axis, however deep, becomes the launch's axis of that tag, and its
variable the index of the thread (plus the loop's minimum). Where loops of one tag differ in
extent, the launch takes the largest and the others are guarded.

>>> from tilewright.ir import Buffer, dtype
>>> from tilewright.ir.expr import Var
>>> from tilewright.ir.ops import const
>>> from tilewright.ir.stmt import For, ForKind, Store
>>> A, B = (Buffer(n, (const(64),), dtype("float32")) for n in "AB")
>>> i, j = Var.make("i_outer"), Var.make("i_inner")
>>> store = Store(B, (i * 16 + j,), A[i * 16 + j] + 1.0)
>>> inner = For(j, const(0), const(16), ForKind.THREAD, store, "threadIdx.x")
>>> nest = For(i, const(0), const(4), ForKind.THREAD, inner, "blockIdx.x")
>>> from tilewright.target import Target
>>> split_kernels(Func("main", (A, B), nest, target=Target.parse("sim")))
def main_kernel(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    blockIdx_x = T.launch_thread('blockIdx.x', 4)
    threadIdx_x = T.launch_thread('threadIdx.x', 16)
    B[blockIdx_x * 16 + threadIdx_x] = A[blockIdx_x * 16 + threadIdx_x] + T.float32(1)

It stands before what reasons about a block of threads (memory planning, barriers), and after what
rewrites loops, which need not know that some of them are threads. For a CPU there is one kernel;
only the buffers between its stages leave it, as workspaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.arith import Analyzer
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.func import Func, LaunchAxis, Module
from tilewright.ir.ops import add, const, maximum, sub
from tilewright.ir.stmt import (
    Allocate,
    AllReduce,
    For,
    ForKind,
    Instr,
    Let,
    Pragma,
    Produce,
    Remark,
    Seq,
    Stmt,
    Store,
    seq,
    with_body,
)
from tilewright.ir.visit import (
    Rewriter,
    Steps,
    allocated,
    children,
    distinct,
    free_vars,
    run,
    statements,
)
from tilewright.lower.loops.guard import guarded

#: The order of the axes of a launch.
TAGS = tuple(f"{level}Idx.{axis}" for level in ("block", "thread") for axis in "zyx")


def split_kernels(func: Func) -> Module:
    """The kernels of ``func`` in the order of their launch.

    Raises :class:`LoweringError` where, on a GPU, a top-level nest has no thread axis, the extent
    of one depends on an index inside the kernel, or a buffer on chip would have to live from one
    kernel to the next; and where, on a CPU, an axis is bound to a thread of a GPU.
    """
    nests, workspaces = top_level(func.body)
    target = func.target
    if not target.is_gpu:
        _reject_threads(func.body, target.kind)
        body = _Without(workspaces).stmt(func.body)
        params = parameters(func.params, workspaces, body)
        kernel = Func(func.name, params, body, target=target)
        return Module(func.name, func.params, (kernel,), workspaces, target)
    _reject_shared_between(nests)
    kernels = []
    for number, nest in enumerate(nests):
        name = f"{func.name}_kernel" + (f"_{number}" if number else "")
        launch, body = _hoist(nest)
        params = parameters(func.params, workspaces, body, launch)
        kernels.append(Func(name, params, body, launch, target))
    return Module(func.name, func.params, tuple(kernels), workspaces, target)


@dataclass(frozen=True)
class Nest:
    """A top-level statement, the stages it computes, and what stood around it."""

    body: Stmt
    stages: tuple[str, ...] = ()
    around: tuple[Stmt, ...] = ()  # Allocate, Let and remarks, the outermost first

    def statement(self) -> Stmt:
        """The nest with what stood around it, as far as it uses it."""
        made = self.body
        used = set(buffers_of(made))
        for outer in reversed(self.around):
            match outer:
                case Allocate(buffer, _) if buffer in used:
                    made = Allocate(buffer, made)
                case Let(var, value, _) if var in free_vars(made):
                    made = Let(var, value, made)
                    used.update(buffers_of(value))
                case Remark():
                    made = with_body(outer, made)
        return made

    @property
    def title(self) -> str:
        """What to call it in an error."""
        if self.stages:
            return "stage " + ", ".join(map(repr, self.stages))
        return "the stage of " + ", ".join(
            sorted({repr(s.buffer.name) for s in statements(self.body) if isinstance(s, Store)})
        )


def top_level(body: Stmt) -> tuple[list[Nest], tuple[Buffer, ...]]:
    """The nests at the top of a program, in order, and what is allocated around them."""
    nests: list[Nest] = []
    workspaces: list[Buffer] = []

    stages: tuple[str, ...]
    around: tuple[Stmt, ...]
    waiting: list[tuple[Stmt, tuple[str, ...], tuple[Stmt, ...]]] = [(body, (), ())]
    while waiting:
        s, stages, around = waiting.pop()
        match s:
            case Seq(stmts):
                waiting += [(child, stages, around) for child in reversed(stmts)]
            case Allocate(buffer, inner) if buffer.scope == "global":
                workspaces.append(buffer)
                waiting.append((inner, stages, around))
            case Produce(stage, inner):
                waiting.append((inner, (*stages, stage), (*around, s)))
            case Allocate() if stages:  # of a stage that is computed inside of this one
                nests.append(Nest(s, stages[-1:], around))
            case Allocate(_, inner) | Remark(body=inner) | Let(_, _, inner):
                waiting.append((inner, stages, (*around, s)))
            case _:
                nests.append(Nest(s, stages[-1:], around))
    return nests, tuple(workspaces)


class _Without(Rewriter):
    """Takes out the allocations of ``workspaces`` around the nests of a program."""

    def __init__(self, workspaces: tuple[Buffer, ...]) -> None:
        self.workspaces = frozenset(workspaces)

    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        match s:
            case Seq(stmts):
                made = []
                for x in stmts:
                    made.append((yield self.steps(x)))
                return seq(*made)
            case Allocate(buffer, inner) if buffer in self.workspaces:
                return (yield self.steps(inner))
            case Allocate() | Remark() | Let():
                return (yield from super().steps(s))
        return s


def _reject_threads(body: Stmt, kind: str) -> None:
    for node in statements(body):
        if isinstance(node, For) and node.kind is ForKind.THREAD:
            raise LoweringError(
                f"axis {node.var.name!r} is bound to {node.tag}, which target {kind!r} does not "
                "have: use parallel() and vectorize() on a CPU, or build for cuda, opencl or sim"
            )


def _reject_shared_between(nests: list[Nest]) -> None:
    user: dict[Buffer, Nest] = {}
    for nest in nests:
        for buffer in dict.fromkeys(buffers_of(nest.body)):
            if buffer.scope == "global":
                continue
            first = user.setdefault(buffer, nest)
            if first is not nest:
                raise LoweringError(
                    f"buffer {buffer.name!r} is in {buffer.scope} memory, which lasts for one "
                    f"kernel, but two use it: {first.title} and {nest.title}. Compute it inside "
                    "its consumer with compute_at(), or keep it in global memory"
                )


def _hoist(nest: Nest) -> tuple[tuple[LaunchAxis, ...], Stmt]:
    body = nest.statement()
    _reject_global_inside(nest, body)
    sizes = _extents(nest, body)
    extents: dict[str, Expr] = {}
    for loop, size in sizes.items():
        known = extents.get(loop.tag)
        extents[loop.tag] = size if known is None else maximum(known, size)
    if not extents:
        raise LoweringError(
            f"{nest.title} binds no axis to threads, so a GPU cannot run it: bind an axis of it "
            "with bind(axis, te.thread_axis('blockIdx.x')) or 'threadIdx.x', or compute it inside "
            "another stage with compute_inline() or compute_at()"
        )
    order = [tag for tag in TAGS if tag in extents] + [tag for tag in extents if tag not in TAGS]
    launch = tuple(LaunchAxis(t, Var.make(t.replace(".", "_")), extents[t]) for t in order)
    return launch, _Hoisting({axis.tag: axis for axis in launch}, sizes).stmt(body)


def _extents(nest: Nest, body: Stmt) -> dict[For, Expr]:
    """The extent of each thread loop, in terms of what the host knows."""
    found: dict[For, Expr] = {}
    analyzer = Analyzer()
    inside: list[Var] = []

    def visit(s: Stmt) -> Steps:
        match s:
            case For(var, low, extent, kind, inner, _, _):
                if kind is ForKind.THREAD:
                    found[s] = _outer_extent(nest, s, inside, analyzer)
                inside.append(var)
                with analyzer.scope():
                    analyzer.bind(var, low, extent)
                    yield visit(inner)
                inside.pop()
            case Let(var, value, inner):
                inside.append(var)
                with analyzer.scope():
                    analyzer.define(var, value)
                    yield visit(inner)
                inside.pop()
            case _:
                for child in children(s):
                    if isinstance(child, Stmt):
                        yield visit(child)

    run(visit(body))
    return found


def _outer_extent(nest: Nest, loop: For, inside: list[Var], analyzer: Analyzer) -> Expr:
    """The extent of ``loop`` as the host can know it: at most its bound, where it varies."""
    extent = analyzer.simplify(loop.extent)
    if not set(free_vars(extent)).intersection(inside):
        return extent
    most = analyzer.bounds(extent).hi
    if most is None:
        names = ", ".join(sorted({v.name for v in free_vars(extent) if v in inside}))
        raise LoweringError(
            f"axis {loop.var.name!r} of {nest.title} is bound to {loop.tag} but its extent "
            f"{extent} varies with {names} inside the kernel, without a constant bound: split it "
            "by a constant factor and bind the inner axis"
        )
    return const(most)


class _Hoisting(Rewriter):
    """Takes thread loops out: their variables become the indices of the launch."""

    def __init__(self, launch: Mapping[str, LaunchAxis], sizes: Mapping[For, Expr]) -> None:
        self.launch, self.sizes = launch, sizes
        self.bound: set[Var] = set()
        self.indices: dict[Expr, Expr] = {}
        self.axes: dict[Expr, Var] = {}

    def expr(self, e: Expr) -> Expr:
        if isinstance(e, Var):
            return self.indices.get(e, e)
        return super().expr(e)

    def steps(self, s: Stmt) -> Steps:
        if isinstance(s, (For, Let)):
            self.bound.add(s.var)
        match s:
            case For(var, low, extent, ForKind.THREAD, body, tag, _):
                axis = self.launch[tag]
                low, extent = self.expr(low), self.expr(extent)
                first = (
                    sub(sub(extent, axis.var), 1)
                    if s.pragma(Pragma.DESCENDING, False)
                    else axis.var
                )
                self.indices[var] = add(first, low)
                self.axes[var] = axis.var
                inner = yield self.steps(body)
                constant = not set(free_vars(s.extent)).intersection(self.bound)
                if constant and axis.extent is self.sizes[s]:
                    return inner
                return guarded(axis.var < extent, inner)
            case AllReduce():
                # An axis of the reduction is the thread's index, also where its loop began later.
                axes = tuple(self.axes.get(a, a) for a in s.axes)
                made = yield from super().steps(replace(s, axes=()))
                assert isinstance(made, AllReduce)
                return replace(made, axes=axes)
        return (yield from super().steps(s))


def parameters(
    given: Sequence[Buffer | Var],
    workspaces: Sequence[Buffer],
    body: Stmt,
    launch: tuple[LaunchAxis, ...] = (),
) -> tuple[Buffer | Var, ...]:
    """Those of a kernel, among what a module is ``given``, its workspaces, and variables."""
    used = dict.fromkeys(buffers_of(body))
    kept = [p for p in given if isinstance(p, Buffer) and p in used]
    kept += [b for b in workspaces if b in used]
    wanted: dict[Var, None] = {}
    for buffer in dict.fromkeys((*used, *allocated(body))):
        layout = buffer.layout
        extra = (*layout.strides, layout.base) if layout else ()
        for e in (*buffer.shape, *extra):
            wanted.update(dict.fromkeys(free_vars(e)))
    wanted.update(dict.fromkeys(free_vars(body)))
    for axis in launch:
        wanted.update(dict.fromkeys(free_vars(axis.extent)))
    indices = {axis.var for axis in launch}
    first = [p for p in given if isinstance(p, Var) and p in wanted]
    scalars = dict.fromkeys([*first, *(v for v in wanted if v not in indices)])
    return (*kept, *scalars)


def _reject_global_inside(nest: Nest, body: Stmt) -> None:
    for node in statements(body):
        if isinstance(node, Allocate) and node.buffer.scope == "global":
            raise LoweringError(
                f"buffer {node.buffer.name!r} is in global memory but allocated inside of "
                f"{nest.title}, where each thread would need its own: set_scope('shared') or "
                "set_scope('local'), or compute it at the root"
            )


def buffers_of(node: Stmt | Expr) -> Iterator[Buffer]:
    """The buffers that are read or written in ``node``, as often as they are."""
    for n in distinct(node):
        match n:
            case Load(buffer, _, _) | Store(buffer, _, _, _):
                yield buffer
            case AllReduce(_, buffers, _, _, _, _, _):
                yield from buffers
            case Instr(_, _, operands, _):
                yield from (operand.buffer for operand in operands)
