"""CUDA: modules compiled by NVRTC and launched through the driver.

A launch costs a dictionary's look-up and one driver call a kernel: grids and workspace sizes are
kept by the values of the symbolic extents, arguments are written into a block of memory that the
driver reads. Nothing waits, and nothing is allocated but by torch's allocator or the first time on
a stream, so launches can be captured in CUDA graphs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilewright.codegen.arguments import outputs, variables
from tilewright.codegen.registers import WAYS, Registers
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ArgumentError, TargetError
from tilewright.ir.func import Func, Module
from tilewright.ir.stmt import Instr
from tilewright.ir.visit import statements
from tilewright.runtime import nvrtc
from tilewright.runtime.array_view import ArrayView
from tilewright.runtime.cuda_driver import (
    Device,
    Memory,
    current_ordinal,
    device,
    device_count,
    load_driver,
    pointer_ordinal,
    stream_handle,
    torch_in_use,
)
from tilewright.runtime.cuda_launch import Loaded, measure
from tilewright.runtime.program import Resources
from tilewright.target import Target
from tilewright.target.boxes import TensorMap
from tilewright.target.target import overlaps, sms

if TYPE_CHECKING:
    from tilewright.codegen.cuda import Source

#: What vector accesses need the address of every argument to be a multiple of, in bytes.
ALIGNMENT = 16


def resolve_arch(target: Target) -> str:
    """The architecture to compile for: the target's, else that of the current device.

    Raises :class:`TargetError` where neither is known.
    """
    return target.arch or device(current_ordinal()).arch


def cache_tag(target: Target) -> str:
    """What compiled code depends on besides the program."""
    return f"nvrtc {nvrtc.version()} {resolve_arch(target)}"


def allocate(nbytes: int, where: str = "cuda:0") -> Memory:
    """Memory for an array on a device such as "cuda:0"."""
    return Memory(nbytes, int(where.partition(":")[2] or 0))


def synchronize(where: str = "cuda:0") -> None:
    """Wait for all work on a device."""
    with device(int(where.partition(":")[2] or 0)).current():
        status = load_driver().cuCtxSynchronize()[0]
    if int(status) != 0:
        raise TargetError(f"CUDA: a kernel failed: {status.name}")


def device_name(ordinal: int = 0) -> str:
    """What the device calls itself, as "NVIDIA H200"."""
    return device(ordinal).name


def compute_capability(ordinal: int = 0) -> int:
    """90 for 9.0."""
    return device(ordinal).capability


class CudaProgram:
    """A module compiled for CUDA; see :class:`tilewright.runtime.program.Program`.

    Arrays of the host are taken too: they are copied to the current device and back, and the call
    waits.
    """

    devices = ("cuda", "cpu")

    def __init__(self, module: Module, target: Target, files: Mapping[str, bytes]) -> None:
        self.module, self.target = module, target
        self._files = dict(files)
        meta = json.loads(files["meta.json"])
        self.arch: str = meta["arch"]
        self.symbols: list[str] = meta["symbols"]
        self.dynamic_shared: list[int] = meta["dynamic_shared"]
        self.unaligned_shared: list[int] = meta["unaligned_shared"]
        self.asked_shared: list[int] = meta["asked_shared"]
        self.told = Registers(*meta["registers"])  # what the compiler received
        self.written = frozenset(meta["written"])
        self.maps = [[TensorMap.of(row) for row in own] for own in meta["maps"]]
        self.resources: Mapping[str, Resources] = {
            name: Resources(**fields) for name, fields in meta["resources"].items()
        }
        #: Whether arguments must lie at multiples of ALIGNMENT bytes for ``source``.
        self.aligned = "unaligned.cu" in files
        self.scalars = variables(module)
        self.buffers = [p for p in module.params if isinstance(p, Buffer)]
        self._loaded: dict[tuple[int, bool], Loaded] = {}

    @property
    def source(self) -> str:
        """The CUDA C++."""
        return self._files["source.cu"].decode()

    @property
    def cubin(self) -> bytes:
        """The machine code."""
        return self._files["kernel.cubin"]

    def code(self, simple: bool, arch: str = "") -> tuple[str, bytes]:
        """The CUDA C++ and its machine code for an architecture, by default the program's own; or
        of the ``simple`` kernels for arguments at addresses that are not aligned."""
        source = self._files["unaligned.cu" if simple else "source.cu"].decode()
        if simple or arch:
            return source, nvrtc.compile_cubin(source, arch or self.arch).data
        return source, self.cubin

    @cached_property
    def assembly(self) -> str:
        """SASS."""
        from tilewright.runtime.sass import disassemble

        return disassemble(self.cubin)

    def artifacts(self) -> dict[str, bytes]:
        return dict(self._files)

    def launch(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int], stream: Any = None
    ) -> None:
        values = tuple(scalars[v.name] for v in self.scalars)
        if any(a.device == "cpu" for a in arrays):
            self._launch_copied(arrays, values, stream)
            return
        ordinal = _common_device(arrays, self.buffers)
        self._launch(tuple(a.pointer for a in arrays), values, stream, ordinal)

    def launch_raw(
        self,
        pointers: tuple[int, ...],
        scalars: tuple[int, ...],
        stream: Any = None,
        ordinal: int | None = None,
    ) -> None:
        """:meth:`launch` for addresses on one device, ``ordinal``, that have been checked."""
        if ordinal is None:
            alone = device_count() == 1 or not pointers
            ordinal = 0 if alone else pointer_ordinal(pointers[0])
        self._launch(pointers, scalars, stream, ordinal)

    def caller(
        self, scalars: tuple[int, ...], ordinal: int, torch: Any
    ) -> Callable[[tuple[int, ...]], None]:
        """:meth:`launch_raw` for given ``scalars`` and a device, on torch's current stream."""
        aligned = self.aligned
        loaded = self._loaded.get((ordinal, aligned)) or self._load(ordinal, aligned)
        return loaded.quick(
            scalars, torch, lambda pointers: self._launch(pointers, scalars, None, ordinal)
        )

    def _launch(
        self, pointers: tuple[int, ...], scalars: tuple[int, ...], stream: Any, ordinal: int
    ) -> None:
        aligned = self.aligned
        if aligned:
            for p in pointers:
                if p % ALIGNMENT:
                    aligned = False
        loaded = self._loaded.get((ordinal, aligned)) or self._load(ordinal, aligned)
        torch = torch_in_use() if stream is None else None
        loaded.launch(pointers, scalars, stream_handle(stream, ordinal), torch)

    def _load(self, ordinal: int, aligned: bool) -> Loaded:
        """The code for a device, compiled again where what there is does not fit."""
        place = device(ordinal)
        simple = self.aligned and not aligned
        own = _runs_on(self.arch, place)
        _, cubin = self.code(simple, "" if own else place.arch)
        follows = overlaps(self.arch)  # what the source was written for, where it waits
        maps = None if simple else self.maps
        shared = self.unaligned_shared if simple else self.dynamic_shared
        if not simple and self.asked_shared != shared:
            # An SM of another architecture may have less memory.
            many = own and place.attribute("MULTIPROCESSOR_COUNT") >= sms(self.arch)
            shared = self.asked_shared if many else shared
        loaded = Loaded(
            self.module, place, cubin, self.symbols, shared, follows, maps,
            ALIGNMENT if aligned else 1, self.written,
        )  # fmt: skip
        self._loaded[ordinal, aligned] = loaded
        return loaded

    def _launch_copied(
        self, arrays: Sequence[ArrayView], scalars: tuple[int, ...], stream: Any
    ) -> None:
        there = [a for a in arrays if a.device != "cpu"]
        ordinal = _common_device(there, self.buffers) if there else current_ordinal()
        pointers, copies = [], []
        for k, a in enumerate(arrays):
            if a.device != "cpu":
                pointers.append(a.pointer)
                continue
            low, high = a.span
            memory = Memory(high - low, ordinal)
            memory.write(low, high - low)
            pointers.append(memory.pointer + (a.pointer - low))
            copies.append((k, memory, low, high - low))
        self._launch(tuple(pointers), scalars, stream, ordinal)
        written = {self.module.params[k] for k in self.written}
        for k, memory, low, nbytes in copies:
            if self.buffers[k] in written:
                memory.read(low, nbytes)
        synchronize(f"cuda:{ordinal}")

    def measure(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int], number: int, repeat: int
    ) -> list[float]:
        """Seconds a launch by the GPU's clock, in replays of a CUDA graph: without the host."""
        held = []
        views = []
        ordinal = _common_device([a for a in arrays if a.device != "cpu"], self.buffers)
        for a in arrays:
            if a.device == "cpu":
                low, high = a.span
                memory = Memory(high - low, ordinal)
                memory.write(low, high - low)
                held.append(memory)
                views.append(memory.pointer + (a.pointer - low))
            else:
                views.append(a.pointer)
        values = tuple(scalars[v.name] for v in self.scalars)

        def once(stream: int) -> None:
            self._launch(tuple(views), values, stream, ordinal)

        return measure(device(ordinal), once, number, repeat)


