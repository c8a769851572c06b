"""The examples run, in small on a CPU, and the models in them are those of the papers."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("only_kernels")]


@pytest.fixture
def example(monkeypatch):
    """Imports a file of the folder by its name."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    return importlib.import_module


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # those of such small images would wait for one another
    yield
    torch.set_num_threads(before)


def test_replknet_31b_is_that_of_the_paper(example):
    import tilewright.torch

    with torch.device("meta"):
        model = example("replknet_model").replknet_31b()
    assert sum(p.numel() for p in model.parameters()) == 79_864_168  # published: 79.9 million
    report = tilewright.torch.optimize_(model)
    # A large and a small one in each of 24 blocks, two in the stem, one at each of three changes.
    assert len(report.replaced) == 24 * 2 + 2 + 3
    assert model(torch.empty(2, 3, 224, 224, device="meta")).shape == (2, 1000)


def test_training_replknet_prints_how_fast_both_are(example, one_thread, capsys):
    command = "--model tiny --device cpu --dtype float32 --batch 2 --steps 2".split()
    example("train_replknet").main(command)
    text = capsys.readouterr().out
    assert text.startswith("7 of 18 convolutions run on Tilewright's kernels\n")
    found = re.findall(r"(\w+) +[\d.]+ images/s, loss ([\d.]+)", text)
    assert [name for name, _ in found] == ["PyTorch", "Tilewright"]
    assert abs(float(found[0][1]) - float(found[1][1])) < 1e-3
    assert re.search(r"^[\d.]+ times as fast$", text, re.MULTILINE)


@pytest.mark.needs_onnx
def test_a_session_of_load_and_run_is_one_of_tilewright(example, capsys):
    assert example("load_and_run").main(["--iter", "2", "--fast-run-seconds", "0"]) == 0
    text = capsys.readouterr().out
    assert "0 of 8 kernels; the next run goes on" in text
    assert re.search(r"^2 iterations: median [\d.]+ ms", text, re.MULTILINE)


@pytest.mark.parametrize("target", ["sim", pytest.param("opencl", marks=pytest.mark.needs_opencl)])
def test_the_schedule_of_article_000_says_what_it_costs(example, capsys, monkeypatch, target):
    monkeypatch.setattr("sys.argv", ["article_000.py", "--target", target])
    example("article_000").main()
    text = capsys.readouterr().out
    assert float(re.match(r"relative error (\S+)", text)[1]) < 1e-6
    assert ("conflict degree 4.00" if target == "sim" else " us\n") in text
