"""What sim has to say: findings by statement and thread, and figures that a GPU hides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilewright.ir.errors import TilewrightError

Index = tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """A thread at a statement; ``thread`` and ``block`` are (x, y, z)."""

    thread: Index
    block: Index
    statement: str

    def __str__(self) -> str:
        return f"thread {self.thread} of block {self.block} at `{self.statement}`"


@dataclass
class Finding:
    """One way in which a program is wrong, at its first occurrence.

    Parameters
    ----------
    kind : "out of bounds", "uninitialised read", "race", "race between blocks",
        "divergent barrier", "divergent shuffle", "divergent reduction", "divergent instruction",
        "foreign register" (of another thread), "unfinished instruction", "unfenced access"
        or "unwritten output".
    kernel : the name of the function.
    place : the thread and the statement that it was at.
    buffer : the buffer's name, "" where there is none.
    index : the logical index of the element.
    detail : what happened, in a sentence without its subject.
    other : the second thread: of a race, or one that never arrives at a barrier.
    count : how many times it was seen, over all threads and iterations.
    """

    kind: str
    kernel: str
    place: Place | None
    buffer: str
    index: Index
    detail: str
    other: Place | None = None
    count: int = 1

    def __str__(self) -> str:
        where = f" {self.place}:" if self.place else ""
        text = f"{self.kind} in kernel {self.kernel!r}:{where} {self.detail}"
        if self.other is not None:
            text += f" {self.other}"
        return text + (f" ({self.count} times)" if self.count > 1 else "")


class SimulationError(TilewrightError):
    """A kernel that a GPU may run to a wrong result, or not to its end.

    ``findings`` holds all of them; the message the first few.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = list(findings)
        shown = [str(f) for f in self.findings[:4]]
        more = len(self.findings) - len(shown)
        text = "the simulation found " + (
            "a defect: " if len(self.findings) == 1 else f"{len(self.findings)} defects:\n- "
        )
        text += "\n- ".join(shown) + (f"\n- and {more} more" if more else "")
        text += "\nKernel.simulate(...) returns the whole report instead of raising it."
        super().__init__(text)


@dataclass
class AccessCost:
    """What one access of a statement cost over a run.

    Parameters
    ----------
    access : the load or store as text; ``store`` tells which.
    scope : the memory.
    elements : elements moved; ``bytes`` in bytes.
    requests : warp-wide instructions.
    transactions : for shared memory the passes over its banks, for global memory 32-byte sectors.
    ideal : transactions if no bank had a conflict, or every sector were used in full.
    worst : shared: the highest number of passes that one request's conflicts forced; global: the
        most sectors of one request.
    """

    kernel: str
    statement: str
    access: str
    buffer: str
    scope: str
    store: bool
    elements: int = 0
    bytes: int = 0
    requests: int = 0
    transactions: int = 0
    ideal: int = 0
    worst: int = 0

    @property
    def degree(self) -> float:
        """Shared memory: passes over the banks for each one needed; 1.0 is free of conflicts."""
        return self.transactions / self.ideal if self.ideal else 1.0

    @property
    def sectors(self) -> float:
        """Global memory: sectors a request."""
        return self.transactions / self.requests if self.requests else 0.0

    @property
    def efficiency(self) -> float:
        """The part of what is transferred that the warp asked for, 0 to 1."""
        return self.ideal / self.transactions if self.transactions else 1.0


@dataclass
class Branch:
    """How often the threads of a warp disagreed at a condition or a loop's bounds."""

    kernel: str
    statement: str
    divergent: int = 0
    warps: int = 0


@dataclass
class Traffic:
    """Accesses to one kind of memory by all threads, in elements and bytes."""

    loads: int = 0
    stores: int = 0
    bytes_loaded: int = 0
    bytes_stored: int = 0


