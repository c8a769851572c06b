"""The files of a program, those that all targets have: header, functions, main, a Makefile."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.ir.errors import ArgumentError, TargetError
from tilewright.runtime.export import cuda, host, opencl
from tilewright.runtime.export.work import Kind, Work, bytes_of
from tilewright.runtime.export.written import Written, filled, plain, replaced
from tilewright.runtime.export_c import function_name
from tilewright.runtime.files import FileError, write_file, writing

#: What the Makefile makes beside the program, and what its files call something else.
_TAKEN = re.compile("clean|kernels|launch|block|map|argument|function|own|steps|run")
#: What a program says of the environment.
_DEVICE = "DEVICE is the number of the device, 0 unless it is set"
_THREADS = "OMP_NUM_THREADS is how many threads; GOMP_SPINCOUNT=1000 is for busy machines"


def write(works: Sequence[Work], folder: Path, name: str | None = None) -> list[Path]:
    """Write a program, for each batch one work, into ``folder``, which is made; the files, the
    header first. Inputs, outputs and target are the same for all, but for the extents.

    Functions begin with ``name``, by default the folder's. Raises :class:`TargetError` for sim, and
    for kernels of instructions that C has no words for, :class:`ArgumentError` for a name that C or
    the files have for something else, and :class:`FileError` where the folder cannot be written to.
    """
    first = works[0]
    kind = first.target.kind
    if kind not in ("llvm", "cuda", "opencl"):
        raise TargetError(
            f"programs for {first.target} are not written as sources: use llvm, cuda or opencl"
        )
    if folder.exists() and not folder.is_dir():
        raise FileError(f"cannot write into {folder}: it is a file, not a folder")
    name = _function(folder, name)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if kind == "llvm":
        made = host.write(works, name, folder)
    else:
        made = (cuda if kind == "cuda" else opencl).write(works, name)
    words = _words(works, name, made)
    files: dict[str, str | bytes] = {
        f"{name}.h": filled("model.h", words),
        f"{name}.c": _source(name, made, kind, words),
        f"{name}_main.c": filled("main.c", words),
        **({f"{name}.weights": made.weights} if first.has_weights else {}),
        "Makefile": _makefile(name, made),
        **made.files,
    }
    for file, content in files.items():
        write_file(folder / file, content)
    kernels = [folder / o for o in made.objects] if kind == "llvm" else []
    sources = (x.with_suffix(suffix) for x in kernels for suffix in (".c", ".h"))
    return [*(folder / file for file in files), *sources]


def _function(folder: Path, given: str | None) -> str:
    """What functions begin with: ``given``, or a name that is made of the folder's."""
    name = function_name("main", folder.resolve(), given)
    if not _TAKEN.fullmatch(name):
        return name
    if given is not None:
        raise ArgumentError(f"name={given!r} is what the files call something else")
    return f"model_{name}"


def _words(works: Sequence[Work], name: str, made: Written) -> Mapping[str, str]:
    """What texts have in the place of words."""
    work, batched, on_cpu = works[0], works[0].batch > 0, works[0].target.kind == "llvm"
    inputs = [f"input_{k}" for k in range(len(work.inputs))]
    outputs = [f"output_{k}" for k in range(len(work.outputs))]
    typed = [*(f"const void *{x}" for x in inputs), *(f"void *{x}" for x in outputs)]
    count = len(work.arrays)
    data = ", ".join(f"data[{k}]" for k in range(count))
    given, taken = "batch, " * batched, "int batch, " * batched
    sizes = (", ".join(str(bytes_of(x.kind)) for x in w.arrays) for w in works)
    again = f"{name}_run(model, {given}{data})" if on_cpu else f"{name}_launch(model, {given}NULL)"
    files = [f"{name}.weights"] * work.has_weights + ["BATCH"] * batched
    own = {"MODEL": name, "TAKEN_VOID": f"{taken}void"}
    return {
        **own, "ABOUT": _about(works, [*inputs, *outputs], made), "DEVICES": made.devices,
        "GUARD": f"{name.upper()}_H", "PARAMETERS": ",\n    ".join(["int batch"] * batched + typed),
        "MORE": replaced(made.more, own), "CHOSEN": "batch" if batched else "0",
        "INPUT_NAMES": ", ".join(inputs) or "NULL", "OUTPUT_NAMES": ", ".join(outputs),
        "BATCH_COUNT": str(len(works)), "BATCH_LIST": ", ".join(str(w.batch) for w in works),
        "FILE_COUNT": str(count), "INPUT_COUNT": str(len(inputs)),
        "FILE_SIZES": f"{{{'}, {'.join(sizes)}}}",
        "FILE_NAMES": " ".join([*files, *(f"{plain(x.name)}.raw" for x in work.arrays)]),
        "WEIGHT_COUNT": str(int(work.has_weights)), "IS_BATCHED": str(int(batched)),
        "SETTINGS": _THREADS if on_cpu else _DEVICE, "RUN_NAMES": f"{given}{data}",
        "AGAIN_CALL": again, "WAIT_CALL": "0" if on_cpu else f"{name}_wait(model)",
    }  # fmt: skip


def _about(works: Sequence[Work], names: Sequence[str], made: Written) -> str:
    work = works[0]
    lines = []
    for k, (where, x) in enumerate(zip(names, work.arrays, strict=True)):
        kinds = dict.fromkeys(_text(w.arrays[k].kind) for w in works)
        lines.append(f"   {where}: {plain(x.name)}, {' or '.join(kinds)}")
    batches = ", ".join(str(w.batch) for w in works)
    more = f"\n   It is run with one of these batches: {batches}." * (work.batch > 0)
    weights = "" if work.has_weights else "\n   It has no weights: NULL is the name of their file."
    return (
        f"{plain(work.name, ' ,=+')} for {made.about}, written by Tilewright.\n"
        f"   Needs {made.needs} only; see the Makefile.{more}{weights}\n\n"
        "   Arrays are the host's, dense, row by row:\n\n" + "\n".join(lines)
    )


def _text(kind: Kind) -> str:
    return f"{kind[1]}[{'x'.join(map(str, kind[0]))}]"


def _source(name: str, made: Written, kind: str, words: Mapping[str, str]) -> str:
    includes = "\n".join(f"#include {header}" for header in made.includes)
    text = {"llvm": "host.c"}.get(kind, f"{kind}.c")
    more = ["run.c", *([] if kind == "llvm" else ["launched.c"])]
    shared = "".join(f"\n{filled(one, words)}" for one in more)
    return (
        f'/* See {name}.h. */\n#include "{name}.h"\n\n{includes}\n\n{filled("memory.c", words)}\n'
        f"{made.tables}\n{filled(text, words)}{shared}"
    )


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
