"""The names under which articles, and TVM's users, know all this.

``from tilewright import tvm`` in place of ``import tvm`` runs tensor-expression programs of 2017
(``tvm.compute``, ``tvm.select``, ``tvm.create_schedule``) and of 2024 (``te.compute``,
``tvm.tir.if_then_else``, ``tvm.lower``, ``tvm.build``). Under the names of 2017, ``/`` and ``%`` on
integers are C's.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewright import __version__ as __version__
from tilewright import te as _te
from tilewright import topi
from tilewright.codegen.flatten import flatten as _flatten
from tilewright.ir import expr as _expr
from tilewright.ir import ops as _ops
from tilewright.ir import script as _script
from tilewright.ir import text2017 as _text2017
from tilewright.ir.errors import LoweringError, TargetError, TilewrightError
from tilewright.ir.func import Func
from tilewright.lower.pipeline import form as _form
from tilewright.runtime import Device, Kernel, NDArray
from tilewright.runtime import array as _array
from tilewright.runtime import empty as _empty
from tilewright.runtime import load as _load
from tilewright.runtime.compile import build as _build
from tilewright.schedule import Schedule, create_schedule
from tilewright.target import Target as _Target
from tilewright.target import current_target as _current_target
from tilewright.tvm import functions as _functions
from tilewright.tvm.functions import convert as convert

__all__ = [
    *_te.__all__, "BuiltModule", "IRModule", "Schedule", "TVMError", "build", "cl", "context",
    "convert", "cpu", "create_schedule", "cuda", "device", "expr", "gpu", "ir", "lower", "module",
    "nd", "opencl", "runtime", "schedule", "target", "te", "tensor", "testing", "tir", "topi",
    "transform",
]  # fmt: skip

#: What does the work of names of TVM's that are not here.
_INSTEAD = {
    "auto_scheduler": "tvm.autotvm tunes templates",
    "build_config": "use s[stage].pragma(axis, 'auto_unroll_max_step', n)",
    "call_packed": "use te.extern with te.call_extern, which calls a C function",
    "contrib": "use te.extern with te.call_extern, which calls a C function, and Python's tempfile",
    "copysign": "use te.call_extern('float32', 'copysignf', x, y)",
    "create_prim_func": "tvm.lower(s, args) gives the program of a schedule",
    "decl_buffer": "te.extern passes the buffers of its inputs and outputs",
    "decl_tensor_intrin": "use tilewright.target.instruction.decl_instruction",
    "driver": "tvm.lower and tvm.build are called by these names",
    "evaluate": "te.extern takes a statement or an expression",
    "fmod": "use te.call_extern('float32', 'fmodf', x, y), or te.truncmod of integers",
    "generic": "declare with te.compute or tvm.topi, and schedule with te.create_schedule",
    "get_global_func": "use te.call_extern, which calls a C function by its name",
    "gradient": "declare the gradient with te.compute",
    "hybrid": "declare with te.compute",
    "intrin": "use te.call_extern, or the functions of te: te.exp, te.popcount",
    "ir_builder": "te.extern takes a statement of tilewright.ir.stmt",
    "make": "use the functions of te: te.if_then_else, te.const",
    "meta_schedule": "tvm.autotvm tunes templates",
    "micro": "kernel.export_c(path) writes a C file that stands alone",
    "placeholders": "use te.placeholder",
    "register_func": "use te.call_extern, which calls a C function by its name",
    "relax": "declare operators with te.compute or tvm.topi",
    "relay": "declare operators with te.compute or tvm.topi",
    "rpc": "build, kernel.save(path), and tilewright.load(path) on the other machine",
    "scan": "declare the steps of the recurrence as stages of their own",
    "script": "str(tvm.lower(s, args)) is the script of a program; programs are written in te",
    "stmt": "statements are classes of tilewright.ir.stmt",
    "tag_scope": "pass tag= to te.compute",
}


#: So many names are listed; of more, those that are near.
_FEW = 12


def _missing(room: str, name: str, known: Sequence[str]) -> AttributeError:
    if name in _INSTEAD:
        return AttributeError(f"Tilewright has no {room}.{name}: {_INSTEAD[name]}")
    near = difflib.get_close_matches(name, known, 3)
    hint = f"; did you mean {' or '.join(near)}?" if near else f": dir({room}) lists what it has"
    if not near and len(known) <= _FEW:
        hint = f"; it has {', '.join(known)}"
    return AttributeError(f"Tilewright's {room} has no {name!r}{hint}")


def __getattr__(name: str) -> Any:
    if name in _language:
        return _language[name]
    if name == "autotvm":  # loaded when it is asked for: most programs do not tune
        return importlib.import_module("tilewright.tune.autotvm")
    if name.startswith("__"):
        raise AttributeError(name)
    raise _missing("tvm", name, sorted(__all__))


class _Room:
    """Names under one heading; one that it lacks is an error that says what to use."""

    def __init__(self, room: str, **names: Any) -> None:
        self.__dict__.update(names, _room=room)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = sorted(k for k in self.__dict__ if not k.startswith("_"))
        raise _missing(f"tvm.{self._room}", name, known)

    def __repr__(self) -> str:
        return f"<tilewright.tvm.{self._room}>"


# -- the language ------------------------------------------------------------------------------


class _Constructor:
    """A class of TVM's that is made otherwise here; ``isinstance`` knows it all the same."""

    def __init__(self, cls: type, make: Callable[..., Any], **methods: Any) -> None:
        self.cls, self.make, self.methods = cls, make, methods

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self.make(*args, **more)

    def __instancecheck__(self, thing: object) -> bool:
        return isinstance(thing, self.cls)

    def __getattr__(self, name: str) -> Any:
        if name in self.methods:
            return self.methods[name]
        return getattr(self.cls, name)


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Any = None,
) -> Any:
    """``te.compute`` with the arithmetic of 2017: ``/`` and ``%`` on integers are C's."""
    with _ops.truncating_division():
        return _te.compute(shape, fcompute, name, tag, attrs)


