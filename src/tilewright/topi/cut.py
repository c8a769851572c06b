"""Declarations whose stages are cut into tiles: those of schedules for which the language has no
declaration without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tilewright.te import Tensor
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.nn.images import Images

CutT = TypeVar("CutT")
StagesT = TypeVar("StagesT")


@dataclass(frozen=True)
class CutDeclaration(Declaration, Generic[CutT, StagesT]):
    """A problem as ``stages``, cut as ``cut`` says."""

    cut: CutT
    stages: StagesT


def declare_images(
    cut: Any,
    make: Callable[[Any, Tensor, Tensor], Any],
    batch: Any = None,
    element: Callable[..., Any] = lambda cut, total, n, c, h, w: total[n, c, h, w],
) -> CutDeclaration[Any, Any]:
    """The program of ``cut.problem``, whose result is images, from the stages that ``make`` makes
    of a cut and both operands. ``element`` says, of the cut and their ``sum``, which of its
    elements is one of the result's; ``batch`` as in :func:`~tilewright.topi.declare.declare`."""
    p = cut.problem
    inputs = placeholders(p, batch)
    image, filter = list(inputs.values())[:2]
    made = make(cut, image, filter)
    sums = Images(p.layout).compute(
        image.shape[0], p.result_channels, cut.result,
        lambda n, c, at: element(cut, made.sum, n, c, *at), "Sums",
    )  # fmt: skip
    result = finished(p, sums, inputs)
    return CutDeclaration(p, inputs, result, made.sum, None, None, cut, made)


def declare_sums(
    cut: Any, make: Callable[[Any, Tensor, Tensor], Any], batch: Any = None
) -> CutDeclaration[Any, Any]:
    """The same of a result that is the ``sums`` of these stages."""
    inputs = placeholders(cut.problem, batch)
    made = make(cut, *list(inputs.values())[:2])
    result = finished(cut.problem, made.sums, inputs)
    return CutDeclaration(cut.problem, inputs, result, made.sums, None, None, cut, made)
