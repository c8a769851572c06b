"""The processor at hand, and LLVM's compiler for it."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from tilewright.codegen.llvm import Generated
from tilewright.ir.errors import TargetError
from tilewright.runtime import forks
from tilewright.target import Target

#: How the triples of x86 begin.
_X86 = ("x86_64", "amd64")
_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_AMX = ("avx512bf16", "avx512vnni", "amx-tile", "amx-bf16", "amx-int8")
#: Feature sets by name: the processor whose tuning LLVM takes, its features, and those beyond.
_SETS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "baseline": ("x86-64", (), ()),
    "avx2": ("x86-64-v3", _V3, ()),
    "avx512": ("x86-64-v4", _V4, ()),
    "amx": ("x86-64-v4", _V4, _AMX),
}
#: Other names for them, by what is in the name.
_ALIASES = {"amx": "amx", "sapphirerapids": "amx", "avx512": "avx512", "avx2": "avx2"}


@dataclass(frozen=True)
class Processor:
    """What to compile for.

    ``flags`` are features as LLVM takes them ("+avx2,-sse4a"); ``features`` those that are there.
    """

    triple: str
    cpu: str
    flags: str
    features: frozenset[str]

    @property
    def vector_bits(self) -> int:
        """The width of vectors to prefer; 0 leaves it to LLVM."""
        return 512 if "avx512vl" in self.features else 0

    @property
    def tag(self) -> str:
        """What compiled code depends on, as JSON."""
        import llvmlite

        return json.dumps(
            {
                "triple": self.triple,
                "cpu": self.cpu,
                "features": sorted(self.features),
                "llvmlite": llvmlite.__version__,
            }
        )


@cache
def binding() -> Any:
    """llvmlite's binding, ready to compile for this machine."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise TargetError(
            f"the target llvm needs llvmlite ({error}): pip install llvmlite"
        ) from None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    if llvm.get_process_triple().startswith(_X86):
        # Not its pass that splits copies which a store before them would hold up: it takes the
        # size of a masked access for known, and llvmlite is built with assertions, of which this
        # one ends the process ("Getting value from an unknown LocationSize!").
        llvm.set_option("tilewright", "-x86-disable-avoid-SFB")
    lock = getattr(getattr(llvm.ffi.lib, "_lock", None), "_lock", None)  # of each call of LLVM's
    if lock is not None:
        forks.hold(lock, forks.COMPILER)
    return llvm


@cache
def host_features() -> frozenset[str]:
    """What this process may use of the processor, in LLVM's names."""
    try:
        found = binding().get_host_cpu_features()
    except RuntimeError:  # LLVM cannot tell on this machine
        return frozenset()
    there = frozenset(name for name, has in found.items() if has)
    tiles = frozenset(name for name in there if name.startswith("amx-"))
    return there if not tiles or tiles_allowed() else there - tiles


#: arch_prctl(2) of x86-64: its number, the request for a part of the processor's state, and the
#: number of the part that AMX's tiles are (Linux, Documentation/arch/x86/xstate.rst).
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18


@cache
def tiles_refused() -> str:
    """Why the kernel does not let this process use AMX's tiles, for which it is asked here; empty
    where it does.

    Linux saves their 8 KiB with each thread's state only once a process has asked; one that has
    not is killed by their first use. What a process may do, its threads and forks may.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"{platform.system()} is not asked for them"
    system_call = ctypes.CDLL(None, use_errno=True).syscall
    system_call.restype = ctypes.c_long
    arguments = (_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA)
    if system_call(*(ctypes.c_long(x) for x in arguments)) == 0:
        return ""
    code = ctypes.get_errno()
    hint = {errno.EINVAL: "; Linux has it since 5.16", errno.ENOSPC: ", for signal stacks"}
    return f"arch_prctl(ARCH_REQ_XCOMP_PERM) says {os.strerror(code)}{hint.get(code, '')}"


def tiles_allowed() -> bool:
    """Whether this process may use AMX's tiles; see :func:`tiles_refused`."""
    return not tiles_refused()


def lacking(features: Iterable[str]) -> str:
    """Why code that uses these features cannot run in this process; empty where it can."""
    missing = sorted(set(features) - host_features())
    if not missing:
        return ""
    there = binding().get_host_cpu_features() if missing[0].startswith("amx-") else {}
    if all(there.get(name) for name in missing):
        return f"the system does not let this process use AMX's tiles: {tiles_refused()}"
    return f"this processor lacks {', '.join(missing)}"


