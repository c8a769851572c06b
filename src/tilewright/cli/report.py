"""Write a page of what was measured: rooflines, tables beside other libraries, tuning curves.

  tilewright bench --set mobilenetv2 --json bench.json
  tilewright report bench.json
  tilewright report *.json --no-records -o speed.html

Takes the files that `tilewright bench --json` and the benchmarks wrote, and the records of tuning.
The page is one file and needs nothing but a browser.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright.ir.errors import ArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to show, and where."""
    parser.add_argument("files", nargs="*", metavar="FILE", help="results in JSON")
    parser.add_argument(
        "--records", metavar="FILE", help="of tuning; by default records.sqlite in the cache folder"
    )
    parser.add_argument("--no-records", action="store_true", help="without those of tuning")
    parser.add_argument(
        "--only",
        metavar="WORDS",
        default="",
        help='of tuning, problems and devices with all of these in their names ("wgrad float16")',
    )
    parser.add_argument("--title", default="Measurements", help="of the page")
    parser.add_argument(
        "-o", "--output", default="tilewright-report.html", metavar="PATH", help="(%(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Read, draw, write.

    Raises :class:`ArgumentError` where there is nothing to show, :class:`FileError` where the page
    cannot be written, :class:`ResultsError` and :class:`RecordsError` for files that are none.
    """
    from tilewright.report.histories import histories
    from tilewright.report.numbers import counted
    from tilewright.report.overview import overview
    from tilewright.report.results import read
    from tilewright.runtime.files import check_writable, write_file
    from tilewright.tune.records import Records

    if args.records and args.no_records:
        raise ArgumentError("--records and --no-records exclude each other")
    path = Path(args.output)
    check_writable(path)
    results = [read(file) for file in args.files]
    tuned = []
    if not args.no_records:
        if args.records and not Path(args.records).exists():
            raise ArgumentError(f"--records {args.records}: there is no such file")
        with Records(args.records, create=False) as records:
            tuned = histories(records, args.only.split())
    if not results and not tuned:
        raise ArgumentError(
            "there is nothing to show: measure something first, by `tilewright bench --json FILE` "
            "or `tilewright tune`"
        )
    write_file(path, overview(results, tuned, args.title))
    problems = counted(sum(len(one.rows) for one in results), "problem")
    print(f"{problems} measured, {len(tuned)} tuned: {path}")
    return 0