def placeholder(shape: Any, dtype: Any = "float32", name: str = "placeholder") -> _te.Tensor:
    """``te.placeholder``; the type may also be NumPy's."""
    return _te.placeholder(shape, _dtype_name(dtype), name)


def _dtype_name(given: Any) -> str:
    return given if isinstance(given, str) else str(getattr(given, "__name__", given))


_language: dict[str, Any] = {name: getattr(_te, name) for name in _te.__all__}
_language |= {name: getattr(_functions, name) for name in _functions.__all__}
_language["Select"] = _Constructor(_expr.Select, _functions.select)
_nodes: dict[str, Any] = {
    name: cls
    for name, cls in vars(_expr).items()
    if isinstance(cls, type) and issubclass(cls, _expr.Expr)
}
_nodes |= {
    "FloatImm": _Constructor(_expr.FloatImm, lambda type, value: _ops.const(value, type)),
    "IntImm": _Constructor(_expr.IntImm, lambda type, value: _ops.const(value, type)),
    "Mod": _expr.TruncMod,
    "SizeVar": _Constructor(_expr.Var, _expr.Var.make),
    "Var": _Constructor(_expr.Var, _expr.Var.make),
    "PrimExpr": _expr.Expr,
}
te: Any = _Room("te", **_language, create_schedule=create_schedule, Schedule=Schedule)
te.placeholder = placeholder
_nodes["Select"] = _language["Select"]
tir: Any = _Room("tir", **{**_language, **_nodes})
expr: Any = _Room("expr", **_nodes)
_range = _Constructor(
    _te.Range,
    _te.Range,
    from_min_extent=_te.Range.from_extent,
    make_by_min_extent=_te.Range.from_extent,
)
ir: Any = _Room("ir", Range=_range, PrimExpr=_expr.Expr)
tensor: Any = _Room(
    "tensor",
    Tensor=_te.Tensor,
    ComputeOp=_te.ComputeOp,
    PlaceholderOp=_te.PlaceholderOp,
    ExternOp=_te.ExternOp,
)
schedule: Any = _Room(
    "schedule",
    Schedule=Schedule,
    create_schedule=create_schedule,
    IterVar=_te.IterVar,
    AutoInlineElemWise=_functions.inline_elementwise,
    AutoInlineInjective=_functions.inline_injective,
)
te.tensor, te.schedule = tensor, schedule
TVMError = TilewrightError


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
        flat = _flatten(self.func)
        if style == "2017":
            return _text2017.program_text(self.func, flat)
        if style != "script":
            raise ValueError(f'the styles are "script" and "2017", not {style!r}')
        return _script.script_text(self.func, flat)

    script = astext = text

    def show(self) -> None:
        """Print it."""
        print(self)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__


def lower(
    inputs: Schedule,
    args: Sequence[Any],
    name: str = "main",
    binds: None = None,
    simple_mode: bool = False,
) -> IRModule:
    """The loops of a schedule, simplified and with virtual threads interleaved.

    ``simple_mode`` is TVM's, and changes nothing here. Raises :class:`LoweringError` where the
    schedule has no program.
    """
    if binds is not None:
        raise LoweringError("tvm.lower: the buffers of tensors are their own; leave out binds")
    machine = _current_target() or _Target.parse("llvm")
    return IRModule(_form(inputs, args, machine, name), inputs, args)


@contextlib.contextmanager
def _pass_context(opt_level: int = 2, **more: Any) -> Iterator[None]:
    """TVM's ``PassContext``: the level of optimization is always the same here."""
    if more := {k: v for k, v in more.items() if v}:
        raise LoweringError(
            f"PassContext({', '.join(more)}): the passes are fixed; a schedule says what to do to "
            "its loops, for example s[stage].pragma(axis, 'auto_unroll_max_step', 16)"
        )
    yield


transform: Any = _Room("transform", PassContext=_pass_context)


# -- building and running ------------------------------------------------------------------------


