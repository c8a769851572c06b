"""Every pass from a schedule to text, in order: what it does, and why it stands where it stands.

:func:`lower` runs ``FORM``, ``LOOPS``, ``SPLIT`` and ``KERNEL`` for every target; code generators
then run those of :func:`backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import LoweringError, TargetError
from tilewright.ir.func import Func, Module
from tilewright.lower.async_.await_late_loads import await_late_loads
from tilewright.lower.async_.cross_loop_pipelining import cross_loop_pipelining
from tilewright.lower.async_.hoist_async_copies import hoist_async_copies
from tilewright.lower.async_.insert_async_waits import insert_async_waits
from tilewright.lower.async_.insert_barriers import insert_barriers
from tilewright.lower.async_.narrow_barriers import narrow_barriers
from tilewright.lower.async_.pipeline_loops import pipeline_loops
from tilewright.lower.async_.producer_warps import producer_warps
from tilewright.lower.async_.proxy_fences import proxy_fences
from tilewright.lower.async_.split_barriers import split_barriers
from tilewright.lower.backend.common_subexpressions import common_subexpressions
from tilewright.lower.backend.flatten import flatten
from tilewright.lower.backend.innermost_vectors import innermost_vectors
from tilewright.lower.backend.number_maps import number_maps
from tilewright.lower.backend.open_swizzles import open_swizzles
from tilewright.lower.backend.rejoin_threads import rejoin_threads
from tilewright.lower.backend.unpack_lanes import unpack_lanes
from tilewright.lower.backend.write_statements import write_statements
from tilewright.lower.build.distribute import check_groups, distribute
from tilewright.lower.build.fits_target import check_fits
from tilewright.lower.build.inject_vthread import inject_vthread
from tilewright.lower.build.lazy_select import lazy_select
from tilewright.lower.build.schedule_to_func import schedule_to_func
from tilewright.lower.build.tensorize import tensorize
from tilewright.lower.loops.drop_guards import drop_guards
from tilewright.lower.loops.drop_thread_dims import drop_thread_dims
from tilewright.lower.loops.expand_functions import expand_functions, expanded
from tilewright.lower.loops.group_guards import group_guards
from tilewright.lower.loops.hoist_guards import hoist_guards
from tilewright.lower.loops.index_width import index_width
from tilewright.lower.loops.lower_allreduce import lower_allreduce
from tilewright.lower.loops.partition_loops import partition_loops
from tilewright.lower.loops.plan_storage import plan_storage
from tilewright.lower.loops.predicate_redundant_stores import predicate_redundant_stores
from tilewright.lower.loops.simplify import simplify
from tilewright.lower.loops.split_kernels import split_kernels
from tilewright.lower.loops.trim_loops import trim_loops
from tilewright.lower.loops.unroll import unroll
from tilewright.lower.loops.vectorize import vectorize
from tilewright.schedule.schedule import Schedule, as_schedule
from tilewright.target.target import Target

Pass: TypeAlias = Callable[[Func], Func]
Trace: TypeAlias = Callable[[str, "Func | Module"], None]

#: From the loops of the schedule to the form in which programs are shown to people.
FORM: tuple[Pass, ...] = (
    # Replace marked loops by instructions. First, since it matches loops as the schedule made them.
    tensorize,
    # Divide loops over fragments among threads. Tensorize has decided who holds which element.
    distribute,
    # Bring expressions into canonical form. Every later pass reads indices that are folded.
    simplify,
    # Branch where a select's value may be out of bounds, before anything moves its reads.
    lazy_select,
    # Write virtual threads side by side, while the loops that they share still stand once.
    inject_vthread,
    simplify,
)

#: Rewriting of loops, on the whole program.
LOOPS: tuple[Pass, ...] = (
    # Compute functions that the target lacks. Instructions may be declared with them.
    expand_functions,
    # Let loops run only where the guard of their body holds; needs guards at what they guard.
    trim_loops,
    # Compute tiles in registers whole, without guards, so that their vectors need no masks.
    drop_guards,
    # Move the guards that remain to the outermost loop where they can be decided.
    hoist_guards,
    # Let iterations of unrolled loops that are guarded alike share a branch, which is then copied
    # with all of them.
    group_guards,
    # Split loops into interior and boundary, so that the interior vectorizes without masks.
    partition_loops,
    # Mark loops that pragmas ask to unroll, in every copy that partitioning made.
    unroll,
    # Make vectors of vectorized loops. Last: vectors hide the variables that the others read.
    vectorize,
    simplify,
)

#: Makes a kernel of each top-level nest, its threads in the launch.
SPLIT = split_kernels

#: Within one kernel, where all threads are known.
KERNEL: tuple[Pass, ...] = (
    # Check what distribute took for granted of the threads.
    check_groups,
    # Let one thread store what all would store alike.
    predicate_redundant_stores,
    # Write reductions over threads as shuffles, or with shared buffers and barriers of their own.
    lower_allreduce,
    # Drop dimensions in which each thread uses one slot of its own, behind reductions' slots.
    drop_thread_dims,
    # Note that a warp of its own is to copy boxes, while pipelines still say so.
    producer_warps,
    # Fill pipelines ahead across iterations of an outer loop; before those inside are written out.
    cross_loop_pipelining,
    # Fill pipelines ahead within their loop, with several copies of their buffers.
    pipeline_loops,
    # Commit loads that are wanted late, and wait for them where they are; before barriers.
    await_late_loads,
    # Issue the first fillings of pipelines early; before memory is planned.
    hoist_async_copies,
    # Let buffers that are never alive at once share memory, which barriers must take into account.
    plan_storage,
    simplify,
    # Put barriers where threads would race, after all that moves, adds or merges memory.
    insert_barriers,
    # Make arrivals of barriers that only free copies of a pipeline.
    split_barriers,
    # Commit groups of asynchronous instructions, and wait for them, but not across a barrier.
    insert_async_waits,
    # Put fences between threads' accesses and those of tensor cores and TMA, behind the waits.
    proxy_fences,
    # Let warps beside a producer wait for each other no more than they have to; behind all that
    # takes barriers for those of a block.
    narrow_barriers,
    # Widen indices whose offsets can reach 2^31. Last, when sizes are final.
    index_width,
)


def backend(kind: str, arch: str = "", vector_bytes: int = 16) -> tuple[Pass, ...]:
    """What the code generator for ``kind`` does to each kernel before it writes text.

    Parameters
    ----------
    kind : "cuda", "opencl", "llvm", "c" or "sim".
    arch : of CUDA, the architecture; without one, the most general instructions.
    vector_bytes : of LLVM, the width of the processor's vectors.
    """
    match kind:
        case "cuda":
            return (
                # Write instructions that are statements as these, before anything is flattened.
                write_statements,
                # Make each box that TMA copies a parameter, while tensors have their dimensions.
                partial(number_maps, kind=kind, arch=arch),
                # Keep vectors within a chunk of swizzled memory whole, before offsets are formed.
                open_swizzles,
                # Make buffers one-dimensional and indices offsets.
                flatten,
                # Name offsets that occur twice. They may be simpler than the indices were.
                common_subexpressions,
            )
        case "opencl":
            return (
                # Put a barrier behind branches and loops that hold one, for PoCL. First, since
                # it looks at statements alone.
                write_statements,
                rejoin_threads,
                flatten,
                common_subexpressions,
            )
        case "c":
            # Vectors become loops, of which the C compiler makes vectors.
            return write_statements, unpack_lanes, flatten
        case "llvm":
            return (
                write_statements,
                # Make loops of wide vectors of odd lanes, which LLVM gets wrong.
                partial(unpack_lanes, width=vector_bytes),
                # Make vectors of innermost loops, in place of LLVM's own vectorizer.
                partial(innermost_vectors, width=vector_bytes),
            )
        case "sim":
            # The program may have been lowered for CUDA, whose functions NumPy lacks.
            return (expanded,)
    raise TargetError(f"there is no code generator for {kind!r}")


def for_backend(func: Func, kind: str, arch: str = "", vector_bytes: int = 16) -> Func:
    """``func`` after the passes of :func:`backend`."""
    for step in backend(kind, arch, vector_bytes):
        func = step(func)
    return func


def lower(
    schedule: Schedule,
    args: Sequence[Any],
    target: str | Target = "llvm",
    name: str = "main",
    trace: Trace | None = None,
    binds: Mapping[Buffer, Buffer] | None = None,
    partial: bool = False,
) -> Module:
    """The kernels of a schedule for a target, in the order of their launch.

    Parameters
    ----------
    args : the tensors (inputs and outputs) and symbolic variables that a call passes, in order.
    trace : called after every pass with its name and the program that it made.
    binds, partial : as in :func:`~tilewright.lower.build.schedule_to_func.schedule_to_func`.

    Raises :class:`LoweringError` and :class:`ScheduleError` where the schedule has no program.
    """
    machine = Target.parse(target)
    check_fits(as_schedule(schedule, "lower"), machine)
    func = schedule_to_func(schedule, args, name, binds, partial)
    func = replace(func, target=machine)
    show = trace or (lambda name, program: None)
    show("loops", func)
    simple = None
    for step in FORM + LOOPS:
        if step is not simplify or func.body is not simple:  # else nothing has changed since
            func = step(func)
        if step is simplify:
            simple = func.body
        show(step.__name__, func)
    module = SPLIT(func)
    show("split_kernels", module)
    for step in KERNEL:
        module = replace(module, funcs=tuple(step(f) for f in module.funcs))
        show(step.__name__, module)
    return module


def form(
    schedule: Schedule,
    args: Sequence[Any],
    target: str | Target = "llvm",
    name: str = "main",
    binds: Mapping[Buffer, Buffer] | None = None,
    partial: bool = False,
) -> Func:
    """The program in the form in which it is shown: simplified loops, nothing optimized yet.

    Where fragments cannot be divided among threads, as those of a schedule that has not all of its
    instructions yet, loops over their elements are shown. :func:`lower` says why.
    """
    func = schedule_to_func(schedule, args, name, binds, partial)
    func = replace(func, target=Target.parse(target))
    for step in FORM:
        try:
            func = step(func)
        except LoweringError:
            if step is not distribute:
                raise
    return func
