"""The backend of ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tilewright.graph.passes.allow_precision import ALLOWED
from tilewright.ir.errors import ArgumentError

#: What ``options`` may say, with defaults.
OPTIONS: Mapping[str, Any] = {"freeze": True, "shapes": 16, "precision": None, "replay": False}


def tilewright(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    report: Callable[[Any], None] | None = None,
) -> Callable[..., Any]:
    """What ``torch.compile(model, backend="tilewright")`` calls with a graph.

    Parameters
    ----------
    options : ``freeze``, whether parameters are constants in inference, so that normalisation is
        folded into weights; a call in which they have changed compiles again. ``shapes``, for how
        many shapes a graph is compiled; further ones are computed by PyTorch. ``precision``, as
        for :func:`tilewright.load`. ``replay``, whether calls in inference and the passes of a
        training step on a GPU are recorded as CUDA graphs, whose memory stays theirs, and replayed.
    mode : None or "default"; "reduce-overhead" is the option ``replay``.
    report : is given a :class:`~tilewright.torch.partition.Taken` for each graph.

    Raises :class:`ArgumentError` for options and modes that there are not.
    """
    found = checked(options)
    if mode not in (None, "default", "reduce-overhead"):
        raise ArgumentError(f"the backend tilewright has no mode {mode!r}: leave it out")
    found["replay"] |= mode == "reduce-overhead"
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    from tilewright.torch.boxed import boxed
    from tilewright.torch.constructors import made_where_read
    from tilewright.torch.partition import partition
    from tilewright.torch.replayed_calls import ReplayedCalls
    from tilewright.torch.steps import cut, replayed

    def compiler(freezes: bool) -> Callable[..., Any]:
        def compile_graph(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
            made_where_read(graph)  # before anything is said about devices
            static = static_inputs(graph)
            replaying, steps = replayed(graph, static if found["replay"] else None)
            calls = ReplayedCalls(graph, static) if freezes and found["replay"] else None
            made, taken = partition(
                graph, static, freezes and bool(found["freeze"]), found["shapes"],
                found["precision"] or "", not freezes,
            )  # fmt: skip
            taken.steps, taken.calls = steps, calls
            if report is not None:
                report(taken)
            if not freezes:
                return replaying(boxed(made))
            run = make_boxed_func(made.forward)
            return run if calls is None else calls.of(run, taken.regions)

        return compile_graph

    backend = aot_autograd(
        fw_compiler=compiler(False),
        inference_compiler=compiler(True),
        partition_fn=cut,
        decompositions=decompositions,
        # Buffers that a graph changes are written in it, all at once.
        keep_inference_input_mutations=True,
    )
    return backend(module, inputs)  # type: ignore[no-any-return]


def checked(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options with defaults; raises :class:`ArgumentError` for others than there are."""
    given = dict(options or {})
    unknown = sorted(set(given) - set(OPTIONS))
    if unknown:
        raise ArgumentError(
            f"the backend tilewright has no option {', '.join(unknown)}: "
            f"there are {', '.join(OPTIONS)}"
        )
    made = {**OPTIONS, **given}
    for name in ("freeze", "replay"):
        if type(made[name]) is not bool:
            raise ArgumentError(f"{name} is True or False, not {made[name]!r}")
    if type(made["shapes"]) is not int or made["shapes"] < 0:
        raise ArgumentError(f"shapes is how many, not {made['shapes']!r}")
    if made["precision"] not in (None, *ALLOWED):
        raise ArgumentError(f"precision is {' or '.join(ALLOWED)}, not {made['precision']!r}")
    return made


def static_inputs(graph: fx.GraphModule) -> list[fx.Node]:
    """The inputs that are parameters and buffers of a model, as AOTAutograd found."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    places = set() if metadata is None else set(metadata.static_input_indices or ())
    inputs = [n for n in graph.graph.nodes if n.op == "placeholder"]
    return [n for k, n in enumerate(inputs) if k in places]


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Of operators that are not taken whole."""
    from torch._decomp import core_aten_decompositions

    from tilewright.graph.fx.convert import converter

    table = core_aten_decompositions()
    return {op: made for op, made in table.items() if converter(op) is None}
