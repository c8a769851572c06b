"""The choice among the algorithms that can do a problem."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.array import view
from tilewright.runtime.ndarray import Device
from tilewright.select.algorithm import Algorithm, Built, BuiltKernel, Scheduled
from tilewright.select.knn import guesses
from tilewright.select.measure import inputs
from tilewright.select.profile_cache import Measured, ProfileCache
from tilewright.select.ranking import held
from tilewright.select.registry import algorithms, find
from tilewright.target import Target
from tilewright.topi.problem import Problem
from tilewright.topi.templates import cheapest_first
from tilewright.tune.machine import machine_of, with_own_architecture
from tilewright.tune.tuned import device_of

POLICIES = ("heuristic", "profile", "reproducible")
#: How many candidates of one algorithm are measured by the policy "profile".
MEASURED = 8
#: How many are built to find one within a limit on workspaces, which a build alone tells.
TRIED = 2


class SelectError(TilewrightError):
    """No algorithm can do a problem; the message says what each lacks."""


@dataclass(frozen=True)
class Choice:
    """An algorithm with its parameters.

    ``seconds`` and ``workspace`` (bytes) are None where nothing was measured.
    """

    problem: Problem
    target: Target
    algorithm: Algorithm
    config: Any
    seconds: float | None = None
    workspace: int | None = None

    @property
    def name(self) -> str:
        """The algorithm's."""
        return self.algorithm.name

    @property
    def held(self) -> float:
        """Registers of a thread for what it holds, by the model of a template; 0 without one."""
        return held(self.problem, self.name, self.config)

    def build(self) -> Built:
        """Something to call; raises :class:`TilewrightError` where it cannot be built."""
        return self.algorithm.build(self.problem, self.config, self.target)

    def prepare(self, *constants: Any) -> Callable[..., None]:
        """A call for which the problem's ``constants``, arrays in calling order, are given: what
        can be computed of them alone, such as a packed filter, is computed now, once. It waits
        until they are there.

        It takes the other arrays in calling order, and keeps the constants. Raises
        :class:`SelectError` for a wrong number of either, and as :meth:`build`.
        """
        names, inputs = self.problem.constants, list(self.problem.inputs())
        _count(f"constants ({', '.join(names) or 'none'})", len(names), constants)
        given = dict(zip((inputs.index(name) for name in names), constants, strict=True))
        others = [name for name in (*inputs, "result") if name not in names]
        for x in constants:
            Device.parse(view(x).device).sync()  # calls do not wait for what wrote them
        built = self.build()
        ahead = built.kernel.preparation if isinstance(built, BuiltKernel) else None
        made = () if ahead is None else ahead.run([given[k] for k in ahead.reads])

        def call(*arrays: Any) -> None:
            _count(f"other arrays ({', '.join(others)})", len(others), arrays)
            left = iter(arrays)
            args = [given[k] if k in given else next(left) for k in range(len(inputs) + 1)]
            if ahead is None or not isinstance(built, BuiltKernel):
                built(*args)
            else:
                built.kernel(*ahead.arguments(args, made))

        return call

    def __str__(self) -> str:
        values = self.algorithm.to_values(self.config)
        text = ", ".join(f"{k}={v}" for k, v in values.items())
        took = "" if self.seconds is None else f", {self.seconds * 1e6:.1f} us"
        return f"{self.algorithm.name}({text}){took}"


def _count(what: str, wanted: int, given: Sequence[Any]) -> None:
    if len(given) != wanted:
        raise SelectError(
            f"the problem has {wanted} {what}, got {len(given)}: give those, in this order"
        )


def reason(problem: Problem, target: str | Target) -> str:
    """Why no algorithm can do a problem on a target; empty where one can."""
    machine = with_own_architecture(target)
    why = [a.can(problem, machine) for a in algorithms() if not a.vendor]
    if "" in why:
        return ""
    return f"there is no kernel for {problem} on {machine.kind}: {'; '.join(why)}"


def options(
    problem: Problem,
    target: str | Target,
    policy: str = "heuristic",
    workspace_limit: int | None = None,
    cache: ProfileCache | None = None,
) -> Iterator[Choice]:
    """The choices, the best first: where one cannot be built, the next one may.

    The parameters are those of :func:`choose`.
    """
    if policy not in POLICIES:
        raise SelectError(f"unknown policy {policy!r}: use {', '.join(POLICIES)}")
    machine = with_own_architecture(target)
    able = _cheapest_first(
        [a for a in algorithms() if not a.can(problem, machine)], problem, machine
    )
    if policy == "reproducible":
        able = [a for a in able if a.reproducible]
    names = {a.name for a in able}
    kept = _cache() if cache is None else cache
    found = _known(problem, machine, kept)
    if policy == "profile" and not names <= {m.algorithm for m in found}:
        found = _profile(problem, machine, able, kept)
    strange = False
    for m in found:
        algorithm = find(m.algorithm)
        fits = workspace_limit is None or m.workspace <= workspace_limit
        if algorithm is not None and m.algorithm in names and fits and not m.error:
            try:
                config = algorithm.parse(m.config)
            except TilewrightError:
                strange = True
                continue
            if algorithm.vendor and strange:  # it may not be the fastest
                continue
            yield Choice(problem, machine, algorithm, config, m.seconds, m.workspace)
    for choice in _tuned(problem, machine, able):
        if _within(choice, workspace_limit):
            yield choice
    for algorithm in able:
        if algorithm.vendor:
            continue
        configs = algorithm.candidates(problem, machine)
        for config in configs if workspace_limit is None else configs[:TRIED]:
            choice = Choice(problem, machine, algorithm, config)
            if _within(choice, workspace_limit):
                yield choice


