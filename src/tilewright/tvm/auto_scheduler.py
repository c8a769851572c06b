"""TVM's auto-scheduler: declarations are tuned without a template of one's own.

``register_workload``, ``SearchTask``, ``TuningOptions``, ``task.tune`` and ``task.apply_best`` do
what they did; the schedules are those of :mod:`~tilewright.tvm.sketch`, which the tuners of
``tvm.autotvm`` search, and logs are AutoTVM's.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.te import ComputeOp, PlaceholderOp, Tensor, create_schedule
from tilewright.tune import autotvm
from tilewright.tune.entity import TuningError
from tilewright.tune.task import Task, create, flop_of
from tilewright.tvm.machines import make_target
from tilewright.tvm.sketch import schedule_by

#: What a workload's template is called, before its function's name.
_PREFIX = "auto_scheduler."
_registered: dict[str, Callable[..., Any]] = {}
#: What does the work of names that are not here.
_INSTEAD = {
    "extract_tasks": "`tilewright run MODEL --problems FILE` writes what a model computes, and "
    "`tilewright tune --problems FILE` tunes it",
    "ApplyHistoryBest": "`with tvm.autotvm.apply_history_best(LOG):` applies a log",
    "PreloadCustomSketchRule": "write a template of tvm.autotvm",
}
LocalBuilder, LocalRunner = autotvm.LocalBuilder, autotvm.LocalRunner
RPCRunner = autotvm.RPCRunner


def register_workload(func_name: Any, f: Any = None, override: bool = False) -> Any:
    """Make a function known that returns placeholders and results, also as a decorator.

    Its arguments are numbers, texts and sequences of these.
    """
    if callable(func_name):
        return register_workload(func_name.__name__, func_name, override)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def scheduled(*args: Any) -> tuple[Schedule, list[Tensor]]:
            tensors = list(function(*args))
            return schedule_by(autotvm.get_config(), tensors), tensors

        autotvm.template(_PREFIX + func_name, scheduled)
        _registered[func_name] = function
        return function

    return register if f is None else register(f)


class ComputeDAG:
    """What a workload declares: ``print`` lists its stages, ``flop_ct`` counts its arithmetic."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        self._schedule = create_schedule([t.op for t in tensors if isinstance(t.op, ComputeOp)])
        self.flop_ct = flop_of(self._schedule)

    def __str__(self) -> str:
        lines = []
        for stage in self._schedule.stages:
            op = stage.op
            if isinstance(op, PlaceholderOp):
                (made,) = op.outputs
                lines.append(f"{op.name} = PLACEHOLDER {[*made.shape]}")
            elif isinstance(op, ComputeOp):
                at = ", ".join(a.name for a in op.axis)
                lines += [f"{op.name}({at}) = {body}" for body in op.body]
        return "\n".join(lines)

    __repr__ = __str__


class RecordToFile:
    """Appends each measurement to a file."""

    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.write = autotvm.callback.log_to_file(filename)


class LocalRPCMeasureContext:
    """Measures on this machine; ``runner`` is given to :class:`TuningOptions`."""

    def __init__(
        self, priority: int = 1, n_parallel: int = 1, timeout: float = 10, number: int = 3,
        repeat: int = 1, min_repeat_ms: float = 0, cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False, device: int = 0,
    ) -> None:  # fmt: skip
        self.runner = LocalRunner(timeout, number, repeat, min_repeat_ms, (device,))


@dataclass
class TuningOptions:
    """How many candidates are measured, and how.

    ``early_stopping`` ends after that number of them without a faster one. Other fields are TVM's:
    ``num_measures_per_round``, and ``verbose``, 0 to print nothing.
    """

    num_measure_trials: int = 0
    early_stopping: int | None = None
    num_measures_per_round: int = 64
    verbose: int = 1
    builder: Any = "local"
    runner: Any = "local"
    measure_callbacks: Sequence[Any] = ()


