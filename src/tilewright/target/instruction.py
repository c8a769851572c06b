"""Instructions as declarations: what one computes, how it is written, what it asks for.

An instruction is declared once, as an element-wise store over axes and operands. The declaration
is its meaning: tensorize matches loops against it, sim and the proofs read it, and a target for
which no way of writing it is known carries it out as plain loops.

>>> fma4 = decl_instruction(
...     "doc_fma4",
...     axes=(Axis("i", 4),),
...     operands=(
...         Argument("C", ("i",), "float32", strides=(1,)),
...         Argument("A", ("i",), "float32", strides=(1,)),
...         Argument("B", (), "float32"),
...     ),
...     body=lambda c, a, b: c + a * b,
... )
>>> fma4.update
C[i] = C[i] + A[i] * B[]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.arith.affine import Affine, as_affine, of_atom
from tilewright.ir.buffer import SCOPES, Buffer
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Cast, Expr, Load, Var
from tilewright.ir.ops import add, const, mul
from tilewright.ir.stmt import Access, Instr, Stmt, Store
from tilewright.ir.visit import loads, substitute, uses
from tilewright.target.devices import compute_capability

#: Writes an instruction as text: from the operands as pointer expressions and, for each operand,
#: its stride in elements along each axis, to one statement or several. Of a fragment the second is
#: where the thread has each of its slots, in elements from the pointer, in the declared order.
Emission = Callable[[Sequence[str], Sequence[Sequence[str]]], str]

#: Writes an instruction into an llvmlite builder, from pointers and strides; a stride is an int
#: where it is known and an integer value of llvmlite where it is not.
LLVMEmission = Callable[[Any, Sequence[Any], Sequence[Sequence[Any]]], None]

#: Where an operand may lie that is not a fragment.
MEMORIES = tuple(scope for scope in SCOPES if scope != "fragment")

#: Every declared instruction by its name.
INSTRUCTIONS: dict[str, Instruction] = {}


@dataclass(frozen=True)
class Axis:
    """What an instruction iterates over, at once: a name and an extent."""

    name: str
    extent: int
    reduce: bool = False


@dataclass(frozen=True)
class Argument:
    """An operand of an instruction, as it is declared.

    Parameters
    ----------
    axes : the axis that runs along each of its dimensions.
    strides : by dimension the stride that it must have in elements, None for any.
    align : what the address of its first element must be a multiple of, in bytes.
    scopes : the memories where it may lie.
    swizzles : by how many bytes its memory may be swizzled (:mod:`tilewright.ir.swizzle`), 0 for
        not at all. Strides are those without the swizzle.
    reach : of swizzled memory, within how many bytes from where a row begins its first element must
        lie; 0 for anywhere.
    fragment : of an operand that a group of threads holds together, by dimension where each bit of
        its index goes, the lowest first: "lane N" to bit N of the thread's number in the group,
        "slot N" to bit N of the number of the thread's register.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str
    strides: tuple[int | None, ...] = ()
    align: int = 0
    scopes: tuple[str, ...] = MEMORIES
    swizzles: tuple[int, ...] = (0,)
    reach: int = 0
    fragment: tuple[tuple[str, ...], ...] = ()

    def required_stride(self, axis: str) -> int | None:
        """The stride along ``axis`` that it must have; 0 along axes that are not its own."""
        if axis not in self.axes:
            return 0
        return self.strides[self.axes.index(axis)] if self.strides else None


class Pointer(str):
    """A pointer expression; ``swizzle`` is by how many bytes what it points into is swizzled, 0
    where it is not, and the address then that without the swizzle.

    ``parts``, where there are any, are the same in two: a pointer, and how many elements lie
    between, a constant once loops are written out, or whole repetitions of the swizzle."""

    swizzle: int
    parts: tuple[str, str] | None

    def __new__(cls, text: str, swizzle: int = 0, parts: tuple[str, str] | None = None) -> Pointer:
        made = super().__new__(cls, text)
        made.swizzle, made.parts = swizzle, parts
        return made


