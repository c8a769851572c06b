"""``tilewright demo`` searches, checks, compares and reports; the real code on tiny layers."""

import html.parser
import json
import re
import sys

import numpy as np
import pytest

from tilewright.cli._demo import search as searching
from tilewright.cli._demo.layers import LAYERS, QUICK, Layer, choose, reference
from tilewright.cli._demo.space import Candidate, candidates
from tilewright.cli._measure.machine import find
from tilewright.cli._measure.peers import Peers
from tilewright.cli.main import main
from tilewright.ir.errors import ProblemError, TargetError
from tilewright.topi.cpu.depthwise_lines import LineTile
from tilewright.topi.templates import TEMPLATES

TINY = [Layer("", 3, 9, 7, 3), Layer("", 2, 8, 11, 5, 2), Layer("", 2, 5, 4, 7)]


def plain_sum(layer, x, w):
    """The convolution tap by tap, and how many taps meet the image."""
    pad, s = layer.kernel // 2, layer.stride
    out, taps = np.zeros((1, layer.channels, *layer.out)), 0
    for i, j in np.ndindex(*layer.out):
        for di, dj in np.ndindex(layer.kernel, layer.kernel):
            row, column = i * s + di - pad, j * s + dj - pad
            if 0 <= row < layer.height and 0 <= column < layer.width:
                out[0, :, i, j] += x[0, :, row, column] * w[:, 0, di, dj].astype(np.float64)
                taps += layer.channels
    return out, taps


class Tags(html.parser.HTMLParser):
    """Checks that every tag is closed where it should be; collects attributes."""

    def __init__(self):
        super().__init__()
        self.open, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href", "action")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def alone(monkeypatch):
    """Neither PyTorch nor ONNX Runtime can be imported."""
    for name in ("torch", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)


def demo(folder, *args):
    """The exit status, the figures and the page of a run on the CPU."""
    page, figures = folder / "demo.html", folder / "demo.json"
    status = main(["demo", "--quick", "--html", str(page), "--json", str(figures), *args])
    return status, json.loads(figures.read_text()), page.read_text()


@pytest.mark.parametrize("layer", TINY, ids=lambda layer: layer.key)
def test_the_reference_is_the_definition_of_the_convolution(layer):
    x, w, out = layer.arrays()
    wanted, taps = plain_sum(layer, x, w)
    np.testing.assert_allclose(reference(layer, x, w), wanted, rtol=1e-12)
    assert out.shape == wanted.shape
    assert layer.flops == 2 * taps


def test_a_quick_run_finds_right_kernels_and_writes_what_it_found(tmp_path, alone, capsys):
    status, figures, page = demo(tmp_path, "--target", "llvm", "--layers", "8x12x12k3", "4x9x9k5s2")
    assert status == 0
    assert [row["key"] for row in figures["layers"]] == ["8x12x12k3", "4x9x9k5s2"]
    for row in figures["layers"]:
        assert row["error"] < 1e-6
        assert row["us"]["tilewright"] > 0
        assert (
            row["tried"] == row["candidates"] == len(row["points"]) + sum(row["failures"].values())
        )
        assert row["schedule"] in {point["schedule"] for point in row["points"]}
        assert row["of limit"] > 0
    assert figures["environment"]["target"].startswith("llvm")
    text = capsys.readouterr().out
    assert "8×12×12 K3" in text
    assert "K5 s2" in text
    assert "cpu.lines: rows" in page
    assert "LLVM IR" in page
    assert re.sub("<[^>]*>", "", page).count("define ") >= 2


def test_the_page_loads_nothing_and_is_well_formed(tmp_path, alone):
    _, _, page = demo(tmp_path, "--target", "llvm", "--layers", "4x9x9k3")
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    assert all(link.startswith("#") for link in tags.links)
    assert not re.search(r"https?://|url\(|@import|<script|<link|<iframe", page)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in tags.links} <= set(ids)


def test_the_simulator_needs_no_gpu_and_counts_traffic_in_place_of_time(tmp_path, capsys):
    status, figures, _ = demo(tmp_path, "--target", "sim", "--layers", "8x40x12k3", "2x6x6k9")
    assert status == 0
    assert [row["key"] for row in figures["layers"]] == ["2x28x12k3", "2x6x6k9"]
    for row in figures["layers"]:
        assert row["error"] < 1e-6
        assert row["traffic"]["sectors"] > 0
        assert row["us"] == {}
    assert "watched every access" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.needs_opencl
