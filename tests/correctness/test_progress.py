"""How many kernels are built is shown on a terminal, and elsewhere where it is asked for."""

from __future__ import annotations

import io
import sys
import time

import pytest

from tilewright.runtime import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.delenv("TILEWRIGHT_PROGRESS", raising=False)


def said(monkeypatch, stderr):
    """What is written while 3 of 7 kernels are built."""
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress.shown() as tell:
        tell(3, 7)
        while stderr.isatty() and "3/7" not in stderr.getvalue():  # a thread begins it
            time.sleep(0.01)
    return stderr.getvalue()


def test_a_terminal_has_a_line_that_is_taken_away(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    text = said(monkeypatch, Terminal())
    assert "compiling kernels" in text
    assert "3/7" in text
    assert text.endswith("\x1b[2K")


def test_what_is_printed_to_a_file_meanwhile_stays_there(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.shown() as tell:
        tell(3, 7)
        while "3/7" not in sys.stderr.getvalue():
            time.sleep(0.01)
        print("a result")
    assert sys.stdout.getvalue() == "a result\n"


def test_elsewhere_lines_are_asked_for(monkeypatch):
    assert said(monkeypatch, io.StringIO()) == ""
    monkeypatch.setenv("TILEWRIGHT_PROGRESS", "1")
    assert said(monkeypatch, io.StringIO()) == "compiling kernels: 3 of 7, 0 s\n"
    with progress.shown() as tell:  # between two lines are some seconds, but for the last
        for k in range(7):
            tell(k + 1, 7)
    found = sys.stderr.getvalue().splitlines()[1:]
    assert found == ["compiling kernels: 1 of 7, 0 s", "compiling kernels: 7 of 7, 0 s"]


def test_a_notebook_has_a_line_that_is_written_over(monkeypatch):
    class OutStream(io.StringIO):
        __module__ = "ipykernel.iostream"

    text = said(monkeypatch, OutStream())
    assert text == f"\rcompiling kernels: 3 of 7, 0 s\r{' ' * 60}\r"
    monkeypatch.setenv("TILEWRIGHT_PROGRESS", "0")
    assert said(monkeypatch, OutStream()) == ""


def test_a_program_without_stderr_is_silent(monkeypatch, capsys):
    for asked in ("", "1"):
        monkeypatch.setenv("TILEWRIGHT_PROGRESS", asked)
        with monkeypatch.context() as closed:
            closed.setattr(sys, "stderr", None)
            with progress.shown() as tell:
                tell(1, 2)
    assert capsys.readouterr().out == ""


def test_nothing_is_shown_where_that_is_asked_for_or_a_function_is_given(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.shown(lambda *counts: told.append(counts)) as tell:
        tell(1, 2)
    monkeypatch.setenv("TILEWRIGHT_PROGRESS", "0")
    with progress.shown() as tell:
        tell(1, 2)
    assert told == [(1, 2)]
    assert sys.stderr.getvalue() == ""


def test_kernels_that_calls_ask_for_are_counted_together(monkeypatch):
    """The layers of a model that is called the first time; the line goes when no other follows."""
    monkeypatch.setenv("TERM", "xterm")
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    for k in range(3):
        with progress.one_more():
            while k and f"{k}/?" not in stderr.getvalue():
                time.sleep(0.01)
    while not stderr.getvalue().endswith("\x1b[2K"):
        time.sleep(0.01)
    with progress.one_more(), progress.shown() as tell:  # what is known of all is shown alone
        tell(1, 2)
        while "1/2" not in stderr.getvalue():
            time.sleep(0.01)
    assert "4/?" not in stderr.getvalue()


def test_kernels_that_calls_ask_for_are_lines_where_these_are_asked_for(monkeypatch):
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress.one_more():
        pass
    monkeypatch.setenv("TILEWRIGHT_PROGRESS", "1")
    for _ in range(2):
        with progress.one_more():
            pass
    progress._one_by_one.close()
    assert stderr.getvalue() == "compiling kernels: 1, 0 s\ncompiling kernels: 2, 0 s\n"


@pytest.mark.needs_torch
def test_the_first_call_of_a_swapped_model_is_not_silent(monkeypatch):
    import torch

    import tilewright.torch

    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TILEWRIGHT_PROGRESS", "1")
    model = torch.nn.Sequential(torch.nn.Conv2d(6, 6, 3, groups=6), torch.nn.Conv2d(6, 6, 1)).eval()
    tilewright.torch.optimize_(model, dense=True)
    with torch.no_grad():
        model(torch.randn(1, 6, 13, 11))
    progress._one_by_one.close()
    assert stderr.getvalue().splitlines()[-1].startswith("compiling kernels: 2, ")
