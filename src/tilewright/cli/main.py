"""``tilewright COMMAND``.

A command is a module in this folder, named as the command is. Its docstring is the help text (the
first line in the overview), ``add_arguments(parser)`` declares what it takes, and ``run(args)``
does it and returns the exit status. What it needs it imports inside ``run``, so that
``tilewright --help`` stays quick. Modules whose names start with an underscore are parts that
commands share.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from tilewright import __version__
from tilewright.ir.errors import TilewrightError


class Command(Protocol):
    """What a command's module defines."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the exit status."""


def commands() -> dict[str, Command]:
    """The commands by name, sorted."""
    folder = importlib.import_module("tilewright.cli").__path__
    names = sorted(m.name for m in pkgutil.iter_modules(folder) if m.name != "main")
    return {
        name: cast(Command, importlib.import_module(f"tilewright.cli.{name}"))
        for name in names
        if not name.startswith("_")
    }


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="tilewright",
        description="Fast tensor operators for CUDA, OpenCL and CPUs.",
    )
    top.add_argument("--version", action="version", version=f"tilewright {__version__}")
    choices = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in commands().items():
        text = (command.__doc__ or "").strip()
        sub = choices.add_parser(
            name,
            help=text.partition("\n")[0].rstrip("."),
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status, 1 for an error that Tilewright raised on purpose."""
    args = parser().parse_args(argv)
    try:
        return int(args.run(args))
    except TilewrightError as error:
        print(f"tilewright: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `tilewright lower x.py | head`
        sys.stderr.close()
        return 0
