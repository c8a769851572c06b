"""A model that runs on another machine: what `tilewright run --remote` does."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tilewright.ir.errors import ArgumentError

if TYPE_CHECKING:
    from rich.console import Console

    from tilewright.graph.model import Model
    from tilewright.graph.remote import RemoteModel


def check_options(args: argparse.Namespace) -> None:
    """Raises :class:`ArgumentError` for what is done on this machine alone."""
    if args.fast_run or args.full_run:
        raise ArgumentError(
            "--remote measures no candidates: write --problems FILE, and search by `tilewright "
            "tune --problems FILE --remote HOST:PORT`; the next run takes what was found"
        )


def there(args: argparse.Namespace, model: Model, console: Console) -> RemoteModel:
    """The model on the other machine; raises :class:`RemoteError` where it cannot run there."""
    from tilewright.tune.remote import connect

    with _shown(console, f"sending the model to {args.remote}"):
        made: RemoteModel = connect(args.remote).load(model)
    console.print(f"{args.remote}: {made.machine['device']}", markup=False, soft_wrap=True)
    return made


def measured(
    model: RemoteModel, inputs: dict[str, Any], args: argparse.Namespace, console: Console
) -> tuple[dict[str, Any], list[float], list[list[float]]]:
    """The outputs, the seconds of iterations, and those of each kernel where they are wanted."""
    with _shown(console, f"preparing the model at {args.remote}"):
        first = model.measure(inputs, 0, 0)
    kernels, size = len(model.compile(inputs).kernels), model.nbytes / 2**20
    hint = "" if not first.compiled else f"; {first.compiled} of {kernels} kernels compiled"
    console.print(
        f"prepare there: {first.prepared * 1e3:.1f} ms{hint}; {size:.1f} MiB were sent",
        markup=False,
    )  # fmt: skip
    steps = bool(args.profile or args.json or args.html)
    with _shown(console, f"{args.iterations} iterations at {args.remote}"):
        found = model.measure(inputs, args.iterations, args.warmup, steps)
    return first.outputs, found.seconds, found.steps


def _shown(console: Console, what: str) -> AbstractContextManager[Any]:
    """What is waited for, on a terminal."""
    return console.status(what) if console.is_terminal else nullcontext()