@dataclass(frozen=True, eq=False)
class Instruction:
    """An instruction; make one with :func:`decl_instruction`."""

    name: str
    axes: tuple[Axis, ...]
    operands: tuple[Argument, ...]
    vars: tuple[Var, ...]
    buffers: tuple[Buffer, ...]
    update: Store
    emissions: Mapping[str, Emission] = field(default_factory=dict)
    llvm: LLVMEmission | None = None
    cuda_arch: int = 0
    cuda_family: str = ""
    features: frozenset[str] = frozenset()
    simulate: Callable[[Any], None] | None = None
    queue: str = ""
    tensor_map: bool = False
    windows: bool = False
    cluster: int = 1
    statement: tuple[Stmt, tuple[tuple[Buffer, tuple[int, ...]], ...]] | None = None
    overwrites: bool = False
    clears: Instruction | None = None

    def axes_of(self, operand: Argument) -> tuple[list[int], list[int]]:
        """The numbers of an operand's axes among those of the instruction, and their extents."""
        names = [axis.name for axis in self.axes]
        own = [names.index(name) for name in operand.axes]
        return own, [self.axes[k].extent for k in own]

    @property
    def group(self) -> int:
        """How many threads execute it together: 1, or as many as hold its fragments."""
        bits = {bit for o in self.operands for own in o.fragment for bit in own}
        return 1 << sum(bit.startswith("lane") for bit in bits)

    @property
    def boxed(self) -> int | None:
        """The operand of which a box is copied, by a tensor map; None of other instructions."""
        return int(self.operands[0].scopes != ("global",)) if self.tensor_map else None

    @property
    def accumulates(self) -> bool:
        """Whether it adds to what its output holds, so that this must be initialised before."""
        return any(read.buffer is self.buffers[0] for read in loads(self.update.value))

    def lacks(self, kind: str, arch: str = "", features: Collection[str] = ()) -> str:
        """Why it cannot be written for a target; empty where it can.

        ``kind`` is "cuda", "opencl", "c" or "llvm"; ``arch`` the architecture of a cuda target
        (empty: any), ``features`` what the CPU of an llvm target has, in LLVM's names.
        """
        if kind == "llvm":
            if self.llvm is None:
                return f"{self.name} has no form in LLVM IR"
            missing = sorted(self.features.difference(features))
            return f"{self.name} needs {', '.join(missing)}" if missing else ""
        if kind not in self.emissions:
            return f"{self.name} has no form in {kind}"
        if kind == "cuda" and arch and compute_capability(arch) < self.cuda_arch:
            return f"{self.name} needs sm_{self.cuda_arch}, the target is {arch}"
        if kind == "cuda" and arch and self.cuda_family not in ("", arch):
            return f"only {self.cuda_family} has {self.name}, the target is {arch}"
        return ""

    def emit(
        self, kind: str, operands: Sequence[str], strides: Sequence[Sequence[str]]
    ) -> str | None:
        """The instruction as text of a C-like language; None where its loops are to be written.

        ``operands`` are pointer expressions, the output first; ``strides[o][a]`` is the stride of
        operand ``o`` along axis ``a`` in elements, as text. :func:`views` has both.
        """
        emission = self.emissions.get(kind)
        return None if emission is None else emission(operands, strides)

    def emit_llvm(
        self, builder: Any, pointers: Sequence[Any], strides: Sequence[Sequence[Any]]
    ) -> bool:
        """Write it at the end of ``builder``'s block; False where its loops are to be written.

        ``pointers`` are pointers of llvmlite; strides are integers, or integer values of llvmlite
        where they are symbolic. The builder may stand in another block afterwards.
        """
        if self.llvm is None:
            return False
        self.llvm(builder, pointers, strides)
        return True

    def __repr__(self) -> str:
        return f"Instruction({self.name!r})"


