"""Passes in any order make what passes that are launched make, though some are replayed."""

from __future__ import annotations

import random

import pytest
from tests.correctness.test_torch_steps import Net, Sides
from tests.support.recorded import Recorder

torch = pytest.importorskip("torch")
from tilewright.torch import recording  # noqa: E402

pytestmark = pytest.mark.needs_torch
#: What may be done, and how often.
ACTIONS = {
    "forward": 8, "backward": 8, "retain": 1, "drop": 1, "descend": 3, "infer": 1, "move": 0.5,
    "clear": 2,
}  # fmt: skip


def replays(sides: Sides, draw: random.Random, count: int) -> int:
    """Do the same with both models, and compare after each pass; how often one was replayed."""
    losses: list[list[torch.Tensor]] = [[], []]
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def both(what):
        """What is done with each side, with random numbers alike."""
        seed, found = draw.randrange(1 << 30), []
        for k, (model, call) in enumerate(zip(sides.models, sides.calls, strict=True)):
            torch.manual_seed(seed)
            found.append([t for t in what(k, model, call) or [] if t is not None])
            found[-1] += [*model.parameters(), *model.buffers()]
            found[-1] += [p.grad for p in model.parameters() if p.grad is not None]
        for ours, theirs in zip(*found, strict=True):
            assert torch.equal(ours.nan_to_num(7.0), theirs.nan_to_num(7.0))

    def forward(k, model, call):
        y = call(sides.images())
        losses[k].append(y.sin().square().sum())
        kept.append((y, y.detach().clone()))
        return [y]

    def backward(k, model, call):
        losses[k].pop(place).backward()

    def retain(k, model, call):
        losses[k][place].backward(retain_graph=True)

    def descend(k, model, call):
        with torch.no_grad():
            for p in model.parameters():
                if p.grad is not None:
                    p -= 0.01 * p.grad

    def infer(k, model, call):
        with torch.no_grad():
            return [call(sides.images())]

    def move(k, model, call):
        for p in model.parameters():
            p.data = p.data.clone()

    place = 0
    for first in (forward, retain, backward):  # PyTorch compiles no retained pass later on
        both(first)
    for _ in range(count):
        action = draw.choices(list(ACTIONS), list(ACTIONS.values()))[0]
        if action in ("backward", "retain", "drop") and not losses[0]:
            continue
        place = draw.randrange(len(losses[0]) or 1)
        if action == "drop":
            for each in losses:
                each.pop(place)
        elif action == "clear":
            for model in sides.models:
                model.zero_grad()
        elif action in ("descend", "move") and losses[0]:
            continue  # gradients need the parameters that there were
        else:
            both(locals()[action])
        assert all(torch.equal(y, was) for y, was in kept)
    return len(sides.record.runs)


@pytest.mark.parametrize("seed", range(4))
def test_passes_in_any_order(monkeypatch, plain_code, seed):
    torch._dynamo.reset()
    record = Recorder(torch)
    monkeypatch.setattr(recording, "recorder", record)
    sides = Sides("cpu", record).of(Net(drop=0.3))
    assert replays(sides, random.Random(seed), 150)
