"""What to compute: tensors declared by the expression of their elements."""

import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING
from typing import Any as _Any

from tilewright.ir.expr import Var
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import select as Select  # TVM's name for it
from tilewright.te.functions import *  # noqa: F403
from tilewright.te.functions import __all__ as _functions
from tilewright.te.gradient import gradient
from tilewright.te.operation import (
    ComputeOp,
    ExternOp,
    Operation,
    PlaceholderOp,
    compute,
    extern,
    placeholder,
    tag_scope,
)
from tilewright.te.reduction import (
    comm_reducer,
    max,
    max_value,
    min,
    min_value,
    prod,
    reduce_axis,
    sum,
    thread_axis,
    var,
)
from tilewright.te.scan import ScanOp, scan
from tilewright.te.tensor import Tensor, TensorSlice

if TYPE_CHECKING:
    from tilewright.schedule import create_schedule as create_schedule
else:

    def __getattr__(name: str) -> _Any:
        # TVM's place for it. Schedules stand on declarations, so it is found when first asked for.
        if name == "create_schedule":
            return _importlib.import_module("tilewright.schedule").create_schedule
        here = _sys.modules[__name__]  # by which Python says what is near
        raise AttributeError(f"te has no attribute {name!r}", name=name, obj=here)


__all__ = [
    *_functions,
    "ComputeOp", "ExternOp", "IterVar", "Operation", "PlaceholderOp", "Range", "ScanOp", "Select",
    "Tensor", "TensorSlice", "Var", "comm_reducer", "compute", "extern", "gradient", "max",
    "max_value", "min", "min_value", "placeholder", "prod", "reduce_axis", "scan", "sum",
    "tag_scope", "thread_axis", "var",
]  # fmt: skip
