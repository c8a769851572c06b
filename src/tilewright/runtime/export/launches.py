"""Programs for a GPU: where weights and values are in its memory, and what is launched on them, as
tables that a text in C goes through."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir.errors import TargetError
from tilewright.runtime.export.work import Step, Work, bytes_of, digest
from tilewright.runtime.kernel import Kernel

#: What lies in a block of a GPU's memory begins at multiples of this many bytes.
_APART = 256
#: Arguments that are no place in memory.
SCALAR, MAP = -1, -2
#: What blocks are for: weights, which clones share; what is read once; values and workspaces.
SHARED, ONCE, OWN = range(3)


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
    """A kernel on some memory, as a step has it, or one that prepares constants."""

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


@dataclass
class Block:
    """Memory of the device, for whatever use: its bytes, of which the first ``filled`` are those of
    the file behind ``begin``."""

    use: int
    nbytes: int = 0
    begin: int = 0
    filled: int = 0

    def add(self, nbytes: int) -> int:
        """Make it larger by these bytes, which begin at what is returned."""
        begin, self.nbytes = self.nbytes, self.nbytes + -(-nbytes // _APART) * _APART
        return begin

    @property
    def row(self) -> str:
        """As C has it."""
        return f"{{{self.use}, {max(1, self.nbytes)}u, {self.begin}u, {self.filled}u}}"


class Layout:
    """Where everything is, and the calls: ``ahead``, once, and ``steps`` of each batch.

    Inputs and outputs are the first blocks, of as many bytes as the batch with most has; of each,
    ``given`` has the bytes. ``weights`` is the content of the file, which batches share, as they do
    what is prepared of the same. With ``apart``, whatever kernels take is a block of its own, as
    memory objects have no addresses inside, and values take turns in them. Else there is one for
    each use: values are where the plan has them, workspaces of each stream behind them.
    """

    def __init__(
        self, works: Sequence[Work], spaces: Callable[[Call], Sequence[int]], apart: bool
    ) -> None:
        self.works, self._sizes = works, spaces
        self.given = [[bytes_of(x.kind) for x in work.arrays] for work in works]
        self.blocks = [Block(OWN, max(sizes)) for sizes in zip(*self.given, strict=True)]
        self._pools = {} if apart else {u: self._block(u) for u in (SHARED, ONCE, OWN)}
        self._file = bytearray()
        self._known: dict[tuple[int, bytes], tuple[int, int]] = {}
        self._prepared: dict[Any, list[tuple[int, int]]] = {}
        self.ahead: list[Call] = []
        places = [self._constants(work) for work in works]
        if apart:
            sizes = itertools.zip_longest(*(work.slots[1] for work in works), fillvalue=0)
            numbers = [self._block(OWN, max(each)) for each in sizes]
        else:
            own, begin = self._place(OWN, max(work.nbytes for work in works))
        for work, at in zip(works, places, strict=True):
            at |= {x.number: (k, 0) for k, x in enumerate(work.arrays)}
            if apart:
                at |= {k: (numbers[turn], 0) for k, turn in enumerate(work.slots[0])}
            else:
                at |= {k: (own, begin + offset) for k, offset in work.offsets.items()}
        self.steps = [[_call(s, at) for s in w.steps] for w, at in zip(works, places, strict=True)]
        self._spaces = self._workspaces()

    @property
    def weights(self) -> bytes:
        """The content of the file."""
        return bytes(self._file)

    @property
    def events(self) -> int:
        """How many streams wait for, with those of the begin and of the end."""
        return 2 + max((c.marks for c in itertools.chain(*self.steps)), default=0)

    def spaces(self, call: Call) -> list[Argument]:
        """Workspaces of a call, which those of the same stream share."""
        sizes = enumerate(self._sizes(call))
        return [Argument(*self._spaces[call.stream, k], size) for k, size in sizes]

    def _block(self, use: int, nbytes: int = 0) -> int:
        self.blocks.append(Block(use, nbytes))
        return len(self.blocks) - 1

    def _place(self, use: int, nbytes: int) -> tuple[int, int]:
        """A block with room for these bytes, and where they begin in it."""
        where = self._pools[use] if self._pools else self._block(use)
        return where, self.blocks[where].add(nbytes)

    def _constants(self, work: Work) -> dict[int, tuple[int, int]]:
        """Where constants of a batch are, those that are prepared too."""
        made = {n: x for n, x in work.constants.items() if isinstance(x, tuple)}
        found = {n: self._constant(SHARED, x) for n, x in work.constants.items() if n not in made}
        for a in work.ahead:
            reads = [Argument(*self._constant(ONCE, x), x.nbytes) for x in a.reads]
            key = (a.kernel, *reads)
            if key not in self._prepared:
                places = [self._place(SHARED, bytes_of(made[n])) for n in a.makes]
                own = [
                    Argument(*p, bytes_of(made[n])) for p, n in zip(places, a.makes, strict=True)
                ]
                self._prepared[key] = places
                self.ahead.append(Call(a.kernel, (*reads, *own), (), "prepares"))
            found |= dict(zip(a.makes, self._prepared[key], strict=True))
        return found

    def _constant(self, use: int, array: Any) -> tuple[int, int]:
        data = array.tobytes()
        key = use, digest(data)
        if key in self._known:
            return self._known[key]
        where, at = self._known[key] = self._place(use, array.nbytes)
        block = self.blocks[where]
        if not block.filled:
            block.begin = len(self._file)
        self._file += bytes(block.begin + at - len(self._file)) + data
        block.filled = len(self._file) - block.begin
        return where, at

    def _workspaces(self) -> dict[tuple[int, int], tuple[int, int]]:
        """By stream, and position among the workspaces of a call."""
        most: dict[tuple[int, int], int] = {}
        for call in itertools.chain(self.ahead, *self.steps):
            for k, size in enumerate(self._sizes(call)):
                most[call.stream, k] = max(most.get((call.stream, k), 0), size)
        return {key: self._place(OWN, size) for key, size in most.items()}


def _call(step: Step, at: Mapping[int, tuple[int, int]]) -> Call:
    takes = zip(step.arguments, step.offsets, step.kinds, strict=True)
    places = [Argument(at[k][0], at[k][1] + offset, bytes_of(kind)) for k, offset, kind in takes]
    return Call(
        step.kernel, tuple(places), step.counts, step.what, step.stream, step.waits, step.marks
    )


def in_order(calls: Sequence[Call], of: Callable[[Call], list[Launch]]) -> list[Launch]:
    """The kernels ``of`` calls, of which the first waits and the last is waited for."""
    found: list[Launch] = []
    for call in calls:
        made = of(call)
        if not made:
            raise TargetError(f"{call.what} has no elements to compute: a GPU needs some")
        made[0] = replace(made[0], waits=call.waits)
        made[-1] = replace(made[-1], marks=call.marks)
        found += made
    return found


def tables(
    layout: Layout, name: str, functions: Collection[str], of: Callable[[Call], list[Launch]],
    codes: Collection[Any], cuda: bool,
) -> str:  # fmt: skip
    """What the text in C goes through: the kernels ``of`` calls, whose ``functions`` and ``codes``
    are known when they are."""
    ahead, steps = in_order(layout.ahead, of), [in_order(own, of) for own in layout.steps]
    work, count = layout.works[0], len(codes)
    launches = [*ahead, *itertools.chain(*steps)]
    firsts = itertools.accumulate((len(x.arguments) for x in launches), initial=0)
    rows = [_row(x, first, cuda) for x, first in zip(launches, firsts, strict=False)]
    arguments = [x.row for launch in launches for x in launch.arguments]
    most = max(len(x.arguments) for x in launches)
    more = " unsigned shared, asked; int stream, waits, marks;" if cuda else ""
    shared = " unsigned shared;" if cuda else ""
    code = "\n".join(f"extern const char {name}_code_{k}[];" for k in range(count))
    listed = _lines([f"{name}_code_{k}" for k in range(count)])
    each = itertools.accumulate(map(len, steps), initial=0)
    sizes = (f"{{{', '.join(f'{n}u' for n in own)}}}" for own in layout.given)
    return f"""\
{code}
static const char *const codes[] = {{
{listed}
}};

