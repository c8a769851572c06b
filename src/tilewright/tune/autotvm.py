"""AutoTVM's names, as ``tvm.autotvm``.

``template``, ``get_config``, ``task.create``, ``measure_option``, ``tuner.XGBTuner``,
``callback.log_to_file``, ``apply_history_best`` and the like do what they did there.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

from tilewright.tune import callback as callback
from tilewright.tune import log_format as record
from tilewright.tune import measure as measure
from tilewright.tune import task as task
from tilewright.tune.config import ConfigEntity, ConfigSpace
from tilewright.tune.config import FallbackConfig as FallbackConfigEntity
from tilewright.tune.dispatch import (
    ApplyConfig,
    ApplyHistoryBest,
    DispatchContext,
    FallbackContext,
    apply_history_best,
    get_config,
)
from tilewright.tune.entity import (
    AnnotateEntity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
    TuningError,
)
from tilewright.tune.local import LocalBuilder, LocalRunner, measure_option
from tilewright.tune.measure import MeasureErrorNo, MeasureInput, MeasureResult
from tilewright.tune.records import Records
from tilewright.tune.simple_tuners import GATuner, GridSearchTuner, RandomTuner
from tilewright.tune.task import Task
from tilewright.tune.template import template
from tilewright.tune.tuner import Tuner
from tilewright.tune.xgb_tuner import XGBTuner

__all__ = [
    "AnnotateEntity", "ApplyConfig", "ApplyHistoryBest", "ConfigEntity", "ConfigSpace",
    "DispatchContext", "FallbackConfigEntity", "FallbackContext", "GATuner", "GridSearchTuner",
    "LocalBuilder", "LocalRunner", "MeasureErrorNo", "MeasureInput", "MeasureResult",
    "OtherOptionEntity", "RPCRunner", "RandomTuner", "Records", "ReorderEntity", "SplitEntity",
    "Task", "Tuner", "TuningError", "XGBTuner", "apply_history_best", "callback", "get_config",
    "measure", "measure_option", "record", "task", "template", "tophub", "tuner",
]  # fmt: skip


def RPCRunner(
    key: str, host: str, port: int, priority: int = 1, timeout: float = 10.0,
    n_parallel: int | None = None, number: int = 4, repeat: int = 3, min_repeat_ms: float = 0.0,
    **_: Any,
) -> LocalRunner:  # fmt: skip
    """Measures on another machine, where ``tilewright serve`` runs at ``host`` and ``port``, in the
    place of TVM's tracker; ``key``, a device's name, has no effect."""
    return LocalRunner(timeout, number, repeat, min_repeat_ms, remote=f"{host}:{port}")


#: Where it has the best schedules of others: none are kept, so that templates fall back.
tophub: Any = SimpleNamespace(context=lambda *_, **__: contextlib.nullcontext())
#: Where AutoTVM has the tuners.
tuner: Any = SimpleNamespace(
    Tuner=Tuner,
    GATuner=GATuner,
    GridSearchTuner=GridSearchTuner,
    RandomTuner=RandomTuner,
    XGBTuner=XGBTuner,
    callback=callback,
)
vars(record)["load_from_file"], vars(task)["get_config"] = record.read_log, get_config
#: Where it has the spaces; a task's module says nothing of them itself.
vars(task)["space"] = SimpleNamespace(
    ConfigEntity=ConfigEntity,
    ConfigSpace=ConfigSpace,
    FallbackConfigEntity=FallbackConfigEntity,
    AnnotateEntity=AnnotateEntity,
    OtherOptionEntity=OtherOptionEntity,
    ReorderEntity=ReorderEntity,
    SplitEntity=SplitEntity,
)

#: What does the work of names of AutoTVM's that are not here.
_INSTEAD = {
    "extract_from_program": "`tilewright run MODEL --problems FILE` writes what a model computes, "
    "and `tilewright tune --problems FILE` tunes it",
    "graph_tuner": "layouts of a model's values are chosen by tilewright.load",
    "register_topi_compute": "write a template, as @autotvm.template(NAME)",
    "register_topi_schedule": "write a template, as @autotvm.template(NAME)",
}


def __getattr__(name: str, of: str = "autotvm") -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    mend = _INSTEAD.get(name, f"dir(tvm.{of}) lists what it has")
    raise AttributeError(f"Tilewright's tvm.{of} has no {name!r}: {mend}")


vars(task)["__getattr__"] = lambda name: __getattr__(name, "autotvm.task")
