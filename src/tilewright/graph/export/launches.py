"""Models for a GPU: where weights and values are in its memory, and what is launched on them, as
tables that a text in C goes through."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.graph.errors import ModelError
from tilewright.graph.executor import Executor
from tilewright.graph.memory import plan
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Value
from tilewright.ir.dtype import dtype
from tilewright.runtime.kernel import Kernel
from tilewright.topi.problem import TensorType

#: What kernels of OpenCL take begins at multiples of this many bytes: the most that devices ask
#: of parts of memory (CL_DEVICE_MEM_BASE_ADDR_ALIGN).
APART = 512
#: Memory of the model, in C: weights, what they are computed of, values; then inputs and outputs.
WEIGHTS, RAW, MEMORY, GIVEN = range(4)
#: Arguments that are no place in memory.
SCALAR, MAP = -1, -2


@dataclass(frozen=True)
class Argument:
    """``where`` something is, and how many bytes it is from there ``at``; or the value of a
    scalar, or the number of a map, which is ``at``. ``nbytes`` is its size."""

    where: int
    at: int
    nbytes: int

    @property
    def row(self) -> str:
        """As C has it."""
        return f"{{{self.where}, {self.at}u, {self.nbytes}u}}"


@dataclass(frozen=True)
class Call:
    """A kernel on some memory, with ``counts`` for its scalars; and on which ``stream``, which
    event it ``waits`` for and which it ``marks``, 0 where none."""

    kernel: Kernel
    places: tuple[Argument, ...]
    counts: tuple[int, ...]
    what: str
    stream: int = 0
    waits: int = 0
    marks: int = 0


@dataclass(frozen=True)
class Launch:
    """One kernel of a call, by the number of its function, with all that it takes."""

    function: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Argument, ...]
    call: Call
    shared: tuple[int, int] = (0, 0)
    waits: int = 0
    marks: int = 0


class Layout:
    """Where everything is, and the calls: ``ahead``, once, and ``steps``.

    ``weights`` has constants as the file has them: those that are ``kept`` first, then those that
    others are computed of. Workspaces of kernels are behind the values of the memory, one set a
    stream.
    """

    def __init__(self, executor: Executor, spaces: Callable[[Call], Sequence[int]]) -> None:
        self.executor, self._sizes = executor, spaces
        self._kept, self._raw = bytearray(), bytearray()
        self._at: dict[int, tuple[int, int]] = {}
        made: list[tuple[int, TensorType]] = []
        for number, found in executor.constants.items():
            if isinstance(found, TensorType):
                made.append((number, found))
            else:
                self._at[number] = WEIGHTS, _added(self._kept, found)
        self.kept = len(self._kept)
        self.weight_bytes = _apart(self.kept)
        for number, kind in made:
            self._at[number] = WEIGHTS, self.weight_bytes
            self.weight_bytes += _apart(_bytes_of(kind))
        # The plan is for lines of caches; parts of memory are further apart.
        wider = [replace(x, nbytes=_apart(x.nbytes)) for x in executor.lifetimes]
        values = plan(wider)
        self._at |= {number: (MEMORY, begin) for number, begin in values.offsets.items()}
        graph = executor.graph
        outside: list[Value] = [*graph.inputs, *map(owner, graph.outputs.values())]
        for k, x in enumerate(outside):
            self._at[executor.index[x]] = GIVEN + k, 0
        self.given = [_bytes_of(TensorType(x.shape, x.dtype)) for x in outside]
        self.ahead = [self._prepares(k) for k in range(len(executor.known.ahead))]
        self.steps = self._steps()
        self._spaces = [values.nbytes]  # where those of each stream begin, and the end
        for stream in (0, 1):
            own = (spaces(c) for c in (*self.ahead, *self.steps) if c.stream == stream)
            most = max((sum(map(_apart, sizes)) for sizes in own), default=0)
            self._spaces.append(self._spaces[-1] + most)

    @property
    def weights(self) -> bytes:
        """The file."""
        return bytes(self._kept + self._raw)

    @property
    def memory(self) -> int:
        """Bytes of values and of workspaces."""
        return self._spaces[-1]

    @property
    def events(self) -> int:
        """How many streams wait for, with those of the begin and of the end."""
        return 2 + max((c.marks for c in self.steps), default=0)

    def spaces(self, call: Call) -> list[Argument]:
        """Workspaces of a call, which those of the same stream share."""
        found, at = [], self._spaces[call.stream]
        for size in self._sizes(call):
            found.append(Argument(MEMORY, at, size))
            at += _apart(size)
        return found

    def _prepares(self, k: int) -> Call:
        ahead = self.executor.known.ahead[k]
        places = [Argument(RAW, _added(self._raw, x), x.nbytes) for x in ahead.reads]
        kinds: dict[int, TensorType] = self.executor.known.arrays
        places += [Argument(*self._at[n], _bytes_of(kinds[n])) for n in ahead.makes]
        return Call(ahead.kernel, tuple(places), (), "prepares constants")

    def _steps(self) -> list[Call]:
        beside = self.executor.branches
        marked = sorted(beside.awaited) if beside is not None else []
        event = {k: 1 + number for number, k in enumerate(marked)}
        found = []
        for k, step in enumerate(self.executor.steps):
            places = []
            for number, offset, kind in zip(step.arguments, step.offsets, step.types, strict=True):
                where, at = self._at[number]
                places.append(Argument(where, at + offset, _bytes_of(kind)))
            call = Call(step.kernel, tuple(places), step.counts, step.node.operator)
            if beside is not None:
                awaited = beside.waits[k]
                waits = 0 if awaited is None else event[awaited]
                call = replace(call, stream=beside.streams[k], waits=waits, marks=event.get(k, 0))
            found.append(call)
        return found


def in_order(launches: Sequence[Launch], call: Call) -> list[Launch]:
    """The kernels of a call, of which the first waits and the last is waited for."""
    if not launches:
        raise ModelError(f"{call.what} has no elements to compute: models for a GPU have some")
    made = list(launches)
    made[0] = replace(made[0], waits=call.waits)
    made[-1] = replace(made[-1], marks=call.marks)
    return made


def tables(
    layout: Layout, name: str, functions: Sequence[str], ahead: Sequence[Launch],
    steps: Sequence[Launch], codes: int, cuda: bool,
) -> str:  # fmt: skip
    """What the text in C goes through."""
    graph = layout.executor.graph
    launches = [*ahead, *steps]
    firsts = np.cumsum([0, *(len(x.arguments) for x in launches)])
    rows = [_row(x, int(first), cuda) for x, first in zip(launches, firsts, strict=False)]
    arguments = [x.row for launch in launches for x in launch.arguments]
    most = max(len(x.arguments) for x in launches)
    file = len(layout.weights)
    more = "unsigned shared, asked; int stream, waits, marks;" if cuda else ""
    shared = "unsigned shared;" if cuda else ""
    code = "\n".join(f"extern const char {name}_code_{k}[];" for k in range(codes))
    listed = ", ".join(f"{name}_code_{k}" for k in range(codes))
    outputs = len(graph.outputs)
    return f"""\
{code}
static const char *const codes[] = {{{listed}}};

