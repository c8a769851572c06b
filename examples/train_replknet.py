"""Train RepLKNet on synthetic images with PyTorch alone and with Tilewright: images a second.

Both start from the same weights and see the same images, so their losses agree as far as the type's
precision goes.

    python examples/train_replknet.py                         # RepLKNet-31B on an NVIDIA GPU
    python examples/train_replknet.py --model tiny --device cpu --dtype float32 --batch 4 --steps 3
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence
from typing import Any

import torch
from replknet_model import MODELS
from torch import nn

import tilewright.torch


class Trainer:
    """A model with its optimizer, under autocast where ``dtype`` has 16 bits."""

    def __init__(self, model: nn.Module, device: str, dtype: str) -> None:
        self.model, self.device, self.type = model, device, getattr(torch, dtype)
        self.optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=device == "cuda")
        self.scaler = torch.amp.GradScaler(device, enabled=dtype == "float16")

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss, before the step."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, self.type, enabled=self.type != torch.float32):
            loss = nn.functional.cross_entropy(self.model(images), labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def run(self, batches: Sequence[tuple[torch.Tensor, torch.Tensor]], warm: int = 2) -> Any:
        """Images a second, after ``warm`` steps that compile and choose algorithms; last loss."""
        for k in range(warm):
            self.step(*batches[k % len(batches)])
        self.wait()
        begin = time.perf_counter()
        for batch in batches:
            loss = self.step(*batch)
        self.wait()
        took = time.perf_counter() - begin
        return sum(len(labels) for _, labels in batches) / took, float(loss)

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="31B", choices=list(MODELS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float16", choices=("float16", "bfloat16", "float32"))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--channels-last", action="store_true", help="the layout of the images")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    form = torch.channels_last if options.channels_last else torch.contiguous_format
    make, side = MODELS[options.model]
    with torch.device(options.device):
        model = make().to(memory_format=form)
        batches = [
            (
                torch.randn(options.batch, 3, side, side).contiguous(memory_format=form),
                torch.randint(0, 10, (options.batch,)),
            )
            for _ in range(min(options.steps, 4))
        ]
    batches = [batches[k % len(batches)] for k in range(options.steps)]

    swapped = copy.deepcopy(model)
    report = tilewright.torch.optimize_(swapped)
    print(f"{len(report.replaced)} of {len(report.rows)} convolutions run on Tilewright's kernels")
    speeds = {}
    for name, found in (("PyTorch", model), ("Tilewright", swapped)):
        trainer = Trainer(found, options.device, options.dtype)
        speeds[name], loss = trainer.run(batches)
        print(f"{name:10}  {speeds[name]:9.1f} images/s, loss {loss:.4f}")
        del trainer
    print(f"{speeds['Tilewright'] / speeds['PyTorch']:.2f} times as fast")


if __name__ == "__main__":
    main()
