"""The files of a model, those that all targets have: header, functions, a program, a Makefile."""

from __future__ import annotations

import math
import re
from pathlib import Path

from tilewright.graph.errors import ModelError
from tilewright.graph.executor import Executor
from tilewright.graph.export import cuda, host, opencl
from tilewright.graph.export.written import Written, filled, plain
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Constant, Value, text_of
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import ArgumentError
from tilewright.runtime.export_c import function_name
from tilewright.runtime.files import FileError, write_file, writing

#: What the Makefile makes beside the program, which has the model's name.
_MADE = re.compile("clean|kernels")


def export(executor: Executor, folder: Path, name: str | None = None) -> list[Path]:
    """Write what an executor runs into ``folder``, which is made; the files, the header first. One
    for a GPU is ``abroad``: the program that is written prepares constants.

    Functions begin with ``name``, by default the folder's. Raises :class:`ModelError` for sim, for
    outputs that are constants, and for kernels of instructions that C has no words for,
    :class:`ArgumentError` for a name that C or the files have for something else, and
    :class:`FileError` where the folder cannot be written to.
    """
    kind = executor.target.kind
    if kind not in ("llvm", "cuda", "opencl"):
        raise ModelError(
            f"models for {executor.target} are not written as sources: use llvm, cuda or opencl"
        )
    outputs = executor.graph.outputs
    fixed = [n for n, x in outputs.items() if isinstance(owner(x), Constant)]
    if fixed:
        raise ModelError(
            f"{', '.join(fixed)} of {executor.graph.name} is a constant, which no kernel writes: "
            "leave it out of the model's outputs, and give inputs that have elements"
        )
    if folder.exists() and not folder.is_dir():
        raise FileError(f"cannot write into {folder}: it is a file, not a folder")
    name = _function(folder, name)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if kind == "llvm":
        made = host.write(executor, name, folder)
    else:
        made = (cuda if kind == "cuda" else opencl).write(executor, name)
    files: dict[str, str | bytes] = {
        f"{name}.h": _header(executor, name, made),
        f"{name}.c": _source(executor, name, made),
        f"{name}_main.c": _main(executor, name, kind == "llvm"),
        f"{name}.weights": made.weights,
        "Makefile": _makefile(name, made),
        **made.files,
    }
    for file, content in files.items():
        write_file(folder / file, content)
    kernels = [folder / o for o in made.objects] if kind == "llvm" else []
    return [*(folder / file for file in files), *(x.with_suffix(".c") for x in kernels)]


def _function(folder: Path, given: str | None) -> str:
    """What functions begin with: ``given``, or a name that is made of the folder's."""
    name = function_name("main", folder.resolve(), given)
    if not _MADE.fullmatch(name):
        return name
    if given is not None:
        raise ArgumentError(f"name={given!r} is what the Makefile of a model makes")
    return f"model_{name}"


def bytes_of(x: Value) -> int:
    """Of a value that is dense."""
    return math.prod(x.shape) * dtype(x.dtype).bytes


def _given(executor: Executor) -> tuple[list[str], list[str]]:
    """What inputs and outputs are called in C."""
    graph = executor.graph
    inputs = [f"input_{k}" for k in range(len(graph.inputs))]
    return inputs, [f"output_{k}" for k in range(len(graph.outputs))]


def _parameters(executor: Executor) -> str:
    inputs, outputs = _given(executor)
    typed = [*(f"const void *{x}" for x in inputs), *(f"void *{x}" for x in outputs)]
    return ",\n    ".join(typed)


def _header(executor: Executor, name: str, made: Written) -> str:
    graph = executor.graph
    inputs, outputs = _given(executor)
    values: list[tuple[str, Value]] = [(x.name, x) for x in graph.inputs]
    named = zip([*inputs, *outputs], [*values, *graph.outputs.items()], strict=True)
    says = "\n".join(f"   {where}: {plain(n)}, {text_of(x.type)}" for where, (n, x) in named)
    about = (
        f"{plain(graph.name)} for {made.about}, written by Tilewright; needs {made.needs} only."
        f" See the Makefile.\n\n   Arrays are the host's, dense, row by row:\n\n{says}"
    )
    words = {
        "ABOUT": about, "GUARD": f"{name.upper()}_H", "DEVICES": made.devices,
        "PARAMETERS": _parameters(executor), "MORE": made.more,
    }  # fmt: skip
    return filled("model.h", name, words)


def _source(executor: Executor, name: str, made: Written) -> str:
    inputs, outputs = _given(executor)
    includes = "\n".join(f"#include {header}" for header in made.includes)
    words = {
        "PARAMETERS": _parameters(executor), "INPUT_NAMES": ", ".join(inputs) or "NULL",
        "OUTPUT_NAMES": ", ".join(outputs),
    }  # fmt: skip
    kind = {"llvm": "host.c"}.get(executor.target.kind, f"{executor.target.kind}.c")
    return (
        f'/* See {name}.h. */\n#include "{name}.h"\n\n{includes}\n\n{filled("memory.c", name)}\n'
        f"{made.tables}\n{filled(kind, name, words)}"
    )


def _main(executor: Executor, name: str, on_cpu: bool) -> str:
    graph = executor.graph
    named = [*((x.name, x) for x in graph.inputs), *graph.outputs.items()]
    data = ", ".join(f"data[{k}]" for k in range(len(named)))
    words = {
        "FILE_COUNT": str(len(named)), "INPUT_COUNT": str(len(graph.inputs)),
        "FILE_SIZES": ", ".join(str(bytes_of(x)) for _, x in named),
        "FILE_NAMES": " ".join(f"{plain(n)}.raw" for n, _ in named), "RUN_NAMES": data,
        "ONCE": f"{name}_run(model, {data})" if on_cpu else f"{name}_launch(model, NULL)",
        "DONE": "0" if on_cpu else f"{name}_wait(model)",
    }  # fmt: skip
    return filled("main.c", name, words)


def _makefile(name: str, made: Written) -> str:
    flags = "\n".join(f"{flag} ?= {value}" for flag, value in made.flags.items())
    return f"""\
CC ?= cc
{flags}
OBJECTS = {" ".join([f"{name}.o", *made.objects])}

{name}: {name}_main.o lib{name}.a
\t$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)

lib{name}.a: $(OBJECTS)
\t$(AR) rcs $@ $^

%.o: %.c
\t$(CC) -std=c99 $(CFLAGS) $(CPPFLAGS) -c -o $@ $<
{made.rules}
clean:
\trm -f *.o lib{name}.a {name}

.PHONY: clean kernels
"""