class BuiltModule:
    """What :func:`build` returns: call it with arrays, one each argument."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.entry_name = kernel.name

    def __call__(self, *args: Any) -> None:
        self.kernel(*args)

    def __getitem__(self, name: str) -> BuiltModule:
        if name not in (self.entry_name, "main"):
            raise KeyError(f"the module holds one function, {self.entry_name!r}, not {name!r}")
        return self

    @property
    def entry_func(self) -> BuiltModule:
        return self

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
        self[func_name]
        return self.kernel.time_evaluator(func_name, dev, number, repeat)

    def save(self, path: str, fmt: str = "") -> None:
        """Write the kernel to a file that ``tvm.runtime.load_module`` reads."""
        self.kernel.save(path)

    export_library = save

    def __repr__(self) -> str:
        return repr(self.kernel)


def build(
    inputs: Schedule | IRModule,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    name: str = "main",
    verify: bool = True,
) -> BuiltModule:
    """Compile a schedule over ``args``, or a lowered module, for a target.

    ``target`` defaults to that of the enclosing ``with target:``, then to "llvm"; ``target_host``
    is TVM's, and not needed. ``verify=False`` leaves the proofs out. Raises as
    :func:`tilewright.build` does.
    """
    machine = _Target.parse(target) if target is not None else _current_target()
    if isinstance(inputs, IRModule):
        return BuiltModule(_build(inputs.schedule, inputs.args, machine, inputs.func.name, verify))
    return BuiltModule(_build(inputs, args, machine, name, verify))


def device(kind: str, index: int = 0) -> Device:
    """A device by the name of its target: "cpu", "llvm", "cuda", "opencl", "sim"."""
    return Device.parse(f"{str(kind).split()[0]}:{index}")


def cpu(index: int = 0) -> Device:
    """The CPU, where arrays for the targets llvm and sim are."""
    return Device("cpu", index)


def cuda(index: int = 0) -> Device:
    """A CUDA device."""
    return Device("cuda", index)


def opencl(index: int = 0) -> Device:
    """An OpenCL device."""
    return Device("opencl", index)


gpu, cl, context = cuda, opencl, device


def _nd_array(source: Any, device: Any = None, dtype: Any = None, *, ctx: Any = None) -> NDArray:
    """A copy of ``source`` (NumPy array, list, NDArray) on ``device``, the CPU if none is named."""
    type = None if dtype is None else _dtype_name(dtype)
    return _array(source, device or ctx or "cpu", type)


def _nd_empty(
    shape: Any, dtype: Any = "float32", device: Any = None, *, ctx: Any = None
) -> NDArray:
    """An array whose contents are undefined."""
    return _empty(shape, _dtype_name(dtype), device or ctx or "cpu")


def _load_module(path: str, fmt: str = "") -> BuiltModule:
    """A kernel that was saved."""
    return BuiltModule(_load(path))


def _enabled(kind: str) -> bool:
    """Whether this machine can run kernels for a target."""
    machine = _Target.parse(kind)
    return device(machine.kind).exist


def _targets(kind: str) -> Callable[..., _Target]:
    def make(model: str = "", options: str = "") -> _Target:
        return _Target.parse(f"{kind} {options}")

    return make


def _current(allow_none: bool = True) -> _Target | None:
    found = _current_target()
    if found is None and not allow_none:
        raise TargetError('there is no target here: write `with tvm.target.Target("llvm"):`')
    return found


def _make_target(target: Any, host: Any = None) -> _Target:
    """A target from its text, or from a dictionary with "kind" and options such as "arch"."""
    if isinstance(target, Mapping):
        options = (f"-{k}={v}" for k, v in target.items() if k not in ("kind", "host", "tag"))
        target = " ".join((str(target.get("kind", "")), *options))
    return _Target.parse(target)


def _assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """NumPy's check, with TVM's tolerances."""
    import numpy as np

    found, wanted = (a.numpy() if isinstance(a, NDArray) else a for a in (actual, desired))
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, verbose=True)


nd: Any = _Room(
    "nd", array=_nd_array, empty=_nd_empty, NDArray=NDArray, cpu=cpu, gpu=gpu, cuda=cuda,
    cl=cl, opencl=opencl, context=context, device=device,
)  # fmt: skip
target: Any = _Room(
    "target",
    Target=_Constructor(_Target, _make_target, current=_current),
    create=_make_target,
    current_target=_current,
    **{kind: _targets(kind) for kind in ("cuda", "opencl", "llvm", "sim")},
    mali=_targets("opencl"),
    intel_graphics=_targets("opencl"),
)
runtime: Any = _Room(
    "runtime", load_module=_load_module, enabled=_enabled, Device=Device, NDArray=NDArray, nd=nd,
    ndarray=nd, convert=convert, device=device,
)  # fmt: skip
module: Any = _Room("module", load=_load_module, enabled=_enabled, Module=BuiltModule)


def _enabled_targets() -> list[tuple[str, Device]]:
    """The targets that run on this machine, each with its device."""
    return [(kind, device(kind)) for kind in ("llvm", "cuda", "opencl") if _enabled(kind)]


testing: Any = _Room(
    "testing",
    assert_allclose=_assert_allclose,
    device_enabled=_enabled,
    enabled_targets=_enabled_targets,
)
