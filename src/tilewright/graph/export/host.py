"""Models for a CPU: kernels in C, and a function that calls them in order on planned memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.graph.errors import ModelError
from tilewright.graph.executor import Executor, Step
from tilewright.graph.export.written import Written
from tilewright.graph.memory import ALIGNED
from tilewright.graph.passes.own_outputs import owner
from tilewright.ir.errors import TargetError
from tilewright.runtime.kernel import Kernel


def write(executor: Executor, name: str, folder: Path) -> Written:
    """What a CPU adds; kernels are written into the folder."""
    kernels = list(dict.fromkeys(step.kernel for step in executor.steps))
    names = {kernel: f"{name}_kernel_{k}" for k, kernel in enumerate(kernels)}
    for kernel, text in names.items():
        try:
            kernel.export_c(folder / f"{text}.c", text)
        except TargetError as error:
            raise ModelError(
                f"{kernel.name} is not written as C: {error}. Compile the model for a CPU without "
                'such instructions, as target="llvm -mcpu=avx2"'
            ) from None
    weights, places = _weights(executor)
    places |= {number: f"memory + {begin}" for number, begin in executor.plan.offsets.items()}
    for k, x in enumerate(executor.graph.inputs):
        places[executor.index[x]] = f"(const char *)inputs[{k}]"
    for k, made in enumerate(executor.graph.outputs.values()):
        places[executor.index[owner(made)]] = f"(char *)outputs[{k}]"
    calls = "\n".join(_call(step, places, names) for step in executor.steps)
    tables = f"""\
static const size_t WEIGHT_BYTES = {len(weights)}u, MEMORY_BYTES = {executor.plan.nbytes}u;

static int steps(
    const char *weights, char *memory, const void *const *inputs, void *const *outputs) {{
  int failed = 0;
  (void)weights, (void)memory, (void)inputs, (void)outputs;
{calls}
  return failed;
}}
"""
    return Written(
        weights, tables, "a CPU", "libc and libm", "the CPU, which is device 0",
        includes=tuple(f'"{text}.h"' for text in names.values()),
        objects=tuple(f"{text}.o" for text in names.values()),
        flags={"CFLAGS": "-O3 -march=native -ffp-contract=fast -fopenmp", "LDLIBS": "-lm"},
    )  # fmt: skip


def _weights(executor: Executor) -> tuple[bytes, dict[int, str]]:
    """All constants, and where each is by its number."""
    made, at = bytearray(), dict[int, str]()
    for number, array in executor.constants.items():
        made += bytes(-len(made) % ALIGNED)
        at[number] = f"weights + {len(made)}"
        made += array.tobytes()
    return bytes(made), at


def _call(step: Step, places: Mapping[int, str], names: Mapping[Kernel, str]) -> str:
    given = (
        f"(void *)({places[k]}{f' + {offset}' * bool(offset)})"
        for k, offset in zip(step.arguments, step.offsets, strict=True)
    )
    takes = (*given, *map(str, step.counts))
    return f"  failed |= {names[step.kernel]}({', '.join(takes)});  /* {step.node.operator} */"
