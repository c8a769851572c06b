"""Equal expressions are one object, also where several threads make them at once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, Var

T = TypeVar("T")


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def made_by_two(make: Callable[[int], T]) -> list[list[T]]:
    found: list[list[T]] = [[], []]
    begin = threading.Barrier(2)

    def make_all(own: list[T]) -> None:
        begin.wait()
        for k in range(1, 60):
            own.append(make(k))

    threads = [threading.Thread(target=make_all, args=(own,)) for own in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.usefixtures("hasty")
def test_equal_expressions_of_two_threads_are_one_object() -> None:
    for _ in range(200):
        x = Var.make("x", "int32")

        def make(k: int, x: Var = x) -> Expr:
            _ = x * k  # forgotten at once, while the other thread makes it
            return x + k

        one, other = made_by_two(make)
        assert len(one) == 59
        assert all(a is b for a, b in zip(one, other, strict=True))
        assert all(x + k is one[k - 1] for k in range(1, 60))


@pytest.mark.usefixtures("hasty")
def test_types_of_two_threads_are_one_object() -> None:
    for n in range(100):
        one, other = made_by_two(lambda k, n=n: dtype(f"int16x{1000 + 60 * n + k}"))
        assert len(one) == 59
        assert all(a is b for a, b in zip(one, other, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.usefixtures("hasty")
def test_a_forked_process_makes_and_forgets_expressions_while_another_thread_did() -> None:
    x, done = Var.make("x", "int32"), threading.Event()

    def make() -> None:
        while not done.is_set():
            _ = x + 1

    beside = threading.Thread(target=make)
    beside.start()
    try:
        for _ in range(20):
            child = os.fork()
            if not child:
                _ = x + 1
                os._exit(0 if x + 2 is x + 2 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        beside.join()
