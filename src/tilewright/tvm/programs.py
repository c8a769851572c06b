"""``tvm.lower`` and ``tvm.build``: schedules as programs to look at, and as kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.ir import script, text2017
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Var
from tilewright.ir.func import Func
from tilewright.ir.ops import const, is_const
from tilewright.ir.stmt import ForKind, Pragma, Produce, Stmt
from tilewright.ir.visit import Rewriter, Steps
from tilewright.lower.backend.flatten import flatten
from tilewright.lower.loops.drop_guards import drop_guards
from tilewright.lower.loops.hoist_guards import hoist_guards
from tilewright.lower.pipeline import form
from tilewright.lower.pipeline import lower as lower_module
from tilewright.runtime import Kernel, array
from tilewright.runtime.compile import build as build_kernel
from tilewright.runtime.compile import import_texts, resolve
from tilewright.schedule import Schedule
from tilewright.schedule import create_schedule as make_schedule
from tilewright.target import Target, current_target
from tilewright.te import ExternOp, PlaceholderOp, Tensor
from tilewright.tvm import rules
from tilewright.tvm.packed import raise_what_was_raised

#: Options of TVM's passes that have no effect here, where the passes are others.
_NO_EFFECT = ("relay.", "te.", "testing.", "tir.")
_ADDED = ("tir.add_lower_pass",)
_VERIFY = "tilewright.verify"  # no option of TVM's

_config: ContextVar[Mapping[str, Any]] = ContextVar("pass_context", default={})  # noqa: B039


@dataclass(frozen=True)
class Program:
    """A schedule over its arguments."""

    schedule: Schedule
    args: tuple[Any, ...]
    name: str = "main"
    binds: Mapping[Buffer, Buffer] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def partial(self) -> bool:
        """Whether the arguments leave out an input or an output."""
        args = self.schedule.resolved(self.args)
        given = {a.buffer if isinstance(a, Tensor) else a for a in args}
        return any(
            isinstance(s.op, PlaceholderOp) or s.op in self.schedule.outputs
            for s in self.schedule.stages
            if not given.issuperset(t.buffer for t in s.op.outputs)
        )

    @cached_property
    def func(self) -> Func:
        """Its loops, in the form in which they are shown."""
        # Whether a machine has an instruction is a question of building.
        fragments = any(s.scope == "fragment" for s in self.schedule.stages)
        machine = Target.parse("sim" if fragments else current_target() or "llvm")
        given = self.schedule.resolved(self.args)
        shown = [a for a in given if not isinstance(a, Tensor) or self._stands(a)]
        with configured(self.schedule, self.config):
            return form(self.schedule, shown, machine, self.name, self.bound, self.partial)

    def _stands(self, tensor: Tensor) -> bool:
        """Whether a tensor is in memory: one that is inlined is not."""
        stage = self.schedule.stage_of(tensor.buffer)
        placed = isinstance(tensor.op, PlaceholderOp)
        return placed or (stage is not None and stage.attachment.kind != "inline")

    @cached_property
    def bound(self) -> dict[Any, Buffer]:
        """:attr:`binds`, and for scalars that are no integers the memory that holds them."""
        reals = [a for a in self.args if isinstance(a, Var) and not a.dtype.is_int]
        return {**self.binds, **{v: Buffer(v.name, (const(1),), v.dtype) for v in reals}}

    @cached_property
    def tir(self) -> Func:
        """Its loops in the form of TIR that TVM lowers to: over offsets, with guards where they can
        be decided first, and without the names of the stages that they compute."""
        flat = flatten(hoist_guards(drop_guards(self.func)), self.schedule.separators)
        return replace(self.func, body=_Unnamed().stmt(flat.body))

    def kernel(self, target: Target | None, verify: bool) -> Kernel:
        with configured(self.schedule, self.config):
            machine = resolve(target or Target.parse("llvm"))
            ruled = rules.any_rules(machine.kind)
            if not self.bound and not self.partial and not ruled:
                return build_kernel(self.schedule, self.args, target, self.name, verify)
            module = lower_module(
                self.schedule, self.args, machine, self.name, None, self.bound, self.partial
            )
            module = rules.apply(module, machine.kind) if ruled else module
            if machine.kind == "llvm":
                import_texts(self.schedule)
            return build_kernel(module, target=machine, verify=verify)


class _Unnamed(Rewriter):
    def steps(self, s: Stmt) -> Steps:
        return (yield super().steps(s.body if isinstance(s, Produce) else s))


class IRModule:
    """Lowered programs, to look at: ``print`` gives TVM's script, ``text("2017")`` the old form.

    ``mod["main"]`` is the function of that name, :meth:`update` takes in those of another module,
    and :func:`build` compiles all of them.
    """

    def __init__(self, *programs: Program) -> None:
        self.programs = {program.name: program for program in programs}

    def __getitem__(self, name: Any) -> Func:
        found = self.programs.get(str(getattr(name, "name_hint", name)))
        if found is None:
            listed = ", ".join(map(repr, self.programs))
            raise KeyError(f"the module has no function {name!r}: it has {listed}")
        return found.tir

    @property
    def functions(self) -> dict[str, Func]:
        return {name: program.tir for name, program in self.programs.items()}

    def items(self) -> Any:
        """The functions and their names."""
        return self.functions.items()

    def get_global_vars(self) -> list[str]:
        """The names of its functions."""
        return list(self.programs)

    def update(self, other: IRModule) -> None:
        """Take in the functions of another module, over those of the same name."""
        self.programs.update(other.programs)

    def text(self, style: str = "script", **_: Any) -> str:
        """The programs with flat indices, in the style "script" (2024) or "2017"."""
        if style not in ("script", "2017"):
            raise ValueError(f'the styles are "script" and "2017", not {style!r}')
        written = text2017.program_text if style == "2017" else script.script_text
        funcs = [program.func for program in self.programs.values()]
        return "\n".join(written(f, flatten(f)) for f in funcs)

    script = astext = text

    def show(self) -> None:
        """Print it."""
        print(self)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__


def lower(
    inputs: Any,
    args: Sequence[Any] | None = None,
    name: str = "main",
    binds: Mapping[Tensor, Buffer] | None = None,
    simple_mode: bool = False,
) -> IRModule:
    """The loops of a schedule, simplified and with virtual threads interleaved.

    An output that is not among ``args`` is memory of the program's own. ``binds`` are buffers, of
    :func:`~tilewright.tvm.intrinsics.decl_buffer`, with strides of their own for tensors.
    ``simple_mode`` is TVM's, and changes nothing here. Raises :class:`LoweringError` where the
    schedule has no program.
    """
    if isinstance(inputs, IRModule):
        return inputs
    others = {tensor.buffer: buffer for tensor, buffer in (binds or {}).items()}
    made = IRModule(Program(inputs, tuple(args or ()), name, others, dict(_config.get())))
    made[name]  # whose errors are those of lowering
    return made


def create_schedule(ops: Any) -> Schedule:
    """:func:`tilewright.schedule.create_schedule`; arguments of the program among other outputs
    are there already."""
    given = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    found = [op for op in given if not isinstance(getattr(op, "op", op), PlaceholderOp)]
    return make_schedule(found or given)


def schedule_to_module(
    sch: Schedule, args: Sequence[Any] | None = None, name: str = "main", binds: Any = None
) -> IRModule:
    """TVM's name for the first half of :func:`lower`."""
    return lower(sch, args, name, binds)


