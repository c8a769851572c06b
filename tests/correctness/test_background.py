"""What is read in the background is not written before its wait, and a barrier: in the proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.correctness.test_tile_stores import HOPPER, STORED, _tiles
from tests.support.tiles import lowered

from tilewright.ir.func import Func
from tilewright.ir.stmt import Queue, Seq, Stmt, Sync
from tilewright.ir.visit import Rewriter, Steps, statements
from tilewright.lower.pipeline import lower
from tilewright.verify import check


class _Instead(Rewriter):
    """Puts statements in the places of others."""

    def __init__(self, of: dict[Stmt, Stmt]) -> None:
        self.of = of

    def steps(self, s: Stmt) -> Steps:
        found = self.of.get(s)
        return found if found is not None else (yield from super().steps(s))


def _stores() -> Func:
    s, args = _tiles((192, 192))
    return lower(s, args, HOPPER).funcs[0]


def _products() -> Func:
    name, p, tile = STORED[0]
    return lowered(name, p, tile, HOPPER)


def _waits(func: Func, queue: str) -> list[Stmt]:
    found = (s for s in statements(func.body) if isinstance(s, Queue) and s.action == "wait")
    return [s for s in found if s.queue == queue]


def _behind(func: Func, wait: Stmt) -> Sync:
    """The first barrier behind a wait, in the order of the text."""
    found = list(statements(func.body))
    return next(s for s in found[found.index(wait) :] if isinstance(s, Sync))


def _without_waits(func: Func) -> Iterator[dict[Stmt, Stmt]]:
    for queue in ("tma_store", "wgmma"):
        for wait in _waits(func, queue):
            yield {wait: Seq(())}


def _behind_barriers(func: Func) -> Iterator[dict[Stmt, Stmt]]:
    """The wait and the barrier change places."""
    wait = _waits(func, "tma_store")[0]
    barrier = _behind(func, wait)
    yield {wait: barrier, barrier: wait}


def _of_warps(func: Func) -> Iterator[dict[Stmt, Stmt]]:
    """The barrier is one of a warp."""
    barrier = _behind(func, _waits(func, "tma_store")[0])
    yield {barrier: replace(barrier, scope="warp")}


def _too_few(func: Func) -> Iterator[dict[Stmt, Stmt]]:
    """One more group stays under way."""
    for queue in ("tma_store", "wgmma"):
        for wait in _waits(func, queue):
            assert isinstance(wait, Queue)
            yield {wait: replace(wait, pending=wait.pending + 1)}


@pytest.mark.parametrize("mutate", [_without_waits, _behind_barriers, _of_warps, _too_few])
@pytest.mark.parametrize("make", [_stores, _products])
def test_a_wait_or_barrier_that_lacks_is_seen_by_the_proof(
    make: Callable[[], Func], mutate: Callable[[Func], Iterator[dict[Stmt, Stmt]]]
) -> None:
    func = make()
    assert check(func) == []
    for change in mutate(func):
        mutant = replace(func, body=_Instead(change).stmt(func.body))
        assert "unawaited" in {f.kind for f in check(mutant)}, change
