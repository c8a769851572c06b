"""What is measured, what came out, and why something failed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.target import Target
from tilewright.tune.config import ConfigEntity

if TYPE_CHECKING:
    from tilewright.tune.task import Task


class MeasureErrorNo(IntEnum):
    """Why a candidate has no time; the numbers are AutoTVM's."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1  # the template or the lowering refused it
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3  # the device's compiler refused it, or the process died over it
    RUNTIME_DEVICE = 4  # it failed or crashed while it ran
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


@dataclass(frozen=True)
class MeasureInput:
    """A candidate: a configuration of a task."""

    task: Task
    config: ConfigEntity

    @property
    def target(self) -> Target:
        return self.task.target


@dataclass(frozen=True)
class MeasureResult:
    """What came of a candidate.

    Attributes
    ----------
    costs : seconds a run, one of each repetition; empty where it failed.
    error_no : 0 where it is fast or slow but right.
    reason : why it failed, in words.
    all_cost : seconds that building and measuring took.
    timestamp : when, in seconds since 1970.
    extra : what else was found: "features" of the loops, "device".
    """

    costs: tuple[float, ...]
    error_no: MeasureErrorNo = MeasureErrorNo.NO_ERROR
    reason: str = ""
    all_cost: float = 0.0
    timestamp: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def ok(self) -> bool:
        return self.error_no == MeasureErrorNo.NO_ERROR and bool(self.costs)

    @property
    def cost(self) -> float:
        """The median of ``costs`` in seconds, infinite for a candidate that failed."""
        return statistics.median(self.costs) if self.ok else math.inf


class Measurer(Protocol):
    """Measures candidates somewhere: in processes of this machine, on a cluster, in a table."""

    @property
    def device(self) -> Device:
        """What the times are of."""

    @property
    def parallel(self) -> int:
        """How many candidates keep it busy: a tuner proposes a few times as many at once."""

    def measure(self, inputs: Sequence[MeasureInput]) -> Iterator[tuple[int, MeasureResult]]:
        """Results as they come, each with the position of its input.

        A candidate that fails is a result; an exception means that nothing can be measured.
        """

    def close(self) -> None:
        """End its processes."""


@dataclass(frozen=True)
class Device:
    """What a time is of: a device with its driver, under one version of this package."""

    name: str
    driver: str
    version: str
