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
import importlib.util
import io
import pkgutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from traceback import extract_tb
from typing import NoReturn, Protocol, cast

from tilewright import __version__
from tilewright.ir.errors import ArgumentError, TilewrightError


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


class _CommandParser(argparse.ArgumentParser):
    """Says what is wrong without a list of all options, which would be longer than a screen."""

    def error(self, message: str) -> NoReturn:
        self.exit(
            2,
            f"usage: {self.prog} [options] ...; `{self.prog} --help` has all of them\n"
            f"{self.prog}: error: {message}\n",
        )


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="tilewright",
        description="Fast tensor operators for CUDA, OpenCL and CPUs.",
    )
    top.add_argument(
        "--load", action="append", default=[], metavar="FILE",
        help="a Python file that declares operators of your own; stands before the command",
    )  # fmt: skip
    top.add_argument("--version", action="version", version=f"tilewright {__version__}")
    choices = top.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_CommandParser
    )
    for name, command in commands().items():
        text = (command.__doc__ or "").strip()
        sub = choices.add_parser(
            name,
            help=text.partition("\n")[0].rstrip("."),
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
        sub.set_defaults(run=command.run, command_parser=sub)
    return top


def _load(argv: Sequence[str]) -> None:
    """Run the files of ``--load``, whose operators commands then have options for."""
    words = list(argv)
    while words and words[0].startswith("--load"):
        option, _, path = words.pop(0).partition("=")
        path = path or (words.pop(0) if words else "")
        if option != "--load" or not Path(path).is_file():
            raise ArgumentError(f"--load {path}: there is no such file")
        name = f"tilewright_loaded_{Path(path).stem}"  # as no other module is called
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ArgumentError(f"--load {path}: a Python file is called NAME.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except (Exception, SystemExit) as error:
            at = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == spec.origin]
            where = f"{path}, line {at[-1]}" if at else path
            raise ArgumentError(f"--load {where}: {type(error).__name__}: {error}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status, 1 for an error that Tilewright raised on purpose."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # what a terminal of ASCII has no letters for
    with_source = warnings.formatwarning
    warnings.formatwarning = _warning
    try:
        _load(sys.argv[1:] if argv is None else argv)
        args, strange = parser().parse_known_args(argv)
        if strange:  # said with the usage of the command, where argparse has that of all
            args.command_parser.error(f"unrecognized arguments: {' '.join(strange)}")
        return int(args.run(args))
    except TilewrightError as error:
        print(f"tilewright: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `tilewright lower x.py | head`
        sys.stderr.close()
        return 0
    finally:
        warnings.formatwarning = with_source


def _warning(message: Warning | str, *_: object, **__: object) -> str:
    """A warning as the command line shows it, without the line of code that gave it."""
    return f"tilewright: warning: {message}\n"
