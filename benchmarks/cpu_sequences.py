"""Transformers of sequences of any length on a CPU, beside ONNX Runtime: times, and what a new
length costs.

An encoder in BERT's form and a decoder in GPT's with a cache of keys and values, of four layers of
512 each, and ViT-S/16 have random weights and are exported by `torch.onnx.export`, the first two
for any batch and length. Each call is one sequence, or a step of the decoder behind some words.
Both sides take turns in one process, by the time of the processor on one thread, and medians are
compared. The first row of a network costs all of its kernels; "new s" are the seconds of the
processor of a length that is one longer, of all processes, and "new MB" what the process has grown
by.

    PYTHONPATH=src python benchmarks/cpu_sequences.py --threads 1 [--models encoder] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import io
import math
import os
import resource
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from graph_networks import relative
from torch import nn

import tilewright
from tilewright.cli._measure.turns import Batch, of_calls

#: Layers, channels, heads and words.
_LAYERS, _WIDE, _HEADS, _WORDS = 4, 512, 8, 16000
#: Turns of both sides, and the seconds of one.
_ROUNDS, _SPAN = 21, 0.1
#: What each network is called with: words, and words in the cache.
CALLS = {"encoder": ((32, 0), (128, 0), (384, 0)), "decoder": ((64, 0), (1, 64), (1, 512)),
         "vit": ((197, 0),)}  # fmt: skip


class Block(nn.Module):
    """Attention and two products, normalised before each or, as BERT has it, behind."""

    def __init__(self, wide: int, heads: int, before: bool) -> None:
        super().__init__()
        self.heads, self.before = heads, before
        self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.norms = nn.ModuleList([nn.LayerNorm(wide), nn.LayerNorm(wide)])
        self.mlp = nn.Sequential(nn.Linear(wide, 4 * wide), nn.GELU(), nn.Linear(4 * wide, wide))

    def attention(self, x: Any, mask: Any, past: Any) -> tuple[Any, Any]:
        """The result, and the keys and values of all words."""
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (t.view(*x.shape[:2], self.heads, -1).transpose(1, 2) for t in parts)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        weights = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        weights = torch.softmax(weights if mask is None else weights + mask, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(x.shape)), torch.stack([k, v])

    def forward(self, x: Any, mask: Any = None, past: Any = None) -> tuple[Any, Any]:
        first, second = self.norms
        y, kept = self.attention(first(x) if self.before else x, mask, past)
        x = x + y if self.before else first(x + y)
        y = self.mlp(second(x) if self.before else x)
        return x + y if self.before else second(x + y), kept


class Words(nn.Module):
    """What encoder and decoder begin with: words, and their places."""

    def __init__(self, before: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(_WORDS, _WIDE), nn.Embedding(2048, _WIDE)
        self.norm = nn.LayerNorm(_WIDE)
        self.blocks = nn.ModuleList([Block(_WIDE, _HEADS, before) for _ in range(_LAYERS)])


class Encoder(Words):
    def __init__(self) -> None:
        super().__init__(before=False)

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        for block in self.blocks:
            x, _ = block(x, (1 - mask[:, None, None, :].float()) * -1e4)
        return x


class Decoder(Words):
    def __init__(self) -> None:
        super().__init__(before=True)
        self.head = nn.Linear(_WIDE, _WORDS, bias=False)

    def forward(self, ids: Any, past: Any) -> Any:
        begin = past.shape[4]
        own = torch.arange(begin, begin + ids.shape[1])
        x = self.words(ids) + self.places(own)
        later = torch.arange(begin + ids.shape[1])[None] > own[:, None]
        mask = torch.zeros(later.shape).masked_fill(later, -math.inf)
        kept = []
        for k, block in enumerate(self.blocks):
            x, new = block(x, mask, past[k])
            kept.append(new)
        return self.head(self.norm(x)), torch.stack(kept)


class ViT(nn.Module):
    """ViT-S/16."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 384, 16, 16)
        self.first, self.places = (nn.Parameter(torch.randn(1, n, 384)) for n in (1, 197))
        self.blocks = nn.ModuleList([Block(384, 6, before=True) for _ in range(12)])
        self.norm, self.head = nn.LayerNorm(384), nn.Linear(384, 1000)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        for block in self.blocks:
            x, _ = block(x)
        return self.head(self.norm(x[:, 0]))


