"""``tvm.lower`` and ``tvm.build``: a schedule as a program to look at, and as a kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.ir import script, text2017
from tilewright.ir.errors import LoweringError
from tilewright.ir.func import Func
from tilewright.lower.backend.flatten import flatten
from tilewright.lower.pipeline import form
from tilewright.runtime import Kernel
from tilewright.runtime.compile import build as build_kernel
from tilewright.schedule import Schedule
from tilewright.target import Target, current_target


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

    def __getattr__(self, name: str) -> Any:
        if name == "update":
            raise AttributeError("an IRModule holds one function: build each schedule on its own")
        raise AttributeError(f"an IRModule has no attribute {name!r}")

    def text(self, style: str = "script") -> str:
        """The program with flat indices, in the style "script" (2024) or "2017"."""
        flat = flatten(self.func)
        if style == "2017":
            return text2017.program_text(self.func, flat)
        if style != "script":
            raise ValueError(f'the styles are "script" and "2017", not {style!r}')
        return script.script_text(self.func, flat)

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
    machine = current_target() or Target.parse("llvm")
    return IRModule(form(inputs, args, machine, name), inputs, args)


@contextlib.contextmanager
def pass_context(opt_level: int = 2, **more: Any) -> Iterator[None]:
    """TVM's ``PassContext``: the level of optimization is always the same here."""
    if more := {k: v for k, v in more.items() if v}:
        raise LoweringError(
            f"PassContext({', '.join(more)}): the passes are fixed; a schedule says what to do to "
            "its loops, for example s[stage].pragma(axis, 'auto_unroll_max_step', 16)"
        )
    yield


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
    machine = Target.parse(target) if target is not None else current_target()
    if isinstance(inputs, IRModule):
        return BuiltModule(
            build_kernel(inputs.schedule, inputs.args, machine, inputs.func.name, verify)
        )
    return BuiltModule(build_kernel(inputs, args, machine, name, verify))
