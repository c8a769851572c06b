"""``tvm.topi``: the library of operators under TVM's names, signatures and defaults.

A function is an entry of a table of this package; what each computes is declared once, for all
layouts. Schedules by name (``generic.schedule_conv2d_nchw``) all are one, which reads the target.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tilewright import topi as _topi
from tilewright.ir.errors import LanguageError
from tilewright.ir.ops import tvm_promotion
from tilewright.target import instructions as _instructions
from tilewright.topi import nn as _own
from tilewright.tvm.namespaces import Namespace
from tilewright.tvm.topi import (
    backward,
    binary,
    boxes,
    convolution,
    displaced,
    elements,
    indexing,
    norms,
    numbers,
    older,
    pooling,
    products,
    resampling,
    schedules,
    search,
    space,
    sparse_products,
    transform,
    windows,
)
from tilewright.tvm.topi.shapes import get_const_tuple as get_const_tuple
from tilewright.tvm.topi.shapes import utils as utils

#: What comes of operands of other ranks or kinds than a function reads.
_STRANGE = (AttributeError, IndexError, KeyError, StopIteration, ZeroDivisionError)


def _promoted(names: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Functions in which types are promoted as TVM's. They raise :class:`LanguageError` for
    operands that they do not take."""

    def promoted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **more: Any) -> Any:
            try:
                with tvm_promotion():
                    return function(*args, **more)
            except _STRANGE as error:
                given = ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in more.items())])
                raise LanguageError(
                    f"topi.{name} does not take ({given}): pass operands of the ranks and types of "
                    f"TVM's ({type(error).__name__}: {error})"
                ) from error

        call.__name__ = name
        return call

    return {name: promoted(name, function) for name, function in names.items()}


#: Every operator of topi's own heading, of ``nn`` and of ``image``.
NAMES = _promoted(
    {**elements.NAMES, **transform.NAMES, **indexing.NAMES, **numbers.NAMES, **search.NAMES}
)
#: As topi called them until 2018.
_BROADCAST = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "mod": "mod",
    "maximum": "maximum", "minimum": "minimum", "pow": "power", "greater": "greater",
    "less": "less", "equal": "equal", "left_shift": "left_shift", "right_shift": "right_shift",
}  # fmt: skip
NAMES |= {f"broadcast_{name}": NAMES[now] for name, now in _BROADCAST.items()}
_UTILS = ("equal_const_int", "get_const_int", "simplify")
NAMES |= {
    name: getattr(utils, name) for name in (*_UTILS, "const_vector", "make_idx", "within_index")
}
NN = _promoted(
    {
        **windows.NAMES,
        **convolution.NAMES,
        **products.NAMES,
        **pooling.NAMES,
        **norms.NAMES,
        **space.NAMES,
        **backward.NAMES,
        **binary.NAMES,
        **displaced.NN,
        **sparse_products.NN,
        **older.NN,
        "upsampling": resampling.upsampling,
        "upsampling3d": resampling.upsampling3d,
    }
)
IMAGE = _promoted({**resampling.NAMES, **older.IMAGE})

#: Those that Tilewright has under the same names and with the same parameters, as the articles
#: schedule them.
_SHARED = "depthwise_conv2d depthwise_conv2d_nchw relu scale_shift scale_shift_nchw".split()


class _Named:
    """A function, or TVM's module of that name, whose names are those of ``namespace``; it is
    refused when it is called where it has no counterpart."""

    def __init__(self, namespace: Any, name: str, function: Any = None) -> None:
        self._space, self._name, self._function = namespace, name, function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._space, name)

    def __call__(self, *args: Any, **more: Any) -> Any:
        if self._function is not None:
            return self._function(*args, **more)
        raise LanguageError(
            f"tvm.{self._space._namespace}.{self._name} has no counterpart: use the operator of "
            "tvm.topi, tvm.topi.nn or tvm.topi.image that computes it, with a schedule of "
            "tvm.topi.generic, which is for the target of the enclosing `with`"
        )


