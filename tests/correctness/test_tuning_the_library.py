"""The library's schedules for a problem are one space, tuned from the command line."""

import json
from dataclasses import fields

import pytest

from tilewright.cli.main import main
from tilewright.topi.operators.conv import Conv
from tilewright.topi.templates import TEMPLATES, candidates
from tilewright.tune import library, tuned
from tilewright.tune.config import FallbackConfig
from tilewright.tune.entity import TuningError
from tilewright.tune.records import Records

PROBLEM = Conv.parse("1x4x9x9", "4x1x3x3", padding=1)
WORDS = "tune depthwise_conv2d --input 1x4x9x9 --filter 4x1x3x3 --padding 1".split()


@pytest.mark.parametrize("target", ["llvm", "sim", "cuda -arch=sm_90a", "opencl"])
@pytest.mark.parametrize("pass_", ["forward", "dgrad", "wgrad"])
def test_the_space_is_the_list_of_candidates(target, pass_):
    problem = PROBLEM.replace(pass_=pass_)
    task = library.task(problem, target)
    assert task.key == problem.key
    assert task.flop == problem.flops
    wanted = {(t.name, c) for t, c in candidates(problem, target)}
    found = set()
    for config in task.config_space:
        name, parameters = library.parameters_of(config)
        found.add((name, TEMPLATES[name].parse(parameters)))
    assert found == wanted
    assert len(task.config_space) == len(wanted)


def test_the_gpu_at_hand_decides_what_schedules_there_are(monkeypatch):
    """As "cuda" alone stands for it: schedules for Hopper were left out of the search."""
    monkeypatch.setattr("tilewright.runtime.cuda.resolve_arch", lambda target: "sm_90a")
    problem = PROBLEM.replace(dtype="float16", kernel_h=31, kernel_w=31, padding=15)
    found, wanted = (library.task(problem, t) for t in ("cuda", "cuda -arch=sm_90a"))
    assert found.target == wanted.target
    names = {library.parameters_of(config)[0] for config in found.config_space}
    assert any(TEMPLATES[name].arch == "sm_90a" for name in names)


def test_without_records_the_best_guess_is_taken():
    task, config = library.task(PROBLEM, "llvm"), FallbackConfig()
    task.instantiate(config)
    name, parameters = library.parameters_of({n: e.val for n, e in config.entities.items()})
    first, guess = next(iter(candidates(PROBLEM, "llvm")))
    assert (name, TEMPLATES[name].parse(parameters)) == (first.name, guess)


def test_a_problem_is_tuned_and_the_next_run_goes_on(tmp_path, capsys):
    path, log = tmp_path / "records.sqlite", tmp_path / "tune.log"
    common = ["--records", str(path), "--json", "--jobs", "1", "--min-repeat-ms", "0.1"]
    assert main([*WORDS, *common, "--trials", "1", "--log", str(log)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["problem"] == PROBLEM.key
    assert report["failed"] == 0
    assert 0 < report["seconds"] < 1e-3
    assert main([*WORDS, *common, "--trials", "2", "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 2
    with Records(path) as records:
        assert len(records) == 2
        assert records.best(PROBLEM.key).input.task.args == (PROBLEM,)
        assert records.summaries()[0].name == str(PROBLEM)
    assert len(log.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--devices", "first"], "give numbers"),
        (["--layout", "NCWH"], "NHWC"),
        (["--target", "tpu"], "the kinds are"),
    ],
)
def test_what_cannot_be_tuned_is_said_in_a_line(words, message, capsys, tmp_path):
    assert main([*WORDS, "--records", str(tmp_path / "r"), *words]) == 1
    assert message in capsys.readouterr().err


def test_schedules_that_the_library_does_not_have_are_refused_or_left_out(tmp_path):
    for chosen in ({"template": "gpu.gone", "rows": 4}, {"template": "cpu.lines", "wheels": 4}):
        with pytest.raises(TuningError, match=f"{chosen['template']}.*Tune the problem again"):
            library.parameters_of(chosen)
    file = next(tuned.FOLDER.glob("*.jsonl"))
    head, first, *_ = file.read_text().splitlines()
    head, first = json.loads(head), json.loads(first)
    kept = len(first["best"])
    for name, parameters in head["templates"].items():
        assert set(parameters) <= {f.name for f in fields(TEMPLATES[name].config)}
    head["templates"] |= {"gpu.gone": ["rows"], "gpu.strips": ["wheels"]}
    first["best"] = [["gpu.gone", [4], 9.0], *first["best"], ["gpu.strips", [4], 9.5]]
    (tmp_path / "x.jsonl").write_text(json.dumps(head) + "\n" + json.dumps(first) + "\n")
    (found,) = tuned.read(tmp_path / "x.jsonl")
    assert len(found.best) < kept + 2
    assert all(r.template in TEMPLATES and "wheels" not in dict(r.values) for r in found.best)
