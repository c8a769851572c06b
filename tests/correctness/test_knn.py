"""What was tuned answers for this problem, then for those like it: here, then where it was made."""

import math
import shutil
import sqlite3

import pytest

from tilewright.cli.main import main
from tilewright.select import knn
from tilewright.select.choice import choose, machine_of, options
from tilewright.select.knn import distance, guesses
from tilewright.target import Target
from tilewright.topi import Conv, Gemm
from tilewright.topi.operators import Program
from tilewright.topi.templates import TEMPLATES
from tilewright.tune import library, tuned
from tilewright.tune.entity import TuningError
from tilewright.tune.measure import Device, MeasureInput, MeasureResult
from tilewright.tune.records import Records

SMALL = Conv.parse("1x16x24x24", "16x1x3x3", padding=1)
LLVM, CUDA = Target.parse("llvm"), Target.parse("cuda -arch=sm_90a")
HERE = Device("this one", "driver 1", "0.1")
H200 = Device("NVIDIA H200", "CUDA 13.0", "0.1")


@pytest.fixture(autouse=True)
def nothing_known(tmp_path, monkeypatch):
    """A machine with a name, without records, and a package that brings none."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    monkeypatch.setattr(knn, "own", lambda kind: tuned.own(kind, tmp_path / "r.sqlite"))
    monkeypatch.setattr(knn, "shipped", lambda kind: tuned.shipped.__wrapped__(kind, folder))
    monkeypatch.setattr("tilewright.select.choice.machine_of", lambda _: '{"device": "this one"}')


def record(path, problem, device=HERE, target="llvm", order=None, seconds=1e-6):
    """Measure a problem's candidates, made up: the one at ``order`` is fastest."""
    task = library.task(problem, target)
    configs = list(task.config_space)
    first = order if order is not None else len(configs) - 1
    configs = [configs[first], *configs[:first], *configs[first + 1 :]]
    with Records(path) as records:
        records.add(
            [(MeasureInput(task, c), MeasureResult((seconds * (1 + 0.1 * k),), timestamp=float(k)))
             for k, c in enumerate(configs)],
            device,
        )  # fmt: skip
    return library.parameters_of(configs[0])


@pytest.mark.parametrize("problem", [
    SMALL, Gemm(m=4, n=16, k=16), Program(body=("exp(a0)",), operands=("float32[4x16]",)),
], ids=["conv", "gemm", "program"])  # fmt: skip
def test_records_of_other_operators_constants_do_not_matter(tmp_path, problem):
    for other in (SMALL.replace(constants=("filter",)), Gemm(m=4, n=8, k=16, constants=("b",))):
        record(tmp_path / "r.sqlite", other)
    chosen = choose(problem, "llvm")
    assert chosen.algorithm.can(problem, LLVM) == ""
    if problem is SMALL:
        assert next(guesses(problem, LLVM, "this one")).seconds == pytest.approx(1e-6)


def test_a_record_of_a_problem_is_that_of_its_views(tmp_path):
    """As `tilewright tune` measures the problems of a network: on dense tensors."""
    dense = Conv.parse("1x32x14x14", "16x32x3x3", 1, padding=1, layout="NHWC", epilogue="bias")
    record(tmp_path / "r.sqlite", dense.replace(epilogue=()), order=1)
    record(tmp_path / "r.sqlite", dense, order=2)
    part = dense.replace(strides=("result_9408x672x48x1",))
    assert first(part) == first(dense) != first(dense.replace(epilogue=()))


def first(problem, target=LLVM, device="this one"):
    found = next(guesses(problem, target, device))
    return found.template, TEMPLATES[found.template].config and vars(found.config)


def test_a_problem_that_was_tuned_here_gets_its_fastest_schedule(tmp_path):
    wanted = record(tmp_path / "r.sqlite", SMALL)
    chosen = choose(SMALL, "llvm")
    assert (chosen.algorithm.name, vars(chosen.config)) == wanted
    assert chosen.seconds == 1e-6


def test_what_was_tuned_later_is_found_without_a_restart(tmp_path):
    record(tmp_path / "r.sqlite", SMALL, order=0)
    before = first(SMALL)
    wanted = record(tmp_path / "r.sqlite", SMALL, order=3, seconds=1e-7)
    assert first(SMALL) == wanted != before


def test_own_records_come_before_those_that_the_package_brings(tmp_path):
    wanted = record(tmp_path / "r.sqlite", SMALL, order=1)
    ship(tmp_path, SMALL, HERE, order=4)
    assert first(SMALL) == wanted