NETWORKS: dict[str, Callable[[], nn.Module]] = {"encoder": Encoder, "decoder": Decoder, "vit": ViT}


def inputs(name: str, words: int, past: int) -> dict[str, torch.Tensor]:
    """One sequence, or image."""
    torch.manual_seed(words)
    ids = torch.randint(0, _WORDS, (1, words))
    if name == "vit":
        return {"x": torch.randn(1, 3, 224, 224)}
    if name == "encoder":
        return {"ids": ids, "mask": torch.ones_like(ids)}
    depth = _WIDE // _HEADS
    return {"ids": ids, "past": torch.randn(_LAYERS, 2, 1, _HEADS, past, depth)}


def exported(name: str, model: nn.Module) -> bytes:
    """The network as an ONNX file."""
    given = inputs(name, 9, 5)
    open_ = {"x": {0: "N"}, "ids": {0: "N", 1: "T"}, "mask": {0: "N", 1: "T"},
             "past": {2: "N", 4: "P"}}  # fmt: skip
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, tuple(given.values()), file, dynamo=False, opset_version=17,
            input_names=list(given), output_names=["y"], dynamic_axes={n: open_[n] for n in given},
        )  # fmt: skip
    return file.getvalue()


def _used() -> tuple[float, float]:
    """Seconds of the processor, of this process and its own, and megabytes of memory."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return sum(r.ru_utime + r.ru_stime for r in used), pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def rows(name: str, threads: int) -> list[dict[str, Any]]:
    """Measure a network with each of its calls."""
    import onnxruntime

    torch.manual_seed(0)
    network = NETWORKS[name]().eval()
    file = exported(name, network)
    model = tilewright.load(file, target=f"llvm -threads={threads}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    clock = time.process_time if threads == 1 else time.perf_counter
    made = []
    for words, past in CALLS[name]:
        given = inputs(name, words, past)
        arrays = {n: x.numpy() for n, x in given.items()}
        begin = _used()
        found = list(model.run(arrays).values())
        first = _used()
        with torch.no_grad():
            wanted = network(*given.values())
        pairs = zip(found, wanted if isinstance(wanted, tuple) else [wanted], strict=False)
        error = max(relative(torch.from_numpy(a), b) for a, b in pairs)

        batches = {
            "ours": of_calls(partial(model.run, arrays), clock),
            "ONNX Runtime": of_calls(partial(session.run, None, arrays), clock),
        }
        times = medians(batches)
        row = {"network": name, "words": words, "cached": past, "threads": threads,
               **{f"{side} ms": ms for side, ms in times.items()},
               "ONNX Runtime / ours": times["ONNX Runtime"] / times["ours"], "error": error,
               "first s": first[0] - begin[0]}  # fmt: skip
        if name != "vit":
            longer = inputs(name, words + (not past), past + bool(past))
            begin = _used()
            model.run({n: x.numpy() for n, x in longer.items()})
            row |= {"new s": _used()[0] - begin[0], "new MB": _used()[1] - begin[1]}
        print(
            {k: v if isinstance(v, str) else float(f"{v:.4g}") for k, v in row.items()}, flush=True
        )
        made.append(row)
    return made


def medians(batches: dict[str, Batch]) -> dict[str, float]:
    """Milliseconds, in turns."""
    times: dict[str, list[float]] = {side: [] for side in batches}
    counts = {side: max(1, int(_SPAN / max(b(2), 1e-6))) for side, b in batches.items()}
    for _ in range(_ROUNDS):
        for side, batch in batches.items():
            times[side].append(batch(counts[side]) * 1e3)
    return {side: statistics.median(found) for side, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    found = [row for name in options.models for row in rows(name, options.threads)]
    ratios = np.array([row["ONNX Runtime / ours"] for row in found])
    print(
        f"ONNX Runtime / ours: mean {np.exp(np.log(ratios).mean()):.3f}, least {ratios.min():.3f}"
    )
    around = measure.environment("torch", "onnxruntime", gpu=False)
    if options.out:
        result = {"environment": around, "rows": found}
        print(measure.save(f"cpu_sequences_{options.threads}", result, options.out))


if __name__ == "__main__":
    main()
