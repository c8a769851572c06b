"""The names under which articles, and TVM's users, know all this.

``from tilewright import tvm`` in place of ``import tvm`` runs tensor-expression programs of 2017
(``tvm.compute``, ``tvm.select``, ``tvm.create_schedule``) and of 2024 (``te.compute``,
``tvm.tir.if_then_else``, ``tvm.lower``, ``tvm.build``). Under the names of 2017, ``/`` on integers
truncates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from tilewright import te as _te
from tilewright import topi
from tilewright.codegen.flatten import flatten
from tilewright.ir import ops as _ops
from tilewright.ir import text as _script
from tilewright.ir import text2017 as _text2017
from tilewright.ir.expr import FloatImm, IntImm, Select, StringImm, Var
from tilewright.ir.func import Func
from tilewright.ir.itervar import IterVar, Range
from tilewright.ir.ops import truncating_division
from tilewright.lower.pipeline import form
from tilewright.runtime import Device, Kernel, NDArray, array, empty, load
from tilewright.runtime.compile import build as _build
from tilewright.schedule import Schedule, create_schedule
from tilewright.target import Target, current_target
from tilewright.te import Tensor

__all__ = [
    *_te.__all__, "BuiltModule", "IRModule", "build", "compute", "cpu", "create_schedule", "cuda",
    "device", "gpu", "lower", "nd", "opencl", "runtime", "select", "target", "te", "tir", "topi",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _te.__all__:
        return getattr(_te, name)
    raise AttributeError(f"module 'tilewright.tvm' has no attribute {name!r}")


# -- the language ------------------------------------------------------------------------------


def compute(shape: Any, fcompute: Callable[..., Any], name: str = "compute", **more: Any) -> Any:
    """``te.compute`` with the division of 2017: ``/`` on integers truncates."""
    with truncating_division():
        return _te.compute(shape, fcompute, name=name, **more)


def select(condition: Any, on_true: Any, on_false: Any) -> Any:
    """One of two values; lowering makes it lazy where a branch would read out of bounds."""
    return _ops.select(condition, on_true, on_false)


te: Any = SimpleNamespace(
    **{name: getattr(_te, name) for name in _te.__all__}, create_schedule=create_schedule
)
te.Schedule = Schedule

tir: Any = SimpleNamespace(
    **{name: getattr(_te, name) for name in _te.__all__ if name != "compute"},
    IntImm=lambda type, value: _ops.const(value, type),
    FloatImm=lambda type, value: _ops.const(value, type),
    StringImm=StringImm,
    IterVar=IterVar,
    Var=Var.make,
)
tir.Select = _ops.select
expr: Any = SimpleNamespace(IntImm=IntImm, FloatImm=FloatImm, Select=Select, Var=Var)
ir: Any = SimpleNamespace(Range=Range)


# -- lowering and printing -----------------------------------------------------------------------


class IRModule:
    """A lowered program, to look at: ``print`` gives TVM's script, ``text("2017")`` the old form.

    ``mod["main"]`` is its function; :func:`build` takes it too.
    """

    def __init__(self, func: Func, schedule: Schedule, args: Sequence[Any]) -> None:
        self.func, self.schedule, self.args = func, schedule, args

    def __getitem__(self, name: str) -> Func:
        if name != self.func.name:
            raise KeyError(f"the module holds one function, {self.func.name!r}, not {name!r}")
        return self.func

    @property
    def functions(self) -> dict[str, Func]:
        return {self.func.name: self.func}

    def text(self, style: str = "script") -> str:
        """The program with flat indices, in the style "script" (2024) or "2017"."""
        flat = flatten(self.func)
        if style == "2017":
            return _text2017.stmt_text(flat.body)
        if style != "script":
            raise ValueError(f'the styles are "script" and "2017", not {style!r}')
        shaped = _script.func_text(self.func).splitlines()[0]
        return "\n".join([shaped, *_script.func_text(flat).splitlines()[1:]])

    script = text

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__


def lower(
    schedule: Schedule,
    args: Sequence[Any],
    name: str = "main",
    binds: None = None,
    simple_mode: bool = False,
) -> IRModule:
    """The loops of a schedule, simplified and with virtual threads interleaved."""
    machine = current_target() or Target.parse("llvm")
    return IRModule(form(schedule, args, machine, name), schedule, args)


# -- building and running ------------------------------------------------------------------------


class BuiltModule:
    """What :func:`build` returns: call it with arrays, one each argument."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.entry_name = kernel.name

    def __call__(self, *args: Any) -> None:
        self.kernel(*args)

    def __getitem__(self, name: str) -> BuiltModule:
        return self

    entry_func = property(lambda self: self)

    @property
    def imported_modules(self) -> list[BuiltModule]:
        """The device's part, whose ``get_source()`` is the kernels' text."""
        return [self] if self.kernel.target.is_gpu else []

    def get_source(self, fmt: str = "") -> str:
        """The generated text; ``fmt`` "asm", "ptx" or "sass" for the assembly."""
        return self.kernel.get_source(fmt)

    def time_evaluator(
        self, func_name: str, dev: Any = None, number: int = 10, repeat: int = 1, **_: Any
    ) -> Callable[..., Any]:
        """A function that runs the kernel and returns its times; ``.mean`` is in seconds."""
        return self.kernel.time_evaluator(func_name, dev, number, repeat)

    def save(self, path: str, fmt: str = "") -> None:
        """Write the kernel to a file that :func:`tilewright.load` reads."""
        self.kernel.save(path)

    export_library = save


def build(
    inputs: Schedule | IRModule,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    name: str = "main",
) -> BuiltModule:
    """Compile a schedule over ``args``, or a lowered module, for a target."""
    machine = Target.parse(target) if target is not None else current_target()
    if isinstance(inputs, IRModule):
        return BuiltModule(_build(inputs.schedule, inputs.args, machine, inputs.func.name))
    return BuiltModule(_build(inputs, args, machine, name))


def device(kind: str, index: int = 0) -> Device:
    """A device by the name of its target: "cpu", "llvm", "cuda", "opencl", "sim"."""
    names = {"llvm": "cpu", "sim": "cpu", "gpu": "cuda", "cl": "opencl"}
    return Device(names.get(kind.split()[0], kind.split()[0]), index)


def cpu(index: int = 0) -> Device:
    """The CPU."""
    return Device("cpu", index)


def cuda(index: int = 0) -> Device:
    """A CUDA device."""
    return Device("cuda", index)


gpu = cuda


def opencl(index: int = 0) -> Device:
    """An OpenCL device."""
    return Device("opencl", index)


cl = opencl
context = device


nd: Any = SimpleNamespace(
    array=array,
    empty=lambda shape, dtype="float32", device="cpu": empty(shape, dtype, device),
    NDArray=NDArray,
    cpu=cpu,
    gpu=cuda,
    cuda=cuda,
    context=device,
)
target: Any = SimpleNamespace(
    Target=Target.parse,
    create=Target.parse,
    cuda=lambda **_: Target.parse("cuda"),
    opencl=lambda **_: Target.parse("opencl"),
    llvm=lambda **_: Target.parse("llvm"),
    mali=lambda **_: Target.parse("opencl"),
    sim=lambda **_: Target.parse("sim"),
)
runtime: Any = SimpleNamespace(load_module=load, Device=Device)
module = runtime


def placeholder(shape: Any, dtype: Any = "float32", name: str = "placeholder") -> Tensor:
    """``te.placeholder``; the type may also be NumPy's."""
    return _te.placeholder(shape, str(dtype), name)