@dataclass
class SimReport:
    """Findings and figures of one run.

    ``flops`` counts floating-point operations a lane (an fma two); ``barriers`` holds, by kernel,
    the block barriers that all blocks together passed, and ``blocks`` the number of blocks.
    """

    findings: list[Finding] = field(default_factory=list)
    accesses: list[AccessCost] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    traffic: dict[str, Traffic] = field(default_factory=dict)
    barriers: dict[str, int] = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=dict)
    flops: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; slow is not wrong."""
        return not self.findings

    def check(self) -> None:
        """Raise :class:`SimulationError` where there are findings."""
        if self.findings:
            raise SimulationError(self.findings)

    def conflicts(self) -> list[AccessCost]:
        """Accesses to shared memory with bank conflicts, the worst first."""
        found = [a for a in self.accesses if a.scope == "shared" and a.transactions > a.ideal]
        return sorted(found, key=lambda a: a.ideal - a.transactions)

    def uncoalesced(self) -> list[AccessCost]:
        """Accesses to global memory that transfer more sectors than they use, the worst first."""
        found = [a for a in self.accesses if a.scope == "global" and a.transactions > a.ideal]
        return sorted(found, key=lambda a: a.ideal - a.transactions)

    def __str__(self) -> str:
        lines = [f"{len(self.findings)} findings"] if self.findings else ["no findings"]
        lines += [f"  {finding}" for finding in self.findings]
        lines += self._by_statement()
        for title, rows in (("divergence", self._divergence()), ("totals", self._totals())):
            if len(rows) > 1:
                lines += ["", title, *_table(rows)]
        return "\n".join(lines)

    def _by_statement(self) -> list[str]:
        """Every statement that costs something, and under it what each of its accesses costs."""
        statements: dict[tuple[str, str], list[AccessCost]] = {}
        for a in self.accesses:
            statements.setdefault((a.kernel, a.statement), []).append(a)
        rows = [
            [_access(a), a.scope, f"{a.requests} requests", f"{a.bytes} bytes", _verdict(a)]
            for accesses in statements.values()
            for a in accesses
        ]
        table = iter(_table(rows))
        lines: list[str] = []
        kernel = ""
        for (name, statement), accesses in statements.items():
            if name != kernel:
                kernel = name
                lines += ["", f"kernel {kernel}"]
            lines.append(f"  {statement}")
            lines += [f"    {next(table)}" for _ in accesses]
        return lines

    def _divergence(self) -> list[list[str]]:
        rows = [["kernel", "statement", "divergent warps", "of"]]
        for b in self.branches:
            if b.divergent:
                rows.append([b.kernel, b.statement, f"{b.divergent}", f"{b.warps}"])
        return rows

    def _totals(self) -> list[list[str]]:
        rows = [["", "loads", "stores", "bytes loaded", "bytes stored"]]
        for scope, t in self.traffic.items():
            counts = (t.loads, t.stores, t.bytes_loaded, t.bytes_stored)
            rows.append([scope, *map(str, counts)])
        for kernel, blocks in self.blocks.items():
            passed = self.barriers.get(kernel, 0)
            each = f"{passed / blocks:g} barriers a block" if blocks else ""
            rows.append([kernel, f"{blocks} blocks", each, "", ""])
        rows.append(["flops", str(self.flops), "", "", ""])
        return rows


def _access(a: AccessCost) -> str:
    return f"{'store' if a.store else 'load'} {a.access}"


def _verdict(a: AccessCost) -> str:
    if a.scope == "shared":
        return f"conflict degree {a.degree:.2f}, at worst {a.worst}"
    ideal = a.ideal / a.requests if a.requests else 0
    return f"{a.sectors:.2f} sectors a request for {ideal:.2f} ({a.efficiency:.0%} used)"


def _table(rows: list[list[str]], limit: int = 60) -> list[str]:
    """Rows with their cells in columns."""
    short = [
        [cell if len(cell) <= limit else cell[: limit - 3] + "..." for cell in r] for r in rows
    ]
    widths = [max(map(len, column)) for column in zip(*short, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in short
    ]
