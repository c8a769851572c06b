"""What the documentation shows runs, and prints what it says.

A page's ``python`` blocks run in order in one namespace, its ``pycon`` blocks as doctests in the
same one; the docstrings of the package run as doctests too.
"""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [p for p in sorted((ROOT / "src").rglob("*.py")) if ">>> " in p.read_text()]
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def name_of(path):
    return str(path.relative_to(ROOT))


def blocks(page):
    """``(language, text, line)`` of each block with code to run."""
    text = page.read_text()
    for found in FENCE.finditer(text):
        if found[1] in ("python", "pycon"):
            yield found[1], found[2], text.count("\n", 0, found.start(2))


@pytest.mark.parametrize("page", [p for p in PAGES if any(blocks(p))], ids=name_of)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for language, text, line in blocks(page):
        if language == "python":
            # Blank lines before it let a traceback point into the page.
            exec(compile("\n" * line + text, str(page), "exec"), names)
        else:
            test = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), line)
            failed = doctest.DocTestRunner(optionflags=OPTIONS).run(test, clear_globs=False).failed
            names.update(test.globs)  # the parser works on a copy
            assert not failed, f"{page}: see the output"


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_the_examples_in_docstrings_hold(source):
    dotted = ".".join(source.relative_to(ROOT / "src").with_suffix("").parts)
    module = importlib.import_module(dotted.removesuffix(".__init__"))
    assert doctest.testmod(module, optionflags=OPTIONS).failed == 0


def test_every_page_is_listed_in_the_navigation_or_the_index_of_decisions():
    listed = (ROOT / "mkdocs.yml").read_text() + (ROOT / "docs/decisions/index.md").read_text()
    paths = (page.relative_to(ROOT / "docs") for page in PAGES[1:])
    assert [p for p in paths if (p.name if "decisions" in p.parts else str(p)) not in listed] == []
