"""Models as C that needs nothing of Tilewright's: kernels, a function that calls them in order on
planned memory, weights as one file, a program that runs it, and a Makefile."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from tilewright.graph.errors import ModelError
from tilewright.graph.executor import Executor, Step
from tilewright.graph.memory import ALIGNED
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Constant, Value, text_of
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import ArgumentError, TargetError
from tilewright.runtime.export_c import function_name
from tilewright.runtime.files import FileError, write_file, writing
from tilewright.runtime.kernel import Kernel

#: What the files call something else, so that a function of the name would be in its way.
_OWN = re.compile(r"weights|memory|(in|out)put_\d+|wrote|argc|argv|clean")


def export_c(executor: Executor, folder: Path, name: str | None = None) -> list[Path]:
    """Write what an executor of the CPU runs into ``folder``, which is made; the files.

    Functions begin with ``name``, by default the folder's. Raises :class:`ModelError` for another
    target, for outputs that are constants, and for kernels of instructions that C has no words for,
    :class:`ArgumentError` for a name that C or the files have for something else, and
    :class:`FileError` where the folder cannot be written to.
    """
    if executor.target.kind != "llvm":
        raise ModelError(f'models for {executor.target} are not written as C: use target="llvm"')
    outputs = executor.graph.outputs
    fixed = [n for n, x in outputs.items() if isinstance(owner(x), Constant)]
    if fixed:
        raise ModelError(f"{', '.join(fixed)} of {executor.graph.name} is a constant")
    if folder.exists() and not folder.is_dir():
        raise FileError(f"cannot write into {folder}: it is a file, not a folder")
    name = _function(folder, name)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    kernels = list(dict.fromkeys(step.kernel for step in executor.steps))
    names = {kernel: f"{name}_kernel_{k}" for k, kernel in enumerate(kernels)}
    paths = [folder / f"{text}.c" for text in names.values()]
    for kernel, path in zip(kernels, paths, strict=True):
        try:
            kernel.export_c(path, names[kernel])
        except TargetError as error:
            raise ModelError(
                f"{kernel.name} is not written as C: {error}. Compile the model for a CPU without "
                'such instructions, as target="llvm -mcpu=avx2"'
            ) from None
    weights, at = _weights(executor)
    files: dict[str, str | bytes] = {
        f"{name}.h": _header(executor, name, len(weights)),
        f"{name}.c": _source(executor, name, len(weights), at, names),
        f"{name}_main.c": _main(executor, name),
        f"{name}.weights": weights,
        "Makefile": _makefile(name, len(kernels)),
    }
    for file, content in files.items():
        write_file(folder / file, content)
    return [*(folder / file for file in files), *paths]


def _function(folder: Path, given: str | None) -> str:
    """What functions begin with: ``given``, or a name that is made of the folder's."""
    name = function_name("main", folder.resolve(), given)
    if not _OWN.fullmatch(name):
        return name
    if given is not None:
        raise ArgumentError(f"name={given!r} is what the files of a model call something else")
    return f"model_{name}"


def _weights(executor: Executor) -> tuple[bytes, dict[int, int]]:
    """All constants, and where each begins by its number."""
    made, at = bytearray(), dict[int, int]()
    for number, array in executor.constants.items():
        made += bytes(-len(made) % ALIGNED)
        at[number] = len(made)
        made += array.tobytes()
    return bytes(made), at


def _bytes(x: Value) -> int:
    return math.prod(x.shape) * dtype(x.dtype).bytes


def _places(executor: Executor, weights: Mapping[int, int]) -> dict[int, str]:
    """What buffers are in C, by their numbers."""
    found = {number: f"weights + {begin}" for number, begin in weights.items()}
    found |= {number: f"memory + {begin}" for number, begin in executor.plan.offsets.items()}
    for k, x in enumerate(executor.graph.inputs):
        found[executor.index[x]] = f"(const char *)input_{k}"
    for k, made in enumerate(executor.graph.outputs.values()):
        found[executor.index[owner(made)]] = f"(char *)output_{k}"
    return found


def _parameters(executor: Executor) -> list[str]:
    inputs = [f"const void *input_{k}" for k in range(len(executor.graph.inputs))]
    return [*inputs, *(f"void *output_{k}" for k in range(len(executor.graph.outputs)))]


def _declaration(executor: Executor, name: str) -> str:
    more = ",\n    ".join(_parameters(executor))
    return f"void {name}(\n    const char *weights, char *memory,\n    {more})"


def _header(executor: Executor, name: str, weights: int) -> str:
    graph = executor.graph
    named: list[tuple[str, str, Value]] = []
    named += [(f"input_{k}", x.name, x) for k, x in enumerate(graph.inputs)]
    named += [(f"output_{k}", n, x) for k, (n, x) in enumerate(graph.outputs.items())]
    says = [f"   {where}: {_plain(n)}, {text_of(x.type)}" for where, n, x in named]
    described = "\n".join(says)
    guard = f"{name.upper()}_H"
    return f"""\
/* {_plain(graph.name)}, written by Tilewright; needs libc and libm only. See the Makefile.

   Arrays are dense, row by row:

{described}

   Weights are the content of {name}.weights, and memory is for what is between kernels: threads
   share the former, and each has its own of the latter. */
#ifndef {guard}
#define {guard}

#define {name.upper()}_WEIGHTS {weights}
#define {name.upper()}_MEMORY {executor.plan.nbytes}

#ifdef __cplusplus
extern "C" {{
#endif

/* {ALIGNED}-byte aligned memory; NULL where there is none. */
char *{name}_allocate(unsigned long bytes);
void {name}_free(char *memory);
/* The first bytes of a file; NULL where it cannot be read, or has fewer. */
char *{name}_read(const char *path, unsigned long bytes);

{_declaration(executor, name)};

#ifdef __cplusplus
}}
#endif

#endif
"""


