"""``tilewright bench`` measures ours and the others on the same data, and the floor."""

import contextlib
import gc
import json
import statistics
import sys
import time
import types
import weakref

import numpy as np
import pytest

from tilewright.cli._bench import contest
from tilewright.cli._bench.view import figures
from tilewright.cli._measure import floors, torch_peer, turns
from tilewright.cli._measure.machine import find
from tilewright.cli._measure.peers import Peers
from tilewright.cli._measure.turns import briefly, of_graph, take_turns, until_idle
from tilewright.cli.main import main
from tilewright.runtime.compile import build
from tilewright.runtime.signature import evaluate
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.conv3d import Conv3d
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.problem import Problem

SMALL = ["--input", "1x4x9x9", "--filter", "4x1x3x3", "--padding", "1", "--target", "llvm"]
QUICK = ["--rounds", "5", "--seconds", "0.05", "--threads", "1"]


@pytest.fixture(autouse=True)
def roof(monkeypatch):
    """How fast the machine is takes seconds to measure, and is no matter here."""
    monkeypatch.setattr(floors, "bandwidth", lambda machine: 1e10)
    monkeypatch.setattr(floors, "rate", lambda machine, dtype: 1e11)


def bench(tmp_path, *words):
    path = tmp_path / "bench.json"
    status = main(["bench", *words, *QUICK, "--json", str(path)])
    return status, json.loads(path.read_text())


def test_without_any_library_ours_is_timed_against_the_floor(tmp_path, monkeypatch, capsys):
    for name in ("torch", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    status, found = bench(tmp_path, "depthwise_conv2d", *SMALL)
    assert status == 0
    (row,) = found["rows"]
    times = row["times"]["tilewright"]
    assert times["min"] <= times["median"] <= times["max"]
    assert times["rounds"] == 5
    assert row["tilewright / floor"] == pytest.approx(row["tilewright us"] / row["floor us"])
    assert "best peer / tilewright" not in row
    text = capsys.readouterr().out
    assert "median ± σ" in text
    assert "PyTorch is not installed; to compare with it" in text


@pytest.mark.needs_torch
@pytest.mark.needs_onnxruntime
def test_the_libraries_take_turns_with_ours_and_the_result_is_checked(tmp_path):
    peers = "PyTorch,PyTorch channels_last,onnx runtime"
    status, found = bench(tmp_path, "depthwise_conv2d", *SMALL, "--peers", peers)
    (row,) = found["rows"]
    assert status == 0
    assert list(row["times"]) == [
        "tilewright", "PyTorch", "PyTorch channels_last", "ONNX Runtime",
    ]  # fmt: skip
    best = min(us for name, us in row.items() if name in {f"{n} us" for n in row["times"]}
               and name != "tilewright us")  # fmt: skip
    assert row["best peer / tilewright"] == pytest.approx(best / row["tilewright us"])
    assert row["error"] < 1e-6
    assert Problem.from_dict(row["problem"]).padding == (1, 1, 1, 1)
    assert found["environment"]["threads"] == "1"


@pytest.mark.needs_torch
def test_layouts_of_one_problem_take_turns_with_the_libraries_once():
    machine = find("llvm", 1)
    peers = Peers(machine, ["PyTorch"])
    roofs = {"float32": floors.Roof(1e10, 1e11)}
    both = [Conv.parse("1x4x9x9", "4x1x3x3", layout=layout) for layout in ("NCHW", "NHWC")]
    rows = contest.Contest(machine, peers, "heuristic", roofs, 5, 0.05).together(both)
    assert [row.problem for row in rows] == both
    assert [list(row.times) for row in rows] == [["tilewright", "PyTorch"]] * 2
    assert rows[0].times["PyTorch"] == rows[1].times["PyTorch"]
    assert rows[0].times["tilewright"] != rows[1].times["tilewright"]
    assert all(row.error < 1e-6 and row.copy for row in rows)


@pytest.mark.needs_torch
def test_a_wrong_kernel_is_not_timed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(contest, "TOLERANCE", {"float32": 0.0})
    status, found = bench(tmp_path, "depthwise_conv2d", *SMALL, "--peers", "PyTorch")
    assert status == 1
    assert "computes something else" in found["rows"][0]["failure"]
    assert list(found["rows"][0]["times"]) == ["PyTorch"]
    assert "no kernel of ours" in capsys.readouterr().out


@pytest.mark.needs_torch
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "more",
    [
        {"pass_": "forward", "epilogue": "bias+relu", "stride": 2},
        {"pass_": "forward", "epilogue": "scale_shift+leaky_relu(0.1)+residual", "dilation": 2},
        {"pass_": "dgrad", "padding": (1, 0, 2, 1)},
        {"pass_": "wgrad", "padding": (0, 1, 2, 1), "stride": (1, 2)},
        {"pass_": "forward", "dtype": "bfloat16", "epilogue": "clamp(-1,1)"},
        {"pass_": "forward", "dtype": "bfloat16", "epilogue": "bias+wide_batch_norm+relu6"},
    ],
    ids=str,
)
def test_pytorch_is_asked_for_the_same_problem(more, layout):
    import torch

    problem = Conv.parse("2x3x9x8", "3x2x3x3", layout=layout, **more)
    arrays = contest.random_arrays(problem)
    from tilewright.topi.templates import default_schedule

    declaration, schedule = default_schedule(problem, "llvm")
    machine = find("llvm", 1)
    dtypes = problem.dtypes()
    ours = [machine.array(contest.in_layout(problem, n, v), dtypes[n]) for n, v in arrays.items()]
    ours.append(machine.array(np.zeros(problem.result_shape, np.float32), problem.dtype))
    build(schedule, declaration.args, "llvm")(*ours)
    with torch.no_grad():
        tensors = torch_peer.operands(problem, arrays, "cpu", layout == "NHWC")
        wanted = torch_peer.function(problem)(*tensors).double().numpy()
    got = contest.to_float(ours[-1].numpy(), problem.dtype)
    if problem.pass_ == "wgrad":
        wanted = wanted.reshape(got.shape)
    elif layout == "NHWC":
        wanted = np.moveaxis(wanted, 1, -1)
    error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
    assert error < 2 * contest.TOLERANCE[problem.dtype]