def ship(tmp_path, problem, device=H200, target="llvm", order=None):
    """A file that the package brings, by way of records elsewhere."""
    path = tmp_path / f"elsewhere-{problem.key}.sqlite"
    wanted = record(path, problem, device, target, order)
    other = tmp_path / "all.sqlite"
    assert main(["records", "import", str(path), "--records", str(other)]) == 0
    words = ["records", "export", "--shipped", "-o", str(tmp_path / "shipped")]
    assert main([*words, "--records", str(other)]) == 0
    return wanted


def test_the_package_s_records_answer_for_their_device(tmp_path):
    wanted = ship(tmp_path, SMALL, HERE)
    assert first(SMALL) == wanted
    assert next(guesses(SMALL, LLVM, "this one")).seconds == pytest.approx(1e-6)


def test_on_another_device_they_are_a_guess(tmp_path):
    wanted = ship(tmp_path, SMALL, H200)
    assert first(SMALL) == wanted
    assert next(guesses(SMALL, LLVM, "this one")).seconds is None
    assert first(SMALL, device="") == wanted


def test_a_problem_that_nobody_tuned_gets_the_schedule_of_the_nearest(tmp_path):
    near = Conv.parse("1x96x56x56", "96x1x3x3", padding=1)
    far = near.replace(kernel_h=7, kernel_w=7, padding=3)
    wanted = ship(tmp_path, near, HERE, order=1)
    ship(tmp_path, far, HERE, order=2)
    like = near.replace(batch=2, width=52)
    assert first(like) == wanted
    template, values = first(like, LLVM, "another")
    (there,) = [t for t in knn.shipped("llvm") if t.problem == near]
    assert (template, tuple(sorted(values.items()))) in [(r.template, r.values) for r in there.best]
    assert choose(like, "llvm").seconds is None


@pytest.mark.parametrize("change", [{"batch": 32}, {"epilogue": "bias+relu"}])
def test_a_problem_that_differs_in_little_from_one_that_was_tuned_gets_its_schedule(
    tmp_path, change
):
    """On a CUDA device too, where others are ranked by a model."""
    near = Conv.parse("64x96x56x56", "96x1x3x3", padding=1)
    wanted = ship(tmp_path, near, H200, str(CUDA), order=5)
    assert first(near.replace(**change), CUDA, "NVIDIA H200") == wanted
    assert first(near.replace(**change), CUDA, "NVIDIA A100") != wanted
    assert first(near.replace(height=52, width=52), CUDA, "NVIDIA H200") != wanted


def test_schedules_that_a_problem_cannot_have_are_passed_over(tmp_path):
    """Eight channels at once do not divide six."""
    wide = Conv.parse("8x64x28x28", "64x1x3x3", padding=1, layout="NHWC", dtype="float16")
    ship(tmp_path, wide, H200, str(CUDA))
    odd = wide.replace(channels=6)
    for guess in guesses(odd, CUDA, "NVIDIA H200"):
        assert TEMPLATES[guess.template].fits(odd, CUDA)
    assert choose(odd, CUDA).build().kernel.resources


def test_gradients_and_other_layouts_learn_nothing_from_a_forward_pass(tmp_path):
    record(tmp_path / "r.sqlite", SMALL)
    for other in (SMALL.replace(pass_="dgrad"), SMALL.replace(layout="NHWC")):
        assert list(guesses(other, LLVM, "this one")) == []
        assert choose(other, "llvm").seconds is None


def test_a_dense_convolution_learns_nothing_from_a_depthwise_one():
    """A number of groups, one as well, is none of those of a depthwise convolution."""
    dense = Conv(operator="conv2d", batch=64, channels=64, height=14, width=14, kernel_h=3,
                 kernel_w=3, padding=1, multiplier=64)  # fmt: skip
    depthwise = dense.replace(operator="depthwise_conv2d", groups=64, multiplier=1)
    assert distance(dense, depthwise) == math.inf


def test_a_limit_on_workspaces_holds_for_what_was_tuned(tmp_path):
    wgrad = SMALL.replace(pass_="wgrad")
    record(tmp_path / "r.sqlite", wgrad)
    for choice in options(wgrad, "llvm", workspace_limit=0):
        assert choice.algorithm.workspace(wgrad, choice.config, LLVM) == 0


def test_records_that_cannot_be_read_are_no_obstacle(tmp_path):
    (tmp_path / "r.sqlite").write_bytes(b"no database" * 999)
    assert choose(SMALL, "llvm").seconds is None


