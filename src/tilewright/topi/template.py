"""What a schedule with parameters says of itself: what it is for, and what is worth trying."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.target.devices import compute_capability
from tilewright.target.target import Target
from tilewright.te import Tensor
from tilewright.topi.columns import Tiles
from tilewright.topi.cpu import candidates as cpu
from tilewright.topi.declared import Declared
from tilewright.topi.gpu.staged_times import Work
from tilewright.topi.opencl import candidates as opencl
from tilewright.topi.parameters import too_small
from tilewright.topi.pieces.counts import Counts
from tilewright.topi.problem import Problem

#: The operators of templates that name no other; with images of three dimensions, of which those
#: problems that are depthwise are meant.
DEPTHWISE = ("depthwise_conv2d", "depthwise_conv1d")
ANY_DEPTHWISE = (*DEPTHWISE, "conv3d")


@dataclass(frozen=True)
class Template:
    """A schedule with parameters.

    Attributes
    ----------
    name : as in records.
    config : the dataclass of its parameters; all of them are integers.
    schedule : the schedule of a declaration with given parameters.
    passes, channels_last, gpu : what it is for; no passes are all of them, and channels_last is
        None where layouts do not matter.
    kinds : the kinds of target that it is for, where that is not every kind of GPU or CPU.
    shared : whether threads share memory, which some OpenCL devices only emulate; as a function,
        of which problems on a target it is for all the same.
    where : what else a problem must be.
    arch : the one CUDA architecture that it is for, where that is not every one.
    least : the least compute capability that it is for, as 80 for 8.0.
    features : what a CPU must have, in LLVM's names.
    matrices : whether it multiplies matrices, on tensor cores.
    form : which of the operator's declarations it schedules, by name, or as a function of the
        problem and the parameters.
    declares : the declaration that it schedules, where the operator has none that does without
        these, of a problem, the parameters and a batch.
    operators : what operators it is for, by name; empty for any that it is ``where``.
    types : the types of sums that it is for, by how their names begin.
    counts : what it does with given parameters, in closed form.
    tiles : the parameters worth trying for a problem and a target, the best guess first, or by
        each how long it is predicted to take; there is at least one, and each is correct for every
        problem that the template is for.
    priced : whether these times are in a unit that all templates with prices for a kind of target
        share: of several, the one whose best is the cheapest is preferred.
    most : how many of the best are worth trying, where times are predicted; None for all.
    work : what blocks of tiles with columns do, of those that stage tiles of images.
    """

    name: str
    config: type[Any]
    schedule: Callable[[Any, Any], Schedule]
    passes: tuple[str, ...]
    channels_last: bool | None
    gpu: bool
    tiles: Callable[[Any, Target], Sequence[Any] | Mapping[Any, float]]
    kinds: tuple[str, ...] = ()
    shared: bool | Callable[[Any, Target], bool] = False
    where: Callable[[Any], bool] | None = None
    arch: str = ""
    least: int = 0
    features: tuple[str, ...] = ()
    matrices: bool = False
    form: str | Callable[[Any, Any], str] = ""
    declares: Callable[[Any, Any, Any], Declared] | None = None
    operators: tuple[str, ...] = DEPTHWISE
    types: tuple[str, ...] = ("float", "bfloat")
    counts: Callable[[Any, Any], Counts] | None = None
    priced: bool = False
    most: int | None = None
    work: Callable[[Any, Any], Work] | None = None

    def declare(self, p: Problem, config: Any, batch: Any = None) -> Declared:
        """What :attr:`schedule` takes: the program of a problem. Raises :class:`ScheduleError` for
        parameters that are too small."""
        self._check(config)
        if self.declares is not None:
            return self.declares(p, config, batch)
        form = self.form(p, config) if callable(self.form) else self.form
        return p.declare_as(form, batch) if form else p.declare(batch)

    def scheduled(
        self, p: Problem, config: Any, batch: Any = None
    ) -> tuple[Schedule, list[Tensor]]:
        """The schedule of a problem with given parameters, and its arguments: what
        :func:`tilewright.build` takes first. Raises :class:`ScheduleError` as :meth:`declare`."""
        found = self.declare(p, config, batch)
        return self.schedule(found, config), found.args

    def fits(self, p: Problem, target: Target) -> bool:
        """Whether it is for a problem on a target."""
        return not self.why_not(p, target)

    def why_not(self, p: Problem, target: Target) -> str:
        """Why it is not for a problem on a target; empty where it is."""
        if self.operators and p.operator not in self.operators:
            return f"{self.name} is for {', '.join(self.operators)}"
        if self.operators in (DEPTHWISE, ANY_DEPTHWISE) and p.is_float8:
            return f"{self.name} has no {p.dtype}"
        if target.is_gpu != self.gpu:
            return f"{self.name} is for {'GPUs' if self.gpu else 'CPUs'}"
        if self.channels_last not in (None, p.channels_last):
            return f"{self.name} is for channels {'last' if self.channels_last else 'first'}"
        if self.passes and p.pass_ not in self.passes:
            return f"{self.name} has no {p.pass_}"
        if not p.accumulate.startswith(self.types):
            return f"{self.name} has no sums in {p.accumulate}"
        supported = (
            (not self.kinds or target.kind in self.kinds)
            and (target.kind != "cuda" or self._runs_on(target.arch))
            and (not self.features or cpu.features(target).issuperset(self.features))
            and (self.where is None or self.where(p))
            and (
                not self.shared
                or opencl.shares_memory(target)
                or (callable(self.shared) and self.shared(p, target))
            )
        )
        return "" if supported else f"{self.name} is for other problems"

    def _runs_on(self, arch: str) -> bool:
        if self.arch:
            return arch == self.arch
        return not self.least or (bool(arch) and compute_capability(arch) >= self.least)

    def candidates(self, p: Problem, target: Target) -> Sequence[Any]:
        """The parameters worth trying, the best guess first, each once."""
        found = self.tiles(p, target)
        if isinstance(found, Mapping):
            return sorted(found, key=found.__getitem__)[: self.most]
        return found if isinstance(found, Tiles) else list(dict.fromkeys(found))

    def price(self, p: Problem, target: Target) -> float:
        """What the best of them are predicted to take, of a template that is ``priced``."""
        found = self.tiles(p, target)
        assert isinstance(found, Mapping), self.name
        return min(found.values())

    def parse(self, values: Mapping[str, Any]) -> Any:
        """Parameters as records have them; those that are left out have their defaults. Raises
        :class:`ScheduleError` for strange ones, and those that are too small."""
        known = {f.name for f in dataclasses.fields(self.config)}
        if not set(values) <= known or not all(type(v) is int for v in values.values()):
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