def _common_device(arrays: Sequence[ArrayView], buffers: Sequence[Buffer]) -> int:
    """The device on which all arrays lie."""
    places = {a.device for a in arrays}
    if len(places) > 1:
        listed = ", ".join(f"{b.name} on {a.device}" for a, b in zip(arrays, buffers, strict=False))
        raise ArgumentError(f"the arguments lie on several devices ({listed}): move them to one")
    place = next(iter(places), "")
    return int(place.partition(":")[2] or 0) if place else current_ordinal()


def _runs_on(arch: str, place: Device) -> bool:
    """Whether machine code for ``arch`` runs on a device (CUDA guide, "Binary compatibility")."""
    number = int("".join(c for c in arch if c.isdigit()))
    if arch.endswith("a"):
        return number == place.capability
    return number // 10 == place.capability // 10 and number <= place.capability


def compile_module(
    module: Module,
    target: Target,
    artifacts: dict[str, bytes] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> CudaProgram:
    """Generate CUDA C++ for ``module`` and compile it; needs no GPU where ``target`` names an arch.

    Raises :class:`TargetError` where a library is missing or the program does not fit the target.
    """
    if artifacts:
        return CudaProgram(module, target, artifacts)
    from tilewright.codegen.cuda import generate  # a kernel from the cache does without

    arch = resolve_arch(target)
    made, simple = generate(module, arch), None
    compiled = nvrtc.begin(made.text, arch)
    meanwhile()
    if made.aligned:
        simple = generate(module, arch, aligned=False, flat=made.flat, registers=WAYS[-1])
    cubin = compiled()
    if _spills(cubin):
        made, cubin = _without_spills(module, arch, made) or (made, cubin)
    limit = target.with_arch(arch).limits.shared_memory
    for func, kernel in zip(module.funcs, made.kernels, strict=True):
        if kernel.dynamic_shared > limit:
            raise TargetError(
                f"kernel {func.name} needs {kernel.dynamic_shared} bytes of shared memory, a block "
                f"of {arch} has {limit}: use smaller tiles"
            )
        used = cubin.resources.get(kernel.symbol, Resources())
        if _sums_in_background(func) and (used.stack or 0) > (used.spills or 0):
            raise TargetError(
                f"kernel {func.name} keeps {used.stack} bytes of an array in memory that products "
                "in the background write in registers: unroll the loops that index it"
            )
    meta = {
        "arch": arch,
        "symbols": [k.symbol for k in made.kernels],
        "dynamic_shared": [k.dynamic_shared for k in made.kernels],
        "asked_shared": [k.asked for k in made.kernels],
        "unaligned_shared": [k.dynamic_shared for k in (simple or made).kernels],
        "registers": [made.registers.less, made.registers.own],
        "written": list(outputs(module)),
        "maps": [[m.row for m in k.maps] for k in made.kernels],
        "resources": {
            f.name: asdict(_with_dynamic(cubin.resources.get(k.symbol, Resources()), k))
            for f, k in zip(module.funcs, made.kernels, strict=True)
        },
    }
    files = {
        "source.cu": made.text.encode(),
        "kernel.cubin": cubin.data,
        "meta.json": json.dumps(meta).encode(),
    }
    if simple is not None:
        files["unaligned.cu"] = simple.text.encode()
    return CudaProgram(module, target, files)


def _without_spills(module: Module, arch: str, first: Source) -> tuple[Source, nvrtc.Cubin] | None:
    """The first of the other ways to tell the compiler about registers by which it spills none,
    else the last; None where they all come to the same text. They are compiled side by side."""
    from tilewright.codegen.cuda import generate

    texts = {first.text: first}
    for told in WAYS[1:]:
        other = generate(module, arch, flat=first.flat, registers=told)
        texts.setdefault(other.text, other)
    _, *others = texts.values()
    if not others:
        return None
    found = list(
        zip(others, nvrtc.compile_all([other.text for other in others], arch), strict=True)
    )
    return next((x for x in found if not _spills(x[1])), found[-1])


def _spills(cubin: nvrtc.Cubin) -> bool:
    return any(used.spills for used in cubin.resources.values())


def _sums_in_background(func: Func) -> bool:
    """Whether instructions write registers while their threads go on."""
    issued = (s.instruction for s in statements(func.body) if isinstance(s, Instr))
    return any(i.queue and i.operands[0].fragment for i in issued)


def _with_dynamic(found: Resources, kernel: Any) -> Resources:
    """The resources with the shared memory that the launch asks for."""
    shared = (found.shared_memory or 0) + kernel.dynamic_shared
    return Resources(found.registers, shared, found.spills, found.stack)
