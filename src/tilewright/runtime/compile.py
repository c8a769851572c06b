"""From a schedule to a kernel: lower, prove, compile; or none of these, where it is known."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.errors import TargetError
from tilewright.ir.func import Module
from tilewright.ir.ops import const
from tilewright.ir.stmt import Pragma
from tilewright.runtime.build import backend, find
from tilewright.runtime.build import build as build_module
from tilewright.runtime.kernel import Kernel
from tilewright.schedule.fingerprint import fingerprint
from tilewright.schedule.schedule import Schedule, as_schedule
from tilewright.target.target import Target, current_target


def build(
    program: Schedule | Module,
    args: Sequence[Any] | None = None,
    target: str | Target | None = None,
    name: str = "main",
    verify: bool = True,
    constants: Sequence[Any] = (),
    strides: Mapping[Any, Sequence[int]] = MappingProxyType({}),
) -> Kernel:
    """A kernel that computes ``program`` on ``target``.

    Parameters
    ----------
    program : a schedule, or a module that :func:`tilewright.lower` made.
    args : for a schedule, the tensors and symbolic variables that a call passes, in order.
    target : "llvm" (the default, or the target of the enclosing ``with``), "cuda", "opencl",
        "sim", with options as in :meth:`Target.parse`.
    name : the name of the function, and the beginning of those of its kernels.
    verify : prove the lowered program in bounds and free of races before it is compiled.
    constants : those of ``args`` that are the same in every call. What the program computes of
        them alone, as a packed filter, is left to :meth:`Kernel.prepare`: calls take that. What
        writes them has ended before the first call: on a GPU, a kernel may read them while those
        before it on the stream run.
    strides : by tensor of ``args`` how far neighbours along its dimensions are apart, in elements,
        where it is no dense one but a view of a larger one. No two elements lie at one place.

    Raises :class:`ScheduleError`, :class:`LoweringError` or :class:`VerificationError` where the
    schedule is wrong, :class:`TargetError` where a library of the target is missing.
    """
    if isinstance(program, Module):
        found = program.target if target is None else target
        machine = Target.parse(found or current_target() or "llvm")
        return build_module(program, machine, prove=_proof(program, verify))
    program = as_schedule(program, "build")
    if not isinstance(args, Sequence):
        raise TargetError("build needs the arguments of the schedule in a list: build(s, [A, out])")
    machine = resolve(Target.parse(target or current_target() or "llvm"))
    if machine.kind == "llvm":
        import_texts(program)
    if any(all(arg is not c for arg in args) for c in constants):
        raise TargetError("build: a constant is none of the arguments: give it in args, too")
    fixed = [k for k, arg in enumerate(args) if any(arg is c for c in constants)]
    extra = "" if verify else " unproved"
    extra += f" constants {fixed}" if fixed else ""
    lies = {k: tuple(strides[arg]) for k, arg in enumerate(args) if strides and arg in strides}
    extra += f" strides {lies}" if lies else ""
    key = fingerprint(program, args, f"{name} {machine!r}{extra}")
    kernel = find(key, machine)
    if kernel is not None:
        return kernel
    from tilewright.lower.pipeline import lower

    binds = {args[k].buffer: _strided(args[k].buffer, given) for k, given in lies.items()}
    with uncollected():
        module = lower(program, args, machine, name, binds=binds)
        places = {stage.name: stage.op.where for stage in program.stages}
        proof = _proof(module, verify, places)
        return build_module(module, machine, key, [module.params[k] for k in fixed], proof)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without collecting garbage inside, where thousands of objects are made that are kept, or go
    with the last that refers to them: to look for others among all of a process takes long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _strided(buffer: Buffer, strides: tuple[int, ...]) -> Buffer:
    return replace(buffer, layout=Layout(tuple(map(const, strides))))


def import_texts(schedule: Schedule) -> None:
    """Load what the pragma ``import_llvm`` names, so that the program can call it."""
    marks = (mark for stage in schedule.stages for mark in stage.marks.values())
    texts = [m.pragmas[Pragma.IMPORT_LLVM] for m in marks if Pragma.IMPORT_LLVM in m.pragmas]
    if texts:
        from tilewright.runtime.llvm_link import load_text  # it loads LLVM

        for text in texts:
            load_text(text)


def resolve(target: Target) -> Target:
    """The target with the architecture of the machine at hand, where none is named."""
    own = getattr(backend(target), "resolve_target", None)
    found: Target = target if own is None else own(target)
    return found


def _proof(
    module: Module, wanted: bool, places: Mapping[str, str] | None = None
) -> Callable[[], None]:
    """What proves ``module`` when it is called, where that is wanted."""

    def prove() -> None:
        from tilewright.verify import verify

        for func in module.funcs:
            verify(func, places)

    return prove if wanted else lambda: None
