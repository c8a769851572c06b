"""List, show, export, import and prune the records of tuning.

`list` has a line for each problem, target and device; `show` the measurements of one; `export` and
`import` write and read JSON lines, AutoTVM's logs among them; `prune` removes what is asked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.ir.errors import TilewrightError
from tilewright.report.numbers import counted

if TYPE_CHECKING:
    from tilewright.tune.records import Record, Records


#: Columns of a terminal that names of problems have at least.
_LEAST = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of their own, each with ``--records FILE``."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--records", metavar="FILE", help="by default records.sqlite in the cache folder"
    )
    which = argparse.ArgumentParser(add_help=False)
    which.add_argument("problem", nargs="?", help="a problem, or a part of its name")
    which.add_argument("--target", help="only of this target")
    which.add_argument("--device", help="only of this device")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    listed = actions.add_parser("list", parents=[common], help="what was tuned, the latest first")
    listed.add_argument("--json", action="store_true", help="print it for a program to read")
    shown = actions.add_parser("show", parents=[common, which], help="measurements, fastest first")
    shown.add_argument("--limit", type=int, default=20, metavar="N", help="how many (20); 0: all")
    shown.add_argument("--json", action="store_true", help="print it for a program to read")
    out = actions.add_parser("export", parents=[common, which], help="write JSON lines")
    out.add_argument("-o", "--output", metavar="FILE", help="by default the standard output")
    out.add_argument("--best", action="store_true", help="only the fastest of each")
    out.add_argument(
        "--shipped", action="store_true", help="the few fastest of the library's problems, a file "
        "for each target and device, as the package brings them; -o is then a folder",
    )  # fmt: skip
    taken = actions.add_parser("import", parents=[common], help="read JSON lines, or other records")
    taken.add_argument(
        "files", nargs="+", metavar="FILE", help="JSON lines (-: the standard input), or a file "
        "of records from another machine",
    )  # fmt: skip
    taken.add_argument(
        "--device", help="what the times are of, where the lines do not say (AutoTVM's do not)"
    )
    pruned = actions.add_parser("prune", parents=[common], help="remove measurements")
    pruned.add_argument("--keep", type=int, metavar="N", help="all but the N fastest of each")
    pruned.add_argument("--older-than", type=float, metavar="DAYS", help="those older than that")
    pruned.add_argument("--failed", action="store_true", help="the candidates that failed")
    pruned.add_argument("--problem", help="only of this problem, by its whole name")


def run(args: argparse.Namespace) -> int:
    """Do what ``args.action`` says."""
    from tilewright.tune.records import Records

    with Records(args.records, create=args.action == "import") as records:
        return int(_ACTIONS[args.action](records, args))


def _list(records: Records, args: argparse.Namespace) -> int:
    found = records.summaries()
    if args.json:
        print(json.dumps([
            {"problem": s.problem, "target": s.target, "device": s.device.name,
             "driver": s.device.driver, "version": s.device.version, "measured": s.measured,
             "failed": s.failed, "best": s.best, "last": s.last}
            for s in found
        ], indent=1))  # fmt: skip
        return 0
    from rich.markup import escape

    rows = [
        (escape(s.name), escape(s.target), escape(s.device.name), str(s.measured),
         str(s.failed or ""), _time(s.best), _when(s.last))
        for s in found
    ]  # fmt: skip
    _table(("problem", "target", "device", "measured", "failed", "best", "last"), rows, {3, 4, 5})
    if not found:
        print(f"No records in {records.path or 'memory: no cache folder is used'}.")
    return 0


def _selected(records: Records, args: argparse.Namespace) -> list[Record]:
    found = records.find(target=args.target, device=args.device, fastest_first=True)
    if args.problem is not None:
        exact = [r for r in found if r.problem == args.problem]
        part = args.problem
        found = exact or [r for r in found if part in r.problem or part in r.name]
    named = [f"{k} {v}" for k in ("problem", "target", "device") if (v := getattr(args, k))]
    if named and not found:
        raise TilewrightError(
            f"no records in {records.path} of {', '.join(named)}: `tilewright records list` shows "
            "what there is"
        )
    return found


def _show(records: Records, args: argparse.Namespace) -> int:
    found = _selected(records, args)
    shown = found[: args.limit] if args.limit else found
    if args.json:
        print(json.dumps([_plain(r) for r in shown], indent=1))
        return 0
    from rich.markup import escape

    rows = []
    for r in shown:
        chosen = ", ".join(f"{name} {value}" for name, value in _chosen(r))
        time = _time(r.result.cost) if r.result.ok else escape(r.result.reason[:80])
        rows.append((escape(r.name), escape(r.device.name), time, escape(chosen)))
    _table(("problem", "device", "time", "configuration"), rows, {2})
    if len(found) > len(shown):
        print(f"{len(found) - len(shown)} more: --limit 0 shows all.")
    return 0


def _chosen(r: Record) -> Iterable[tuple[str, Any]]:
    """The choices of a configuration, those that its template does not have left out."""
    from tilewright.tune.library import ABSENT, NAME

    return (
        (name, e) for name, e in r.input.config.entities.items()
        if r.input.task.name != NAME or e.to_json() != ABSENT
    )  # fmt: skip


def _plain(r: Record) -> dict[str, Any]:
    return {
        "problem": r.problem, "target": str(r.input.target), "device": r.device.name,
        "driver": r.device.driver, "version": r.device.version,
        "config": r.input.config.to_json_dict(), "costs": list(r.result.costs),
        "cost": r.result.cost if r.result.ok else None, "error": r.result.error_no.name,
        "reason": r.result.reason, "timestamp": r.result.timestamp,
    }  # fmt: skip


def _export(records: Records, args: argparse.Namespace) -> int:
    from tilewright.tune.log_format import encode

    found = _selected(records, args)
    if args.shipped:
        return _ship(found, args.output)
    if args.best:
        first: dict[tuple[Any, ...], Record] = {}
        for r in found:
            if r.result.ok:
                first.setdefault((r.problem, str(r.input.target), r.device), r)
        found = list(first.values())
    lines = "".join(encode(r.input, r.result, r.device) + "\n" for r in found)
    if args.output is None:
        sys.stdout.write(lines)
    else:
        with _writing(args.output), open(args.output, "w", encoding="utf-8") as file:
            file.write(lines)
        print(f"{counted(len(found), 'record')} written to {args.output}")
    return 0


@contextlib.contextmanager
def _writing(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TilewrightError(f"{path} cannot be written: {error.strerror or error}") from None


def _ship(found: list[Record], output: str | None) -> int:
    """A file for each target and device, those of the package by default."""
    from tilewright.tune.tuned import FOLDER, file_name, from_records, write

    tuned = from_records(found)
    for target, name in sorted({(t.target, t.device) for t in tuned}):
        part = [t for t in tuned if (t.target, t.device) == (target, name)]
        last = max((r for r in found if r.device.name == name), key=lambda r: r.result.timestamp)
        path = Path(output or FOLDER) / file_name(target, name)
        with _writing(path):
            write(path, part, last.device)
        print(f"{counted(len(part), 'problem')} written to {path}")
    if not tuned:
        print("tilewright: there are no records of the library's problems", file=sys.stderr)
    return 0 if tuned else 1


def _import(records: Records, args: argparse.Namespace) -> int:
    from tilewright.tune.log_format import read_lines
    from tilewright.tune.measure import Device
    from tilewright.tune.records import is_database

    unnamed = Device(args.device or "unknown", "", "")
    new = read = 0
    for name in args.files:
        if name != "-" and is_database(name):
            found = records.merge(name)
            new, read = new + found[0], read + found[1]
            continue
        by_device: dict[Device, list[Any]] = {}
        for inp, result, device in read_lines("/dev/stdin" if name == "-" else name):
            by_device.setdefault(device or unnamed, []).append((inp, result))
            read += 1
        for device, pairs in by_device.items():
            new += records.add(pairs, device)
    print(f"{new} of {read} records are new")
    return 0


def _prune(records: Records, args: argparse.Namespace) -> int:
    if args.keep is None and args.older_than is None and not args.failed:
        print("tilewright: say what to remove: --keep N, --older-than DAYS, --failed",
              file=sys.stderr)  # fmt: skip
        return 2
    if min(args.keep or 0, args.older_than or 0) < 0:
        print("tilewright: --keep and --older-than take 0 or more", file=sys.stderr)
        return 2
    seconds = None if args.older_than is None else args.older_than * 86400
    removed = records.prune(args.keep, seconds, args.failed, args.problem)
    print(f"{counted(removed, 'record')} removed, {len(records)} left")
    return 0


_ACTIONS = {"list": _list, "show": _show, "export": _export, "import": _import, "prune": _prune}


def _table(names: Iterable[str], rows: Sequence[tuple[str, ...]], right: set[int]) -> None:
    if not rows:
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for k, name in enumerate(names):
        least = 0 if k else _LEAST  # without it the longest column shrinks most
        side: Any = "right" if k in right else "left"
        table.add_column(name, justify=side, overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def _time(seconds: float | None) -> str:
    from tilewright.tune.display import seconds_text

    return "" if seconds is None else seconds_text(seconds)


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else ""