def _source(
    executor: Executor, name: str, weights: int, at: Mapping[int, int], names: Mapping[Kernel, str]
) -> str:
    places = _places(executor, at)
    includes = "\n".join(f'#include "{text}.h"' for text in names.values())
    unused = " ".join(
        f"(void){p.rpartition(' ')[2].lstrip('*')};"
        for p in ("*weights", "*memory", *_parameters(executor))
    )
    calls = "\n".join(_call(step, places, names) for step in executor.steps)
    return f"""\
/* See {name}.h. */
#include "{name}.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

{includes}

char *{name}_allocate(unsigned long bytes) {{
  char *whole = malloc(bytes + {2 * ALIGNED});
  if (whole == NULL) return NULL;
  char *made = whole + {2 * ALIGNED} - (uintptr_t)whole % {ALIGNED};
  ((void **)(void *)made)[-1] = whole;
  return made;
}}

void {name}_free(char *memory) {{
  if (memory != NULL) free(((void **)(void *)memory)[-1]);
}}

char *{name}_read(const char *path, unsigned long bytes) {{
  FILE *file = fopen(path, "rb");
  char *made = file == NULL ? NULL : {name}_allocate(bytes);
  if (made != NULL && fread(made, 1, bytes, file) != bytes) {{
    {name}_free(made);
    made = NULL;
  }}
  if (file != NULL) fclose(file);
  return made;
}}

{_declaration(executor, name)} {{
  {unused}
{calls}
}}
"""


def _call(step: Step, places: Mapping[int, str], names: Mapping[Kernel, str]) -> str:
    given = (
        f"(void *)({places[k]}{f' + {offset}' * bool(offset)})"
        for k, offset in zip(step.arguments, step.offsets, strict=True)
    )
    takes = (*given, *map(str, step.counts))
    return f"  {names[step.kernel]}({', '.join(takes)});  /* {step.node.operator} */"


def _main(executor: Executor, name: str) -> str:
    graph, upper = executor.graph, name.upper()
    inputs, outputs = list(graph.inputs), list(graph.outputs.items())
    words = [f"{_plain(n)}.raw" for n in (*(x.name for x in inputs), *graph.outputs)]
    names = [f"input_{k}" for k in range(len(inputs))]
    made = [f"output_{k}" for k in range(len(outputs))]
    read = "\n".join(
        f"  char *{n} = {name}_read(argv[{2 + k}], {_bytes(x)});"
        for k, (n, x) in enumerate(zip(names, inputs, strict=True))
    )
    allocated = "\n".join(
        f"  char *{n} = {name}_allocate({_bytes(x)});"
        for n, (_, x) in zip(made, outputs, strict=True)
    )
    wrote = "\n".join(
        f"  bad |= wrote(argv[{2 + len(inputs) + k}], {n}, {_bytes(x)});"
        for k, (n, (_, x)) in enumerate(zip(made, outputs, strict=True))
    )
    every = ["weights", "memory", *names, *made]
    missing = " || ".join(f"{n} == NULL" for n in every)
    free = "\n".join(f"  {name}_free({n});" for n in every)
    return f"""\
/* Runs {name} on raw files: the numbers of each array, row by row. */
#include "{name}.h"

#include <stdio.h>

static int wrote(const char *path, const char *data, unsigned long bytes) {{
  FILE *file = fopen(path, "wb");
  if (file == NULL) return 1;
  int bad = fwrite(data, 1, bytes, file) != bytes;
  return fclose(file) != 0 || bad;
}}

int main(int argc, char **argv) {{
  if (argc != {2 + len(words)}) {{
    fprintf(stderr, "usage: %s {name}.weights {" ".join(words)}\\n", argv[0]);
    return 2;
  }}
  char *weights = {name}_read(argv[1], {upper}_WEIGHTS);
  char *memory = {name}_allocate({upper}_MEMORY);
{read}
{allocated}
  if ({missing}) {{
    fprintf(stderr, "%s: a file cannot be read, is too short, or there is no memory\\n", argv[0]);
    return 1;
  }}
  {name}({", ".join(every)});
  int bad = 0;
{wrote}
{free}
  if (bad) fprintf(stderr, "%s: a file cannot be written\\n", argv[0]);
  return bad;
}}
"""


def _plain(text: str) -> str:
    """A name of the model's in a comment or a text of C, neither of which it can end."""
    return re.sub(r"[^\w.:-]", "_", text, flags=re.ASCII)


def _makefile(name: str, kernels: int) -> str:
    objects = " ".join([f"{name}.o", *(f"{name}_kernel_{k}.o" for k in range(kernels))])
    return f"""\
CC ?= cc
CFLAGS ?= -O3 -march=native -ffp-contract=fast -fopenmp
OBJECTS = {objects}

{name}: {name}_main.o lib{name}.a
\t$(CC) $(CFLAGS) -o $@ $^ -lm

lib{name}.a: $(OBJECTS)
\t$(AR) rcs $@ $^

%.o: %.c
\t$(CC) -std=c99 $(CFLAGS) -c -o $@ $<

clean:
\trm -f *.o lib{name}.a {name}
"""