@pytest.mark.parametrize("turned", [False, True])
def test_pytorch_multiplies_matrices_of_int8(turned):
    p = Gemm(m=18, n=16, k=24, dtype="int8", accumulate="int32", transpose_b=turned)
    arrays = contest.random_arrays(p)
    tensors = torch_peer.operands(p, arrays, "cpu", False)
    a, b = arrays.values()
    wanted = a @ (b.T if turned else b)
    assert (torch_peer.function(p)(*tensors).numpy() == wanted).all()


@pytest.mark.parametrize("epilogue", ["scale_shift+relu", "scale_shift+residual+relu", "bias+silu"])
def test_torch_compile_captures_what_pytorch_is_asked_for(epilogue):
    """Benchmarks give it the whole composite, so nothing of ours may run while it traces."""
    import torch

    problem = Conv.parse("2x3x9x8", "3x1x3x3", layout="NHWC", epilogue=epilogue)
    tensors = torch_peer.operands(problem, contest.random_arrays(problem), "cpu", True)
    function = torch_peer.function(problem)
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    assert torch.equal(compiled(*tensors), function(*tensors))


@pytest.mark.needs_onnxruntime
@pytest.mark.parametrize(
    "step",
    ["bias", "relu", "relu6", "clamp(-1,2)", "leaky_relu(0.2)", "hsigmoid", "hswish", "silu",
     "scale_shift", "batch_norm(0.1)", "residual", "bias+silu", "relu+bias"],
)  # fmt: skip
def test_onnx_models_have_the_steps(step):
    pytest.importorskip("torch")
    import torch

    from tilewright.cli._measure.onnx import session

    problem = Conv.parse(
        "2x3x7x8", "3x2x3x2", padding=(1, 0, 2, 1), stride=(2, 1), dilation=(1, 2), epilogue=step
    )
    arrays = contest.random_arrays(problem)
    names = {"data": "x", "residual": "residual"}
    given = {names[n]: v for n, v in arrays.items() if n in names}
    (found,) = session(problem, arrays, 1).run(None, given)
    tensors = torch_peer.operands(problem, arrays, "cpu", False)
    wanted = torch_peer.function(problem)(*tensors).detach()
    torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.needs_onnxruntime
