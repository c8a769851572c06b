"""Programs for CUDA: kernels in CUDA C++ and as machine code, launched through the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.ir.errors import TargetError
from tilewright.runtime.cuda import ALIGNMENT, CudaProgram
from tilewright.runtime.cuda_maps import WRONG, Tiled
from tilewright.runtime.cuda_plan import Launches
from tilewright.runtime.export.launches import (
    MAP,
    SCALAR,
    Argument,
    Call,
    Launch,
    Layout,
    assembly,
    tables,
)
from tilewright.runtime.export.work import Work
from tilewright.runtime.export.written import Written
from tilewright.target.target import overlaps, sms

_MORE = """
/* Of inputs, then outputs, where they are on the device (a CUdeviceptr), for programs that have
   their data there: MODEL_launch runs on it, in the order of a CUstream, where that is not NULL;
   else of the model's own, whose end MODEL_wait waits for. */
unsigned long long MODEL_buffer(const struct MODEL *model, int k);
int MODEL_launch(struct MODEL *model, TAKEN_VOID *stream);
int MODEL_wait(struct MODEL *model);
"""


@dataclass
class _Codes:
    """Compiled programs, with their functions, as they are met; and maps."""

    numbers: dict[tuple[CudaProgram, bool], int] = field(default_factory=dict)
    functions: dict[tuple[int, str], str] = field(default_factory=dict)
    maps: list[str] = field(default_factory=list)

    def launches(self, call: Call, layout: Layout) -> list[Launch]:
        """The kernels of a call."""
        program = call.kernel.program
        assert isinstance(program, CudaProgram)
        aligned = not any(x.at % ALIGNMENT for x in call.places)
        simple = program.aligned and not aligned
        code = self.numbers.setdefault((program, simple), len(self.numbers))
        made = Launches(program.module, None if simple else program.maps, program.written)
        own = [*call.places, *layout.spaces(call)]
        first = len(self.maps)
        for what, place in made.maps.described(call.counts):
            self.maps.append(_map(what, own[place]))
        own += [Argument(MAP, first + k, 0) for k in range(len(made.maps))]
        for v, x in zip(made.scalars, call.counts, strict=True):
            own.append(Argument(SCALAR, x & (2**v.dtype.bits - 1), v.dtype.bytes))
        if made.maps.stand_ins(call.counts)[0]:
            raise TargetError(f"{call.what} copies boxes of a tensor that has no elements")
        found = []
        for k, sizes in made.sizes(call.counts):
            shared = (program.unaligned_shared if simple else program.dynamic_shared)[k]
            asked = shared if simple else program.asked_shared[k]
            key = code, program.symbols[k]
            self.functions.setdefault(key, f'{{{code}, "{key[1]}", {max(shared, asked)}}}')
            takes = (*made.parameters[k], *made.structures[k])
            found.append(
                Launch(
                    list(self.functions).index(key), sizes[:3], sizes[3:],
                    tuple(own[p] for p in takes), call, (shared, asked),
                )
            )  # fmt: skip
        return found


def _spaces(call: Call) -> tuple[int, ...]:
    return Launches(call.kernel.program.module).spaces(call.counts)


def write(works: Sequence[Work], name: str) -> Written:
    """What CUDA adds."""
    layout, codes = Layout(works, _spaces, apart=False), _Codes()
    made = tables(
        layout, name, codes.functions.values(), lambda call: codes.launches(call, layout),
        codes.numbers, cuda=True,
    )  # fmt: skip
    files: dict[str, str | bytes] = {}
    arch = ""
    for k, (program, simple) in enumerate(codes.numbers):
        arch = program.arch
        text, cubin = program.code(simple)
        files[f"{name}_kernel_{k}.cu"] = text
        files[f"{name}_kernel_{k}.cubin"] = cubin
    count = len(codes.numbers)
    files[f"{name}_code.S"] = assembly(name, [f"{name}_kernel_{k}.cubin" for k in range(count)])
    streams = 1 + max(call.stream for own in layout.steps for call in own)
    maps = ",\n".join(codes.maps) or "  {0}"
    made += f"""
enum {{ STREAMS = {streams}, EVENTS = {layout.events}, MAPS = {len(codes.maps)} }};
/* Whether kernels wait for those before them by themselves; how many SMs shared memory is asked
   for by; and the last driver whose maps of little memory are mended. */
enum {{ FOLLOWS = {int(overlaps(arch))}, UNITS = {sms(arch)}, LAST_WRONG = {WRONG} }};

static const struct map {{
  CUtensorMapDataType type;
  unsigned rank;
  int where;
  uint64_t at;
  cuuint64_t extents[5], strides[5];
  cuuint32_t box[5], steps[5];
  CUtensorMapSwizzle swizzle;
  int windows, small, first[3], last[3];
}} maps[] = {{
{maps}
}};
"""
    rules = f"""
{name}_code.o: {name}_code.S $(wildcard *.cubin)
\t$(CC) -c -o $@ $<

# The machine code again, of the sources, by another compiler.
kernels:
\tfor k in $(basename $(wildcard {name}_kernel_*.cu)); do \\
\t  $(NVCC) -w -std=c++17 -arch={arch} -cubin -o $$k.cubin $$k.cu || exit 1; done
"""
    return Written(
        layout.weights, made, f"CUDA's {arch}", "CUDA's driver", "the GPU of a number",
        includes=("<cuda.h>",), files=files, objects=(f"{name}_code.o",),
        flags={
            "NVCC": "nvcc", "CUDA": "/usr/local/cuda", "CFLAGS": "-O2",
            "CPPFLAGS": "-I$(CUDA)/include", "LDLIBS": "-L$(CUDA)/lib64/stubs -lcuda",
        },
        rules=rules, more=_MORE,
    )  # fmt: skip


def _map(what: Tiled, place: Argument) -> str:
    """A map as C has it."""
    first, last = what.corners or ((0,), (0,))
    rows = [_braced(x) for x in (what.extents, what.strides, what.box, what.steps)]
    swizzle = f"CU_TENSOR_MAP_SWIZZLE_{what.swizzle}"
    own = f"CU_TENSOR_MAP_DATA_TYPE_{what.kind}, {len(what.extents)}, {place.where}, {place.at}u"
    flags = f"{int(what.corners is not None)}, {int(what.is_small)}"
    return f"  {{{own}, {', '.join(rows)}, {swizzle}, {flags}, {_braced(first)}, {_braced(last)}}}"


def _braced(numbers: tuple[int, ...]) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"
