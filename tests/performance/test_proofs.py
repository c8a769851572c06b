"""Programs like the articles' are proved by propagation alone, without the help of isl."""

from __future__ import annotations

import pytest
from examples.article_000 import SharedTile, schedule_shared
from tests.support.layers import Program, lines, scheduled, strips

from tilewright import te
from tilewright.arith import system
from tilewright.lower.pipeline import lower
from tilewright.schedule import Schedule
from tilewright.verify import check


def shared(output: te.Tensor) -> Schedule:
    return schedule_shared(output, SharedTile(32, 32, 8, 8, 2, 2))


@pytest.mark.parametrize(
    ("program", "target"),
    [(scheduled(shared), "sim"), (strips, "sim"), (lines, "llvm")],
    ids=["shared", "strips", "lines"],
)
@pytest.mark.parametrize(("channels", "size", "k"), [(256, 96, 3), (144, 37, 5), ("n", 20, 3)])
def test_without_isl(
    program: Program,
    target: str,
    channels: int | str,
    size: int,
    k: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("isl was asked")

    module = lower(*program(channels, size, k), target)
    monkeypatch.setattr(system, "sample", refuse)
    assert [finding for func in module.funcs for finding in check(func)] == []