/* Memory: weights, what some of them are computed of, values, then inputs and outputs. */
enum {{ WEIGHTS = {WEIGHTS}, RAW = {RAW}, MEMORY = {MEMORY}, GIVEN = {GIVEN} }};
enum {{ SCALAR = {SCALAR}, MAP = {MAP} }};
enum {{ CODES = {codes}, FUNCTIONS = {len(functions)}, PREPARATIONS = {len(ahead)} }};
enum {{ LAUNCHES = {len(steps)}, ARGUMENTS = {len(arguments)}, MOST_ARGUMENTS = {most} }};
enum {{ INPUTS = {len(graph.inputs)}, OUTPUTS = {outputs}, APART = {APART} }};

/* The weights are what the file begins with, and what is computed of the rest of it. */
static const size_t FILE_BYTES = {file}u, KEPT_BYTES = {layout.kept}u;
static const size_t WEIGHT_BYTES = {max(1, layout.weight_bytes)}u;
static const size_t RAW_BYTES = {max(1, file - layout.kept)}u;
static const size_t MEMORY_BYTES = {max(1, layout.memory)}u;
static const size_t given[] = {{{", ".join(f"{n}u" for n in layout.given)}}};

static const struct function {{ int code; const char *symbol; {shared} }} functions[] = {{
{_lines(functions)}
}};

/* Where something is, and the bytes before it and of it; or a scalar. */
static const struct argument {{ int where; uint64_t at; size_t bytes; }} arguments[] = {{
{_lines(arguments)}
}};

struct launch {{ int function; unsigned grid[3], block[3]; int first, count; {more} }};
static const struct launch preparations[] = {{
{_lines(rows[: len(ahead)])}
}};
static const struct launch launches[] = {{
{_lines(rows[len(ahead) :])}
}};
"""


def assembly(name: str, files: Sequence[str]) -> str:
    """Files of code as arrays of a program, each with a zero behind it."""
    lines = ["/* The code of kernels. */", ".section .rodata"]
    for k, file in enumerate(files):
        symbol = f"{name}_code_{k}"
        lines += [f".global {symbol}", ".balign 64", f"{symbol}:", f'.incbin "{file}"', ".byte 0"]
    return "\n".join([*lines, '.section .note.GNU-stack, "", %progbits', ""])


def _row(x: Launch, first: int, cuda: bool) -> str:
    sizes = f"{{{', '.join(map(str, x.grid))}}}, {{{', '.join(map(str, x.block))}}}"
    parts = [str(x.function), sizes, str(first), str(len(x.arguments))]
    if cuda:
        parts += map(str, (*x.shared, x.call.stream, x.waits, x.marks))
    return f"{{{', '.join(parts)}}} /* {x.call.what} */"


def _lines(rows: Sequence[str]) -> str:
    return ",\n".join(f"  {row}" for row in rows) or "  {0}"


def _added(to: bytearray, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> int:
    begin = len(to)
    to += array.tobytes()
    to += bytes(-len(to) % APART)
    return begin


def _apart(nbytes: int) -> int:
    return -(-nbytes // APART) * APART


def _bytes_of(kind: TensorType) -> int:
    return math.prod(kind.shape) * dtype(kind.dtype).bytes