def decl_instruction(
    name: str,
    axes: Sequence[Axis],
    operands: Sequence[Argument],
    body: Callable[..., Expr],
    *,
    emissions: Mapping[str, Emission] | None = None,
    llvm: LLVMEmission | None = None,
    cuda_arch: int = 0,
    cuda_family: str = "",
    features: Collection[str] = (),
    simulate: Callable[[Any], None] | None = None,
    queue: str = "",
    tensor_map: bool = False,
    windows: bool = False,
    cluster: int = 1,
    statement: tuple[Stmt, tuple[tuple[Buffer, tuple[int, ...]], ...]] | None = None,
    overwrites: bool = False,
    clears: Instruction | None = None,
) -> Instruction:
    """Declare an instruction.

    Parameters
    ----------
    name : unique among the instructions.
    axes : what it iterates over, in the order in which strides are given to its emissions.
    operands : the output first.
    body : from the elements of the operands, in order, to the value that the output's element
        takes. It accumulates where it uses the output.
    emissions : by kind of language ("cuda", "opencl", "c") how it is written.
    llvm : how it is written through llvmlite.
    cuda_arch : the least compute capability, as 61 for 6.1.
    cuda_family : of one that later architectures dropped, the only one that has it, as "sm_90a".
    features : what a CPU must have, in LLVM's names.
    simulate : what it does in target "sim", from an
        :class:`~tilewright.runtime.sim.instruction.InstructionView`; by default its loops.
    queue : of one that goes on after it was issued, the name of the queue
        (:data:`tilewright.target.queues.QUEUES`) on which its end is waited for.
    tensor_map : of one that copies a box of a tensor, to shared memory with zeros where it is
        outside, or from there without what is outside, by a map that the
        host makes of it: in place of the second operand's pointer its emission gets that of the
        map, and in place of its strides where the box begins, the outermost dimension first.
    windows : of such a one, whether the box is of windows (:mod:`tilewright.target.windows`).
    cluster : of such a one, how many neighbouring blocks have the same box, which one of them
        copies to all.
    statement : what carries it out on every target but "sim", in place of emissions: a statement
        of buffers of its own, and by operand that buffer and which dimensions of it the operand's
        are. Strides of the buffers that are variables take the value of the operand's.
    overwrites : whether that writes the output without reading it, so that a reduction has to
        stand in it as a whole.
    clears : the instruction that fills its output with zeros before the first of them.

    Raises :class:`LanguageError` where the name is taken, an operand has an axis that is not
    declared, or the body's type is not that of the output.
    """
    if name in INSTRUCTIONS:
        raise LanguageError(f"an instruction {name!r} is declared already")
    variables = {axis.name: Var.make(axis.name) for axis in axes}
    extents = {axis.name: const(axis.extent) for axis in axes}
    buffers = []
    elements = []
    for operand in operands:
        unknown = [a for a in operand.axes if a not in variables]
        if unknown or (operand.strides and len(operand.strides) != len(operand.axes)):
            raise LanguageError(
                f"instruction {name!r}: operand {operand.name!r} has axes {operand.axes} with "
                f"strides {operand.strides}; the axes are {tuple(variables)}"
            )
        shape = tuple(extents[a] for a in operand.axes)
        buffers.append(Buffer(operand.name, shape, dtype(operand.dtype), align=operand.align))
        elements.append(Load(buffers[-1], tuple(variables[a] for a in operand.axes), None))
    value = body(*elements)
    if value.dtype != buffers[0].dtype:
        raise LanguageError(
            f"instruction {name!r}: the body is of {value.dtype}, its output of {buffers[0].dtype}"
        )
    made = Instruction(
        name,
        tuple(axes),
        tuple(operands),
        tuple(variables.values()),
        tuple(buffers),
        Store(buffers[0], elements[0].indices, value),
        dict(emissions or {}),
        llvm,
        cuda_arch,
        cuda_family,
        frozenset(features),
        simulate,
        queue,
        tensor_map,
        windows,
        cluster,
        statement,
        overwrites,
        clears,
    )
    INSTRUCTIONS[name] = made
    return made


@dataclass(frozen=True)
class View:
    """An operand as an instruction sees it: its first element, and its strides along the axes."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    strides: tuple[Expr, ...]


def views(instr: Instr) -> list[View]:
    """The operands of an instruction in a program, in the order in which it emits them.

    >>> from tilewright.ir.ops import const
    >>> i, x = Var.make("i"), Var.make("x")
    >>> A = Buffer("A", (const(8), const(32)), dtype("float32"))
    >>> views(Instr(None, (i,), (Access(A, (i, x * 4)),), Store(A, (i, x), const(0.0))))
    [View(buffer=A[float32 8, 32; global], indices=(0, x * 4), strides=(32,))]
    """
    from tilewright.arith import Analyzer

    found = []
    analyzer = Analyzer()
    first = {axis: const(0, axis.dtype) for axis in instr.axes}
    for operand in instr.operands:
        start = tuple(analyzer.simplify(substitute(i, first)) for i in operand.indices)
        strides = stride_along(operand, instr.axes)
        if strides is None:
            raise ValueError(f"an operand of {instr.instruction} is not affine in its axes")
        found.append(View(operand.buffer, start, strides))
    return found


def stride_along(operand: Access, axes: Sequence[Var]) -> tuple[Expr, ...] | None:
    """The strides of ``operand`` in elements along ``axes``, None where one is not constant.

    Of swizzled memory they are those without the swizzle.
    """
    parts = list(zip(operand.indices, operand.buffer.strides, strict=True))
    found = _strides(parts, axes)
    if found is None:  # one axis may be made up of several indices, whose sum is affine again
        from tilewright.arith import Analyzer

        layout = operand.buffer.layout
        plain = None if layout is None else replace(layout, swizzle=None)
        offset = (plain or operand.buffer).offset(operand.indices)
        whole = Analyzer().simplify(offset)
        found = _strides([(whole, const(1))], axes)
    return found


def _strides(parts: Sequence[tuple[Expr, Expr]], axes: Sequence[Var]) -> tuple[Expr, ...] | None:
    totals: list[Expr] = [const(0) for _ in axes]
    wanted = set(axes)
    for index, stride in parts:
        form = as_affine(index, through_widening)
        for atom in form.terms:
            if not isinstance(atom, Var) and uses(atom, wanted):
                return None
        for position, axis in enumerate(axes):
            factor = form.coefficient(axis)
            if factor:
                totals[position] = add(totals[position], mul(stride, factor))
    return tuple(totals)


def through_widening(e: Expr) -> Affine:
    """The affine form of what is in the same integer in a wider type, for ``as_affine``."""
    match e:
        case Cast(t, value) if t.is_int and value.dtype.is_int and t.bits >= value.dtype.bits:
            return as_affine(value, through_widening)
    return of_atom(e)