class _Operators(Namespace):
    """Operators. What TVM keeps to itself is named by tests and tables, and refused when it is
    called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and not name.startswith("__"):
            return _Named(self, name)
        return super().__getattr__(name)


nn: Any = _Operators("topi.nn", **{**NN, **{name: getattr(_own, name) for name in _SHARED}})
for _name in (
    "batch_matmul batch_norm conv1d conv2d conv2d_transpose conv3d dense depthwise_conv2d dilate "
    "elemwise flatten local_response_norm mapping pad pooling softmax upsampling util utils"
).split():
    sys.modules[f"tilewright.tvm.topi.nn.{_name}"] = nn
    if _name not in vars(nn):
        setattr(nn, _name, nn)
image: Any = Namespace("topi.image", **IMAGE)
sparse: Any = Namespace("topi.sparse", **_promoted(sparse_products.NAMES))
VISION = _promoted(boxes.NAMES)
vision: Any = _Operators("topi.vision", **VISION)
for _name in ("nms", "rcnn", "reorg", "ssd"):
    sys.modules[f"tilewright.tvm.topi.vision.{_name}"] = vision
vision.rcnn = vision.ssd = vision
for _name in ("all_class_non_max_suppression", "proposal", "regular_non_max_suppression"):
    setattr(vision, _name, _Named(vision, _name))
util = utils
tag: Any = Namespace(
    "topi.tag",
    ELEMWISE="elemwise",
    BROADCAST="broadcast",
    INJECTIVE="injective",
    COMM_REDUCE="comm_reduce",
    COMM_REDUCE_IDX="comm_reduce_idx",
    is_broadcast=lambda tag: (
        tag in ("elemwise", "broadcast") or tag.startswith(("elemwise", "broadcast"))
    ),
    is_injective=lambda tag: tag.startswith(("elemwise", "broadcast", "injective")),
)


#: What TVM adds to the name of an operator for one algorithm, of which the schedule decides here.
_VARIANT = re.compile(
    r"^compute_|_(nopack|pack|dynamic|small_batch|large_batch|tensorcore|int8|spatial_pack|cudnn|"
    r"cublas|padded|winograd(_direct|_tensorcore)?|hybrid(_SVE|_SME)?|"
    r"quantized_(interleaved|native))$"
)
#: What TVM has modules for, which a machine's heading may also be asked for by their names.
_FILES = (
    "batch_matmul", "conv1d", "conv2d", "conv2d_transpose", "conv3d", "dense", "depthwise_conv2d",
    "softmax",
)  # fmt: skip


def _operator(name: str) -> str:
    """The operator that a machine's function of this name computes."""
    return _VARIANT.sub("", name).replace("_NHWC", "_nhwc")


class _Machine(Namespace):
    """What topi has for a kind of machine: schedules, and operators that compute the same on all.

    Tests and tables name functions of many machines, of which they call those of one: so what has
    no counterpart is a function that says so where it is called.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for known in (NN, NAMES, IMAGE, VISION):
            for wanted in (name, _operator(name)):
                if wanted in known:
                    found = known[wanted]
                    return _Named(self, name, found) if name in _FILES else found
        if name.startswith("schedule_") or name == "default_schedule":
            return schedules.schedule_any
        return _Named(self, name)


def _dp4a(
    x_scope: str = "local", y_scope: str = "local", z_scope: str = "local",
    dtypes: tuple[str, str] = ("int8", "int8"),
) -> Any:  # fmt: skip
    """The instruction that sums four products of bytes, wherever they are."""
    return _instructions.dp4a if dtypes[0] == "int8" else _instructions.dp4a_u8


_KINDS = "arm_cpu bifrost cuda generic gpu hexagon hls intel_graphics mali rocm x86".split()
_machines: dict[str, Any] = {kind: _Machine(f"topi.{kind}") for kind in _KINDS}


_machines["cuda"].dp4a, _machines["cuda"].tensor_intrin = _dp4a, _machines["cuda"]
sys.modules["tilewright.tvm.topi.cuda.tensor_intrin"] = _machines["cuda"]
for _name in ("broadcast", "math", "reduction", "tensor"):  # files of TVM's
    sys.modules[f"tilewright.tvm.topi.{_name}"] = Namespace(f"topi.{_name}", **NAMES)


def __getattr__(name: str) -> Any:
    if name in ("broadcast", "math", "reduction", "tensor"):
        return sys.modules[f"tilewright.tvm.topi.{name}"]
    if name in NAMES:
        return NAMES[name]
    if name in _machines:
        return _machines[name]
    if name == "testing":
        return importlib.import_module("tilewright.tvm.topi.testing")
    if not name.startswith("_") and hasattr(_topi, name):
        return getattr(_topi, name)
    from tilewright.tvm.namespaces import missing

    if name.startswith("__"):
        raise AttributeError(name)
    raise missing("tvm.topi", name, sorted(NAMES))


def __dir__() -> list[str]:
    return sorted({*NAMES, *(n for n in globals() if not n.startswith("_"))})
