"""What a call of an operator costs on the host in a graph of `torch.compile`.

Graphs of layers in a row, of images so small that the host is what is timed: depthwise
convolutions, alone and with a batch normalisation and ReLU6 behind each, in inference and in
training, which is the forward and the backward pass. Times are microseconds a layer; those of
PyTorch's own layers, compiled by the same compiler, are beside them, and those of our operators
where the compiled code calls them by PyTorch's dispatcher. All take turns: medians of many short
batches. Under autocast as on a GPU parameters have 32 bits, and their casts are in the graph.

    python benchmarks/compiled_overhead.py [--device cuda] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import measure

#: Layers of a graph, calls of it in a batch, and rounds in which every candidate has its turn.
LAYERS, CALLS, ROUNDS = 12, 5, 300
CHANNELS, IMAGE = 16, 8

Candidates = Mapping[str, Callable[[], Any]]


def cases(device: str, dtype: str) -> Iterator[tuple[str, Candidates]]:
    """By kind of graph, a call of ours and of PyTorch's."""
    import torch
    from torch import nn

    from tilewright.torch import optimize_

    def layer(followed: bool) -> list[nn.Module]:
        conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=not followed)
        return [conv, nn.BatchNorm2d(CHANNELS), nn.ReLU6()] if followed else [conv]

    half = getattr(torch, dtype)

    def compiled(model: Any, training: bool, **settings: Any) -> Callable[[], Any]:
        # What was compiled before, maybe by another version, is not taken.
        settings["fx_graph_cache"] = False
        graph = torch.compile(model, fullgraph=True, options=settings)
        parameters = list(model.parameters())

        def infer() -> Any:
            with torch.no_grad(), torch.autocast(device, half, dtype != "float32"):
                return graph(image)

        def step() -> Any:
            with torch.autocast(device, half, dtype != "float32"):
                made = graph(image)
            return torch.autograd.grad(made, parameters, torch.ones_like(made))

        run = step if training else infer
        run()  # compiles
        return run

    for form in (torch.contiguous_format, torch.channels_last):
        image = torch.randn(1, CHANNELS, IMAGE, IMAGE, device=device, dtype=half)
        image = image.contiguous(memory_format=form)
        layout = "channels_last" if form is torch.channels_last else "NCHW"
        for what, followed, training in (
            ("convolutions", False, False),
            ("convolutions with what follows", True, False),
            ("convolutions, training", False, True),
        ):
            torch._dynamo.reset()
            modules = [m for _ in range(LAYERS) for m in layer(followed)]
            theirs = nn.Sequential(*modules).to(device=device, memory_format=form).train(training)
            ours = copy.deepcopy(theirs)
            optimize_(ours)
            with by_the_dispatcher():
                # Other settings, or this would be taken for the next one as well.
                before = compiled(ours, training, comment_origin=True)
            yield (
                f"{what}, {layout}",
                {
                    "tilewright": compiled(ours, training),
                    "by the dispatcher": before,
                    "PyTorch": compiled(theirs, training),
                },
            )


def by_the_dispatcher() -> Any:
    """A context in which Inductor writes of our operators what it would of any."""
    from tilewright.torch import lowerings

    return mock.patch.object(lowerings, "_is_python", return_value=False)


def medians(candidates: Candidates, wait: Callable[[], Any]) -> dict[str, float]:
    """Microseconds a layer of each."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, run in candidates.items():
            wait()
            begin = time.perf_counter()
            for _ in range(CALLS):
                run()
            times[name].append((time.perf_counter() - begin) * 1e6 / CALLS / LAYERS)
    return {name: statistics.median(found[20:]) for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True
    dtype = options.dtype or ("float16" if options.device == "cuda" else "float32")
    wait = torch.cuda.synchronize if options.device == "cuda" else int
    rows: list[dict[str, Any]] = []
    for name, candidates in cases(options.device, dtype):
        found = medians(candidates, wait)
        us = {f"{label} us": value for label, value in found.items()}
        ratio = found["tilewright"] / found["PyTorch"]
        rows.append({"graph": name, **us, "tilewright / PyTorch": ratio})
        print(rows[-1], flush=True)
    print(measure.table(rows))
    results: dict[str, Any] = {
        "environment": measure.environment("torch", gpu=options.device == "cuda"),
        "settings": {"dtype": dtype, "layers": LAYERS},
        "rows": rows,
    }
    print(measure.save(f"{options.device}_compiled_overhead", results, options.out))


if __name__ == "__main__":
    main()
