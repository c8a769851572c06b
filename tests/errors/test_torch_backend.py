"""What the backend of ``torch.compile`` refuses."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch

import tilewright.torch as tt  # noqa: E402
from tilewright.ir.errors import ArgumentError  # noqa: E402
from tilewright.torch import compile as compiling  # noqa: E402
from tilewright.torch.backend import tilewright  # noqa: E402

MODEL = torch.nn.Linear(3, 2).eval()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"frozen": True}, "has no option frozen: there are freeze, shapes"),
        ({"freeze": 1}, "freeze is True or False, not 1"),
        ({"replay": None}, "replay is True or False, not None"),
        ({"shapes": -1}, "shapes is how many, not -1"),
    ],
)
def test_options_that_there_are_not(options, problem):
    with pytest.raises(ArgumentError, match=problem):
        tt.compile_(MODEL, torch.ones(1, 3), options=options)
    graph = torch.fx.symbolic_trace(MODEL)
    with pytest.raises(ArgumentError, match=problem):
        tilewright(graph, [torch.ones(1, 3)], options=options)


def test_modes_that_there_are_not():
    with pytest.raises(Exception, match="has no mode 'max-autotune': leave it out"):
        torch.compile(torch.sin, backend="tilewright", mode="max-autotune")(torch.ones(2))


def test_an_example_that_the_model_does_not_take():
    with pytest.raises(ArgumentError, match="Linear cannot be called with the example"):
        tt.compile_(MODEL, torch.ones(1, 4))
    with pytest.raises(ArgumentError, match="example is a list"):
        tt.compile_(MODEL, [torch.ones(1, 3)])


def test_what_is_no_module_is_not_compiled():
    with pytest.raises(ArgumentError, match="compile_ takes a torch.nn.Module, got a function"):
        tt.compile_(lambda x: x, torch.ones(1, 3))


def test_a_model_that_is_not_compiled_stays_as_it_is(monkeypatch):
    def refuses(*_, **__):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(compiling, "tilewright", refuses)
    model = torch.nn.Linear(3, 2).eval()
    report = tt.compile_(model, torch.ones(1, 3))
    assert not report.kept
    assert "no compiler" in report.reason
    assert model._compiled_call_impl is None