@pytest.mark.parametrize(
    "problem",
    [
        Conv.parse("2x3x7x8", "4x3x3x2", 1, padding=(1, 0, 2, 1), stride=(2, 3), pass_="dgrad"),
        Conv.parse("1x4x9x9", "6x2x3x3", 2, padding=1, dilation=2, pass_="dgrad"),
        Conv3d.parse("2x3x4x7x8", "4x3x2x3x2", 1, padding=(1, 0, 1, 0, 2, 1), stride=(1, 2, 3)),
        Conv3d.parse("1x4x5x6x7", "6x2x3x3x3", 2, padding=1, stride=2, pass_="dgrad"),
    ],
    ids=str,
)
def test_onnx_models_are_transposed_or_in_three_dimensions(problem):
    pytest.importorskip("torch")
    import torch

    from tilewright.cli._measure.onnx import session

    arrays = contest.random_arrays(problem)
    (found,) = session(problem, arrays, 1).run(None, {"x": next(iter(arrays.values()))})
    tensors = torch_peer.operands(problem, arrays, "cpu", False)
    wanted = torch_peer.function(problem)(*tensors).detach()
    torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=1e-4, atol=1e-5)


def test_candidates_take_turns_and_slow_ones_get_fewer_rounds():
    order = []

    def batch(name, seconds):
        def run(number):
            order.append(name)
            return seconds

        return run

    def rest():
        order.append("rest")

    times = take_turns({"a": batch("a", 0.1), "b": batch("b", 0.3)}, 50, 0.004, 4.0, rest)
    assert {len(found) for found in times.values()} == {5}
    assert order == ["rest", "a", "rest", "b"] * 6  # one of each to see how long it takes


def test_threads_that_were_let_sleep_are_woken_before_what_counts(monkeypatch):
    """A call takes twice its time while its threads, just woken, share a core."""
    now, woken = [0.0], [0.0]

    def idle():
        now[0] += 0.01
        woken[0] = now[0]

    def batch(number):
        begin = now[0]
        for _ in range(number):
            now[0] += 2e-4 if now[0] - woken[0] < 0.01 else 1e-4
        return (now[0] - begin) / number

    monkeypatch.setattr(turns, "until_idle", idle)
    monkeypatch.setattr(turns.time, "monotonic", lambda: now[0])
    found = take_turns({"a": batch, "b": batch}, 5, rest=turns.until_idle)
    assert [round(t, 6) for times in found.values() for t in times] == [1e-4] * 10


def test_the_time_that_threads_take_to_sleep_counts_as_well():
    times = take_turns({"a": lambda number: 1e-4}, 50, 0.004, 0.2, lambda: time.sleep(0.02))
    assert 5 <= len(times["a"]) <= 10


