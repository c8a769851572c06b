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


def test_an_error_of_tilewrights_own_is_one_line_and_no_traceback(monkeypatch, capsys):
    def fail(args):
        raise TargetError("unknown target 'abacus'")

    monkeypatch.setattr(doctor, "run", fail)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == "tilewright: unknown target 'abacus'\n"
