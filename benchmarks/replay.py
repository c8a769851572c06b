"""What a change of the compiler does to the code of the library: hashes of programs, compared.

Every shipped record's fastest schedule, every article's program, and each template's first
parameters for some layers are lowered, and written as CUDA C++, OpenCL C or LLVM IR for fixed
targets; no GPU is needed. Of each program, a hash of the lowered loops and one of the generated
text are kept. Two processes of the same version agree on all of them, on every machine.

    PYTHONPATH=src python benchmarks/replay.py --out /tmp/before.json
    PYTHONPATH=src python benchmarks/replay.py --against /tmp/before.json
    PYTHONPATH=src python benchmarks/replay.py --only "article 003" --save-text /tmp/now

``--against`` lists the programs that are added or removed, and those of which the loops or the text
changed; the exit status is then 1. With ``--only``, programs whose names lack the pattern are left
out of both. ``--save-text`` writes the texts into files of the same names in every version, so that
``diff -r`` shows what changed. ``benchmarks/replay.json`` is what the current code gives:
a change that is meant renews it with ``--out benchmarks/replay.json``.

All of it takes some four minutes of one core; ``--jobs`` shares it among processes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from replay_programs import cases

import tilewright
from tilewright.ir.func import Module
from tilewright.runtime import caches
from tilewright.runtime.llvm_host import available_cores
from tilewright.target import Target

#: Hexadecimal digits kept of a hash.
_DIGITS = 16
#: Programs that a process takes at once.
_CHUNK = 4
#: What can differ between two versions of a program, in the order in which it is looked for.
CHANGES = ("added", "removed", "lowered", "source")

#: By name, the hashes of a program: "lowered" and "source", or "error".
Hashes = dict[str, dict[str, str]]


def texts(name: str) -> dict[str, str]:
    """The lowered loops of a program and its generated text, or why there are none."""
    target, make = cases()[name]
    machine = Target.parse(target)
    try:
        # Of every machine the same: by this results are streamed.
        with (
            patch.object(caches, "last_level", lambda threads=1: 32 << 20),
            patch.object(caches, "second_level", lambda: 1 << 20),
        ):
            schedule, args = make()
        module = tilewright.lower(schedule, args, machine)
        return {"lowered": loops(module), "source": source(module, machine)}
    except tilewright.ir.errors.TilewrightError as error:
        return {"error": f"{type(error).__name__}: {error}"}


def loops(module: Module) -> str:
    """A module as text, its workspaces included."""
    taken = (f"workspace {b.name}: {b.dtype}{list(b.shape)}" for b in module.workspaces)
    return "\n".join((*taken, repr(module), ""))


def source(module: Module, target: Target) -> str:
    """The code generated for a module."""
    if target.kind == "cuda":
        from tilewright.codegen.cuda import generate as cuda

        return cuda(module, target.arch).text
    if target.kind == "opencl":
        from tilewright.codegen.opencl import generate as opencl

        return opencl(module).text
    from tilewright.codegen.llvm.module import generate as llvm
    from tilewright.runtime.llvm_host import processor

    cpu = processor(target.arch)
    return llvm(module, target.threads, cpu.features, cpu.vector_bits).text


def replayed(name: str, folder: str = "") -> tuple[str, dict[str, str]]:
    """The hashes of a program, whose texts go into ``folder`` where one is named."""
    found = texts(name)
    if folder:
        for what, text in found.items():
            path = Path(folder) / f"{re.sub(r'[^-.=+A-Za-z0-9]+', '_', name)}.{what}.txt"
            path.write_text(text)
    return name, {what: digest(text) for what, text in found.items()}


def digest(text: str) -> str:
    """A hash that is the same in every process."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def replay(names: Iterable[str], jobs: int, folder: str = "") -> Hashes:
    """The hashes of programs, computed by ``jobs`` processes."""
    wanted = list(names)
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
    one = partial(replayed, folder=folder)
    if jobs < 2:
        return dict(counted(map(one, wanted), len(wanted)))
    with ProcessPoolExecutor(jobs) as pool:
        return dict(counted(pool.map(one, wanted, chunksize=_CHUNK), len(wanted)))


def counted(found: Iterable[Any], total: int) -> Iterator[Any]:
    """``found``, with a line about every ten seconds that says how far it is."""
    begin = said = time.monotonic()
    for k, item in enumerate(found, 1):
        now = time.monotonic()
        if now - said > 10 or k == total:
            print(f"{k} of {total} programs, {now - begin:.0f} s", file=sys.stderr, flush=True)
            said = now
        yield item


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of the programs that changed, by how. One whose loops changed is listed under
    "lowered" alone, whatever its text does."""
    found: dict[str, list[str]] = {kind: [] for kind in CHANGES}
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            found["added" if old is None else "removed"].append(name)
        elif old.get("lowered") != new.get("lowered") or old.get("error") != new.get("error"):
            found["lowered"].append(name)
        elif old != new:
            found["source"].append(name)
    return found


def versions() -> dict[str, str]:
    """What texts depend on beside this package."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("llvmlite", "islpy", "numpy")}
    return {"tilewright": tilewright.__version__, **packages}


def write(path: Path, found: Hashes) -> None:
    """Write hashes as JSON, a line a program."""
    lines = ",\n".join(f"{_json(name)}:{_json(found[name])}" for name in sorted(found))
    text = f'{{"versions":{_json(versions())},\n"programs":{{\n{lines}\n}}}}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="FILE", help="what --out wrote of another version")
    parser.add_argument("--out", metavar="FILE", help="where the hashes are written, as JSON")
    parser.add_argument("--only", default="", metavar="PATTERN", help="a regular expression")
    parser.add_argument("--jobs", type=int, default=available_cores(), help="processes")
    parser.add_argument("--save-text", default="", metavar="DIR", help="where texts are written")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    options = parser.parse_args()
    wanted = re.compile(options.only)
    names = [name for name in cases() if wanted.search(name)]
    if options.list:
        print("\n".join(names))
        return
    before: Hashes = {}
    if options.against:
        known = json.loads(Path(options.against).read_text())["programs"]
        before = {name: hashes for name, hashes in known.items() if wanted.search(name)}
    now = replay(names, options.jobs, options.save_text)
    failed = [name for name, hashes in now.items() if "error" in hashes]
    print(f"{len(now)} programs, {len(failed)} of them refused")
    if options.out:
        write(Path(options.out), now)
    if options.against:
        found = changes(before, now)
        for kind, which in found.items():
            print(f"{kind}: {len(which)}")
            print("".join(f"  {name}\n" for name in which), end="")
        sys.exit(any(found.values()))


if __name__ == "__main__":
    main()