def test_the_schedules_for_gpus_run_and_are_timed_on_opencl(tmp_path):
    status, figures, page = demo(tmp_path, "--target", "opencl", "--layers", "4x9x10k3")
    assert status == 0
    (row,) = figures["layers"]
    assert row["failures"] == {}
    assert row["error"] < 1e-6
    assert row["us"]["tilewright"] > 0
    assert "OpenCL C" in page


@pytest.mark.needs_cuda
def test_the_schedules_for_gpus_run_and_are_timed_on_cuda(tmp_path):
    status, figures, page = demo(tmp_path, "--target", "cuda", "--layers", "4x9x10k3", "8x20x20k27")
    assert status == 0
    for row in figures["layers"]:
        assert row["failures"] == {}
        assert row["error"] < 1e-6
        assert row["us"]["tilewright"] > 0
    assert "CUDA C++" in page


def test_without_the_libraries_their_columns_are_left_out_with_a_hint(tmp_path, alone, capsys):
    _, figures, page = demo(tmp_path, "--target", "llvm", "--layers", "4x9x9k3")
    assert figures["peers"] == []
    assert figures["geometric mean"] is None
    text = capsys.readouterr().out
    assert f"{sys.executable} -m pip install torch" in text
    assert "pip install onnxruntime" in page
    assert "faster" not in text


@pytest.mark.needs_torch
@pytest.mark.needs_onnxruntime
def test_the_libraries_are_timed_with_the_same_threads(tmp_path, capsys):
    import torch

    before = torch.get_num_threads()
    _, figures, page = demo(tmp_path, "--target", "llvm", "--threads", "1", "--layers", "4x16x16k3")
    assert figures["peers"] == ["PyTorch", "ONNX Runtime"]
    (row,) = figures["layers"]
    assert set(row["us"]) == {"tilewright", "PyTorch", "ONNX Runtime"}
    fastest = min(row["us"]["PyTorch"], row["us"]["ONNX Runtime"])
    assert row["faster"] == pytest.approx(fastest / row["us"]["tilewright"])
    assert figures["environment"]["threads"] == "1"
    assert torch.get_num_threads() == before
    assert "<rect" in page


@pytest.mark.needs_onnxruntime
@pytest.mark.parametrize("layer", TINY, ids=lambda layer: layer.key)
def test_onnx_runtime_runs_the_model_that_is_written_for_it(layer):
    from tilewright.cli._measure.onnx import depthwise_session

    x, w, _ = layer.arrays()
    session = depthwise_session(x.shape, w, layer.kernel, layer.stride, 1)
    (found,) = session.run(None, {"x": x})
    np.testing.assert_allclose(found, reference(layer, x, w), rtol=1e-4, atol=1e-5)


def test_control_c_keeps_and_shows_what_was_found(tmp_path, alone, monkeypatch, capsys):
    tried = searching.Search._try
    count = 0

    def third_time_unlucky(self, index, candidate):
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        tried(self, index, candidate)

    monkeypatch.setattr(searching.Search, "_try", third_time_unlucky)
    status, figures, _ = demo(tmp_path, "--target", "llvm", "--layers", "8x12x12k3", "4x9x9k5s2")
    assert status == 130
    (row,) = figures["layers"]
    assert (row["tried"], row["stopped"]) == (2, "interrupted")
    assert row["us"]["tilewright"] > 0
    assert "Interrupted" in capsys.readouterr().out


def test_candidates_that_fail_are_counted_with_the_reason_and_stop_nothing(
    tmp_path, alone, monkeypatch, capsys
):
    def right(layer):
        return TEMPLATES["cpu.lines"].scheduled(layer.problem, LineTile(2, 1, 8, 3))

    def wrong(layer):
        s, (*_, out) = right(layer)
        s[out].split(out, factor=2)

    def odd(layer):
        raise ZeroDivisionError("a bug in a schedule")

    def few(layer, machine, most):
        return [Candidate("wrong", wrong), Candidate("odd", odd), Candidate("good", right)]

    monkeypatch.setattr(searching, "candidates", few)
    status, figures, page = demo(tmp_path, "--target", "llvm", "--layers", "4x9x9k3")
    assert status == 0
    (row,) = figures["layers"]
    assert row["schedule"] == "good"
    assert len(row["failures"]) == 2
    assert row["failures"]["ZeroDivisionError: a bug in a schedule"] == 1
    assert "split takes an axis" in page
    assert capsys.readouterr().out.count("1 failed:") == 2


