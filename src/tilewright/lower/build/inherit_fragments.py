"""Fragments that no instruction uses are held as those that they are computed from or into.

A stage that works on a fragment element by element, as one that takes its elements apart for an
instruction, or adds up what several of them made, leaves each element with the thread that has it.
Of every statement outside of instructions, the loops that choose threads of one fragment choose
them of the other too:

>>> from tilewright.lower.ir_builder import axes, buffer, loop, store
>>> i, j = axes("i j")
>>> C, D = (buffer(n, 16, 8, scope="fragment") for n in "CD")
>>> bits = {(0, 0): 2, (0, 1): 3, (0, 2): 4, (0, 3): None, (1, 0): None, (1, 1): 0, (1, 2): 1}
>>> add = loop(i, 16, loop(j, 8, store(D[i, j], D[i, j] + C[i, j])))
>>> inherited(add, {C: Held(bits)})[D].bits == bits
True

What has one element for many of the other, as the sums of rows have, is held by all threads that
hold a part of these, alike.

Part of :mod:`~tilewright.lower.build.tensorize`. That each thread then touches its own elements
only is for :mod:`~tilewright.lower.build.distribute` to prove.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.arith.affine import as_affine
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, IntImm
from tilewright.ir.stmt import For, Instr, Stmt, Store
from tilewright.ir.visit import children, loads
from tilewright.target.fragments import Held, Place


@dataclass(frozen=True)
class _Together:
    """Accesses to fragments in one statement; variables of the loops around it, with their bits."""

    accesses: tuple[tuple[Buffer, tuple[Expr, ...]], ...]
    bits: tuple[tuple[Expr, int], ...]


def inherited(body: Stmt, known: Mapping[Buffer, Held]) -> dict[Buffer, Held]:
    """``known``, and how the other fragments in ``body`` are held where it follows from these.

    What tells most of a fragment comes first: parts of sums of rows that threads have are used with
    sums of rows as well, which say nothing of the threads of a row.
    """
    found = dict(known)
    used = list(_together(body, ()))
    while True:
        told: dict[Buffer, Held] = {}
        most = 0
        for one in used:
            for buffer, indices in one.accesses:
                for other, at in one.accesses:
                    if buffer in found or other not in found:
                        continue
                    held = _carried(one.bits, other, at, found[other], buffer, indices)
                    count = sum(bit is not None for bit in held.bits.values())
                    if held.bits and count > most:
                        told, most = {}, count
                    if held.bits and count == most:
                        told.setdefault(buffer, held)
        if not told:
            return found
        found |= told


def _together(s: Stmt, bits: tuple[tuple[Expr, int], ...]) -> Iterator[_Together]:
    match s:
        case Instr():
            return
        case Store(buffer, indices):
            accesses = [(buffer, indices), *((x.buffer, x.indices) for x in loads(s))]
            held = tuple(dict.fromkeys(a for a in accesses if a[0].scope == "fragment"))
            if len(held) > 1:
                yield _Together(held, bits)
            return
        case For(var, _, IntImm(_, extent)):
            bits = (*bits, *((var, b) for b in range((extent - 1).bit_length())))
    for child in children(s):
        if isinstance(child, Stmt):
            yield from _together(child, bits)


def _carried(
    bits: tuple[tuple[Expr, int], ...],
    one: Buffer,
    at: tuple[Expr, ...],
    held: Held,
    other: Buffer,
    indices: tuple[Expr, ...],
) -> Held:
    """How ``other`` is held if ``one`` is ``held``, bit by bit of the loops."""
    places: dict[Place, Place] = {}
    for var, b in bits:
        here, there = _place(at, var, b), _place(indices, var, b)
        if here is not None and there is not None:
            places.setdefault(here, there)
    found = {places[p]: bit for p, bit in held.bits.items() if p in places}
    packed = [(p, places[p]) for p in held.packed if p in places]
    # Every second element of a row shares no register with the next one: where a bit that counts
    # them becomes another bit, elements lie as whoever fills the fragment has them.
    steps = any(here[1] != there[1] for here, there in packed)
    same = one.dtype.bytes == other.dtype.bytes and not steps
    return Held(found, tuple(there for _, there in packed) if same else (), held.lanes)


def _place(indices: tuple[Expr, ...], var: Expr, bit: int) -> Place | None:
    """The bit of an index that a bit of a loop's variable is; None where it is not just one."""
    steps = [(d, as_affine(i).coefficient(var) << bit) for d, i in enumerate(indices)]
    moved = [(d, step) for d, step in steps if step]
    if len(moved) != 1 or moved[0][1] < 0 or moved[0][1] & (moved[0][1] - 1):
        return None
    return moved[0][0], moved[0][1].bit_length() - 1
