"""Which configuration a template gets: that of the innermost ``with``."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar, Token
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.target import Target
from tilewright.target.target import current_target
from tilewright.tune.config import ConfigEntity, Definitions, FallbackConfig
from tilewright.tune.entity import TuningError

if TYPE_CHECKING:
    from tilewright.tune.measure import MeasureInput, MeasureResult

#: A template's name and its arguments in JSON's types, as tuples.
Workload = tuple[Any, ...]


class DispatchContext:
    """Answers which configuration to use; entered by ``with``."""

    current_context: ContextVar[DispatchContext | None] = ContextVar("dispatch", default=None)

    def __init__(self) -> None:
        self._tokens: list[Token[DispatchContext | None]] = []
        self._outer: DispatchContext | None = None

    def find(self, target: Target | None, workload: Workload | None) -> Definitions | None:
        """The configuration that this context has for a workload, None where it has none."""
        raise NotImplementedError

    def query(self, target: Target | str | None, workload: Workload | None) -> Definitions:
        """The configuration of this context, of those around it, else a fallback."""
        machine = None if target is None else Target.parse(target)
        found = self.find(machine, workload)
        if found is None and self._outer is not None:
            return self._outer.query(machine, workload)
        return FallbackConfig() if found is None else found

    def __enter__(self) -> DispatchContext:
        self._outer = DispatchContext.current_context.get()
        self._tokens.append(DispatchContext.current_context.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        DispatchContext.current_context.reset(self._tokens.pop())
        self._outer = None


class FallbackContext(DispatchContext):
    """Answers every query with a fallback."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[Any, Any] = {}

    def query(self, target: Target | str | None, workload: Workload | None) -> Definitions:
        return FallbackConfig()


class ApplyConfig(DispatchContext):
    """One configuration for every template inside."""

    def __init__(self, config: Definitions) -> None:
        super().__init__()
        self.config = config

    def find(self, target: Target | None, workload: Workload | None) -> Definitions | None:
        return self.config


class ApplyHistoryBest(DispatchContext):
    """The fastest configuration on record for each workload and target.

    Parameters
    ----------
    records : a file of JSON lines (AutoTVM's logs too), several, pairs of a
        :class:`~tilewright.tune.measure.MeasureInput` and its result, or what
        :meth:`~tilewright.tune.records.Records.find` returns.
    """

    def __init__(self, records: Any = None) -> None:
        super().__init__()
        self._best: dict[tuple[str, Workload], tuple[float, MeasureInput, MeasureResult]] = {}
        if records is not None:
            self.load(records)

    def load(self, records: str | Path | Iterable[Any]) -> None:
        """Take in more records."""
        from tilewright.tune.log_format import read_log

        found = read_log(records) if isinstance(records, (str, Path)) else records
        for record in found:
            if isinstance(record, (str, Path)):
                self.load(record)
                continue
            inp, result = record if isinstance(record, tuple) else (record.input, record.result)
            if result.error_no != 0:
                continue
            for key in _target_keys(inp.target):
                place = (key, inp.task.workload)
                if place not in self._best or result.cost < self._best[place][0]:
                    self._best[place] = (result.cost, inp, result)

    def find(self, target: Target | None, workload: Workload | None) -> ConfigEntity | None:
        if workload is None:
            return None
        machine = target or Target.parse("llvm")
        for key in _target_keys(machine):
            if (key, workload) in self._best:
                return self._best[key, workload][1].config
        return None

    def best(
        self, target: Target | str, workload: Workload
    ) -> tuple[MeasureInput, MeasureResult] | None:
        """The record that :meth:`query` answers from."""
        for key in _target_keys(Target.parse(target)):
            if (key, workload) in self._best:
                return self._best[key, workload][1:]
        return None


def _target_keys(target: Target) -> list[str]:
    """The target with its architecture, then of its kind alone."""
    exact = f"{target.kind} {target.arch}".strip()
    return [exact] if exact == target.kind else [exact, target.kind]


def apply_history_best(records: Any) -> ApplyHistoryBest:
    """``with apply_history_best("tune.log"):``; see :class:`ApplyHistoryBest`."""
    return ApplyHistoryBest(records)


def query(target: Target | None, workload: Workload | None) -> Definitions:
    """The configuration of the innermost context, a fallback outside of any."""
    context = DispatchContext.current_context.get()
    return FallbackConfig() if context is None else context.query(target, workload)


def get_config() -> Any:
    """The configuration of the template that runs; outside of any, a fallback.

    It is typed loosely: a space while the template is explored, else one configuration.
    """
    found = query(current_target(), None)
    if not isinstance(found, Definitions):
        raise TuningError(f"{found!r} is no configuration")
    return found