class SearchTask:
    """A workload, with its arguments, on a target.

    ``func`` is registered, or named by ``workload_key`` of :func:`make_workload_key`.
    """

    def __init__(
        self, func: Any = None, args: Sequence[Any] = (), compute_dag: Any = None,
        workload_key: str | None = None, target: Any = None, target_host: Any = None,
        hardware_params: Any = None, layout_rewrite_option: Any = None, task_inputs: Any = None,
        task_inputs_overwrite: bool = False, task_inputs_save_to_file: bool = False,
        desc: str = "",
    ) -> None:  # fmt: skip
        self.workload_key = workload_key or make_workload_key(func, args)
        name, *given = json.loads(self.workload_key)
        if name not in _registered:
            raise TuningError(
                f"workload {name!r} is not registered: write @auto_scheduler.register_workload "
                "above its function"
            )
        self._name, self._args = name, tuple(given)
        self.target = Target.parse(make_target(target) if target is not None else "llvm")
        self.desc = desc

    @property
    def _task(self) -> Task:
        return create(_PREFIX + self._name, self._args, self.target)

    @property
    def compute_dag(self) -> ComputeDAG:
        return ComputeDAG(_registered[self._name](*self._args))

    def tune(self, tuning_options: TuningOptions, search_policy: Any = None) -> None:
        """Measure candidates, with what the log of a :class:`RecordToFile` or of a
        :class:`PreloadMeasuredStates` holds as done.

        Raises :class:`TuningError` where the device does not answer.
        """
        task, options = self._task, tuning_options
        tuner = autotvm.XGBTuner(task)
        logs = [c.filename for c in getattr(search_policy, "init_search_callbacks", ())]
        for log in logs:
            tuner.load_history(_records(log))
        said = [autotvm.callback.progress_bar(prefix=self.desc or self._name)]
        tuner.tune(
            max(1, min(options.num_measure_trials, len(task.config_space))),
            autotvm.measure_option(options.builder, options.runner),
            options.early_stopping,
            [*(said if options.verbose else ()), *(c.write for c in options.measure_callbacks)],
        )

    def _best(self, log_file: str) -> Any:
        found = autotvm.ApplyHistoryBest(_records(log_file)).best(self.target, self._task.workload)
        if found is None:
            raise TuningError(f"{log_file} has no schedule of {self.workload_key} that worked")
        return found[0].config

    def apply_best(
        self, log_file: str, include_compatible: bool = False, layout_rewrite_option: Any = None
    ) -> tuple[Schedule, list[Any]]:
        """The schedule of the fastest candidate of a log, and its arguments.

        Raises :class:`TuningError` where the log has none of this workload and target.
        """
        return self._task.instantiate(self._best(log_file))

    def print_best(self, log_file: str, print_mode: str = "schedule") -> str:
        """The knobs of the fastest candidate of a log; its source, in the mode "cuda"."""
        config = self._best(log_file)
        if print_mode == "schedule":
            return str(config)
        from tilewright.runtime.compile import build

        s, args = self._task.instantiate(config)
        return build(s, args, self.target).get_source()


@dataclass
class PreloadMeasuredStates:
    """What a log holds is known to the search."""

    filename: str


class XGBModel:
    """TVM's cost model; the tuner has its own, to which :class:`SketchPolicy` gives logs."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.filename = ""

    def update_from_file(self, file_name: str, n_lines: int | None = None) -> None:
        """The log that :class:`SketchPolicy` learns from."""
        self.filename = file_name

    load = update_from_file


@dataclass
class SketchPolicy:
    """How a task is searched: in one way, which ``init_search_callbacks`` gives logs to."""

    task: SearchTask
    program_cost_model: Any = None
    params: Any = None
    seed: int | None = None
    verbose: int = 1
    init_search_callbacks: Sequence[Any] = field(default_factory=list)


class TaskScheduler:
    """Tunes several tasks, one after the other, each with its share of the candidates."""

    def __init__(
        self, tasks: Sequence[SearchTask], task_weights: Any = None, *_: Any, **__: Any
    ) -> None:
        self.tasks = list(tasks)

    def tune(self, tune_option: TuningOptions, *_: Any, **__: Any) -> None:
        share = TuningOptions(**vars(tune_option))
        share.num_measure_trials = -(-tune_option.num_measure_trials // max(1, len(self.tasks)))
        for task in self.tasks:
            task.tune(share)


def make_workload_key(func: Any, args: Sequence[Any]) -> str:
    """What names a workload: its function's name and arguments, in JSON."""
    names = [n for n, f in _registered.items() if f is func or n == func]
    if not names:
        raise TuningError(
            f"{getattr(func, '__name__', func)} is not registered: write "
            "@auto_scheduler.register_workload above it"
        )
    return json.dumps([names[0], *args])


def create_task(func: Any, args: Sequence[Any], target: Any, *_: Any, **__: Any) -> SearchTask:
    """:class:`SearchTask`, as of TVM 0.7."""
    return SearchTask(func, args, target=target)


def auto_schedule(
    task: SearchTask, search_policy: Any = None, tuning_options: TuningOptions | None = None
) -> tuple[Schedule, list[Any]]:
    """``tune`` and ``apply_best``, as of TVM 0.7: the schedule and its arguments."""
    options = tuning_options or TuningOptions()
    found: list[Any] = []

    class Keep:
        @staticmethod
        def write(tuner: Any, inputs: Any, results: Any) -> None:
            found.extend(zip(inputs, results, strict=True))

    more = [*options.measure_callbacks, Keep]
    task.tune(TuningOptions(**{**vars(options), "measure_callbacks": more}), search_policy)
    best = autotvm.ApplyHistoryBest(found).best(task.target, task._task.workload)
    if best is None:
        raise TuningError(f"no candidate of {task.workload_key} worked")
    return task._task.instantiate(best[0].config)


def _records(log_file: str) -> list[Any]:
    """The records of a log; those of TVM's auto-scheduler are refused."""
    path = Path(log_file)
    first = path.open(encoding="utf-8").readline() if path.is_file() else ""
    if first.startswith(('{"i": [["[', '{"i":[["[')):
        raise TuningError(
            f"{log_file} is a log of TVM's auto-scheduler, whose schedules are steps of its own: "
            "tune again, with task.tune"
        )
    return list(autotvm.record.read_log(log_file))


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    mend = _INSTEAD.get(name, "SearchTask, TuningOptions, RecordToFile and TaskScheduler tune")
    raise AttributeError(f"Tilewright's tvm.auto_scheduler has no {name!r}: {mend}")