def create_prim_func(ops: Sequence[Any]) -> Func:
    """The program that computes the last of ``ops`` from the others, one nest of loops a stage."""
    made = [t for t in ops if isinstance(t, Tensor) and not isinstance(t.op, PlaceholderOp)]
    return Program(create_schedule([t.op for t in made]), tuple(ops)).func


@contextlib.contextmanager
def pass_context(
    opt_level: int = 2,
    required_pass: Any = None,
    disabled_pass: Any = None,
    instruments: Any = None,
    config: Mapping[str, Any] | None = None,
    **more: Any,
) -> Iterator[None]:
    """TVM's ``PassContext``: what ``config`` says of vectors and of unrolling holds for schedules
    that are lowered within; ``{"tilewright.verify": False}`` builds without proofs.

    Raises :class:`LoweringError` for a pass to be added, and for what is no option of TVM's.
    """
    options = {**_config.get(), **(config or {}), **{f"tir.{k}": v for k, v in more.items()}}
    for name, value in options.items():
        if name in _ADDED or not (name.startswith(_NO_EFFECT) or name == _VERIFY):
            raise LoweringError(
                f"PassContext(config={{{name!r}: {value!r}}}): the passes are fixed; a schedule "
                "says what to do to its loops, for example s[stage].pragma(axis, "
                "'auto_unroll_max_step', 16)"
            )
    token = _config.set(options)
    try:
        yield
    finally:
        _config.reset(token)


@contextlib.contextmanager
def build_config(**options: Any) -> Iterator[None]:
    """``tvm.build_config`` of 2019: ``auto_unroll_max_step``, ``unroll_explicit``,
    ``disable_vectorize``; others have no effect."""
    unroll = {
        new: options[old]
        for old, new in (
            ("auto_unroll_max_step", "auto_max_step"),
            ("unroll_explicit", "explicit_unroll"),
        )
        if old in options
    }
    vectorize = bool(options.get("disable_vectorize"))
    with pass_context(config={"tir.UnrollLoop": unroll, "tir.disable_vectorize": vectorize}):
        yield


