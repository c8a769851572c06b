"""Names and texts use the words of this field's engineers: CUDA's and PTX's for hardware, TVM's for
schedules, PyTorch's for tensors and modules.

Each pattern is of a word that was used here for something that has a standard name. It matches that
use alone, so that a match is a mistake; the word beside it is the one to write.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "benchmarks", "examples")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

#: Of functions, classes, arguments, attributes and variables: a pattern of the whole name.
NAMES = {
    r"(\w*_)?multiprocessors?(?!_count$)(_\w+)?": "sm, sms",
    r"(\w*_)?copying_units?(_\w+)?": "tma",
    r"(\w*_)?pieces?(_\w+)?|Pieces": "chunk, vector",
    r"meetings": "bank_conflicts",
    r"residents": "occupancy",
    r"_?pitch(_of)?": "row_stride",
    r"_?(way|ways|Way|Ways)": "variant, algorithm, path",
    r"_?(room|rooms|Room|no_room|has_room)": "package, namespace, capacity, storage",
    r"house": "architecture",
    r"is_last": "is_channels_last",
    r"Quick|Seen|Alike": "GuardedCall, CallPlan, Guard",
    r"is_plain\w*": "needs_no_dispatch",
    r"(own_slots|one_writer|issue_early|continue_pipelines|await_instructions)": (
        "drop_thread_dims, predicate_redundant_stores, hoist_async_copies, cross_loop_pipelining, "
        "insert_async_waits"
    ),
    r"short_ops": "fast_autograd",
    r"Answers": "ProfileCache",
    r"varied": "diversify",
    r"anew|anyhow": "again, or nothing",
    r"test_nor_\w+": "a name that stands alone",
}

#: Of files, by a pattern of the path.
FILES = {
    r"torch/(again|alike|kept|casts|plain|theirs|together|trained|short_ops|branches|merge)\.py": (
        "eager_fast_path, guards, cast_cache, dispatcher_checks, aten_fallback, fused_backward, "
        "module_bypass, fast_autograd, reparameterize"
    ),
    r"select/(\w+_)?work\.py": "cost",
    r"select/(answers|nearest|building|large)\.(py|npz)": (
        "profile_cache, knn, first_buildable, large_filter_model"
    ),
    r"topi/gpu/(turns|varied|window|orders)\.py": (
        "wave_balance, diversify, register_model, loop_order"
    ),
    r"lower/(\w+/)?(own_slots|one_writer|issue_early|continue_pipelines|await_instructions)\.py": (
        "drop_thread_dims, predicate_redundant_stores, hoist_async_copies, cross_loop_pipelining, "
        "insert_async_waits"
    ),
    r"lower/(\w+/)?(needed|sketch)\.py": "required_region, ir_builder",
    r"\b(room|rooms|house|\w*_?ways)\.py": "package, namespaces, architecture, variants",
    r"\btest_(torch_(again|together|merge)|nearest|staged_work|one_writer|issue_early)\.py": (
        "the name of the file that it tests"
    ),
}

#: Of comments, docstrings, messages and pages.
TEXTS = {
    r"(?<!_)\bmultiprocessors?\b(?!_)": "SM",
    r"\bcopying units?\b": "TMA",
    r"\b16-byte pieces?\b|\bpieces? of (\d+ bytes|memory)\b|\bin one piece\b": "chunk, contiguous",
    r"\b(this|each|every|a|PyTorch's) room\b(?! (for|in|left))|\bis a room\b": "package",
    r"^#+ The house\b": "architecture",
    r"\bso many\b": "the number's name, how many, this many",
    r"\b(is|are|was|were|be) told\b": "receives, is given, is reported",
    r"\bin vain\b": "without effect",
    r"\banew\b": "again",
    r"\banyhow\b|\bas it stands\b": "nothing, or what is meant",
    r"\b(is|are|was|were) thought to\b": "is predicted to",
    r"\bmeets? in (a|one|fewest|the same) bank": "conflict",
    r"\btypes meet\b|\bmeet in the wider type\b": "are promoted",
    r"[;,] else None\b(?! if)": "or None",
    r"\bTrees know\b": "the ranking model is fitted to",
}

#: The words in themselves, and files of others.
SKIPPED = ("tests/correctness/test_words.py", "tests/correctness/golden", "tests/articles")


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not str(path.relative_to(ROOT)).startswith(SKIPPED):
                yield path


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The names in a module that it defines or uses, with their lines."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield line, name
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield line, name
            case ast.keyword(arg=str(name)):
                yield line, name


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The comments and strings of a module, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for k, line in enumerate(token.string.splitlines()):
                yield token.start[0] + k, line


def found(where: str, lines: Iterator[tuple[int, str]], words: dict[str, str]) -> list[str]:
    """What to change."""
    flags = 0 if words is NAMES else re.IGNORECASE
    any_word = re.compile("|".join(f"(?:{pattern})" for pattern in words), flags)
    return [
        f"{where}:{number}: {text.strip()[:80]!r}: write {word}"
        for number, text in lines
        if any_word.search(text)
        for pattern, word in words.items()
        if re.search(pattern, text, flags)
    ]


@pytest.fixture(scope="module")
def modules() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in sources()}


def test_names_are_the_fields(modules: dict[str, str]) -> None:
    any_word = re.compile("|".join(f"(?:{pattern})" for pattern in NAMES))
    mistakes = [
        f"{where}:{line}: {name}: write {word}"
        for where, source in modules.items()
        for line, name in sorted(set(names(ast.parse(source))))
        if any_word.fullmatch(name)
        for pattern, word in NAMES.items()
        if re.fullmatch(pattern, name)
    ]
    assert not mistakes, "\n".join(mistakes)


def test_files_have_the_fields_names(modules: dict[str, str]) -> None:
    paths = [str(path.relative_to(ROOT)) for f in FOLDERS for path in (ROOT / f).rglob("*.*")]
    mistakes = [
        f"{path}: write {word}"
        for path in paths
        for pattern, word in FILES.items()
        if re.search(pattern, path) and not path.startswith(SKIPPED)
    ]
    assert not mistakes, "\n".join(sorted(mistakes))


def test_comments_docstrings_and_messages_are_plain(modules: dict[str, str]) -> None:
    any_word = re.compile("|".join(TEXTS), re.IGNORECASE | re.MULTILINE)
    suspects = {where: source for where, source in modules.items() if any_word.search(source)}
    mistakes = [
        line for where, source in suspects.items() for line in found(where, texts(source), TEXTS)
    ]
    assert not mistakes, "\n".join(mistakes)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_are_plain(page: Path) -> None:
    lines = enumerate(page.read_text().splitlines(), 1)
    assert found(str(page.relative_to(ROOT)), lines, TEXTS) == []


def test_the_patterns_find_what_they_are_for() -> None:
    wrong = ["an odd number of pieces of 16 bytes", "blocks of so many warps", "is told which",
             "of one multiprocessor", "the copying unit", "the number, else None"]  # fmt: skip
    right = ["one piece of work", "MULTIPROCESSOR_COUNT", "room for a vector", "too many warps",
             "the program tells which", "x if known else None"]  # fmt: skip
    assert all(found("x", iter([(1, text)]), TEXTS) for text in wrong)
    assert not any(found("x", iter([(1, text)]), TEXTS) for text in right)
