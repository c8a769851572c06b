"""The way from a schedule to kernels: every pass, in order, and why it stands where it stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tilewright.ir.func import Func, Module
from tilewright.lower.await_instructions import await_instructions
from tilewright.lower.continue_pipelines import continue_pipelines
from tilewright.lower.distribute import check_groups, distribute
from tilewright.lower.drop_guards import drop_guards
from tilewright.lower.expand_functions import expand_functions
from tilewright.lower.fits_target import check_fits
from tilewright.lower.hoist_guards import hoist_guards
from tilewright.lower.index_width import index_width
from tilewright.lower.inject_vthread import inject_vthread
from tilewright.lower.insert_barriers import insert_barriers
from tilewright.lower.issue_early import issue_early
from tilewright.lower.lazy_select import lazy_select
from tilewright.lower.loops import schedule_to_func
from tilewright.lower.lower_allreduce import lower_allreduce
from tilewright.lower.one_writer import one_writer
from tilewright.lower.own_slots import own_slots
from tilewright.lower.partition_loops import partition_loops
from tilewright.lower.pipeline_loops import pipeline_loops
from tilewright.lower.plan_storage import plan_storage
from tilewright.lower.proxy_fences import proxy_fences
from tilewright.lower.simplify import simplify
from tilewright.lower.split_barriers import split_barriers
from tilewright.lower.split_kernels import split_kernels
from tilewright.lower.tensorize import tensorize
from tilewright.lower.trim_loops import trim_loops
from tilewright.lower.unroll import unroll
from tilewright.lower.vectorize import vectorize
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

Pass: TypeAlias = Callable[[Func], Func]
Trace: TypeAlias = Callable[[str, "Func | Module"], None]

#: From the loops of the schedule to the form in which programs are shown to people.
FORM: tuple[Pass, ...] = (
    tensorize,  # first: it matches the loops that the schedule made, as it made them
    distribute,  # loops over fragments, which tensorize has spread, are divided among threads
    simplify,  # indices of splits and fusions fold; every later pass reads simple ones
    lazy_select,  # reads that only a condition keeps in bounds: before anything moves them
    inject_vthread,  # while the loops that virtual threads share still stand once
    simplify,
)

#: Rewriting of loops, on the whole program.
LOOPS: tuple[Pass, ...] = (
    expand_functions,  # once instructions have been matched, which may be declared with them
    trim_loops,  # needs the guards at the statements that they guard
    drop_guards,  # tiles in registers are computed whole, so that their vectors need no masks
    hoist_guards,  # then what remains moves to the outermost loop where it can be decided
    partition_loops,  # boundary conditions leave the interior, so that it vectorizes without masks
    unroll,  # marks loops that pragmas ask for, in every copy that partitioning made
    vectorize,  # last of these: vectors hide the loop variables that the others reason about
    simplify,
)

#: Within one kernel, where all threads are known.
KERNEL: tuple[Pass, ...] = (
    check_groups,  # that what distribute took for granted of the threads holds
    one_writer,  # once all threads are known: what they would all store alike, one of them stores
    lower_allreduce,  # makes shared buffers and barriers of its own
    own_slots,  # what all threads of a reduction had a slot in, each has in registers
    continue_pipelines,  # those that go on over outer loops, which the others end at
    pipeline_loops,  # makes more copies of buffers
    issue_early,  # also the first fillings of pipelines; before memory is planned
    plan_storage,  # lets dead buffers give their memory to others, which barriers must know of
    simplify,
    insert_barriers,  # after everything that moves, adds or merges memory
    split_barriers,  # those that nothing else relies on
    await_instructions,  # with barriers: what goes on in the background may not cross one
    proxy_fences,  # before barriers, behind the waits for what they are to fence off
    index_width,  # last: sizes are final, which offsets need 64 bits
)


def lower(
    schedule: Schedule,
    args: Sequence[Any],
    target: str | Target = "llvm",
    name: str = "main",
    trace: Trace | None = None,
) -> Module:
    """The kernels of a schedule for a target, in the order of their launch.

    Parameters
    ----------
    args : the tensors (inputs and outputs) and symbolic variables that a call passes, in order.
    trace : called after every pass with its name and the program that it made.

    Raises :class:`LoweringError` and :class:`ScheduleError` where the schedule has no program.
    """
    machine = Target.parse(target)
    check_fits(schedule, machine)
    func = schedule_to_func(schedule, args, name)
    func = replace(func, attrs={**func.attrs, "target": machine})
    show = trace or (lambda name, program: None)
    show("loops", func)
    for step in FORM + LOOPS:
        func = step(func)
        show(step.__name__, func)
    module = split_kernels(func)
    show("split_kernels", module)
    for step in KERNEL:
        module = replace(module, funcs=tuple(step(f) for f in module.funcs))
        show(step.__name__, module)
    return module


def form(
    schedule: Schedule, args: Sequence[Any], target: str | Target = "llvm", name: str = "main"
) -> Func:
    """The program in the form in which it is shown: simplified loops, nothing optimized yet."""
    func = schedule_to_func(schedule, args, name)
    func = replace(func, attrs={**func.attrs, "target": Target.parse(target)})
    for step in FORM:
        func = step(func)
    return func