@contextlib.contextmanager
def configured(s: Schedule, config: Mapping[str, Any]) -> Iterator[None]:
    """The schedule with what a context says of all loops, while it is lowered."""
    unroll = config.get("tir.UnrollLoop") or {}
    pragmas = {
        Pragma.AUTO_UNROLL_MAX_STEP: unroll.get("auto_max_step"),
        Pragma.UNROLL_EXPLICIT: unroll.get("explicit_unroll"),
    }
    wanted = {key: value for key, value in pragmas.items() if value}
    scalar = config.get("tir.disable_vectorize")
    before = [
        (stage, {axis: (m.kind, dict(m.pragmas)) for axis, m in stage.marks.items()})
        for stage in s.stages
        if not isinstance(stage.op, (PlaceholderOp, ExternOp))
    ]
    for stage, _ in before:
        for mark in stage.marks.values():
            if scalar and mark.kind is ForKind.VECTORIZED:
                mark.kind = ForKind.SERIAL
        if wanted and stage.attachment.kind == "root" and stage.leaf_iter_vars:
            pragmas_of = stage.mark(stage.leaf_iter_vars[0]).pragmas
            pragmas_of.update({k: v for k, v in wanted.items() if k not in pragmas_of})
    try:
        yield
    finally:
        for stage, marks in before:
            for axis in list(stage.marks):
                if axis not in marks:
                    del stage.marks[axis]
                else:
                    stage.marks[axis].kind, stage.marks[axis].pragmas = marks[axis]


class BuiltModule:
    """What :func:`build` returns: call it with arrays, one each argument."""

    def __init__(self, kernel: Kernel, *more: Kernel) -> None:
        self.kernel, self.kernels = kernel, {k.name: k for k in (kernel, *more)}
        self.entry_name = kernel.name

    def __call__(self, *args: Any) -> None:
        self.kernel(*map(self._argument, args, self.kernel.signature.params))
        raise_what_was_raised()

    def _argument(self, arg: Any, param: Any) -> Any:
        """A number for a scalar that is no integer, in memory."""
        number = isinstance(arg, (int, float, np.number))
        one = isinstance(param, Buffer) and len(param.shape) == 1 and is_const(param.shape[0], 1)
        if not (number and one):
            return arg
        device = self.kernel.target.kind if self.kernel.target.kind in ("cuda", "opencl") else "cpu"
        return array(np.full(1, arg, str(param.dtype)), device)

    def __getitem__(self, name: str) -> BuiltModule:
        if name in (self.entry_name, "main", "__tvm_main__", "default_function"):
            return self
        if name not in self.kernels:
            listed = ", ".join(map(repr, self.kernels))
            raise KeyError(f"the module has no function {name!r}: it has {listed}")
        return BuiltModule(self.kernels[name])

    def get_function(self, name: str, query_imports: bool = False) -> BuiltModule:
        """The function of a name."""
        return self[name]

    @property
    def entry_func(self) -> BuiltModule:
        return self

    @property
    def imported_modules(self) -> list[BuiltModule]:
        """The device's part, whose ``get_source()`` is the kernels' text."""
        return [self] if self.kernel.target.is_gpu else []

    def import_module(self, module: BuiltModule) -> None:
        """Nothing: the device's part of a module is in it, also where it was saved and loaded."""

    @property
    def type_key(self) -> str:
        """The kind of its target."""
        return str(self.kernel.target.kind)

    def get_source(self, fmt: str = "") -> str:
        """The generated text; ``fmt`` "asm", "ptx" or "sass" for the assembly."""
        return self.kernel.get_source(fmt)

    def time_evaluator(
        self, func_name: str, dev: Any = None, number: int = 10, repeat: int = 1, **_: Any
    ) -> Callable[..., Any]:
        """A function that runs the kernel and returns its times; ``.mean`` is in seconds."""
        return self[func_name].kernel.time_evaluator(func_name, dev, number, repeat)

    def save(self, path: str, fmt: str = "", **_: Any) -> None:
        """Write the kernel to a file that ``tvm.runtime.load_module`` reads."""
        self.kernel.save(path)

    export_library = save

    def __repr__(self) -> str:
        return repr(self.kernel)


def build(
    inputs: Any,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    runtime: Any = None,
    name: str = "main",
    binds: Mapping[Tensor, Buffer] | None = None,
    verify: bool = True,
) -> BuiltModule:
    """Compile a schedule over ``args``, or lowered modules, for a target.

    ``target`` defaults to that of the enclosing ``with target:``, then to "llvm"; ``target_host``
    and ``runtime`` are TVM's, and not needed. ``inputs`` may be a list of modules, or modules by
    target. ``verify=False`` leaves the proofs out. Raises as :func:`tilewright.build` does.
    """
    verify = verify and bool(_config.get().get(_VERIFY, True))
    if isinstance(inputs, Mapping):
        made = [
            kernel
            for kind, module in inputs.items()
            for kernel in build(module, target=kind, verify=verify).kernels.values()
        ]
        return BuiltModule(*made)
    from tilewright.tvm.machines import make_target  # it loads modules, which are built here

    machine = make_target(target) if target is not None else current_target()
    if isinstance(inputs, (list, tuple)):
        whole = IRModule()
        for module in inputs:
            whole.update(lower(module))
        inputs = whole
    if not isinstance(inputs, IRModule):
        others = {tensor.buffer: buffer for tensor, buffer in (binds or {}).items()}
        given = tuple(args) if args is not None else None
        if given is None:
            return BuiltModule(build_kernel(inputs, None, machine, name, verify))
        inputs = IRModule(Program(inputs, given, name, others, dict(_config.get())))
    return BuiltModule(*(p.kernel(machine, verify) for p in inputs.programs.values()))
