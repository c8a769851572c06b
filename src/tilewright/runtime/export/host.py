"""Programs for a CPU: kernels in C, and functions that call them in order on planned memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import TargetError
from tilewright.runtime.export.work import Step, Work, digest
from tilewright.runtime.export.written import Written
from tilewright.runtime.export_c import export_c
from tilewright.runtime.kernel import Kernel

#: Bytes that weights begin at multiples of.
_ALIGNED = 64


def write(works: Sequence[Work], name: str, folder: Path) -> Written:
    """What a CPU adds; kernels are written into the folder."""
    kernels = list(dict.fromkeys(step.kernel for work in works for step in work.steps))
    names = {kernel: f"{name}_kernel_{k}" for k, kernel in enumerate(kernels)}
    for kernel, text in names.items():
        try:
            export_c(kernel, folder / f"{text}.c", text)
        except TargetError as error:
            raise TargetError(
                f"{kernel.name} is not written as C: {error}. Compile for a CPU without such "
                'instructions, as target="llvm -mcpu=avx2"'
            ) from None
    weights, known = bytearray(), dict[bytes, int]()
    functions = "\n".join(_steps(k, w, names, weights, known) for k, w in enumerate(works))
    listed = ", ".join(f"steps_{k}" for k in range(len(works)))
    tables = f"""\
static const size_t WEIGHT_BYTES = {len(weights)}u;
static const size_t MEMORY_BYTES = {max(w.nbytes for w in works)}u;

{functions}
static int (*const steps[])(const char *, char *, const void *const *, void *const *) = {{
  {listed}
}};
"""
    return Written(
        bytes(weights), tables, "a CPU", "libc and libm", "the CPU, which is device 0",
        includes=tuple(f'"{text}.h"' for text in names.values()),
        objects=tuple(f"{text}.o" for text in names.values()),
        flags={"CFLAGS": "-O3 -march=native -ffp-contract=fast -fopenmp", "LDLIBS": "-lm"},
    )  # fmt: skip


def _steps(
    k: int, work: Work, names: Mapping[Kernel, str], weights: bytearray, known: dict[bytes, int]
) -> str:
    """The function of a batch; what it has of ``weights`` that are not ``known`` is added."""
    places = {number: f"memory + {begin}" for number, begin in work.offsets.items()}
    for number, array in work.constants.items():
        data = array.tobytes()
        key = digest(data)
        if key not in known:
            weights += bytes(-len(weights) % _ALIGNED)
            known[key] = len(weights)
            weights += data
        places[number] = f"weights + {known[key]}"
    for j, x in enumerate(work.inputs):
        places[x.number] = f"(const char *)inputs[{j}]"
    for j, x in enumerate(work.outputs):
        places[x.number] = f"(char *)outputs[{j}]"
    calls = "\n".join(_call(step, places, names[step.kernel]) for step in work.steps)
    return f"""\
static int steps_{k}(
    const char *weights, char *memory, const void *const *inputs, void *const *outputs) {{
  int failed = 0;
  (void)weights, (void)memory, (void)inputs, (void)outputs;
{calls}
  return failed;
}}
"""


def _call(step: Step, places: Mapping[int, str], name: str) -> str:
    arrays = (
        f"(void *)({places[k]}{f' + {offset}' * bool(offset)})"
        for k, offset in zip(step.arguments, step.offsets, strict=True)
    )
    signature = step.kernel.signature
    values = dict(zip(signature.variables, map(str, step.counts), strict=True))
    takes = [next(arrays) if isinstance(p, Buffer) else values.pop(p) for p in signature.params]
    return f"  failed |= {name}({', '.join([*takes, *values.values()])});  /* {step.what} */"
