"""List this machine's devices and libraries, and how to install what is missing.

Exits with 0 whatever it finds: what is missing is missing for the targets that need it only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from tilewright import __version__

if TYPE_CHECKING:
    from tilewright.cli._devices import Device
    from tilewright.cli._libraries import Library


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print it for a program to read")


def run(args: argparse.Namespace) -> int:
    """Look, and say what was found."""
    from tilewright.cli._devices import devices
    from tilewright.cli._libraries import libraries, pip_install

    machine = {
        "tilewright": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "cache": _cache(),
    }
    found, present = devices(), libraries()
    if args.json:
        report = machine | {
            "devices": [asdict(d) for d in found],
            "libraries": [asdict(x) | {"install": pip_install(*x.words)} for x in present],
        }
        print(json.dumps(report, indent=2))
    else:
        _show(machine, found, present)
    return 0


def _cache() -> str:
    """The folder of compiled code and what it holds."""
    from tilewright.runtime.cache_folder import named, refusal

    root = named()
    if root is None:
        return "no folder: TILEWRIGHT_CACHE is off"
    why = refusal(root)
    if why:
        return f"no folder: {root} is refused, as {why}"
    # By os.path, which takes what may not be looked at for what is not there.
    there = next(p for p in (root, *root.absolute().parents) if os.path.exists(p))
    if not os.access(there, os.W_OK | os.X_OK):
        return (
            f"no folder: nothing can be written to {root}. Set TILEWRIGHT_CACHE to a folder of "
            "your own, or each process compiles again what is not there yet"
        )
    size = sum(p.stat().st_size for p in root.glob("*/*.tw")) / 1e6
    return f"{root} ({size:.1f} MB)"


def _show(machine: dict[str, str], found: list[Device], present: list[Library]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    console.print(
        f"[bold]tilewright {machine['tilewright']}[/], Python {machine['python']}"
        f" ({escape(machine['executable'])}), {machine['platform']}",
        soft_wrap=True,
    )
    console.print(f"Compiled code is kept in {escape(machine['cache'])}", soft_wrap=True)
    table = Table("target", "device", "", box=SIMPLE_HEAD, pad_edge=False)
    for device in found:
        name = escape(device.name) or "[yellow]none[/]"
        details = escape(device.details)
        if device.problem:
            details = f"[yellow]unusable[/]; {details}"
        table.add_row(device.target, name, details)
    console.print(table)
    for device in found:
        if device.problem:
            console.print(
                f"[yellow]target {device.target} cannot be used:[/] {escape(device.problem)}",
                soft_wrap=True,
            )

    table = Table("library", "version", "for", box=SIMPLE_HEAD, pad_edge=False)
    for library in present:
        state = escape(library.version)
        if library.problem:
            colour = "red" if library.required or library.version else "yellow"
            state = f"[{colour}]{escape(f'{library.version} {library.problem}'.strip())}[/]"
        table.add_row(library.name, state, library.purpose)
    console.print(table)

    mends = [(f"target {d.target}", d.mend) for d in found if d.mend]
    mends += _installs(present)
    if not mends:
        console.print("[green]No library is missing.[/]")
        return
    console.print("[bold]To get what is missing:[/]")
    for what, line in mends:
        console.print(f"[dim]# {escape(what)}[/]", soft_wrap=True)
        console.print(escape(line), soft_wrap=True)


def _installs(present: list[Library]) -> list[tuple[str, str]]:
    """What to type for the libraries that are missing or broken, a line for each purpose."""
    from tilewright.cli._libraries import pip_install

    groups: dict[tuple[str, bool], list[Library]] = {}
    for library in present:
        if library.problem:
            purpose = library.purpose.partition(":")[0]
            groups.setdefault((purpose, bool(library.version)), []).append(library)
    return [
        (
            f"{', '.join(x.name for x in group)}: {purpose}",
            pip_install(*dict.fromkeys(w for x in group for w in x.words)),
        )
        for (purpose, _), group in groups.items()
    ]