@cache
def processor(arch: str) -> Processor:
    """The processor that ``Target.arch`` names: "native" or empty for the one at hand, else a set
    of features, which need not be there: :func:`lacking` says whether they are.

    Raises :class:`TargetError` for other names.
    """
    llvm = binding()
    triple = llvm.get_process_triple()
    is_x86 = triple.startswith(_X86)
    if "/" in arch:
        other, cpu, flags = arch.split("/")
        if other.split("-")[0] != triple.split("-")[0]:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
            return Processor(other, cpu, flags, frozenset({f"the instructions of {other}"}))
        arch = cpu
    if arch in ("", "native"):
        host = host_features()
        flags = ",".join(f"+{name}" for name in sorted(host))
        cpu = ""
        if is_x86:
            fits = [c for c, own, more in _SETS.values() if host.issuperset((*own, *more))]
            cpu = fits[-1]
        return Processor(triple, cpu, flags, host)
    if not is_x86:
        if arch == "baseline":
            return Processor(triple, "generic", "", frozenset({"neon"} & host_features()))
        raise TargetError(f"unknown architecture {arch!r} of llvm here: native or baseline")
    name = next((known for part, known in _ALIASES.items() if part in arch), arch)
    if name not in _SETS:
        raise TargetError(
            f"unknown architecture {arch!r} of llvm: the sets of features are native, "
            f"{', '.join(_SETS)}"
        )
    cpu, own, more = _SETS[name]
    return Processor(triple, cpu, ",".join(f"+{f}" for f in more), frozenset((*own, *more)))


def thread_count(target: Target) -> int:
    """How many threads PARALLEL loops use where the target leaves it open.

    As many as the process may run on, or ``TILEWRIGHT_NUM_THREADS``.
    """
    return target.threads or named_threads() or available_cores()


def named_threads() -> int:
    """What ``TILEWRIGHT_NUM_THREADS`` says, 0 where it says nothing."""
    named = os.environ.get("TILEWRIGHT_NUM_THREADS", "")
    return int(named) if named.isdigit() else 0


def available_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _machine(cpu: Processor, plain: bool) -> Any:
    llvm = binding()
    target = llvm.Target.from_triple(cpu.triple)
    opt = 2 if plain else 3
    return target.create_target_machine(
        cpu=cpu.cpu, features=cpu.flags, opt=opt, reloc="pic", codemodel="default"
    )


@lru_cache(8)
def _optimizer(cpu: Processor, slp: bool) -> tuple[Any, Any]:
    """A machine to compile for, and what makes LLVM's passes for it, with ``slp`` those that put
    scalars side by side on vectors.

    They are kept, as llvmlite 0.50 does not free all of a pass builder.
    """
    llvm, machine = binding(), _machine(cpu, False)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    # Not LLVM's vectoriser of loops: llvmlite is built with assertions, and one of LLVM 22's,
    # "VPlan cost model and legacy cost model disagreed", aborts the process on some loops (one in
    # some 40,000 random programs, with AVX-512). A width as metadata would avoid that one
    # assertion, but also lets it reorder sums of floats. Simple loops are on vectors already
    # (lower/backend/innermost_vectors.py).
    options.loop_vectorization = options.loop_interleaving = False
    options.slp_vectorization, options.loop_unrolling = slp, True
    return machine, llvm.create_pass_builder(machine, options)


def optimize(code: Generated, cpu: Processor) -> tuple[Any, Any]:
    """The optimised module, and a machine to emit it with, which others use too.

    Raises :class:`TargetError` where LLVM makes no module of it that is valid.
    """
    for slp in (True, False):
        module, machine = _optimized(code, cpu, slp)
        # LLVM 22's SLP vectoriser may use a value before it is computed (where elements of two
        # columns are combined by umax, say), and emitting such a module ends the process ("Already
        # set a value for this node"). What is wrong is kept as text: the error's frames would hold
        # the module, which is to be freed before its context.
        try:
            module.verify()
        except RuntimeError as error:
            wrong = str(error)
        else:
            return module, machine
    raise TargetError(f"LLVM's passes made a module that is not valid: {wrong}")


def _optimized(code: Generated, cpu: Processor, slp: bool) -> tuple[Any, Any]:
    """What :func:`optimize` returns, with the SLP vectoriser or without, and valid or not."""
    llvm = binding()
    machine, builder = (_machine(cpu, True), None) if code.plain else _optimizer(cpu, slp)
    # The context that modules share by default keeps their types and constants for ever.
    context = llvm.create_context()
    module = llvm.parse_assembly(code.text, context)
    module.triple = cpu.triple
    module.data_layout = str(machine.target_data)
    for text in code.linked:
        module.link_in(llvm.parse_assembly(text, context))
    module.verify()
    if builder is None:
        return module, machine
    manager = builder.getModulePassManager()
    try:
        manager.run(module, builder)
    finally:
        # llvmlite 0.50 frees no pass manager, which is 140 KiB: of the two bases of its class, the
        # one whose _dispose does nothing stands first.
        free = getattr(llvm.newpassmanagers.NewPassManager, "_dispose", None)
        if free is not None:
            free(manager)
            manager.detach()
    return module, machine


def compile_object(code: Generated, cpu: Processor) -> bytes:
    """An object file."""
    module, machine = optimize(code, cpu)
    data: bytes = machine.emit_object(module)
    return data


def assembly(code: Generated, cpu: Processor) -> str:
    """The instructions as text, with remarks on spills."""
    module, _ = optimize(code, cpu)
    machine = _machine(cpu, code.plain)
    machine.set_asm_verbosity(True)
    text: str = machine.emit_assembly(module)
    return text