enum {{ CODES = {count}, FUNCTIONS = {len(functions)}, PREPARATIONS = {len(ahead)} }};
enum {{ LAUNCHES = {len(launches) - len(ahead)}, BLOCKS = {len(layout.blocks)} }};
enum {{ ARGUMENTS = {len(arguments)}, MOST_ARGUMENTS = {most} }};
enum {{ INPUTS = {len(work.inputs)}, OUTPUTS = {len(work.outputs)} }};

/* Memory on the device: inputs, outputs, and blocks that clones share (weights), that are needed
   once (what weights are computed of), and of each model's own (values). Those of the file begin
   with some bytes of it. */
enum {{ SHARED = {SHARED}, ONCE = {ONCE}, OWN = {OWN} }};
static const size_t FILE_BYTES = {len(layout.weights)}u;
static const size_t given[BATCHES][INPUTS + OUTPUTS] = {{{", ".join(sizes)}}};
static const struct block {{ int use; size_t bytes, begin, filled; }} blocks[] = {{
{_lines([x.row for x in layout.blocks])}
}};

static const struct function {{ int code; const char *symbol;{shared} }} functions[] = {{
{_lines([*functions])}
}};

/* The block that something is in, the bytes before it, and its own; or a scalar or a map. */
enum {{ SCALAR = {SCALAR}, MAP = {MAP} }};
static const struct argument {{ int where; uint64_t at; size_t bytes; }} arguments[] = {{
{_lines(arguments)}
}};

struct launch {{ int function; unsigned grid[3], block[3]; int first, count;{more} }};
static const struct launch preparations[] = {{
{_lines(rows[: len(ahead)])}
}};
static const struct launch launches[] = {{
{_lines(rows[len(ahead) :])}
}};
/* The first launch of each batch, and the end. */
static const int firsts[BATCHES + 1] = {{{", ".join(map(str, each))}}};
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