def test_a_kernel_that_computes_something_else_is_never_the_best(tmp_path, alone, monkeypatch):
    monkeypatch.setattr(searching, "reference", lambda layer, x, w: reference(layer, x, w) + 1)
    status, figures, _ = demo(tmp_path, "--target", "llvm", "--layers", "4x9x9k3")
    assert status == 1
    (row,) = figures["layers"]
    assert (row["schedule"], row["points"], row["us"]) == ("", [], {})
    assert all(reason.startswith("wrong result") for reason in row["failures"])


def test_the_candidates_of_every_layer_fit_it_and_are_no_more_than_asked_for():
    cpu, gpu = find("llvm", 1), find("sim", 1)
    for layer in LAYERS:
        for machine in (cpu, gpu):
            found = candidates(layer, machine, 12)
            assert 3 <= len(found) <= 12
            assert len({c.label for c in found}) == len(found)


def test_a_target_that_can_compile_nothing_is_an_error(tmp_path, alone, monkeypatch, capsys):
    def unable(self, index, candidate):
        raise TargetError("this processor is unknown: install a newer compiler")

    monkeypatch.setattr(searching.Search, "_try", unable)
    assert main(["demo", "--quick", "--target", "llvm", "--html", str(tmp_path / "x.html")]) == 1
    assert capsys.readouterr().err.startswith("tilewright: this processor is unknown")
    assert not (tmp_path / "x.html").exists()


def test_layers_are_chosen_by_network_or_by_shape():
    assert choose([]) == LAYERS
    assert choose([], quick=True) == QUICK
    assert {x.network for x in choose(["convnext,replk"])} == {"ConvNeXt-T", "RepLKNet-31B"}
    assert choose(["144x56x56k3s2"])[0] in LAYERS
    assert choose(["1x7x8x9k5"]) == (Layer("", 7, 8, 9, 5),)


def test_a_library_that_fails_on_a_layer_is_left_out_of_it(monkeypatch):
    peers = Peers(find("sim", 1))
    assert peers.names == []

    def fail(*_):
        raise RuntimeError("no such convolution\nat line 3")

    peers.names = ["PyTorch"]
    monkeypatch.setattr(peers, "_torch", fail)
    problem = TINY[0].problem
    assert peers.batches(problem, {}) == {}
    assert peers.hints == [f"PyTorch fails on {problem}: no such convolution"]


def test_what_a_library_does_not_have_is_said_once(monkeypatch):
    peers = Peers(find("sim", 1))
    peers.names = ["ONNX Runtime"]

    def fail(*_):
        raise ProblemError("there is no ONNX model for mlp")

    monkeypatch.setattr(peers, "_onnxruntime", fail)
    for layer in (*TINY, *TINY):
        assert peers.batches(layer.problem, {}) == {}
    assert peers.hints == ["ONNX Runtime is left out: there is no ONNX model for mlp"]


def test_without_a_terminal_a_line_a_layer_is_printed(tmp_path, alone, capsys):
    demo(tmp_path, "--target", "llvm", "--layers", "4x9x9k3")
    lines = capsys.readouterr().out.splitlines()
    assert any(re.match(r"4×9×9 K3: tilewright \S+ µs, of limit", line) for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_a_page_that_cannot_be_written_is_said_and_is_no_failure(tmp_path, alone, capsys):
    page = str(tmp_path / "no folder" / "demo.html")
    args = ["demo", "--quick", "--target", "llvm", "--layers", "4x9x9k3", "--html", page]
    assert main(args) == 0
    assert "was not written: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("compiling", [0.1, 0.4])
@pytest.mark.parametrize("layers", [1, 3, 9])
def test_searching_and_comparing_end_in_time(monkeypatch, layers, compiling):
    """By a clock of its own: a search ends with the candidate that is begun last."""
    from tilewright.cli import demo

    now = [100.0]

    class Search:
        unable = None

        def __init__(self, layer, machine, most):
            self.result = searching.Result(layer)

        def run(self, seconds, report):
            end = now[0] + seconds
            while now[0] <= end:
                now[0] += compiling
                self.result.points.append(searching.Point(0, "one", 1.0))

        def finish(self, peers, seconds):
            now[0] += seconds
            return self.result

    class Silent:
        def __getattr__(self, name):
            return lambda *_: None

    monkeypatch.setattr(searching, "Search", Search)
    monkeypatch.setattr(demo.time, "monotonic", lambda: now[0])
    demo._search(TINY[:1] * layers, False, find("llvm", 1), None, Silent(), now[0] + 33.0)
    assert 133.0 - 0.01 <= now[0] <= 133.0 + compiling + 0.01 or layers == 1