def _cheapest_first(able: list[Algorithm], problem: Problem, target: Target) -> list[Algorithm]:
    """The algorithms in the order in which the heuristic prefers them."""
    own = [a.template for a in able if isinstance(a, Scheduled)]
    order = {t.name: k for k, t in enumerate(cheapest_first(own, problem, target))}
    return sorted(able, key=lambda a: order.get(a.name, len(order)))


def _within(choice: Choice, workspace_limit: int | None) -> bool:
    if workspace_limit is None:
        return True
    space = choice.algorithm.workspace(choice.problem, choice.config, choice.target)
    return space <= workspace_limit


def _tuned(problem: Problem, target: Target, able: list[Algorithm]) -> Iterator[Choice]:
    """What tuning taught of this problem, or of those like it."""
    by_name = {a.name: a for a in able}
    try:
        device = str(json.loads(machine_of(target))["device"])
    except TilewrightError:  # code for a machine that this one is not
        device = device_of(target)
    for guess in guesses(problem, target, device):
        if guess.template in by_name:
            yield Choice(problem, target, by_name[guess.template], guess.config, guess.seconds)


def choose(
    problem: Problem,
    target: str | Target = "llvm",
    policy: str = "heuristic",
    workspace_limit: int | None = None,
    cache: ProfileCache | None = None,
) -> Choice:
    """The algorithm for a problem on a target.

    Parameters
    ----------
    policy : "heuristic" measures nothing: what was measured before for this very problem, else what
        tuning taught of it (the records of this machine, then those that the package brings), else
        what a model of CUDA devices, or a vote of the nearest problems on record, thinks fastest,
        else the parameters by a static rule. "profile" measures the candidates on random data,
        where that was not done before, and takes the fastest; PyTorch's kernel is one where the
        program has imported PyTorch. "reproducible" is the heuristic among the algorithms that give
        the same bits in every run.
    workspace_limit : bytes that a call may take beside its arrays; None for any.
    cache : where measurements are kept, by default in the cache folder.

    Raises :class:`SelectError` where no algorithm is left.
    """
    machine = Target.parse(target)
    for choice in options(problem, machine, policy, workspace_limit, cache):
        return choice
    why = reason(problem, machine)
    if not why:
        why = f"no kernel for {problem} fits"
        if workspace_limit is not None:
            why += f" in {workspace_limit} bytes of workspace: raise the limit"
    raise SelectError(why)


@functools.cache
def _cache() -> ProfileCache:
    return ProfileCache()


def _known(problem: Problem, target: Target, kept: ProfileCache) -> list[Measured]:
    """What was measured before and still counts, fastest first."""
    try:
        place = machine_of(target)
    except TilewrightError:  # code for a machine that this one is not
        return []
    current = {a.name: a.version for a in algorithms()}
    found = kept.get(problem.key, place)
    return [m for m in found if current.get(m.algorithm) == m.version]


def _profile(
    problem: Problem, target: Target, able: list[Algorithm], kept: ProfileCache
) -> list[Measured]:
    """Measure the candidates, and keep what was found; fastest first."""
    arrays = inputs(problem, target)
    found = []
    tuned = list(_tuned(problem, target, able))
    for algorithm in able:
        taught = [c.config for c in tuned if c.algorithm is algorithm]
        ruled = [c for c in algorithm.candidates(problem, target) if c not in taught]
        configs = [*taught, *ruled]
        for config in configs[:MEASURED]:
            seconds, space, error = 0.0, 0, ""
            try:
                seconds = algorithm.build(problem, config, target).seconds(arrays)
                space = algorithm.workspace(problem, config, target)
            except TilewrightError as failure:  # it does not fit this machine
                error = str(failure)
            found.append(
                Measured(
                    algorithm.name, algorithm.version, algorithm.to_values(config), seconds,
                    space, algorithm.reproducible, error,
                )
            )  # fmt: skip
    if found:
        kept.put(problem.key, machine_of(target), found)
    return kept.get(problem.key, machine_of(target))
