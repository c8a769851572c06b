"""AutoTVM's modules under their names: ``from tilewright.tvm.autotvm.tuner import XGBTuner``."""

from __future__ import annotations

import sys

from tilewright.tune import autotvm

for _name in ("callback", "measure", "record", "task", "tuner"):
    sys.modules[f"{__name__}.{_name}"] = getattr(autotvm, _name)
sys.modules[f"{__name__}.task.space"] = vars(autotvm.task)["space"]
sys.modules[f"{__name__}.tuner.callback"] = autotvm.callback
sys.modules[__name__] = autotvm
