"""Programs for OpenCL: kernels as text that the driver compiles, put into one queue."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.errors import TargetError
from tilewright.runtime.export.launches import (
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
from tilewright.runtime.opencl import OpenCLProgram

_MORE = """
/* Of inputs, then outputs, the cl_mem that they are on the device, for programs that have their
   data there: MODEL_launch runs on them, in a cl_command_queue of their context, where that is not
   NULL; else in the model's own, whose end MODEL_wait waits for. */
void *MODEL_buffer(const struct MODEL *model, int k);
int MODEL_launch(struct MODEL *model, TAKEN_VOID *queue);
int MODEL_wait(struct MODEL *model);
"""


def _scalars(call: Call) -> dict[str, int]:
    variables = call.kernel.signature.variables
    return {v.name: x for v, x in zip(variables, call.counts, strict=True)}


def _program(call: Call) -> OpenCLProgram:
    program = call.kernel.program
    assert isinstance(program, OpenCLProgram)
    return program


def _spaces(call: Call) -> list[int]:
    return _program(call).spaces(_scalars(call))


def _launches(
    call: Call, layout: Layout, numbers: dict[OpenCLProgram, int], functions: list[str]
) -> list[Launch]:
    program, scalars = _program(call), _scalars(call)
    if any(x.at for x in call.places):
        raise TargetError(
            f"{call.what} takes a part of a tensor: OpenCL's memory has no such parts"
        )
    code = numbers.setdefault(program, len(numbers))
    memories = [*call.places, *layout.spaces(call)]
    values = program.values(
        memories,
        {v.name: Argument(SCALAR, scalars[v.name], v.dtype.bytes) for v in program.scalars},
    )
    found = []
    for func, symbol, grid, block in program.ranges(scalars):
        text = f'{{{code}, "{symbol}"}}'
        if text not in functions:
            functions.append(text)
        takes = tuple(values[p] for p in func.params)
        found.append(Launch(functions.index(text), grid, block, takes, call))
    return found


def write(works: Sequence[Work], name: str) -> Written:
    """What OpenCL adds."""
    layout = Layout(works, _spaces, apart=True)
    numbers: dict[OpenCLProgram, int] = {}
    functions: list[str] = []
    made = tables(
        layout, name, functions, lambda call: _launches(call, layout, numbers, functions), numbers,
        cuda=False,
    )  # fmt: skip
    files: dict[str, str | bytes] = {
        f"{name}_kernel_{k}.cl": program.source for k, program in enumerate(numbers)
    }
    sources = list(files)
    files[f"{name}_code.S"] = assembly(name, sources)
    rules = f"""
{name}_code.o: {name}_code.S {" ".join(sources)}
\t$(CC) -c -o $@ $<
"""
    return Written(
        layout.weights, made, f"OpenCL ({works[0].target})", "OpenCL 1.2",
        "the device of a number among those of all platforms, GPUs first",
        includes=("<CL/cl.h>",), files=files, objects=(f"{name}_code.o",),
        flags={"CFLAGS": "-O2", "CPPFLAGS": "-DCL_TARGET_OPENCL_VERSION=120",
               "LDLIBS": "-lOpenCL"},
        rules=rules, more=_MORE,
    )  # fmt: skip
