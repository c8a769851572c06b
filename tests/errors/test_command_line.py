"""Misuses of the command line."""

import pytest

from tilewright.cli import doctor
from tilewright.cli.main import main
from tilewright.ir.errors import TargetError


def test_an_unknown_command_lists_those_there_are(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["medic"])
    assert stop.value.code == 2
    assert "doctor" in capsys.readouterr().err


def test_no_command_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_an_unknown_option_is_told_with_the_usage_of_its_command(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["run", "m.onnx", "--fast-walk"])
    assert stop.value.code == 2
    text = capsys.readouterr().err
    assert "usage: tilewright run" in text
    assert "tilewright run: error: unrecognized arguments: --fast-walk" in text
    with pytest.raises(SystemExit):
        main(["tune", "--tuner", "luck"])
    text = capsys.readouterr().err
    assert len(text.splitlines()) == 2  # and not a screen of options before what is wrong
    assert "`tilewright tune --help` has all of them" in text
    assert "--tuner: invalid choice: 'luck'" in text


def test_an_error_of_tilewrights_own_is_one_line_and_no_traceback(monkeypatch, capsys):
    def fail(args):
        raise TargetError("unknown target 'abacus'")

    monkeypatch.setattr(doctor, "run", fail)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == "tilewright: unknown target 'abacus'\n"


@pytest.mark.parametrize(("words", "problem"), [
    ("--trials 0", "--trials 0: at least 1"), ("--repeat 0", "--repeat 0: at least 1"),
    ("--jobs 0", "--jobs 0: at least 1"), ("--early-stopping 0", "--early-stopping 0: at least 1"),
    ("--seed -1", "--seed and --min-repeat-ms are not negative"),
    ("--min-repeat-ms -1", "--seed and --min-repeat-ms are not negative"),
    ("--timeout 0", "--timeout is positive"),
    ("--threads 0", "--threads 0: at least one, of the CPU"),
    ("--threads 2 --target opencl", "--threads 2: at least one, of the CPU"),
])  # fmt: skip
def test_numbers_that_a_search_cannot_have_are_refused_before_it_begins(words, problem, capsys):
    given = ["gemm", "--m", "8", "--n", "8", "--k", "8"]
    assert main(["tune", *given, *words.split()]) == 1
    assert problem in capsys.readouterr().err
