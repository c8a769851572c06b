"""The page of benchmarks and the README's claim say what the committed results say.

``pytest --update-golden`` writes both anew, as ``python benchmarks/page.py`` does.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = importlib.import_module("page")
    if request.config.getoption("--update-golden"):
        found.main()
    return found


def test_the_page_is_that_of_the_committed_results(page: Any) -> None:
    hint = "python benchmarks/page.py writes the page anew"
    assert page.PAGE.read_text() == page.page_text(page.load()), hint


def test_the_readme_claims_what_was_measured(page: Any) -> None:
    text = page.README.read_text()
    hint = "python benchmarks/page.py writes the claim anew"
    assert text == page.readme_text(text, page.load()), hint


def test_every_result_tells_its_device_its_date_and_its_command(page: Any) -> None:
    for results in page.load().values():
        found = results["environment"]
        assert {"device", "date", "command", "tilewright", "python", "numpy"} <= found.keys()
        assert page.script(results).exists()
