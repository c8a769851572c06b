"""What a schedule with parameters says of itself: what it is for, and what is worth trying."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.ir.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.target.target import Target, compute_capability
from tilewright.topi.cpu import candidates as cpu
from tilewright.topi.declare import Declaration, declare
from tilewright.topi.opencl import candidates as opencl
from tilewright.topi.parameters import needed, too_small
from tilewright.topi.problem import Problem


@dataclass(frozen=True)
class Template:
    """A schedule with parameters.

    Attributes
    ----------
    name : as it stands in records.
    config : the dataclass of its parameters; all of them are integers.
    schedule : the schedule of a declaration with given parameters.
    passes, channels_last, gpu : what it is for.
    kinds : the kinds of target that it is for, where that is not every kind of GPU or CPU.
    shared : whether threads share memory, which some OpenCL devices only emulate.
    where : what else a problem must be.
    arch : the one CUDA architecture that it is for, where that is not every one.
    least : the least compute capability that it is for, as 80 for 8.0.
    features : what a CPU must have, in LLVM's names.
    matrices : whether it multiplies matrices, on tensor cores.
    declares : the declaration that it schedules, where that is not :func:`declare`'s, of a problem,
        the parameters and a batch.
    tiles : the parameters worth trying for a problem and a target, the best guess first; there is
        at least one, and each is correct for every problem that the template is for.
    """

    name: str
    config: type[Any]
    schedule: Callable[[Declaration, Any], Schedule]
    passes: tuple[str, ...]
    channels_last: bool
    gpu: bool
    tiles: Callable[[Problem, Target], list[Any]]
    kinds: tuple[str, ...] = ()
    shared: bool = False
    where: Callable[[Problem], bool] | None = None
    arch: str = ""
    least: int = 0
    features: tuple[str, ...] = ()
    matrices: bool = False
    declares: Callable[[Problem, Any, Any], Declaration] | None = None

    def declare(self, p: Problem, config: Any, batch: Any = None) -> Declaration:
        """What :attr:`schedule` takes: the program of a problem; see :func:`declare`. Raises
        :class:`ScheduleError` for parameters that are too small."""
        self._check(config)
        return declare(p, batch) if self.declares is None else self.declares(p, config, batch)

    def fits(self, p: Problem, target: Target) -> bool:
        """Whether it is for a problem on a target."""
        return (
            p.pass_ in self.passes
            and p.layout.endswith("C") == self.channels_last
            and target.is_gpu == self.gpu
            and (not self.kinds or target.kind in self.kinds)
            and (target.kind != "cuda" or self._runs_on(target.arch))
            and (not self.features or cpu.features(target).issuperset(self.features))
            and (not self.shared or opencl.shares_memory(target))
            and (self.where is None or self.where(p))
        )

    def _runs_on(self, arch: str) -> bool:
        if self.arch:
            return arch == self.arch
        return not self.least or (bool(arch) and compute_capability(arch) >= self.least)

    def candidates(self, p: Problem, target: Target) -> list[Any]:
        """The parameters worth trying, the best guess first, each once."""
        return list(dict.fromkeys(self.tiles(p, target)))

    def parse(self, values: Mapping[str, Any]) -> Any:
        """Parameters as records have them; one that came later may be left out, for its default.
        Raises :class:`ScheduleError` for strange ones, and those that are too small."""
        known = {f.name for f in dataclasses.fields(self.config)}
        given = set(values)
        if not needed(self.config) <= given <= known or not all(
            type(v) is int for v in values.values()
        ):
            raise ScheduleError(
                f"template {self.name} has the integer parameters {', '.join(sorted(known))}, "
                f"got {dict(values)!r}",
                mend="Tune the problem again",
            )
        config = self.config(**values)
        self._check(config)
        return config

    def _check(self, config: Any) -> None:
        if why := too_small(config):
            raise ScheduleError(
                f"template {self.name}: {why}", mend=f"Its candidates are like {self.config()}"
            )