def test_a_schedule_that_the_library_no_longer_has_is_passed_over(tmp_path):
    record(tmp_path / "r.sqlite", SMALL)
    assert choose(SMALL, "llvm").seconds == 1e-6
    with sqlite3.connect(tmp_path / "r.sqlite") as db:
        db.execute("UPDATE measurements SET config = replace(config, 'cpu.lines', 'cpu.gone')")
    assert list(guesses(SMALL, LLVM, "this one")) == []
    assert choose(SMALL, "llvm").seconds is None


@pytest.mark.parametrize(
    ("change", "least", "most"),
    [
        ({}, 0, 0),
        ({"batch": 2}, 0.2, 1),
        ({"dtype": "float16"}, 1, 3),
        ({"stride": 2}, 2, 6),
        ({"kernel_h": 7, "kernel_w": 7}, 5, 9),
    ],
)
def test_distances_follow_what_matters_to_a_schedule(change, least, most):
    other = SMALL.replace(**change)
    assert distance(SMALL, other) == distance(other, SMALL)
    assert least <= distance(SMALL, other) <= most


# -- the files ---------------------------------------------------------------------------------


def test_a_file_holds_the_few_fastest_of_each_problem(tmp_path):
    fancy = SMALL.replace(dtype="float16", layout="NHWC", epilogue="bias+relu", stride=2)
    for problem in (SMALL, fancy):
        ship(tmp_path, problem, H200, str(CUDA))
    (file,) = (tmp_path / "shipped").iterdir()
    assert file.name == "cuda-nvidia-h200.jsonl"
    found = tuned.read(file)
    assert {t.problem for t in found} == {SMALL, fancy}
    for t in found:
        assert (t.device, t.target) == ("NVIDIA H200", str(CUDA))
        assert [r.seconds for r in t.best] == sorted(r.seconds for r in t.best)
        assert tuned.LEAST <= len(t.best) <= tuned.MOST
        assert t.best[-1].seconds <= tuned.WITHIN * t.best[0].seconds
    assert file.stat().st_size < 2500


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [(0, '{"tilewright_tuned": 99}', "line 1.*format 99"), (1, "{", "line 2"),
     (1, '{"problem": {"wheels": 4}, "best": []}', "line 2.*wheels")],
)  # fmt: skip
def test_a_file_that_makes_no_sense_names_its_line(tmp_path, line, text, message):
    ship(tmp_path, SMALL)
    (file,) = (tmp_path / "shipped").iterdir()
    lines = file.read_text().splitlines()
    lines[line] = text
    file.write_text("\n".join(lines))
    with pytest.raises(TuningError, match=message):
        tuned.read(file)


def test_what_the_package_brings_is_legal_where_it_was_measured():
    for file in sorted(tuned.FOLDER.glob("*.jsonl")):
        records = tuned.read(file)
        assert {best.template for t in records for best in t.best} <= TEMPLATES.keys()
        for t in records[::17]:
            target = Target.parse(t.target)
            found = list(knn._measured(t, t.problem, target))
            assert len(found) == len(t.best), f"{file}: {t.problem} has schedules that are gone"


def test_an_import_that_fails_changes_nothing(tmp_path, capsys):
    record(tmp_path / "r.sqlite", SMALL)
    newer = tmp_path / "newer.sqlite"
    shutil.copyfile(tmp_path / "r.sqlite", newer)
    with Records(newer) as records:
        records._db.execute("PRAGMA user_version = 9")
    before = newer.read_bytes()
    words = ["records", "import", str(newer), "--records", str(tmp_path / "other.sqlite")]
    assert main(words) == 1
    assert "newer version" in capsys.readouterr().err
    assert newer.read_bytes() == before


def test_this_machine_has_a_name():
    assert "device" in machine_of(LLVM)


def test_a_fused_problem_gets_the_schedule_of_the_convolution_alone(tmp_path):
    """Not that of another epilogue, nor that of its own epilogue at another batch."""
    plain = Conv.parse("64x96x56x56", "96x1x3x3", padding=1)
    wanted = ship(tmp_path, plain, H200, str(CUDA), order=5)
    for k, other in enumerate([{"epilogue": "bias+relu"}, {"epilogue": "bias+silu", "batch": 60}]):
        assert ship(tmp_path, plain.replace(**other), H200, str(CUDA), order=k) != wanted
    assert first(plain.replace(epilogue="bias+silu"), CUDA, "NVIDIA H200") == wanted