def test_on_a_cpu_with_several_threads_the_next_candidate_waits_for_those_that_spin(monkeypatch):
    assert find("llvm", 2).rest is until_idle
    assert find("llvm", 1).rest is briefly
    slept = []
    monkeypatch.setattr(turns.time, "sleep", slept.append)
    monkeypatch.setattr(turns.time, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(turns.time, "process_time", lambda: min(sum(slept), 0.12))
    until_idle()
    assert 0.12 <= sum(slept) < 0.15


def test_threads_that_never_sleep_are_not_waited_for(monkeypatch):
    slept = []
    monkeypatch.setattr(turns.time, "sleep", slept.append)
    monkeypatch.setattr(turns.time, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(turns.time, "process_time", lambda: sum(slept))
    until_idle()
    assert 0.3 < sum(slept) < 0.5


@pytest.mark.parametrize("gpu", [False, True])
def test_the_kernels_that_measure_the_floor_do_what_they_are_for(gpu):
    target = "sim" if gpu else "llvm"
    nbytes = 8 * 4096 * 3
    args, schedule = floors.copy_on_gpu(nbytes) if gpu else floors.copy_on_cpu(nbytes, 8)
    shape = [evaluate(extent, {}) for extent in args[0].shape]
    assert 0.5 * nbytes < 8 * np.prod(shape) < 2 * nbytes
    source, sink = np.random.default_rng(0).random(shape, np.float32), np.zeros(shape, np.float32)
    build(schedule, args, target)(source, sink)
    np.testing.assert_array_equal(source, sink)
    args, schedule = floors.multiply_add(256, 3, 4, 16, gpu)
    number, vector = np.arange(16, dtype=np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    out = np.zeros((256, 3, 4), np.float32)
    build(schedule, args, target)(number, vector, out)
    np.testing.assert_array_equal(out, np.broadcast_to(120 * vector, out.shape))


@pytest.mark.needs_nvrtc
def test_the_arithmetic_that_measures_a_gpu_stays_in_registers():
    args, schedule = floors.multiply_add(2**18, 12, 4, 1024, True)
    kernel = build(schedule, args, "cuda -arch=sm_90a")
    (used,) = kernel.resources.values()
    assert (used.spills, used.stack) == (0, 0)


def test_a_row_says_who_is_faster_and_how_near_the_floor_is():
    problem = Conv.parse("1x4x9x9", "4x1x3x3")
    row = contest.Row(problem, times={"tilewright": [2e-6, 3e-6, 4e-6], "other": [6e-6] * 3})
    row.floor = 1.5e-6
    assert (row.ratio, row.best_peer, row.of_floor("tilewright")) == (2.0, "other", 0.5)
    found = figures([row], {"float32": floors.Roof(1e9, 2e9)}, {"device": "d"}, [])
    assert found["bandwidth_GBps"] == 1.0
    assert found["rows"][0]["times"]["tilewright"]["deviation"] == pytest.approx(
        statistics.stdev([2, 3, 4])
    )


def test_sets_and_files_of_problems_are_measured_one_after_the_other(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        contest.Contest, "run", lambda self, p, section: seen.append((section, p)) or contest.Row(p)
    )
    file = tmp_path / "mine.txt"
    file.write_text(
        "# two\n--input 1x4x9x9 --filter 4x1x3x3  # comment\n"
        + Conv.parse("2x4x9", "4x1x3").to_json()
    )
    words = ["--set", "convnext", "--batch", "8", "--pass", "forward,wgrad", "--problems"]
    words = ["bench", "depthwise_conv2d", *words, str(file), "--target", "llvm", *QUICK]
    assert main(words) == 0
    sections = [section for section, _ in seen]
    assert sections[:4] == ["convnext, batch 8, forward, float32"] * 4
    assert sections[4:8] == ["convnext, batch 8, wgrad, float32"] * 4
    assert sections[8:] == ["mine", "mine"]
    assert seen[0][1].batch == 8
    assert seen[-1][1].operator == "depthwise_conv1d"


class FakeTorch(types.ModuleType):
    """The part of PyTorch that graphs are timed by; a replay does again what was captured."""

    def __init__(self):
        super().__init__("torch")
        self.now, self.capturing = 0.0, None
        outer = self

        class Event:
            def __init__(self, enable_timing):
                pass

            def record(self, stream):
                self.at = outer.now

            def synchronize(self):
                pass

            def elapsed_time(self, end):
                return (end.at - self.at) * 1e3

        class CUDAGraph:
            def replay(self):
                outer.now += sum(self.captured)

        @contextlib.contextmanager
        def graph(made, stream):
            made.captured = outer.capturing = []
            yield
            outer.capturing = None

        self.cuda = types.SimpleNamespace(
            Event=Event, CUDAGraph=CUDAGraph, Stream=object, graph=graph,
            stream=lambda stream: contextlib.nullcontext(), synchronize=lambda: None,
        )  # fmt: skip

    def launch(self, seconds):
        """Work on the current stream."""
        if self.capturing is not None:
            self.capturing.append(seconds)
        else:
            self.now += seconds


def test_on_a_gpu_graphs_of_whole_turns_through_the_data_are_replayed(monkeypatch):
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    taken = []

    def call(number):
        taken.append(number % 3)
        torch.launch((1e-4, 2e-4, 3e-4)[number % 3])

    batch = of_graph(call, sets=3)
    captured = taken[6:]  # after two turns to warm up
    assert captured == [0, 1, 2] * 4  # what lasts two milliseconds, rounded up
    for number in (1, 12, 13):
        assert batch(number) == pytest.approx(2e-4)
    begin = torch.now
    batch(13)
    assert torch.now - begin == pytest.approx(2 * 12 * 2e-4)
    assert len(taken) == 6 + 12  # replays call nothing
    alive = weakref.ref(call)
    del call
    gc.collect()
    assert alive() is not None  # which holds the arrays that the graph works on
    del batch
    gc.collect()
    assert alive() is None
