"""What the documentation shows runs, and prints what it says.

A page's ``python`` blocks run in order in one namespace, those with a title as files of that name;
its ``pycon`` blocks run in the same namespace, as doctests, whose outputs ``--update-golden``
writes again. The docstrings of the package run as doctests too.
"""

import contextlib
import doctest
import importlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [p for p in sorted((ROOT / "src").rglob("*.py")) if ">>> " in p.read_text()]
FENCE = re.compile(r"^```(python|pycon)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def name_of(path):
    return str(path.relative_to(ROOT))


def answer(example, names):
    """What an interpreter prints for one example."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            exec(compile(example.source, "<example>", "single"), names)
        except Exception as error:
            kind = f"{type(error).__module__}.{type(error).__name__}".removeprefix("builtins.")
            print(f"Traceback (most recent call last):\n    ...\n{kind}: {error}")
    return re.sub(r"^$(?=\n)", "<BLANKLINE>", shown.getvalue(), flags=re.MULTILINE)


def with_answers(page, text, names):
    """The text of a page as it would be if every output were the one that its code gives."""
    agrees = doctest.OutputChecker().check_output

    def run(block):
        language, code = block.groups()
        if (title := re.search(r'title="([^"]+)"', block[0].partition("\n")[0])) is not None:
            Path(title[1]).write_text(code)
            subprocess.run([sys.executable, title[1]], check=True)
            return block[0]
        if language == "python":
            # Blank lines before it let a traceback point into the page.
            line = text.count("\n", 0, block.start(2))
            exec(compile("\n" * line + code, str(page), "exec"), names)
            return block[0]
        lines = code.splitlines(keepends=True)
        examples = doctest.DocTestParser().get_examples(code)
        answers = [answer(example, names) for example in examples]
        for example, got in reversed([*zip(examples, answers, strict=True)]):  # from the last up
            if not agrees(example.want, got, OPTIONS):
                start = example.lineno + example.source.count("\n")
                lines[start : start + example.want.count("\n")] = [got]
        return block[0].replace(code, "".join(lines))

    return FENCE.sub(run, text)


def page_with_what_it_needs(page):
    """A page as a parameter; that of tilewright.torch needs PyTorch."""
    needs = [pytest.mark.needs_torch] if page.name == "torch.md" else []
    return pytest.param(page, id=name_of(page), marks=needs)


@pytest.mark.parametrize(
    "page", [page_with_what_it_needs(p) for p in PAGES if FENCE.search(p.read_text())]
)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    found = with_answers(page, text, {"__name__": "__main__"})
    if request.config.getoption("--update-golden"):
        page.write_text(found)
    else:
        assert found == text, f"pytest --update-golden writes the outputs of {page} again"


def with_what_it_needs(source):
    """A module as a parameter; those of tilewright.torch need PyTorch."""
    needs = [pytest.mark.needs_torch] if ROOT / "src/tilewright/torch" in source.parents else []
    return pytest.param(source, id=name_of(source), marks=needs)


@pytest.mark.parametrize("source", map(with_what_it_needs, SOURCES))
def test_the_examples_in_docstrings_hold(source):
    dotted = ".".join(source.relative_to(ROOT / "src").with_suffix("").parts)
    module = importlib.import_module(dotted.removesuffix(".__init__"))
    assert doctest.testmod(module, optionflags=OPTIONS).failed == 0


def test_every_page_is_listed_in_the_navigation_or_the_index_of_decisions():
    listed = (ROOT / "mkdocs.yml").read_text() + (ROOT / "docs/decisions/index.md").read_text()
    paths = (page.relative_to(ROOT / "docs") for page in PAGES[1:])
    assert [p for p in paths if (p.name if "decisions" in p.parts else str(p)) not in listed] == []


def test_the_first_page_links_every_page_beside_it():
    first = (ROOT / "docs/index.md").read_text()
    beside = [page.name for page in PAGES[1:] if page.parent == ROOT / "docs"]
    assert [name for name in beside if name != "index.md" and f"({name})" not in first] == []


def test_no_entry_of_the_changelog_is_there_twice():
    """Nor a line of one, as merges leave them."""
    entries = (ROOT / "CHANGELOG.md").read_text().split("\n- ")[1:]
    lines = [[x.strip()[:24] for x in e.splitlines() if len(x) > 24] for e in entries]
    assert all(len(set(x)) == len(x) for x in lines)
    assert len({e[:60] for e in entries}) == len(entries)
